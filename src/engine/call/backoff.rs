//! Sleeping for a given time; and randomized exponential backoff, for callers that collided.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entries::runtime::Shared;
use crate::sync::{Condvar, Mutex, Random};
use crate::wait::Wait;

/// The most doublings of a pause: enough for a thousand colliding callers. (With a factor of at most 64, 32
/// writers without a rest waste three times as many tries, and their longest wait is a third as long.)
const DOUBLINGS: u32 = 10;

/// The pauses of one call: "full jitter", after M. Brooker, *Exponential Backoff And Jitter*, AWS
/// Architecture Blog, 2015. Each is a random time below a bound that doubles, so callers that failed together
/// do not try again together.
pub(crate) struct Backoff {
    rng: Rng,
    failures: u32,
    slot: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        // Other processes may have begun in the same instant: only a random seed tells them apart.
        let (seed, _) = Random::new_v4().as_u64_pair();
        Backoff { rng: Rng(seed), failures: 0, slot: Duration::MAX }
    }

    /// Returns the pause after one more failure: a random time below one slot, doubled with each failure, and
    /// below `longest`. As in Ethernet, a slot is as long as a try takes. The shortest try so far counts, as
    /// longer ones include time in which other callers ran.
    pub(crate) fn pause(&mut self, took: Duration, longest: Duration) -> Duration {
        self.slot = self.slot.min(took);
        self.failures = (self.failures + 1).min(DOUBLINGS);
        let bound = self.slot.saturating_mul(1 << self.failures).min(longest);
        let nanos = usize::try_from(bound.as_nanos()).unwrap_or(usize::MAX);
        Duration::from_nanos(self.rng.below(nanos.max(1)) as u64)
    }
}

/// Sleeps until `until`, the call's deadline, a cancellation or the client's close, whichever comes first.
/// The caller has to check which it was.
pub(crate) fn pause(shared: &Shared, until: Moment, wait: &Wait<'_>) {
    let bed = Arc::new((Mutex::new(()), Condvar::new()));
    let wake = || {
        let bed = bed.clone();
        move || {
            // Locked so that a thread about to sleep either sees the reason first or is woken by it.
            drop(bed.0.lock());
            bed.1.notify_one();
        }
    };
    let _ended = shared.ended.on_cancel(wake());
    let _cancelled = wait.cancel.map(|token| token.on_cancel(wake()));
    let until = wait.deadline.map_or(until, |deadline| until.min(deadline));
    let mut asleep = bed.0.lock();
    // In a loop, as a machine that was suspended has slept less than its clock says.
    while !shared.is_closed() && !wait.is_cancelled() && Moment::now() < until {
        until.wait_on(&bed.1, &mut asleep);
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/call/backoff.rs"]
pub(in crate::engine) mod tests;

/// splitmix64: with a seed, so that tests are repeatable.
pub(in crate::engine) struct Rng(pub(in crate::engine) u64);

impl Rng {
    pub(in crate::engine) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as usize
    }
}
