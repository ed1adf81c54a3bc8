//! A lock for tasks.

use std::fmt;
use std::time::Duration;

use redis_concurrent::kinds::Kind;
use redis_concurrent::{Error, RedisLock, Wait};

use crate::clock;
use crate::guard::AsyncGuard;
use crate::turn::Turn;

/// A [`RedisLock`] for tasks, of any kind and with any terms. Cheap to clone.
///
/// The guard owns its hold: a task that holds the lock and locks it again waits for itself.
///
/// Tasks of this process are served in order of arrival. To other processes they are one waiter: only the
/// first of them has a position in Redis's queue. If its future is dropped, that position is lost, and the
/// next task queues at the end, behind the waiters of other processes. (Among threads, the next one takes
/// over the position.) So a [priority](RedisLock::priority) counts between processes, and for
/// [`max_waiters`](RedisLock::max_waiters) a process counts as one waiter; a task that waits for its turn is not turned
/// away.
///
/// # Errors of all forms
///
/// Those of [`RedisLock`](RedisLock#errors-of-all-forms), and `Unavailable` if no thread could be started.
pub struct AsyncLock<K: Kind> {
    lock: RedisLock<K>,
    turn: Turn,
}

impl<K: Kind> AsyncLock<K> {
    /// Creates the lock for tasks. Makes no request.
    pub fn new(lock: RedisLock<K>) -> Self {
        AsyncLock { turn: Turn::of(&lock), lock }
    }

    /// Returns the lock for threads, for queries, which block for a request.
    pub fn blocking(&self) -> &RedisLock<K> {
        &self.lock
    }

    /// Waits until the lock is acquired. If the future is dropped before, its task leaves the queue; for a
    /// timeout, wrap the future in the runtime's.
    ///
    /// # Errors
    /// See [the type](AsyncLock#errors-of-all-forms).
    pub async fn lock(&self) -> Result<AsyncGuard<K>, Error> {
        let lock = self.lock.clone();
        let guard = self
            .turn
            .wait(self.lock.name(), move |wait| Ok(lock.lock_owned_with(wait)?.map(AsyncGuard::new)));
        guard.await
    }

    /// Waits for at most `timeout`; returns `None` if it expires. A zero timeout makes [one
    /// attempt](AsyncLock::try_lock), `Duration::MAX` waits forever. Unlike a runtime's timeout around
    /// [`lock`](AsyncLock::lock), it tells a busy lock from a Redis that cannot be reached: that is an error, unless
    /// the time is up while another task of this process has its turn.
    ///
    /// # Errors
    /// See [the type](AsyncLock#errors-of-all-forms).
    pub async fn try_lock_for(&self, timeout: Duration) -> Result<Option<AsyncGuard<K>>, Error> {
        if timeout.is_zero() {
            return self.try_lock().await;
        }
        let lock = self.lock.clone();
        let wait = move |wait: Wait<'_>| Ok(lock.lock_owned_with(wait)?.map(AsyncGuard::new));
        self.turn.wait_by(self.lock.name(), clock::after(timeout), wait).await
    }

    /// Makes one attempt. Returns `None` if the lock is busy, or if tasks or threads of this process wait for
    /// it, or ask at the same time. Takes one request, of at most the command timeout. The request is sent at
    /// once, unless eight attempts of this process, for any locks, are in progress; then it is sent when one
    /// of them ends, if the future has not been dropped by then.
    ///
    /// # Errors
    /// See [the type](AsyncLock#errors-of-all-forms).
    pub async fn try_lock(&self) -> Result<Option<AsyncGuard<K>>, Error> {
        let lock = self.lock.clone();
        let guard =
            self.turn.attempt(self.lock.name(), move || Ok(lock.try_lock_owned()?.map(AsyncGuard::new)));
        guard.await
    }
}

impl<K: Kind> Clone for AsyncLock<K> {
    fn clone(&self) -> Self {
        AsyncLock { lock: self.lock.clone(), turn: self.turn.clone() }
    }
}

impl<K: Kind> From<RedisLock<K>> for AsyncLock<K> {
    fn from(lock: RedisLock<K>) -> Self {
        AsyncLock::new(lock)
    }
}

impl<K: Kind> fmt::Debug for AsyncLock<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncLock").field(&self.lock).finish()
    }
}
