//! The read/write lock: who comes in beside whom, who waits for whom, and what becomes of those who
//! give up, die, or change from one half to the other.

#[path = "invariants/support.rs"]
mod support;

#[path = "read_write/modes.rs"]
mod modes;
#[path = "read_write/order.rs"]
mod order;
#[path = "read_write/shares.rs"]
mod shares;
#[path = "read_write/trouble.rs"]
mod trouble;

use redis_concurrent::testing::{RedisServer, hear_parent, is_role, tell_parent, wait_until};
use redis_concurrent::{Client, ReadWriteLock};

use support::{LONG, builder, ms};

const URL: &str = "READ_WRITE_URL";
const HALF: &str = "READ_WRITE_HALF";

/// A private server, and a lock in as many processes as a test wants: each client stands for one.
struct Stage(RedisServer);

impl Stage {
    fn new() -> Self {
        Stage(RedisServer::start().unwrap())
    }

    fn lock(&self) -> ReadWriteLock {
        self.client().read_write_lock("it")
    }

    fn client(&self) -> Client {
        builder(&self.0.url()).connect().unwrap()
    }

    fn places(&self) -> usize {
        redis::cmd("ZCARD").arg("rc:{it}:queue").query(&mut self.0.connection().unwrap()).unwrap()
    }

    fn await_places(&self, n: usize) {
        wait_until(LONG, "places in the queue", || self.places() == n);
    }

    /// With all guards and waiters gone nothing is left but numbers and bars, which end by themselves.
    fn end(self) {
        let rest = |keys: Vec<String>| {
            keys.into_iter().filter(|k| !k.ends_with(":fence") && !k.ends_with(":gone")).count()
        };
        wait_until(LONG, "no key is left", || rest(self.0.keys().unwrap()) == 0);
    }
}

/// Holds one half, or waits for it, until it is killed.
#[test]
#[ignore = "a role that tests start as a child"]
fn dies() {
    if !is_role("dies") {
        return;
    }
    let url = std::env::var(URL).unwrap();
    let client = Client::builder().url(&url).lease(ms(1500)).window(ms(1500)).connect().unwrap();
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
