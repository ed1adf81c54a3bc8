//! A counting semaphore: a number of permits, shared by all processes.

use std::fmt::Debug;
use std::ops::RangeInclusive;
use std::time::Duration;

use crate::client::Client;
use crate::engine::redis::resp::number;
use crate::error::{Error, ErrorKind};
use crate::forms::timed_out;
use crate::guard::OwnedGuard;
use crate::kind::{Kind, Queued, Reentrancy, Sharing};
use crate::lock::RedisLock;
use crate::lock::holder::{busy, held_by, holders_of};
use crate::lock::inspect::{Holder, Rows};
use crate::settings::{check_lease, within};
use crate::wait::Wait;

/// Acquired permits: all of them are given back when this is dropped. It may move to another thread.
///
/// A hold like that of a lock: it has a lease, renewed in the background, and
/// [reports](crate::Guard::lost) its loss. [`permits`](Permit::permits) returns how many it has,
/// [`release_some`](Permit::release_some) gives some of them back.
pub type Permit = OwnedGuard<Permits>;

impl Permit {
    /// How many permits it has.
    pub fn permits(&self) -> u32 {
        // A semaphore has fewer than 2^31.
        self.value().try_into().unwrap_or(u32::MAX)
    }

    /// Gives all of them back, as [`unlock`](crate::Guard::unlock) does. Blocks for the command timeout at most.
    ///
    /// # Errors
    /// Those of [`Guard::unlock`](crate::Guard::unlock).
    pub fn release(self) -> Result<(), Error> {
        self.unlock()
    }

    /// Gives `n` of its permits back and keeps the others, one at least. Blocks for one request, at most the
    /// command timeout.
    ///
    /// # Errors
    /// `InvalidInput` for 0, and for all permits that it has: [`release`](Permit::release) gives those back.
    /// `LeaseLost` or `Closed` if the permits were lost before. `OutcomeUnknown` if Redis did not reply: they
    /// may have been given back, and calling it again gives back the same ones. `Unavailable`, `Forked`.
    pub fn release_some(&mut self, n: u32) -> Result<(), Error> {
        let has = self.permits();
        if n == 0 || n >= has {
            let why = format!("of {has} permits at least one must be given back and one kept, got {n}");
            return Err(Error::new(ErrorKind::InvalidInput, self.name()).because(why));
        }
        let kept = has - n;
        self.update("keep", &kept.to_string())?;
        self.hold.value = kept.into();
        Ok(())
    }
}

/// A counting semaphore: a number of permits, of which each caller acquires some and gives them back. The
/// handle of one name, cheap to clone and to create.
///
/// ```
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let printers = client.semaphore("printers");
/// printers.try_set_permits(3)?; // in the first process
///
/// let two = printers.acquire(2)?;
/// assert!(printers.try_acquire(2)?.is_none());
/// assert_eq!(printers.available()?, 1);
/// two.release()?; // dropping it does the same
/// # Ok(())
/// # }
/// ```
///
/// # How it counts
///
/// The semaphore's users set the number of permits, by [`set_permits`](Semaphore::set_permits) and related
/// methods. The number stays until [`delete`](Semaphore::delete), unless
/// [`expire_after`](Semaphore::expire_after) limits that. Acquired permits have a lease: those of a process
/// that died return when it expires. They are returned only by their [`Permit`], so a caller cannot give back
/// more than it acquired; to add permits, unlike in java.util.concurrent, use
/// [`add_permits`](Semaphore::add_permits).
///
/// **Set to 0**, a semaphore has no permits yet: a caller waits, for however many, until others add them, as
/// with java.util.concurrent's `Semaphore(0)`. This stays so until the permits are set to another number.
///
/// A request gets all it asks for or none. Requests are served in order of arrival, between processes as well
/// as between the threads of one: a large request at the head is not passed by small ones behind it, and
/// `try_acquire` passes no waiter. A thread that gives up leaves its queue position to the next thread of its
/// process that asks for the same number; a thread that asks for another number goes to the end of the queue.
///
/// # Errors of all forms
///
/// `InvalidInput` for 0 permits or more than 2^31-1, without a request. `Refused` if the permits were never
/// set, or for more than there are in all, unless they were set to 0. This is reported as soon as Redis is
/// asked, which for a thread behind others of its process is when its turn comes; a waiter is notified when
/// the permits become too few for it. The other errors are those of [any
/// lock](RedisLock#errors-of-all-forms), except `WouldDeadlock`: a thread that has permits may ask for more,
/// and then waits for itself.
#[derive(Clone)]
pub struct Semaphore {
    lock: RedisLock<Permits>,
}

impl Queued for Semaphore {
    fn queue(&self) -> Option<usize> {
        self.lock.queue()
    }
}

shows!(Semaphore as "Semaphore", |it| "name": it.name());

impl Client {
    /// The semaphore `name`: a number of permits, of which each caller acquires some.
    #[doc(alias = "getSemaphore")]
    pub fn semaphore(&self, name: &str) -> Semaphore {
        Semaphore { lock: self.lock_with_kind(name, Permits::default()) }
    }
}

impl Semaphore {
    /// The same semaphore with a fixed lease: permits acquired through it return by themselves, at most
    /// `lease` after they were granted, and are not renewed in the background. At least 100 ms, at most a
    /// year.
    #[must_use]
    pub fn with_lease(&self, lease: Duration) -> Self {
        Semaphore { lock: self.lock.with_lease(lease) }
    }

    /// The same semaphore for permits that count only once `n` replicas have them: see
    /// [`RedisLock::with_replicas`].
    #[must_use]
    pub fn with_replicas(&self, n: usize, timeout: Duration) -> Self {
        Semaphore { lock: self.lock.with_replicas(n, timeout) }
    }

    /// The semaphore's name.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    // ---- acquiring -------------------------------------------------------------------------

    /// Acquires `n` permits, waiting without a timeout.
    ///
    /// # Errors
    /// See [the type](Semaphore#errors-of-all-forms).
    pub fn acquire(&self, n: u32) -> Result<Permit, Error> {
        self.acquire_with(n, Wait::forever())?.ok_or_else(|| timed_out(self.name()))
    }

    /// Makes one attempt: `None` if fewer than `n` permits are available, or if there is a waiter. Blocks for
    /// one request, at most the command timeout.
    ///
    /// # Errors
    /// See [the type](Semaphore#errors-of-all-forms).
    pub fn try_acquire(&self, n: u32) -> Result<Option<Permit>, Error> {
        self.acquire_with(n, Wait::once())
    }

    /// Waits for `n` permits as `wait` says (a timeout, a deadline, a token, a [`Wait`]); returns `None` if
    /// the time is up.
    ///
    /// # Errors
    /// `Cancelled` if `wait` has a token that is cancelled. See also [the
    /// type](Semaphore#errors-of-all-forms).
    pub fn acquire_with<'w>(&self, n: u32, wait: impl Into<Wait<'w>>) -> Result<Option<Permit>, Error> {
        self.checked(n, 1..=MOST)?;
        self.lock.with_kind(Permits(Some(n))).lock_owned_with(wait)
    }

    /// Acquires all available permits, as one `Permit`; `None` if there are none, or if there is a waiter.
    /// Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// See [the type](Semaphore#errors-of-all-forms); permits that were never set count as none.
    pub fn drain(&self) -> Result<Option<Permit>, Error> {
        self.lock.with_kind(Permits(None)).try_lock_owned()
    }

    // ---- how many there are ----------------------------------------------------------------

    /// Sets the number of permits to `n`, acquired ones included; 0 to 2^31-1. Waiters that may now proceed
    /// do; those that asked for more than `n` are rejected, unless `n` is 0: then all keep waiting. One
    /// request.
    ///
    /// # Errors
    /// `InvalidInput`, `Unavailable`, `WrongType`, `Closed`, `Forked`; `OutcomeUnknown` if Redis did not
    /// reply.
    pub fn set_permits(&self, n: u32) -> Result<(), Error> {
        self.checked(n, 0..=MOST)?;
        self.changes("set", n.into()).map(drop)
    }

    /// Sets the number of permits to `n`, 0 to 2^31-1, if it was never set. Returns whether it did. One
    /// request.
    ///
    /// # Errors
    /// See [`set_permits`](Semaphore::set_permits).
    pub fn try_set_permits(&self, n: u32) -> Result<bool, Error> {
        self.checked(n, 0..=MOST)?;
        self.changes("first", n.into())
    }

    /// Adds `n` permits, from 1 to 2^31-1, or removes so many if it is negative; the first ones, if the number was never
    /// set. None is taken from a holder: while more are acquired than there are in all, a negative number is
    /// [available](Semaphore::available). Waiters for more than there are in all are rejected, unless none are left:
    /// then all keep waiting, as if the number had been set to 0. One request.
    ///
    /// # Errors
    /// `InvalidInput` for 0 or more than 2^31-1, `Refused` if there would be more than that in all; otherwise
    /// see [`set_permits`](Semaphore::set_permits).
    pub fn add_permits(&self, n: i64) -> Result<(), Error> {
        self.checked(n.unsigned_abs(), 1..=MOST.into())?;
        self.changes("add", n).map(drop)
    }

    /// Makes the semaphore expire after `timeout`, with the permits that are acquired by then: their holders
    /// lose them, and learn of it at their next renewal. From 100 ms to a year. Returns whether there was a
    /// semaphore. One request.
    ///
    /// # Errors
    /// See [`set_permits`](Semaphore::set_permits).
    pub fn expire_after(&self, timeout: Duration) -> Result<bool, Error> {
        check_lease("time to live", timeout).map_err(|why| self.lock.error(ErrorKind::InvalidInput, why))?;
        self.lock.update_state(&["expire", &timeout.as_millis().to_string()])
    }

    /// Deletes the semaphore: holders lose their permits, and learn of it at their next renewal; waiters are
    /// rejected. Returns whether there was a semaphore (`true` also if the request had to be sent twice). One
    /// request.
    ///
    /// # Errors
    /// See [`set_permits`](Semaphore::set_permits).
    pub fn delete(&self) -> Result<bool, Error> {
        self.lock.update_state(&["delete"])
    }

    // ---- underneath ------------------------------------------------------------------------

    fn checked<N: PartialOrd + Debug>(&self, n: N, range: RangeInclusive<N>) -> Result<(), Error> {
        within("permits", n, range).map_err(|why| self.lock.error(ErrorKind::InvalidInput, why))
    }

    /// Updates the number of permits. Returns whether it did.
    fn changes(&self, what: &str, n: i64) -> Result<bool, Error> {
        match self.lock.update_state(&[what, &n.to_string()])? {
            -1 => Err(self.lock.error(ErrorKind::Refused, format!("a semaphore has at most {MOST} permits"))),
            did => Ok(did == 1),
        }
    }
}

/// The most permits that a semaphore has, or that a caller may ask for.
const MOST: u32 = i32::MAX as u32;

/// The kind of [`Semaphore`]: a hash with the number of permits, the number acquired, and
/// for each owner how many it has, until when.
///
/// The number available is counted, not summed up: acquiring costs the same however many holders there are.
/// **The number of permits belongs to the semaphore's users**, not to a hold: it stays when all are returned,
/// and does not expire unless [that is asked for](crate::Semaphore::expire_after). Acquired permits belong to
/// their holds, and return when their leases expire.
///
/// A handle for a constant number of permits, with every way to acquire a lock, is
/// `client.lock_with_kind(name, Permits::of(3)?)`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Permits(
    /// `None`: all that are available.
    Option<u32>,
);

impl Permits {
    /// `n` permits, from 1 to 2^31-1.
    ///
    /// # Errors
    /// `InvalidInput` for a number out of range.
    pub fn of(n: u32) -> Result<Permits, Error> {
        let checked = within("permits", n, 1..=MOST).map_err(|why| ErrorKind::InvalidInput.because(why));
        checked.map(|()| Permits(Some(n)))
    }
}

/// One permit.
impl Default for Permits {
    fn default() -> Self {
        Permits(Some(1))
    }
}

impl Kind for Permits {
    const NAME: &'static str = "semaphore";
    const RULE: &'static str = rule_file!("../../lua/semaphore.lua");
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;

    fn args(&self) -> String {
        self.0.map_or_else(|| "all".to_owned(), |n| n.to_string())
    }
}

/// A number of permits; 0 if it is negative.
fn natural(n: i64) -> u32 {
    u32::try_from(n.max(0)).unwrap_or(u32::MAX)
}

/// The permits, if they were set, and how many of them are acquired.
fn counts(rows: &Rows) -> (Option<i64>, i64) {
    let count = |i: usize| number(rows.state.get(i));
    (count(0), count(1).unwrap_or(0))
}

/// The holders, each with its permits.
fn holders(rows: Rows) -> Vec<Holder> {
    holders_of(rows.holders, false, rows.state.get(2..).unwrap_or_default())
}

impl Semaphore {
    /// The number of available permits: all permits, minus the acquired ones; 0 if they were never set.
    /// Negative, as in java.util.concurrent, if they were [reduced](Semaphore::add_permits) below the
    /// number acquired, or below 0. One request.
    ///
    /// # Errors
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    #[doc(alias = "available_permits")]
    pub fn available(&self) -> Result<i64, Error> {
        let (permits, used) = counts(&self.lock.inspect()?);
        Ok(permits.unwrap_or(0) - used)
    }

    /// The number of permits, acquired ones included; `None` if it was never set. One request.
    ///
    /// # Errors
    /// See [`available`](Semaphore::available).
    pub fn permits(&self) -> Result<Option<u32>, Error> {
        Ok(counts(&self.lock.inspect()?).0.map(natural))
    }

    /// The holders of permits, in all processes, and how many each has. One request.
    ///
    /// # Errors
    /// See [`available`](Semaphore::available).
    pub fn holders(&self) -> Result<Vec<Holder>, Error> {
        self.lock.inspect().map(holders)
    }

    /// Returns the error of a caller that did not get its permits in time: a
    /// [`Timeout`](crate::ErrorKind::Timeout) that names the holders' processes (three at most), how many
    /// permits each has and for how long, and how many are available, as
    /// [`RedisLock::busy_error`](crate::RedisLock::busy_error) does for a lock. Sends one request.
    ///
    /// ```
    /// use redis_concurrent::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// # let billing = Client::builder().url(&url).client_name("billing").connect()?;
    /// # billing.semaphore("printers").set_permits(3)?;
    /// # let _two = billing.semaphore("printers").acquire(2)?;
    /// # let client = Client::connect(&url)?;
    /// let printers = client.semaphore("printers");
    /// let printed = printers.try_acquire(2)?.ok_or_else(|| printers.busy_error());
    /// // "printers": timed out: held by billing 5014@shop-1 (2 permits) for 12.3 s;
    /// // 1 of 3 permits is available
    /// assert!(printed.unwrap_err().to_string().ends_with("; 1 of 3 permits is available"));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "or_who")]
    pub fn busy_error(&self) -> Error {
        let inspected = self.lock.inspect().map(|rows| {
            let (permits, used) = counts(&rows);
            let all = permits.unwrap_or(0);
            let (free, all) = (natural(all - used), natural(all));
            let are = if free == 1 { "is" } else { "are" };
            let by = held_by(&holders(rows));
            format!("{by}; {free} of {all} permits {are} available")
        });
        busy(self.name(), inspected)
    }

    /// The number of threads that wait for permits, in all processes: see
    /// [`RedisLock::queue_length`](crate::RedisLock::queue_length). One request.
    ///
    /// # Errors
    /// See [`available`](Semaphore::available).
    pub fn queue_length(&self) -> Result<usize, Error> {
        self.lock.queue_length()
    }
}
