//! What a service may watch: one trait, empty by default.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use crate::error::Error;

/// By which way a thread came to its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Way {
    /// It asked, and nobody was in the way.
    Free,
    /// It waited in Redis, and the process that released the lock made it the owner.
    Granted,
    /// A thread of the same process handed its hold on, without Redis.
    HandedOver,
}

/// Why a hold ended before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// The lease ran out here, with or without Redis.
    Deadline,
    /// Redis said, at a renewal or a release, that somebody else or nobody holds it.
    Verdict,
    /// Somebody called `force_unlock`.
    Forced,
    /// The client was closed.
    Closed,
}

impl Loss {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Loss::Deadline => "its lease ran out",
            Loss::Verdict => "Redis no longer knows this hold",
            Loss::Forced => "it was unlocked by force",
            Loss::Closed => "the client was closed",
        }
    }
}

/// Hears what the locks of one client do. All methods do nothing by default.
///
/// They are called outside all locks of this crate, on whichever thread it happened, and should
/// be quick: a slow one delays that thread. A panic in one is caught and ignored. Without an
/// observer nothing of this is computed.
pub trait Observer: Send + Sync + 'static {
    /// A thread got a hold of `lock` after waiting for `waited`. Re-entries are not told.
    fn acquired(&self, lock: &str, waited: Duration, way: Way) {
        let _ = (lock, waited, way);
    }

    /// A thread gave its hold of `lock` up in good order.
    fn released(&self, lock: &str) {
        let _ = lock;
    }

    /// A lease of `lock` was renewed, `lag` later than it was due.
    fn renewed(&self, lock: &str, lag: Duration) {
        let _ = (lock, lag);
    }

    /// A hold of `lock` ended before it was released. Told once a tenure.
    fn lost(&self, lock: &str, why: Loss) {
        let _ = (lock, why);
    }

    /// The connection that wake-ups come by was replaced; it had been down for `down`.
    fn reconnected(&self, down: Duration) {
        let _ = down;
    }

    /// A release of `lock` that nobody else would hear of (a guard's `Drop`, `with`, `close`)
    /// failed. What Redis still holds is given back in the background, or ends with its lease.
    fn unlock_failed(&self, lock: &str, error: &Error) {
        let _ = (lock, error);
    }
}

/// The observer of a client, if any.
#[derive(Clone, Default)]
pub(crate) struct Watch(Option<Arc<dyn Observer>>);

impl Watch {
    pub(crate) fn new(observer: Option<Arc<dyn Observer>>) -> Self {
        Watch(observer)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// Tells the observer; what it throws stops here, because locks must go on.
    pub(crate) fn tell(&self, what: impl FnOnce(&dyn Observer)) {
        if let Some(observer) = &self.0 {
            let _ = catch_unwind(AssertUnwindSafe(|| what(&**observer)));
        }
    }
}

impl std::fmt::Debug for Watch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watch").field(&self.0.is_some()).finish()
    }
}
