//! What a service may watch: one trait, empty by default.

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
#[cfg(feature = "tracing")]
use self::tracing::Tracing;
use crate::error::Error;

/// By which way a thread came to its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum AcquiredVia {
    /// It asked, and nobody was in the way.
    Free,
    /// It waited in Redis, and the process that released the lock made it the owner.
    Granted,
    /// A thread of the same process handed its hold on, without Redis.
    HandedOver,
    /// It shares a hold that threads of the same process had, without Redis.
    Joined,
    /// By a [receipt](crate::Receipt): the hold was another process's.
    Adopted,
}

/// Why a hold ended before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease ran out here, with or without Redis.
    Expired,
    /// Redis said, at a renewal or a release, that somebody else or nobody holds it.
    Revoked,
    /// Somebody called `force_unlock`.
    Forced,
    /// The client was closed.
    Closed,
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl AcquiredVia {
    pub(crate) fn text(self) -> &'static str {
        match self {
            AcquiredVia::Free => "free",
            AcquiredVia::Granted => "granted",
            AcquiredVia::HandedOver => "handed_over",
            AcquiredVia::Joined => "joined",
            AcquiredVia::Adopted => "adopted",
        }
    }
}

impl LossReason {
    /// For figures.
    #[cfg(feature = "metrics")]
    pub(crate) fn word(self) -> &'static str {
        match self {
            LossReason::Expired => "expired",
            LossReason::Revoked => "revoked",
            LossReason::Forced => "forced",
            LossReason::Closed => "closed",
        }
    }

    pub(crate) fn text(self) -> &'static str {
        match self {
            LossReason::Expired => "its lease ran out",
            LossReason::Revoked => "Redis no longer knows this hold",
            LossReason::Forced => "it was unlocked by force",
            LossReason::Closed => "the client was closed",
        }
    }
}

/// The lock that an observer is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LockInfo<'a> {
    /// What its kind [is called](crate::Kind::NAME), for instance `"reentrant lock"`.
    pub kind: &'static str,
    /// What it is called itself.
    pub name: &'a str,
}

/// Hears what the locks of one client do. All methods do nothing by default.
///
/// They are called outside all locks of this crate, on whichever thread it happened, and should
/// be quick: a slow one delays that thread. A panic in one is caught and ignored.
///
/// Each hold that is told as [`acquired`](Observer::acquired) ends in one of three ways:
/// [`released`](Observer::released), [`lost`](Observer::lost), or
/// [`release_deferred`](Observer::release_deferred). Re-entries are not told.
///
/// The same goes to [`tracing`](https://docs.rs/tracing) by itself, with the target
/// `redis_concurrent` (with the feature `tracing`, which is on unless it is turned off); without a
/// subscriber there, and without an observer, nothing of it costs more than a comparison.
pub trait Observer: Send + Sync + 'static {
    /// A thread got a hold of `lock`, `waited` after its call began.
    fn acquired(&self, lock: LockInfo<'_>, waited: Duration, way: AcquiredVia) {
        let _ = (lock, waited, way);
    }

    /// A call for `lock` ended without a hold, `waited` after it began: it was busy until the time
    /// was up, or at the one attempt; or there was an error, which the caller was told too.
    fn not_acquired(&self, lock: LockInfo<'_>, waited: Duration, error: Option<&Error>) {
        let _ = (lock, waited, error);
    }

    /// A thread gave its hold of `lock` up in good order, after `held`.
    fn released(&self, lock: LockInfo<'_>, held: Duration) {
        let _ = (lock, held);
    }

    /// A lease of `lock` was renewed: the request left `lag` after it was due, and when it was
    /// answered there was `left` of the old lease.
    fn renewed(&self, lock: LockInfo<'_>, lag: Duration, left: Duration) {
        let _ = (lock, lag, left);
    }

    /// A lease of `lock` could not be renewed and has `left` to go. It is tried again until then.
    fn renewal_failed(&self, lock: LockInfo<'_>, left: Duration, error: &Error) {
        let _ = (lock, left, error);
    }

    /// Renewals were sent: `under_way` of them (and releases in the background) were then on their way to
    /// Redis, or waited for their turn, of `most` that the client can have on its way at once. Beyond that
    /// renewals are late; with round trips that get longer, or more holds, it grows in proportion.
    fn renewal_load(&self, under_way: usize, most: usize) {
        let _ = (under_way, most);
    }

    /// A hold of `lock` ended before it was released. Told once a tenure.
    fn lost(&self, lock: LockInfo<'_>, why: LossReason) {
        let _ = (lock, why);
    }

    /// A thread gave its hold of `lock` up after `held`, and Redis did not say whether it heard:
    /// the release goes on in the background.
    fn release_deferred(&self, lock: LockInfo<'_>, held: Duration) {
        let _ = (lock, held);
    }

    /// What was to leave Redis in the background did not, as long as a lease lasts. What was there
    /// of `lock` has ended with its lease.
    fn release_abandoned(&self, lock: LockInfo<'_>, error: &Error) {
        let _ = (lock, error);
    }

    /// A release of `lock` that nobody else would hear of (a guard's `Drop`, `with`, `close`)
    /// failed. What Redis still holds is given back in the background, or ends with its lease.
    fn unlock_failed(&self, lock: LockInfo<'_>, error: &Error) {
        let _ = (lock, error);
    }

    /// The connection that wake-ups come by was replaced; it had been down for `down`.
    fn reconnected(&self, down: Duration) {
        let _ = down;
    }
}

/// Everybody who hears what the locks of a client do.
#[derive(Default)]
pub(crate) struct Watch(Vec<Box<dyn Observer>>);

impl Watch {
    pub(crate) fn add(&mut self, observer: impl Observer) {
        self.0.push(Box::new(observer));
    }

    /// Whether anybody hears what happens all the time.
    pub(crate) fn is_on(&self) -> bool {
        #[cfg(feature = "tracing")]
        let traced = Tracing::is_on();
        #[cfg(not(feature = "tracing"))]
        let traced = false;
        traced || !self.0.is_empty()
    }

    /// Tells all of them; what one throws stops here, because locks must go on.
    pub(crate) fn tell(&self, what: impl Fn(&dyn Observer)) {
        #[cfg(feature = "tracing")]
        let _ = catch_unwind(AssertUnwindSafe(|| what(&Tracing)));
        for observer in &self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| what(&**observer)));
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watch").field(&self.0.len()).finish()
    }
}
