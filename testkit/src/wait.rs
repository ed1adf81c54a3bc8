//! Waiting for a condition, with a timeout instead of a guessed sleep.

use std::thread;
use std::time::{Duration, Instant};

/// How long to sleep between two checks.
const POLL: Duration = Duration::from_millis(1);

/// Blocks until `condition` holds, checking every millisecond or so, for `limit` at most. It always checks
/// once more at the end, so a stalled machine does not turn a true condition into a failure. The duration of
/// a single call of `condition` is not limited.
///
/// # Panics
///
/// With `what` and the limit, if the condition does not hold in time: it is an assertion.
#[track_caller]
pub fn wait_until(limit: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    if poll(limit, || condition().then_some(())).is_none() {
        panic!("not within {limit:?}: {what}");
    }
}

/// Blocks until `attempt` gives a value, and returns it; otherwise as [`wait_until`].
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
        // Taken before the check: the last check then begins no earlier than the limit.
        let last = start.elapsed() >= limit;
        let value = attempt();
        if value.is_some() || last {
            return value;
        }
        thread::sleep(POLL);
    }
}
