//! A server of a test's own, and locks on it.

use redis_concurrent::{Client, Member, MultiLock, ReentrantLock};

pub type Fixture = crate::one_server::Fixture<MultiLock>;

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
