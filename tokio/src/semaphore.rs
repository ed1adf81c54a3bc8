//! A semaphore for tasks.

use std::time::Duration;

use redis_concurrent::kinds::Permits;
use redis_concurrent::{Error, Semaphore, Wait};

use crate::clock;
use crate::guard::{AsyncGuard, AsyncPermit};
use crate::turn::Turn;

/// A [`Semaphore`] for tasks. Cheap to clone.
///
/// Tasks of this process are served in order of arrival: a task that asks for many permits is not overtaken
/// by others of this process. A dropped future affects the queue in Redis as with an
/// [`AsyncLock`](crate::AsyncLock).
///
/// # Errors of all forms
///
/// Those of [`Semaphore`](Semaphore#errors-of-all-forms), and `Unavailable` if no thread could be started.
#[derive(Clone, Debug)]
pub struct AsyncSemaphore {
    semaphore: Semaphore,
    turn: Turn,
}

impl AsyncSemaphore {
    /// Creates the semaphore for tasks. Makes no request.
    pub fn new(semaphore: Semaphore) -> Self {
        AsyncSemaphore { turn: Turn::of(&semaphore), semaphore }
    }

    /// Returns the semaphore for threads, to set the number of permits, and for queries. Its calls block.
    pub fn blocking(&self) -> &Semaphore {
        &self.semaphore
    }

    /// Waits until `n` permits are acquired. If the future is dropped before, its task leaves the queue; for
    /// a timeout, wrap the future in the runtime's.
    ///
    /// # Errors
    /// See [the type](AsyncSemaphore#errors-of-all-forms).
    pub async fn acquire(&self, n: u32) -> Result<AsyncPermit, Error> {
        let semaphore = self.semaphore.clone();
        let turn = self.turn(n);
        let permit = turn.wait(self.semaphore.name(), move |wait| {
            Ok(semaphore.acquire_with(n, wait)?.map(AsyncGuard::new))
        });
        permit.await
    }

    /// Waits for `n` permits for at most `timeout`: see [`AsyncLock::try_lock_for`](crate::AsyncLock::try_lock_for).
    ///
    /// # Errors
    /// See [the type](AsyncSemaphore#errors-of-all-forms).
    pub async fn try_acquire_for(&self, n: u32, timeout: Duration) -> Result<Option<AsyncPermit>, Error> {
        if timeout.is_zero() {
            return self.try_acquire(n).await;
        }
        let semaphore = self.semaphore.clone();
        let wait = move |wait: Wait<'_>| Ok(semaphore.acquire_with(n, wait)?.map(AsyncGuard::new));
        self.turn(n).wait_by(self.semaphore.name(), clock::after(timeout), wait).await
    }

    /// Makes one attempt. Returns `None` if there are too few permits, or if tasks or threads of this process
    /// wait for some, or ask at the same time. Takes one request, of at most the command timeout, which is
    /// sent when [`try_lock`](crate::AsyncLock::try_lock) would send its own.
    ///
    /// # Errors
    /// See [the type](AsyncSemaphore#errors-of-all-forms).
    pub async fn try_acquire(&self, n: u32) -> Result<Option<AsyncPermit>, Error> {
        let semaphore = self.semaphore.clone();
        let turn = self.turn(n);
        let permit =
            turn.attempt(self.semaphore.name(), move || Ok(semaphore.try_acquire(n)?.map(AsyncGuard::new)));
        permit.await
    }
}

impl AsyncSemaphore {
    /// A number out of range is refused at once, and not only when the task's turn comes.
    fn turn(&self, n: u32) -> Turn {
        if Permits::of(n).is_ok() { self.turn.clone() } else { Turn::apart() }
    }
}

impl From<Semaphore> for AsyncSemaphore {
    fn from(semaphore: Semaphore) -> Self {
        AsyncSemaphore::new(semaphore)
    }
}
