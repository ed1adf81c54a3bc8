//! Waiting for a condition, with a timeout instead of a guessed sleep.

use std::thread;
use std::time::{Duration, Instant};

/// How long to sleep between two checks, at first and at most: a check may cost a server a connection, and what is
/// waited for needs the same cores.
const POLL: [Duration; 2] = [Duration::from_millis(1), Duration::from_millis(10)];

/// Blocks until `condition` holds, for at most `limit`; checks it about every millisecond at first, later every ten.
/// It always checks once more at the end, so a stalled machine does not turn a true condition into a failure. A single call of
/// `condition` may take any time.
///
/// # Panics
///
/// If the condition does not hold in time, with `what` and `limit` in the message: this is an assertion.
#[track_caller]
pub fn wait_until(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    if poll(limit, || condition().then_some(())).is_none() {
        panic!("not within {limit:?}: {what}");
    }
}

/// Blocks until `attempt` returns a value, and returns it; checks as often and as long as [`wait_until`].
///
/// # Panics
///
/// If there is no value within `limit`.
#[track_caller]
pub fn eventually<T>(limit: Duration, attempt: impl FnMut() -> Option<T>) -> T {
    match poll(limit, attempt) {
        Some(value) => value,
        None => panic!("no value within {limit:?}"),
    }
}

pub(super) fn poll<T>(limit: Duration, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    let start = Instant::now();
    loop {
        // Computed before the check, so that the last check begins no earlier than the timeout.
        let waited = start.elapsed();
        let value = attempt();
        if value.is_some() || waited >= limit {
            return value;
        }
        thread::sleep((waited / 16).clamp(POLL[0], POLL[1]));
    }
}
