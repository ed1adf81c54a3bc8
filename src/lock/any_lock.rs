//! A lock behind a trait object, for services that accept any lock and for fakes in their tests.

use std::fmt;
use std::time::Duration;

use super::RedisLock;
use crate::cancel::CancellationToken;
use crate::error::{Error, ErrorKind};
use crate::forms::forms;
use crate::guard::sealed::AnyHold as _;
use crate::guard::{Guard, Held, Ownership};
use crate::kind::Kind;
use crate::multi_lock::MultiLock;
use crate::red_lock::RedLock;
use crate::wait::Wait;

/// Any lock. A service that takes `&dyn Lock` (or `Arc<dyn Lock>`) works with every lock of this crate, and
/// with a fake in its own tests. A fake implements [`name`](Lock::name) and the two methods that take a
/// [`Wait`]; all others have defaults.
///
/// ```
/// use std::time::Duration;
/// use redis_concurrent::{CancellationToken, Error, ErrorKind, Lock, LockGuard, Wait};
///
/// /// Always free, and always lost.
/// struct Lossy;
/// #[derive(Debug)]
/// struct LossyGuard;
///
/// impl LockGuard for LossyGuard {
///     fn name(&self) -> &str { "fake" }
///     fn remaining(&self) -> Duration { Duration::ZERO }
///     fn lost(&self) -> CancellationToken {
///         let token = CancellationToken::new();
///         token.cancel();
///         token
///     }
///     fn unlock(self: Box<Self>) -> Result<(), Error> {
///         Err(Error::new(ErrorKind::LeaseLost, "fake"))
///     }
/// }
///
/// impl Lock for Lossy {
///     fn name(&self) -> &str { "fake" }
///     fn lock_with(&self, _: Wait<'_>) -> Result<Option<Box<dyn LockGuard>>, Error> {
///         Ok(Some(Box::new(LossyGuard)))
///     }
///     fn lock_owned_with(
///         &self,
///         _: Wait<'_>,
///     ) -> Result<Option<Box<dyn LockGuard + Send>>, Error> {
///         Ok(Some(Box::new(LossyGuard)))
///     }
/// }
///
/// fn nightly_job(lock: &dyn Lock) -> Result<bool, Error> {
///     let guard = lock.lock()?;
///     let in_time = !guard.is_lost();
///     guard.unlock().map(|()| in_time)
/// }
///
/// assert!(nightly_job(&Lossy).unwrap_err().is_lease_lost());
/// ```
///
/// # Errors of all forms
///
/// Those of the underlying lock: see [`RedisLock`](RedisLock#errors-of-all-forms),
/// [`MultiLock`](MultiLock#errors-of-all-forms) and [`RedLock`](RedLock#errors-of-all-forms).
pub trait Lock: Send + Sync {
    /// The lock's name.
    fn name(&self) -> &str;

    /// Waits as `wait` says; returns `None` if the time is up.
    ///
    /// # Errors
    /// See [the trait](Self#errors-of-all-forms).
    fn lock_with(&self, wait: Wait<'_>) -> Result<Option<Box<dyn LockGuard>>, Error>;

    /// Like [`lock_with`](Lock::lock_with), with a guard that may move to another thread.
    ///
    /// # Errors
    /// See [`lock_with`](Lock::lock_with).
    fn lock_owned_with(&self, wait: Wait<'_>) -> Result<Option<Box<dyn LockGuard + Send>>, Error>;

    forms!(, Box<dyn LockGuard>, Box<dyn LockGuard + Send>);
}

/// A hold of any lock, released when dropped. A fake has to implement the methods without a default.
pub trait LockGuard: fmt::Debug {
    /// See [`Guard::name`].
    fn name(&self) -> &str;

    /// The fencing token, if the lock has one. Default `None`.
    fn token(&self) -> Option<u64> {
        None
    }

    /// See [`Guard::remaining`].
    fn remaining(&self) -> Duration;

    /// See [`Guard::is_lost`].
    fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// See [`Guard::lost`].
    fn lost(&self) -> CancellationToken;

    /// See [`Guard::renew_for`]. The default returns `Refused`.
    ///
    /// # Errors
    /// See [`Guard::renew_for`].
    fn renew_for(&self, lease: Duration) -> Result<(), Error> {
        let why = format!("this guard cannot set a lease of {lease:?}");
        Err(Error::new(ErrorKind::Refused, self.name()).because(why))
    }

    /// Does what [`Guard::unlock`] does.
    ///
    /// # Errors
    /// See [`Guard::unlock`].
    fn unlock(self: Box<Self>) -> Result<(), Error>;
}

macro_rules! locks {
    ($([$($generics:tt)*] $Lock:ty),*) => {$(
        impl<$($generics)*> Lock for $Lock {
            fn name(&self) -> &str {
                <$Lock>::name(self)
            }

            fn lock_with(&self, wait: Wait<'_>) -> Result<Option<Box<dyn LockGuard>>, Error> {
                Ok(<$Lock>::lock_with(self, wait)?.map(|guard| Box::new(guard) as _))
            }

            fn lock_owned_with(&self, wait: Wait<'_>) -> Result<Option<Box<dyn LockGuard + Send>>, Error> {
                Ok(<$Lock>::lock_owned_with(self, wait)?.map(|guard| Box::new(guard) as _))
            }
        }
    )*};
}

locks!([K: Kind] RedisLock<K>, [] MultiLock, [] RedLock);

impl<L: Held, O: Ownership> LockGuard for Guard<L, O> {
    fn name(&self) -> &str {
        self.hold.name()
    }

    fn token(&self) -> Option<u64> {
        self.hold.token()
    }

    fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    fn lost(&self) -> CancellationToken {
        self.hold.lost()
    }

    fn renew_for(&self, lease: Duration) -> Result<(), Error> {
        Guard::renew_for(self, lease)
    }

    fn unlock(self: Box<Self>) -> Result<(), Error> {
        self.hold.release()
    }
}
