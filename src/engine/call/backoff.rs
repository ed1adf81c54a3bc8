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
#[derive(Default)]
pub(crate) struct Backoff {
    failures: u32,
    /// The shortest try so far: longer ones include time in which other callers ran.
    slot: Option<Duration>,
}

impl Backoff {
    /// Returns the pause after one more failure: a random time below one slot, doubled with each failure, and
    /// below `longest`. As in Ethernet, a slot is as long as a try takes.
    fn next(&mut self, took: Duration, longest: Duration) -> Duration {
        let slot = self.slot.map_or(took, |slot| slot.min(took));
        self.slot = Some(slot);
        self.failures = (self.failures + 1).min(DOUBLINGS);
        let bound = slot.saturating_mul(1 << self.failures).min(longest);
        // (The version of the UUID is in its first half.)
        let (_, random) = Random::new_v4().as_u64_pair();
        Duration::from_nanos(random % u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX).max(1))
    }

    /// Sleeps after a try that took so long, as [`pause`] does.
    pub(crate) fn pause(&mut self, shared: &Shared, took: Duration, longest: Duration, wait: &Wait<'_>) {
        pause(shared, Moment::now().after(self.next(took, longest)), wait);
    }
}

/// Sleeps until `until`, the call's deadline, a cancellation or the client's close, whichever comes first.
/// The caller has to check which it was.
pub(crate) fn pause(shared: &Shared, until: Moment, wait: &Wait<'_>) {
    let bed = Arc::new((Mutex::new(()), Condvar::new()));
    let its = bed.clone();
    let wake = Arc::new(move || {
        // Locked so that a thread about to sleep either sees the reason first or is woken by it.
        drop(its.0.lock());
        its.1.notify_one();
    });
    let _ended = shared.ended.on_cancel(wake.clone());
    let _cancelled = wait.cancel.map(|token| token.on_cancel(wake));
    let until = until.min(wait.deadline);
    let mut asleep = bed.0.lock();
    // In a loop, as a machine that was suspended has slept less than its clock says.
    while !shared.is_closed() && !wait.is_cancelled() && Moment::now() < until {
        until.wait_on(&bed.1, &mut asleep);
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/call/backoff.rs"]
pub(in crate::engine) mod tests;
