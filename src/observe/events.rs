//! The events that an observer receives.

use std::time::Duration;

use crate::error::Error;

/// How a thread acquired its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
// As large as the count of guards beside it: a process may hold very many locks.
#[repr(u32)]
pub enum AcquiredVia {
    /// The thread asked Redis, and no other caller was in the way.
    Free,
    /// The thread waited in Redis, and the releasing process made it the owner.
    Granted,
    /// A thread of the same process handed over its hold, without Redis.
    HandedOff,
    /// The thread shares a hold that threads of the same process already had, without Redis.
    Joined,
    /// The process had kept the lock since its last hold, without Redis: the lock
    /// [lingers](crate::RedisLock::linger).
    Kept,
    /// Adopted with a [receipt](crate::Receipt) from another process.
    Adopted,
}

/// Why a hold ended before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LossReason {
    /// The lease expired by this process's clock, whether or not Redis replied.
    Expired,
    /// Redis replied, to a renewal or a release, that the hold no longer exists. Also after `force_unlock`,
    /// if that reply came before its message.
    Revoked,
    /// `force_unlock` was called, and its message arrived.
    Forced,
    /// The client was closed, or its process was found to be a [copy](crate::guide::operations#the-server) of another.
    Closed,
}

/// Why a process stopped keeping a lock that [lingers](crate::RedisLock::linger), while no thread held it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KeptEnd {
    /// Another process wanted it.
    Wanted,
    /// Its time to linger expired.
    Expired,
    /// A caller of this process wanted it on other terms, or in its other mode.
    Replaced,
    /// The connection that announces when another process wants the lock was lost.
    Unheard,
    /// Its lease expired, or Redis no longer knew it.
    Lost,
}

words!(KeptEnd::text: Wanted "wanted", Expired "expired", Replaced "replaced", Unheard "unheard", Lost "lost");

words!(AcquiredVia::text: Free "free", Granted "granted", HandedOff "handed_off", Joined "joined", Kept "kept",
    Adopted "adopted");

#[cfg(feature = "metrics")]
words!(LossReason::word: Expired "expired", Revoked "revoked", Forced "forced", Closed "closed");
words!(LossReason::text: Expired "its lease expired", Revoked "Redis no longer knows this hold",
    Forced "it was unlocked by force", Closed "the client was closed");

/// The lock that an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LockInfo<'a> {
    /// The [name](crate::kinds::Kind::NAME) of its kind, for instance `"reentrant lock"`.
    pub kind: &'static str,
    /// The name of the lock.
    pub name: &'a str,
    /// Whether a caller that acquires the lock holds it from then on. False for a caller that passes a latch
    /// or observes an election: for it, only [`acquired`](Observer::acquired) is reported.
    pub is_held: bool,
}

/// Receives the events of one client's locks. The default methods do nothing.
///
/// The methods are called without any mutex of this crate held, on the thread of the call that the event
/// belongs to: a slow observer delays that call. What happens without a call (renewals, losses, the end of a
/// kept lock, a new connection) is reported by a thread of the client's own, `rc-observers`, in order but
/// perhaps after the events of later calls: a slow observer delays no renewal and no other hold. 16,384 such
/// events can wait for it, the rest are counted as [missed](Observer::missed). A panic in an observer is caught
/// and ignored.
///
/// Each hold that is reported as [`acquired`](Observer::acquired) ends in one of three ways:
/// [`released`](Observer::released), [`lost`](Observer::lost), or
/// [`release_deferred`](Observer::release_deferred). Re-entries are not reported.
///
/// The same events go to [`tracing`](https://docs.rs/tracing) by default, with the target `redis_concurrent`
/// (feature `tracing`). Without a subscriber there, and without an observer, an event costs no more than a
/// comparison.
#[expect(unused_variables, reason = "an observer implements what it is interested in")]
pub trait Observer: Send + Sync + 'static {
    /// A thread begins to sleep until it gets `lock`, because the lock is held or others are ahead. Reported
    /// at most once per call, and not for a call that acquires the lock, or gives up, without sleeping. Who is
    /// ahead is not sent along, as no request is made for an event: [`Client::inspect`](crate::Client::inspect) tells
    /// it to another thread, while this one sleeps.
    fn wait_began(&self, lock: LockInfo<'_>) {}

    /// The wait for `lock` that was reported as [begun](Observer::wait_began) is over, whatever its outcome.
    fn wait_ended(&self, lock: LockInfo<'_>) {}

    /// A thread acquired a hold of `lock`, `waited` after its call began.
    fn acquired(&self, lock: LockInfo<'_>, waited: Duration, via: AcquiredVia) {}

    /// A call for `lock` ended without a hold, `waited` after it began: the lock was busy until the time was
    /// up, or at the single attempt; or there was an error, which the caller also gets.
    fn not_acquired(&self, lock: LockInfo<'_>, waited: Duration, error: Option<&Error>) {}

    /// This thread, which waits for `lock`, is in a circle of threads that wait for each other's locks, which `circle`
    /// describes. If it is `chosen`, its call ends with [`Deadlock`](crate::ErrorKind::Deadlock). A circle that
    /// chooses nobody, because another holder may end the wait, is reported once, by the thread that began to
    /// wait last.
    fn deadlock(&self, lock: LockInfo<'_>, circle: &str, chosen: bool) {}

    /// A thread released its hold of `lock` normally, after `held`.
    fn released(&self, lock: LockInfo<'_>, held: Duration) {}

    /// This process kept `lock` while no thread held it, and no longer does. A hold of a kept lock is
    /// reported as acquired [by that](AcquiredVia::Kept). If fewer such holds are reported than locks given
    /// back because they are [wanted](KeptEnd::Wanted), lingering does not pay.
    fn no_longer_kept(&self, lock: LockInfo<'_>, why: KeptEnd) {}

    /// A lease of `lock` was renewed: the request was sent `lag` after it was due, and when the reply
    /// arrived, `left` of the old lease remained.
    fn renewed(&self, lock: LockInfo<'_>, lag: Duration, left: Duration) {}

    /// A lease of `lock` could not be renewed, and `left` of it remains. The renewal is retried until the lease
    /// expires.
    fn renewal_failed(&self, lock: LockInfo<'_>, left: Duration, error: &Error) {}

    /// Renewals were sent. At that time `under_way` renewals (and releases in the background) were in flight
    /// to Redis, or waited for their turn; the client can have `most` in flight at once. Beyond that,
    /// renewals are late. The number grows in proportion to the round-trip time and the number of holds.
    fn renewal_load(&self, under_way: usize, most: usize) {}

    /// A hold of `lock` ended before it was released. Reported once for each hold: readers of a process share
    /// a grant, and all of their holds end with it. (`tracing` gets one warning for the grant.)
    fn lost(&self, lock: LockInfo<'_>, why: LossReason) {}

    /// A thread gave up its hold of `lock` after `held`, and Redis did not reply: the release continues in
    /// the background.
    fn release_deferred(&self, lock: LockInfo<'_>, held: Duration) {}

    /// Redis did not reply to a release in the background for the length of a lease. The hold of `lock`, if
    /// any was left, has expired.
    fn release_abandoned(&self, lock: LockInfo<'_>, error: &Error) {}

    /// A release of `lock` failed, and no caller gets the error (a guard's `Drop`, `with`, `close`). If Redis
    /// still has the hold, it is released in the background, or expires.
    fn unlock_failed(&self, lock: LockInfo<'_>, error: &Error) {}

    /// So many events were not reported, because observers were too slow for what happens in the background.
    fn missed(&self, events: u64) {}

    /// The connection on which wake-ups arrive was replaced, after it had been down for `down`.
    fn reconnected(&self, down: Duration) {}
}
