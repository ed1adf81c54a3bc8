//! A server, and on it the key that everybody locks.

use std::time::Duration;

use redis::{Connection, FromRedisValue, cmd};
use redis_concurrent::{Client, SimpleLock};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::server_days::ask;
use crate::support::{LONG, ms, patient};

/// The key: with a hash tag, as other keys of its owners' have it.
pub const KEY: &str = "job:{nightly}:lock";

/// Where those that wait for it stand.
pub const QUEUE: &str = "rc:{nightly}:at:job:{nightly}:lock:queue";

/// What a foreign holder's lock lasts where its end is not the point.
pub const LEASE: Duration = ms(60_000);

pub struct Fixture {
    pub server: RedisServer,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture { server: RedisServer::start().unwrap() }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.server.url()).unwrap()
    }

    /// The lock, for a [patient] client: a caller that comes in looks because of a foreign holder, or was let in.
    pub fn patient(&self) -> SimpleLock {
        patient(&self.server).simple_lock_at(KEY)
    }

    /// The lock, for a client of its own.
    pub fn lock(&self) -> SimpleLock {
        self.client().simple_lock_at(KEY)
    }

    /// A program of somebody else's.
    pub fn foreign_holder(&self, text: &str) -> ForeignHolder {
        ForeignHolder { redis: self.server.connection().unwrap(), text: text.into() }
    }

    /// One command from outside.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        ask(&self.server, words)
    }

    #[track_caller]
    pub fn await_queued(&self, n: usize) {
        wait_until(LONG, &format!("{n} wait for the lock"), || self.ask::<usize>(&["ZCARD", QUEUE]) == n);
    }
}

/// Locks as the documentation of Redis has it: `SET key text NX PX lease`, and to unlock a script that deletes
/// the key while it has that text.
pub struct ForeignHolder {
    redis: Connection,
    text: Vec<u8>,
}

impl ForeignHolder {
    pub fn takes(&mut self, lease: Duration) -> bool {
        let mut set = cmd("SET");
        set.arg(KEY).arg(&self.text).arg("NX").arg("PX").arg(lease.as_millis() as u64);
        set.query::<Option<String>>(&mut self.redis).unwrap().is_some()
    }

    pub fn frees(&mut self) -> bool {
        let delete = "return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0";
        cmd("EVAL").arg(delete).arg(1).arg(KEY).arg(&self.text).query(&mut self.redis).unwrap()
    }
}
