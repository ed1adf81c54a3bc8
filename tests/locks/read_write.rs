//! The read/write lock: which callers are admitted together, which wait for which, and what becomes of those that
//! give up, die, or change from one half to the other.

mod modes;
mod order;
mod shares;
mod trouble;

use redis_concurrent::{Client, ReadWriteLock};
use redis_concurrent_testkit::{hear_parent, is_role, tell_parent};

use crate::one_server::{self, Subject};
use crate::support::{LONG, ms};

const URL: &str = "READ_WRITE_URL";
const HALF: &str = "READ_WRITE_HALF";

type Fixture = one_server::Fixture<ReadWriteLock>;

impl Subject for ReadWriteLock {
    fn of(client: &Client) -> Self {
        client.read_write_lock("it")
    }
}

/// Holds one half, or waits for it, until it is killed.
#[test]
#[ignore = "a role that tests start as a child"]
fn dies() {
    if !is_role("read_write::dies") {
        return;
    }
    let url = std::env::var(URL).unwrap();
    let client = Client::builder().url(&url).lease(ms(1500)).waiter_timeout(ms(1500)).connect().unwrap();
    let lock = client.read_write_lock("it");
    let guards = if std::env::var(HALF).unwrap() == "read" {
        (Some(lock.read_lock().lock().unwrap()), None)
    } else {
        (None, lock.write_lock().try_lock_for(10 * LONG).unwrap())
    };
    tell_parent("in").unwrap();
    let _ = hear_parent();
    drop(guards);
}
