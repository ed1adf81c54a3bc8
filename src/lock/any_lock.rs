//! A lock behind a trait object, for services that accept any lock and for fakes in their tests.

use std::fmt;
use std::time::Duration;

use super::RedisLock;
use crate::cancel::CancellationToken;
use crate::error::Error;
use crate::guard::Guard;
use crate::kind::Kind;

/// Any lock. A service that takes `&dyn Lock` (or `Arc<dyn Lock>`) works with every lock of this crate, and
/// with a fake in its own tests.
///
/// ```
/// use std::time::Duration;
/// use redis_concurrent::{CancellationToken, Error, ErrorKind, Lock, LockGuard};
///
/// /// Always free, and always lost.
/// struct Lossy;
/// #[derive(Debug)]
/// struct LossyGuard;
///
/// impl LockGuard for LossyGuard {
///     fn token(&self) -> Option<u64> { Some(1) }
///     fn remaining(&self) -> Duration { Duration::ZERO }
///     fn is_lost(&self) -> bool { true }
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
///     fn lock(&self) -> Result<Box<dyn LockGuard + '_>, Error> { Ok(Box::new(LossyGuard)) }
///     fn try_lock(&self) -> Result<Option<Box<dyn LockGuard + '_>>, Error> { self.lock().map(Some) }
///     fn try_lock_for(&self, _: Duration) -> Result<Option<Box<dyn LockGuard + '_>>, Error> { self.try_lock() }
///     fn lock_interruptibly(&self, _: &CancellationToken) -> Result<Box<dyn LockGuard + '_>, Error> { self.lock() }
///     fn try_lock_for_interruptibly(&self, _: Duration, _: &CancellationToken)
///         -> Result<Option<Box<dyn LockGuard + '_>>, Error> { self.try_lock() }
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
pub trait Lock: Send + Sync {
    /// The lock's name.
    fn name(&self) -> &str;

    /// See [`RedisLock::lock`].
    ///
    /// # Errors
    /// See that method.
    fn lock(&self) -> Result<Box<dyn LockGuard + '_>, Error>;

    /// See [`RedisLock::try_lock`].
    ///
    /// # Errors
    /// See that method.
    fn try_lock(&self) -> Result<Option<Box<dyn LockGuard + '_>>, Error>;

    /// See [`RedisLock::try_lock_for`].
    ///
    /// # Errors
    /// See that method.
    fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard + '_>>, Error>;

    /// See [`RedisLock::lock_interruptibly`].
    ///
    /// # Errors
    /// See that method.
    fn lock_interruptibly(&self, cancel: &CancellationToken) -> Result<Box<dyn LockGuard + '_>, Error>;

    /// See [`RedisLock::try_lock_for_interruptibly`].
    ///
    /// # Errors
    /// See that method.
    fn try_lock_for_interruptibly(
        &self,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Option<Box<dyn LockGuard + '_>>, Error>;
}

/// A hold of any lock, released when dropped.
pub trait LockGuard: fmt::Debug {
    /// The fencing token, if the lock has one.
    fn token(&self) -> Option<u64>;

    /// See [`Hold::remaining`](crate::Hold::remaining).
    fn remaining(&self) -> Duration;

    /// See [`Hold::is_lost`](crate::Hold::is_lost).
    fn is_lost(&self) -> bool;

    /// See [`Hold::lost`](crate::Hold::lost).
    fn lost(&self) -> CancellationToken;

    /// See [`Guard::unlock`].
    ///
    /// # Errors
    /// See that method.
    fn unlock(self: Box<Self>) -> Result<(), Error>;
}

/// The guard behind the trait object. It is a type of its own: if it were [`Guard`] itself, the trait's
/// `token` would hide the guard's.
struct Any<'a, K: Kind>(Guard<'a, K>);

fn boxed<K: Kind>(guard: Guard<'_, K>) -> Box<dyn LockGuard + '_> {
    Box::new(Any(guard))
}

impl<K: Kind> fmt::Debug for Any<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<K: Kind> Lock for RedisLock<K> {
    fn name(&self) -> &str {
        RedisLock::name(self)
    }

    fn lock(&self) -> Result<Box<dyn LockGuard + '_>, Error> {
        RedisLock::lock(self).map(boxed)
    }

    fn try_lock(&self) -> Result<Option<Box<dyn LockGuard + '_>>, Error> {
        Ok(RedisLock::try_lock(self)?.map(boxed))
    }

    fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard + '_>>, Error> {
        Ok(RedisLock::try_lock_for(self, limit)?.map(boxed))
    }

    fn lock_interruptibly(&self, cancel: &CancellationToken) -> Result<Box<dyn LockGuard + '_>, Error> {
        RedisLock::lock_interruptibly(self, cancel).map(boxed)
    }

    fn try_lock_for_interruptibly(
        &self,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Option<Box<dyn LockGuard + '_>>, Error> {
        Ok(RedisLock::try_lock_for_interruptibly(self, limit, cancel)?.map(boxed))
    }
}

impl<K: Kind> LockGuard for Any<'_, K> {
    fn token(&self) -> Option<u64> {
        self.0.token_if_exclusive()
    }

    fn remaining(&self) -> Duration {
        self.0.remaining()
    }

    fn is_lost(&self) -> bool {
        self.0.is_lost()
    }

    fn lost(&self) -> CancellationToken {
        self.0.lost()
    }

    fn unlock(self: Box<Self>) -> Result<(), Error> {
        self.0.unlock()
    }
}
