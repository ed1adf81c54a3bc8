//! A read/write lock for tasks.

use redis_concurrent::kinds::{Read, Write};
use redis_concurrent::{Error, ReadWriteLock};

use crate::guard::AsyncGuard;
use crate::lock::AsyncLock;

/// A [`ReadWriteLock`] for tasks: many readers or one writer. Cheap to clone.
///
/// # Errors of all forms
///
/// Those of [any lock](redis_concurrent::RedisLock#errors-of-all-forms), and `Unavailable` if no thread could be started.
#[derive(Clone, Debug)]
pub struct AsyncReadWriteLock {
    lock: ReadWriteLock,
    read: AsyncLock<Read>,
    write: AsyncLock<Write>,
}

impl AsyncReadWriteLock {
    /// Creates the lock for tasks. Makes no request.
    pub fn new(lock: ReadWriteLock) -> Self {
        let (read, write) = (lock.read_lock().clone().into(), lock.write_lock().clone().into());
        AsyncReadWriteLock { lock, read, write }
    }

    /// Returns the lock for threads, for queries, which block for a request.
    pub fn blocking(&self) -> &ReadWriteLock {
        &self.lock
    }

    /// Returns the half for reading.
    pub fn read_lock(&self) -> &AsyncLock<Read> {
        &self.read
    }

    /// Returns the half for writing.
    pub fn write_lock(&self) -> &AsyncLock<Write> {
        &self.write
    }

    /// Waits until this task may read; otherwise like [`AsyncLock::lock`].
    ///
    /// # Errors
    /// See [the type](AsyncReadWriteLock#errors-of-all-forms).
    pub async fn read(&self) -> Result<AsyncGuard<Read>, Error> {
        self.read.lock().await
    }

    /// Waits until this task may write; otherwise like [`AsyncLock::lock`].
    ///
    /// # Errors
    /// See [the type](AsyncReadWriteLock#errors-of-all-forms).
    pub async fn write(&self) -> Result<AsyncGuard<Write>, Error> {
        self.write.lock().await
    }
}

impl From<ReadWriteLock> for AsyncReadWriteLock {
    fn from(lock: ReadWriteLock) -> Self {
        AsyncReadWriteLock::new(lock)
    }
}
