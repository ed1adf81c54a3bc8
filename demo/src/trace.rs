//! What a worker notes about its waits.

use std::cell::Cell;
use std::time::Duration;

use redis_concurrent::observe::{AcquiredVia, LockInfo, Observer};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// One order's way through its locks; without locks, all times but the last are the same as the first. Times
/// are [`now`]'s.
#[derive(Debug, Serialize, Deserialize)]
pub struct Trace {
    pub order: String,
    /// When it requested its customer's lock, acquired it, and had released it.
    pub called: u64,
    pub granted: u64,
    pub released: u64,
    /// Whether another order blocked its customer's lock.
    pub waited: bool,
    /// When it acquired its product's lock.
    pub stock_granted: u64,
}

/// Returns the microseconds of a clock that all processes of a machine share and that is never set.
pub fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32).as_micros() as u64
}

thread_local! {
    static WAITED: Cell<bool> = const { Cell::new(false) };
}

/// Whether this thread's last lock was not free when it was requested.
pub fn waited() -> bool {
    WAITED.get()
}

/// Observes every lock that is acquired.
#[derive(Clone, Default)]
pub struct Meter;

impl Observer for Meter {
    fn acquired(&self, _lock: LockInfo<'_>, _waited: Duration, way: AcquiredVia) {
        WAITED.set(way != AcquiredVia::Free);
    }
}
