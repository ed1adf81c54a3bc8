//! Random pauses that grow, for callers that collided.

use std::time::Duration;

use super::rng::Rng;

/// How much a pause may have grown, as a power of two: enough for a thousand colliding callers. (With 64 as
/// the bound, 32 writers that never rest waste three times as many tries, for a longest wait of a third.)
const DOUBLINGS: u32 = 10;

/// The pauses of one call: "full jitter", after M. Brooker, *Exponential Backoff And Jitter*, AWS
/// Architecture Blog, 2015. Each is of any length up to a bound that doubles, so that callers that failed
/// together do not try together again.
pub(crate) struct Backoff {
    rng: Rng,
    failures: u32,
    slot: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        // Other processes began in the same instant: only chance distinguishes them from us.
        let (seed, _) = uuid::Uuid::new_v4().as_u64_pair();
        Backoff { rng: Rng(seed), failures: 0, slot: Duration::MAX }
    }

    /// The pause after one more failure: below a slot, doubled with each failure, and `longest`. A slot is as
    /// long as a try takes, as in an Ethernet: the shortest so far, as the others `took` time that was not
    /// theirs.
    pub(crate) fn pause(&mut self, took: Duration, longest: Duration) -> Duration {
        self.slot = self.slot.min(took);
        self.failures = (self.failures + 1).min(DOUBLINGS);
        let bound = self.slot.saturating_mul(1 << self.failures).min(longest);
        let nanos = usize::try_from(bound.as_nanos()).unwrap_or(usize::MAX);
        Duration::from_nanos(self.rng.below(nanos.max(1)) as u64)
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/unit/engine/backoff.rs"]
mod tests;
