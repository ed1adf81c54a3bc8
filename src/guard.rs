//! The guards, and what their types are made of, as errors of the compiler name it.

use std::fmt;
use std::marker::PhantomData;
use std::sync::MutexGuard;
use std::time::Duration;

use self::sealed::AnyHold as _;
use crate::cancel::CancellationToken;
use crate::engine::call::warning::{self, Warned};
use crate::error::{Error, ErrorKind};
pub use crate::settings::LONGEST_STAY;
use crate::settings::check_lease;

/// What a guard can hold: a lock of a [kind](crate::kinds::Kind), a [`MultiLock`](crate::MultiLock), or a
/// [`RedLock`](crate::RedLock). This trait is sealed; for a lock of your own, implement
/// [`Kind`](crate::kinds::Kind).
pub trait Held: sealed::HasHold {}

impl<L: sealed::HasHold> Held for L {}

/// The owner of a hold: [`ThreadOwned`] or [`GuardOwned`]. This trait is sealed.
pub trait Ownership: sealed::Owner {}

impl<O: sealed::Owner> Ownership for O {}

/// Marks a [`Guard`] whose hold belongs to the thread that took it.
#[derive(Debug)]
pub struct ThreadOwned(PhantomData<MutexGuard<'static, UseLockOwnedInstead>>);

/// Marks a [`Guard`] that owns its hold itself, and may move to another thread: an [`OwnedGuard`].
#[derive(Debug)]
pub struct GuardOwned(());

/// Named in the compiler's error when a guard is sent to another thread. Like those of std, a guard is
/// `Sync`, but not `Send`.
struct UseLockOwnedInstead;

pub(crate) mod sealed {
    use std::fmt::Debug;
    use std::time::Duration;

    use super::{GuardOwned, ThreadOwned};
    use crate::cancel::CancellationToken;
    use crate::engine::call::warning::Holds;
    use crate::engine::state::lock_state::HolderId;
    use crate::error::Error;

    pub trait HasHold {
        type Hold: AnyHold;
    }

    /// A hold, which is released when it is dropped.
    pub trait AnyHold: Debug {
        fn name(&self) -> &str;
        fn token(&self) -> Option<u64> {
            None
        }
        fn remaining(&self) -> Duration;
        fn lost(&self) -> CancellationToken;
        /// Renews it for `lease`, which has been checked; `None` means the lease with which it was acquired.
        fn renew(&self, lease: Option<Duration>) -> Result<(), Error>;
        fn release(self) -> Result<(), Error>;
        /// Why it is lost, if it is.
        fn loss(&self) -> Option<Error>;
        /// Returns functions that any thread can call to learn how much of the hold is left, or of the holds
        /// that it consists of.
        fn time_left(&self) -> Holds;
    }

    pub trait Owner {
        #[doc(hidden)]
        const BY_THREAD: bool;
    }

    impl Owner for ThreadOwned {
        const BY_THREAD: bool = true;
    }

    impl Owner for GuardOwned {
        const BY_THREAD: bool = false;
    }

    /// The owner of the hold that this thread requests.
    pub(crate) fn holder<O: Owner>(thread: u64) -> HolderId {
        if O::BY_THREAD { HolderId::thread(thread) } else { HolderId::Guard }
    }
}

/// A hold of a lock, released when it is dropped. `L` is what it holds: the [kind](crate::kinds::Kind) of a
/// [`RedisLock`](crate::RedisLock) (`Guard<Reentrant>`), [`MultiLock`](crate::MultiLock) or
/// [`RedLock`](crate::RedLock). What is said here holds for one lock; how the guard differs is said at
/// [several locks](crate::MultiLock#while-it-is-held) and at [several servers](crate::RedLock#while-it-is-held).
///
/// The guard of `lock` and its variants belongs to its thread: it cannot be sent to another one, but another
/// thread may share a reference to it. The guard of `lock_owned`, an [`OwnedGuard`], may go anywhere;
/// functions that accept either are generic over `O`.
///
/// ```
/// use redis_concurrent::{Client, Guard};
/// use redis_concurrent::guard::Ownership;
/// use redis_concurrent::kinds::Reentrant;
///
/// fn work<O: Ownership>(guard: &Guard<Reentrant, O>) -> u64 {
///     guard.token()
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let lock = client.reentrant_lock("stock:42");
/// let guard = lock.lock()?;
/// let first = work(&guard);
/// // A worker may check the hold of the thread that waits for it.
/// std::thread::scope(|scope| {
///     scope.spawn(|| assert!(!guard.is_lost()));
/// });
/// guard.unlock()?;
/// assert!(work(&lock.lock_owned()?) > first);
/// # Ok(())
/// # }
/// ```
///
/// # Dropping it
///
/// Dropping a guard sends the release, but does not wait for the reply; the next request of this lock in this process
/// goes behind it, so that a pair costs one round trip. An error or a loss is reported to the observer and logged.
/// [`Client::close`](crate::Client::close) waits for such replies, and a process that ends has sent its releases. A
/// caller elsewhere that is told *by another way* that the guard was dropped, or a query on another connection, may
/// find the lock busy for a moment; so may any caller while the release has to be repeated. Where that matters, use
/// [`unlock`](Guard::unlock), or a client that [waits](crate::ClientBuilder::drop_waits).
///
/// It waits for the reply as `unlock` does, for at most the command timeout, if a thread of this process waits for the
/// lock, if all connections are in use, and for what others may share: permits, a read/write lock, a lock on several
/// servers, several locks at once.
///
/// If a guard is leaked by `mem::forget`, the lock stays held, and is renewed, until the client is closed, or for
/// [`max_hold`](crate::ClientBuilder::max_hold), if that is set.
///
/// **`let _ = lock.lock()?;` holds nothing**: that pattern drops the guard at once. Write `let _guard = …`,
/// or use `with`, which cannot be misused.
#[must_use = "a guard that is not kept releases at once"]
pub struct Guard<L: Held, O: Ownership = ThreadOwned> {
    pub(crate) hold: L::Hold,
    /// Dropped after the hold has ended.
    warned: Warned,
    marker: PhantomData<O>,
}

/// A [`Guard`] that owns its hold itself: it may move to another thread, and be released anywhere. It never
/// re-enters: a thread that has one and asks for the same lock again, without a timeout, waits until the
/// guard is dropped, and so waits for itself if it still owns the guard.
///
/// ```
/// use redis_concurrent::{Client, Error, OwnedGuard};
/// use redis_concurrent::kinds::Reentrant;
///
/// /// A job that holds its lock from `begin` to `finish`, on whichever threads those run.
/// struct Job {
///     guard: OwnedGuard<Reentrant>,
/// }
///
/// impl Job {
///     fn begin(client: &Client) -> Result<Job, Error> {
///         Ok(Job { guard: client.reentrant_lock("job").lock_owned()? })
///     }
///
///     fn finish(self) -> Result<(), Error> {
///         self.guard.unlock()
///     }
/// }
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let job = Job::begin(&Client::connect(&url)?)?;
/// std::thread::spawn(move || job.finish()).join().expect("no panic")?;
/// # Ok(())
/// # }
/// ```
pub type OwnedGuard<L> = Guard<L, GuardOwned>;

impl<L: Held, O: Ownership> Guard<L, O> {
    pub(crate) fn new(hold: L::Hold) -> Self {
        Guard { hold, warned: Warned::default(), marker: PhantomData }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.hold.name()
    }

    /// How long the hold is certain to last if it is not renewed; zero once it is lost. Computed locally,
    /// without a request, counting from before the request that acquired it, or last renewed it, was sent.
    #[doc(alias = "ttl")]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Whether the hold ended before it was released. No request: while Redis does not reply, the hold counts
    /// as lost once its lease must have expired. A loss is final.
    #[doc(alias = "is_locked")]
    pub fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// A token that is cancelled when the hold [is lost](Guard::is_lost), even while Redis does not reply:
    /// pass it to the work that is done under the lock. From the first call on, the client listens (with a
    /// thread and a connection, created in the background), so that a forced unlock is noticed at once.
    pub fn lost(&self) -> CancellationToken {
        self.hold.lost()
    }

    /// Why the hold [is lost](Guard::is_lost), if it is: the error that releasing it would return. After a
    /// [forced unlock](crate::RedisLock::force_unlock_if), it includes the reason that was given there. No
    /// request.
    pub fn loss(&self) -> Option<Error> {
        self.hold.loss()
    }

    /// A token that is cancelled when less than `margin` is [certain to remain](Guard::remaining), because
    /// renewals fail: the work can then be stopped *before* another caller may get the lock. It is also
    /// cancelled when the hold is lost, and at once if less than `margin` is left now. It is not cancelled
    /// when the hold is released, and a wait for a [condition](crate::Condition) ends its use: ask for
    /// another token afterwards.
    ///
    /// With the default [`renew_every`](crate::ClientBuilder::renew_every), a renewed hold always has about
    /// two thirds of its lease left, so a margin of up to half the lease warns only of trouble. A hold with a
    /// fixed lease reaches the margin in any case. A hold that was waited for has a first lease of one
    /// [waiter timeout](crate::ClientBuilder::waiter_timeout): until that is renewed, half a second later,
    /// the margin is at most half of it.
    ///
    /// From the first call on, the client listens, as for [`lost`](Guard::lost), and one thread of the
    /// process serves all such tokens: it sleeps until the earliest of them may be due, and ends a second
    /// after the last one. Nothing is kept for a token that was dropped, or whose hold has ended: keep the
    /// token (or a child) for as long as you use its [`receiver`](CancellationToken::receiver).
    ///
    /// ```
    /// use std::time::Duration;
    /// use redis_concurrent::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// let lock = Client::connect(&url)?.reentrant_lock("scheduler");
    /// let guard = lock.lock()?;
    /// let stop = guard.ends_within(Duration::from_secs(5)); // of a lease of 30 s
    /// while !stop.is_cancelled() {
    ///     // a step of the work, of less than 5 s
    /// #   break;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "renew_deadline")]
    pub fn ends_within(&self, margin: Duration) -> CancellationToken {
        self.warned.ends_within(self.hold.time_left(), &self.hold.lost(), margin)
    }

    /// Sets the lease to its full length from now, like [`renew_for`](Guard::renew_for). For a hold with a
    /// fixed lease; others are renewed in the background.
    ///
    /// # Errors
    /// See [`renew_for`](Guard::renew_for).
    #[doc(alias = "extend")]
    pub fn renew(&self) -> Result<(), Error> {
        self.set_lease(None)
    }

    /// Sets the lease to end `lease` from now (sets, never adds). If the hold is renewed in the background,
    /// the renewals continue and never shorten it; only one that is under way during this call may, until the
    /// next one. At least 100 ms, at most a year. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// `LeaseLost` on a lost hold, `InvalidInput` for a lease that is too short or too long (the hold
    /// continues unchanged), `OutcomeUnknown` or `Unavailable` if Redis did not reply: the hold then lasts as
    /// long as [`remaining`](Guard::remaining) says.
    #[doc(alias = "extend")]
    pub fn renew_for(&self, lease: Duration) -> Result<(), Error> {
        check_lease("lease", lease)
            .map_err(|why| Error::new(ErrorKind::InvalidInput, self.name()).because(why))?;
        self.set_lease(Some(lease))
    }

    fn set_lease(&self, lease: Option<Duration>) -> Result<(), Error> {
        let renewed = self.hold.renew(lease);
        // Without a reply, less of the hold may be certain than before.
        warning::check_again(&self.hold.time_left());
        renewed
    }

    /// Releases the hold: the lock is free if it was the thread's last guard. Blocks for the command timeout
    /// at most, and not at all if the lock is handed on to a thread of this process.
    ///
    /// # Errors
    /// `LeaseLost` if the hold had ended before, also for an inner one of several guards; `Closed` if the
    /// client was closed. `OutcomeUnknown` if Redis did not reply, `Unavailable` if it certainly did not run
    /// the release: in both cases the release continues in the background until the lease has expired.
    /// `OutcomeUnknown` also if the hold has ended and it cannot be determined whether it had ended before:
    /// the request was sent twice, because its connection broke, and Redis may have forgotten the hold in
    /// between.
    #[doc(alias = "release")]
    pub fn unlock(self) -> Result<(), Error> {
        self.hold.release()
    }
}

impl<L: Held, O: Ownership> fmt::Debug for Guard<L, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}
