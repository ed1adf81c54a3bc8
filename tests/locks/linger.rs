//! A lock that lingers: its process keeps it for its next hold, until another caller wants it.

mod beside;
mod given_back;
mod trouble;
mod used;

use std::time::Duration;

use redis_concurrent::kinds::Exclusive;
use redis_concurrent::{Client, RedisLock};
use redis_concurrent_testkit::wait_until;

use crate::support::LONG;

/// Longer than a test: what is given back earlier is given back for a reason.
const LINGER: Duration = Duration::from_secs(60);

/// Takes the lock until its process keeps it: its last unlock sent nothing.
#[track_caller]
fn is_kept<K: Exclusive>(client: &Client, lock: &RedisLock<K>) {
    wait_until(LONG, "the lock is kept", || {
        let before = client.request_count();
        lock.lock().unwrap().unlock().unwrap();
        lock.lock().unwrap().unlock().unwrap();
        client.request_count() == before
    });
    assert!(lock.is_locked().unwrap() && lock.hold_count() == 0);
}

/// The lock is free in Redis, without any caller asking for it.
#[track_caller]
fn is_given_back<K: Exclusive>(lock: &RedisLock<K>) {
    wait_until(LONG, "the lock is given back", || !lock.is_locked().unwrap());
}
