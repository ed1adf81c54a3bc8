//! Any lock for tasks, also a fake.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use redis_concurrent::{CancellationToken, Error, Lock, LockGuard, Wait};

use crate::clock;
use crate::turn::Turn;
use crate::workers::{InBackground, RELEASES};

/// Any [`Lock`] for tasks: that of a [`MultiLock`](redis_concurrent::MultiLock) or a
/// [`RedLock`](redis_concurrent::RedLock), or a fake. A service that takes an `AsyncAnyLock` is tested without Redis,
/// with a `Lock` of the test's own. Cheap to clone; the tasks of its clones wait in turn, on one thread.
///
/// ```
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// use redis_concurrent::{CancellationToken, Error, Lock, LockGuard, Wait};
/// use redis_concurrent_tokio::AsyncAnyLock;
///
/// /// Always busy.
/// struct Busy;
///
/// impl Lock for Busy {
///     fn name(&self) -> &str { "fake" }
///     fn lock_with(&self, _: Wait<'_>) -> Result<Option<Box<dyn LockGuard>>, Error> {
///         Ok(None)
///     }
///     fn lock_owned_with(&self, _: Wait<'_>) -> Result<Option<Box<dyn LockGuard + Send>>, Error> {
///         Ok(None)
///     }
/// }
///
/// async fn service(lock: &AsyncAnyLock) -> Result<&'static str, Error> {
///     let Some(guard) = lock.try_lock_for(Duration::from_secs(2)).await? else { return Ok("come back later") };
///     guard.unlock().await?;
///     Ok("done")
/// }
///
/// # tokio::runtime::Builder::new_current_thread().build().expect("a runtime").block_on(async {
/// assert_eq!(service(&AsyncAnyLock::new(Arc::new(Busy))).await?, "come back later");
/// # Ok::<(), Error>(())
/// # }).expect("no error");
/// ```
///
/// # Errors of all forms
///
/// Those of the lock, and `Unavailable` if no thread could be started.
#[derive(Clone)]
pub struct AsyncAnyLock {
    lock: Arc<dyn Lock>,
    turn: Turn,
}

impl AsyncAnyLock {
    /// Creates the lock for tasks. Makes no request.
    pub fn new(lock: Arc<dyn Lock>) -> Self {
        AsyncAnyLock { lock, turn: Turn::apart() }
    }

    /// Like [`AsyncLock::lock`](crate::AsyncLock::lock).
    ///
    /// # Errors
    /// See [the type](AsyncAnyLock#errors-of-all-forms).
    pub async fn lock(&self) -> Result<AsyncAnyGuard, Error> {
        let lock = self.lock.clone();
        self.turn.wait(self.lock.name(), move |wait| acquired(&*lock, wait)).await
    }

    /// Like [`AsyncLock::try_lock`](crate::AsyncLock::try_lock).
    ///
    /// # Errors
    /// See [the type](AsyncAnyLock#errors-of-all-forms).
    pub async fn try_lock(&self) -> Result<Option<AsyncAnyGuard>, Error> {
        let lock = self.lock.clone();
        self.turn.attempt(self.lock.name(), move || acquired(&*lock, Wait::once())).await
    }

    /// Like [`AsyncLock::try_lock_for`](crate::AsyncLock::try_lock_for).
    ///
    /// # Errors
    /// See [the type](AsyncAnyLock#errors-of-all-forms).
    pub async fn try_lock_for(&self, timeout: Duration) -> Result<Option<AsyncAnyGuard>, Error> {
        if timeout.is_zero() {
            return self.try_lock().await;
        }
        let (lock, deadline) = (self.lock.clone(), clock::after(timeout));
        self.turn.wait_by(self.lock.name(), deadline, move |wait| acquired(&*lock, wait)).await
    }
}

fn acquired(lock: &dyn Lock, wait: Wait<'_>) -> Result<Option<AsyncAnyGuard>, Error> {
    Ok(lock.lock_owned_with(wait)?.map(|guard| AsyncAnyGuard(InBackground::new(guard))))
}

impl fmt::Debug for AsyncAnyLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncAnyLock").field(&self.lock.name()).finish()
    }
}

/// A hold of an [`AsyncAnyLock`], released in the background when dropped, as an
/// [`AsyncGuard`](crate::AsyncGuard) is.
#[derive(Debug)]
#[must_use = "a guard that is not kept releases at once"]
pub struct AsyncAnyGuard(InBackground<Box<dyn LockGuard + Send>>);

impl AsyncAnyGuard {
    /// See [`LockGuard::token`].
    pub fn token(&self) -> Option<u64> {
        self.0.get().token()
    }

    /// See [`LockGuard::remaining`].
    pub fn remaining(&self) -> Duration {
        self.0.get().remaining()
    }

    /// See [`LockGuard::is_lost`].
    pub fn is_lost(&self) -> bool {
        self.0.get().is_lost()
    }

    /// See [`LockGuard::lost`].
    pub fn lost(&self) -> CancellationToken {
        self.0.get().lost()
    }

    /// Like [`AsyncGuard::unlock`](crate::AsyncGuard::unlock).
    ///
    /// # Errors
    /// Those of [`LockGuard::unlock`].
    pub async fn unlock(self) -> Result<(), Error> {
        let guard = self.0.into_inner();
        let name = guard.name().to_owned();
        RELEASES.outcome(&name, move || guard.unlock()).await
    }
}
