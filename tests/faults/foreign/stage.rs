//! A server, and on it the key that everybody locks.

use std::time::{Duration, Instant};

use redis::{Commands, Connection, FromRedisValue, cmd};
use redis_concurrent::{Client, SimpleLock};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::support::{LONG, builder, ms};

/// The key: with a hash tag, as other keys of its owners' have it.
pub const KEY: &str = "job:{nightly}:lock";

/// Where those that wait for it stand.
pub const QUEUE: &str = "rc:{nightly}:at:job:{nightly}:lock:queue";

/// What a stranger's lock lasts where its end is not the point.
pub const LEASE: Duration = ms(60_000);

pub struct Stage {
    pub server: RedisServer,
}

impl Stage {
    pub fn new() -> Stage {
        Stage { server: RedisServer::start().unwrap() }
    }

    pub fn client(&self) -> Client {
        Client::connect(&self.server.url()).unwrap()
    }

    /// The lock, for a client of its own, of which nothing is renewed or asked again by itself for as long as
    /// a test takes: a caller that comes in was let in, or looks because of a foreign holder.
    pub fn patient(&self) -> SimpleLock {
        let minutes = Duration::from_secs(120);
        builder(&self.server.url())
            .lease(minutes)
            .waiter_timeout(minutes)
            .connect()
            .unwrap()
            .simple_lock_at(KEY)
    }

    /// The lock, for a client of its own.
    pub fn lock(&self) -> SimpleLock {
        self.client().simple_lock_at(KEY)
    }

    /// A program of somebody else's.
    pub fn stranger(&self, text: &str) -> Stranger {
        Stranger { redis: self.server.connection().unwrap(), text: text.into() }
    }

    /// One command from outside.
    #[track_caller]
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.server.connection().unwrap()).unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    #[track_caller]
    pub fn await_queued(&self, n: usize) {
        let mut redis = self.server.connection().unwrap();
        let mut queued = || redis.zcard::<_, usize>(QUEUE).unwrap();
        wait_until(LONG, &format!("{n} wait for the lock"), || queued() == n);
    }
}

/// Waits for the lock, and gives it back; when it had it. Not for ever, so that a test that fails ends.
#[track_caller]
pub fn comes_in(lock: &SimpleLock) -> Instant {
    let guard = lock.try_lock_for(LONG).unwrap().expect("in time");
    let came = Instant::now();
    guard.unlock().unwrap();
    came
}

/// Locks as the documentation of Redis has it: `SET key text NX PX lease`, and to unlock a script that deletes
/// the key while it has that text.
pub struct Stranger {
    redis: Connection,
    text: Vec<u8>,
}

impl Stranger {
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
