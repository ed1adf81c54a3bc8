//! What an observer is told.

use std::time::Duration;

use crate::error::Error;

/// How a thread acquired its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
// As large as the count of guards beside it: a process may hold very many locks.
#[repr(u32)]
pub enum AcquiredVia {
    /// It asked, and no other caller was in the way.
    Free,
    /// It waited in Redis, and the releasing process made it the owner.
    Granted,
    /// A thread of the same process handed its hold on, without Redis.
    HandedOff,
    /// It shares a hold that threads of the same process had, without Redis.
    Joined,
    /// Its process had kept it since its last hold, without Redis: the lock [lingers](crate::RedisLock::linger).
    Kept,
    /// By a [receipt](crate::Receipt): the hold was another process's.
    Adopted,
}

/// Why a hold ended before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease expired here, with or without Redis.
    Expired,
    /// Redis replied, at a renewal or a release, that the hold no longer exists. Also after `force_unlock` if that
    /// reply came before its message.
    Revoked,
    /// `force_unlock` was called, and its message came.
    Forced,
    /// The client was closed.
    Closed,
}

/// Why a process no longer keeps a lock that [lingers](crate::RedisLock::linger), and that no thread held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeptEnd {
    /// Another process wanted it.
    Wanted,
    /// Its time to linger was over.
    Expired,
    /// A caller of this process wanted it on other terms, or in its other mode.
    Replaced,
    /// The connection was lost on which this process would have heard that it is wanted.
    Unheard,
    /// Its lease was over, or Redis no longer knew it.
    Lost,
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl KeptEnd {
    pub(crate) fn text(self) -> &'static str {
        match self {
            KeptEnd::Wanted => "wanted",
            KeptEnd::Expired => "expired",
            KeptEnd::Replaced => "replaced",
            KeptEnd::Unheard => "unheard",
            KeptEnd::Lost => "lost",
        }
    }
}

#[cfg(any(feature = "metrics", feature = "tracing"))]
impl AcquiredVia {
    pub(crate) fn text(self) -> &'static str {
        match self {
            AcquiredVia::Free => "free",
            AcquiredVia::Granted => "granted",
            AcquiredVia::HandedOff => "handed_off",
            AcquiredVia::Joined => "joined",
            AcquiredVia::Kept => "kept",
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
            LossReason::Expired => "its lease expired",
            LossReason::Revoked => "Redis no longer knows this hold",
            LossReason::Forced => "it was unlocked by force",
            LossReason::Closed => "the client was closed",
        }
    }
}

/// The lock that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockInfo<'a> {
    /// The [name](crate::Kind::NAME) of its kind, for instance `"reentrant lock"`.
    pub kind: &'static str,
    /// Its own name.
    pub name: &'a str,
    /// Whether a caller that acquires it holds it from then on. Not one that passes a latch or observes an election:
    /// there [`acquired`](Observer::acquired) is all that is reported.
    pub is_held: bool,
}

/// Is notified of what the locks of one client do. By default the methods do nothing.
///
/// They are called outside all mutexes of this crate, on the thread on which the event happened, and should
/// be quick: a slow observer delays that thread. A panic in one is caught and ignored.
///
/// Each hold that is reported as [`acquired`](Observer::acquired) ends in one of three ways:
/// [`released`](Observer::released), [`lost`](Observer::lost), or
/// [`release_deferred`](Observer::release_deferred). Re-entries are not reported.
///
/// The same events go to [`tracing`](https://docs.rs/tracing) by default, with the target `redis_concurrent`
/// (feature `tracing`); without a subscriber there, and without an observer, an event costs no more than a
/// comparison.
pub trait Observer: Send + Sync + 'static {
    /// A thread begins to sleep until it gets `lock`: it is held, or others are ahead. Reported once a call, and not of
    /// one that gets it, or gives up, without that.
    fn wait_began(&self, lock: LockInfo<'_>) {
        let _ = lock;
    }

    /// The wait for `lock` that was reported as [begun](Observer::wait_began) is over, whatever came of it.
    fn wait_ended(&self, lock: LockInfo<'_>) {
        let _ = lock;
    }

    /// A thread got a hold of `lock`, `waited` after its call began.
    fn acquired(&self, lock: LockInfo<'_>, waited: Duration, way: AcquiredVia) {
        let _ = (lock, waited, way);
    }

    /// A call for `lock` ended without a hold, `waited` after it began: it was busy until the time was up, or
    /// at its single attempt; or there was an error, which the caller gets too.
    fn not_acquired(&self, lock: LockInfo<'_>, waited: Duration, error: Option<&Error>) {
        let _ = (lock, waited, error);
    }

    /// A thread released its hold of `lock` normally, after `held`.
    fn released(&self, lock: LockInfo<'_>, held: Duration) {
        let _ = (lock, held);
    }

    /// This process kept `lock`, which no thread held, and does not any more. A hold of what was kept is reported as
    /// acquired [by that](AcquiredVia::Kept): where there are fewer of these than locks that are given back because they
    /// are [wanted](KeptEnd::Wanted), lingering does not pay.
    fn no_longer_kept(&self, lock: LockInfo<'_>, why: KeptEnd) {
        let _ = (lock, why);
    }

    /// A lease of `lock` was renewed: the request was sent `lag` after it was due, and when the reply came
    /// there was `left` of the old lease.
    fn renewed(&self, lock: LockInfo<'_>, lag: Duration, left: Duration) {
        let _ = (lock, lag, left);
    }

    /// A lease of `lock` could not be renewed and has `left` to go. The renewal is retried until then.
    fn renewal_failed(&self, lock: LockInfo<'_>, left: Duration, error: &Error) {
        let _ = (lock, left, error);
    }

    /// Renewals were sent: `under_way` of them (and releases in the background) were then in flight to Redis,
    /// or waited for their turn, out of `most` that the client can have in flight at once. Beyond that
    /// renewals are late; the number grows in proportion to round-trip time and holds.
    fn renewal_load(&self, under_way: usize, most: usize) {
        let _ = (under_way, most);
    }

    /// A hold of `lock` ended before it was released. Reported once for each hold: readers of a process share a
    /// grant, and all of their holds end with it. (`tracing` gets one warning for the grant.)
    fn lost(&self, lock: LockInfo<'_>, why: LossReason) {
        let _ = (lock, why);
    }

    /// A thread gave up its hold of `lock` after `held`, and Redis did not reply: the release continues in
    /// the background.
    fn release_deferred(&self, lock: LockInfo<'_>, held: Duration) {
        let _ = (lock, held);
    }

    /// A release in the background was not answered for the length of a lease. What was there of `lock` has
    /// expired.
    fn release_abandoned(&self, lock: LockInfo<'_>, error: &Error) {
        let _ = (lock, error);
    }

    /// A release of `lock` failed for which no caller gets the error (a guard's `Drop`, `with`, `close`).
    /// What Redis still holds is given back in the background, or expires.
    fn unlock_failed(&self, lock: LockInfo<'_>, error: &Error) {
        let _ = (lock, error);
    }

    /// The connection on which wake-ups arrive was replaced; it had been down for `down`.
    fn reconnected(&self, down: Duration) {
        let _ = down;
    }
}
