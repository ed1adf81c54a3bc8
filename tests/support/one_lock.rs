//! A server with the one lock that a test is about: each client stands for another process.

use redis_concurrent::{Client, ClientBuilder};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::support::{LONG, builder};

pub struct Fixture {
    pub server: RedisServer,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture { server: RedisServer::start().unwrap() }
    }

    pub fn client(&self) -> Client {
        self.client_with(|b| b)
    }

    pub fn client_with(&self, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> Client {
        set(builder(&self.server.url())).connect().unwrap()
    }

    /// Returns how many members this key of the lock has.
    pub fn count(&self, suffix: &str) -> usize {
        let key = format!("rc:{{it}}{suffix}");
        redis::cmd("ZCARD").arg(key).query(&mut self.server.connection().unwrap()).unwrap()
    }

    /// Returns how many owners wait for the lock.
    pub fn queued(&self) -> usize {
        self.count(":queue")
    }

    #[track_caller]
    pub fn await_queued(&self, n: usize) {
        wait_until(LONG, &format!("{n} wait for the lock"), || self.queued() == n);
    }
}
