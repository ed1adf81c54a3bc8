//! A server of a test's own, and locks on it.

use redis_concurrent::internals::lock_count;
use redis_concurrent::{Client, Member, MultiLock, ReentrantLock};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::support::{SOON, connect, nothing_left};

pub struct Fixture {
    pub server: RedisServer,
}

impl Fixture {
    pub fn new() -> Fixture {
        Fixture { server: RedisServer::start().unwrap() }
    }

    /// Another client; it stands for another process.
    pub fn client(&self) -> Client {
        connect(&self.server)
    }

    /// Nothing is left in Redis, and nothing in these clients.
    #[track_caller]
    pub fn end(&self, clients: &[&Client]) {
        nothing_left(&self.server);
        for client in clients {
            wait_until(SOON, "no lock is in use", || lock_count(client) == 0);
            client.close().unwrap();
        }
    }
}

pub fn locks(client: &Client, names: &[&str]) -> Vec<ReentrantLock> {
    names.iter().map(|name| client.reentrant_lock(name)).collect()
}

pub fn all(locks: &[ReentrantLock]) -> MultiLock {
    let members: Vec<&dyn Member> = locks.iter().map(|lock| lock as &dyn Member).collect();
    MultiLock::new(&members)
}

/// Several reentrant locks of one client as one.
pub fn multi(client: &Client, names: &[&str]) -> MultiLock {
    all(&locks(client, names))
}
