//! The events that every client writes to `tracing`, through the same trait as any other observer.

use std::time::Duration;

use tracing::{Level, debug, enabled, info, trace, warn};

use super::events::{AcquiredVia, KeptEnd, LockInfo, LossReason, Observer};
use crate::error::Error;

/// Whether what locks do is emitted as events and spans.
pub(super) const TRACED: bool = cfg!(feature = "tracing");

/// The target that filters name: not the module, which is an implementation detail.
pub(super) const TARGET: &str = "redis_concurrent";

pub(super) struct Tracing;

impl Tracing {
    /// Whether a subscriber wants the most frequent events.
    pub(super) fn is_on() -> bool {
        enabled!(target: TARGET, Level::TRACE)
    }
}

impl Observer for Tracing {
    fn acquired(&self, lock: LockInfo<'_>, waited: Duration, via: AcquiredVia) {
        trace!(target: TARGET, lock = lock.name, kind = lock.kind, ?waited, via = via.text(), "acquired");
    }

    fn not_acquired(&self, lock: LockInfo<'_>, waited: Duration, error: Option<&Error>) {
        let error = error.map(|error| tracing::field::display(format!("{error:#}")));
        trace!(target: TARGET, lock = lock.name, kind = lock.kind, ?waited, error, "not acquired");
    }

    fn deadlock(&self, lock: LockInfo<'_>, circle: &str, chosen: bool) {
        warn!(target: TARGET, lock = lock.name, kind = lock.kind, circle, chosen, "a deadlock");
    }

    fn released(&self, lock: LockInfo<'_>, held: Duration) {
        trace!(target: TARGET, lock = lock.name, kind = lock.kind, ?held, "released");
    }

    fn no_longer_kept(&self, lock: LockInfo<'_>, why: KeptEnd) {
        trace!(target: TARGET, lock = lock.name, kind = lock.kind, why = why.text(), "no longer kept");
    }

    fn renewed(&self, lock: LockInfo<'_>, lag: Duration, left: Duration) {
        trace!(target: TARGET, lock = lock.name, kind = lock.kind, ?lag, ?left, "renewed");
    }

    fn renewal_load(&self, under_way: usize, most: usize) {
        trace!(target: TARGET, under_way, most, "renewals sent");
    }

    fn renewal_failed(&self, lock: LockInfo<'_>, left: Duration, error: &Error) {
        debug!(target: TARGET, lock = lock.name, kind = lock.kind, ?left, error = %format_args!("{error:#}"), "not renewed");
    }

    fn lost(&self, lock: LockInfo<'_>, why: LossReason) {
        warn!(target: TARGET, lock = lock.name, kind = lock.kind, why = why.text(), "a hold was lost");
    }

    fn release_deferred(&self, lock: LockInfo<'_>, held: Duration) {
        info!(target: TARGET, lock = lock.name, kind = lock.kind, ?held, "a release continues in the background");
    }

    fn release_abandoned(&self, lock: LockInfo<'_>, error: &Error) {
        warn!(target: TARGET, lock = lock.name, kind = lock.kind, error = %format_args!("{error:#}"), "left to its lease");
    }

    fn unlock_failed(&self, lock: LockInfo<'_>, error: &Error) {
        debug!(target: TARGET, lock = lock.name, kind = lock.kind, error = %format_args!("{error:#}"), "a guard could not release");
    }

    fn missed(&self, events: u64) {
        warn!(target: TARGET, events, "observers are too slow: events were not reported");
    }

    fn reconnected(&self, down: Duration) {
        info!(target: TARGET, ?down, "listening for grants again");
    }
}
