//! One server for all tests of a file, each of which uses names of its own.

use std::time::Duration;

use redis::Commands;
use redis_concurrent::Client;
use redis_concurrent_testkit::wait_until;

pub use crate::shared::server;
use crate::support::connect;

/// Long enough for anything that is certain to happen.
pub const LONG: Duration = Duration::from_secs(20);

pub const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[track_caller]
pub fn client() -> Client {
    connect(server())
}

pub fn key(name: &str, suffix: &str) -> String {
    format!("rc:{{{name}}}{suffix}")
}

/// Waits until the queue of this name has this many positions.
#[track_caller]
#[allow(dead_code, reason = "not everybody queues")]
pub fn await_positions(name: &str, n: usize) {
    let mut redis = server().connection().unwrap();
    let mut positions = || redis.zcard::<_, usize>(key(name, ":queue")).unwrap();
    wait_until(LONG, &format!("{n} wait"), || positions() == n);
}
