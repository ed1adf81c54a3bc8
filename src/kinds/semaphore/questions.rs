//! Queries of a semaphore.

use super::Semaphore;
use super::state::{State, natural};
use crate::error::Error;
use crate::lock::holder::{Holder, busy, held_by};

impl Semaphore {
    /// The number of available permits: all permits, minus the acquired ones; 0 if they were never set.
    /// Negative, as in java.util.concurrent, if they were [reduced](Semaphore::reduce_permits) below the
    /// number acquired, or below 0. One request.
    ///
    /// # Errors
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    #[doc(alias = "available_permits")]
    pub fn available(&self) -> Result<i64, Error> {
        Ok(self.state()?.free())
    }

    /// The number of permits, acquired ones included; `None` if it was never set. One request.
    ///
    /// # Errors
    /// See [`available`](Semaphore::available).
    pub fn permits(&self) -> Result<Option<u32>, Error> {
        Ok(self.state()?.permits.map(natural))
    }

    /// The holders of permits, in all processes, and how many each has. One request.
    ///
    /// # Errors
    /// See [`available`](Semaphore::available).
    pub fn holders(&self) -> Result<Vec<Holder>, Error> {
        let inspection = self.lock.inspect()?;
        Ok(State::of(&inspection).holders(inspection.holders))
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
        let inspected = self.lock.inspect().map(|inspection| {
            let state = State::of(&inspection);
            let (free, all) = (natural(state.free()), natural(state.permits.unwrap_or(0)));
            let are = if free == 1 { "is" } else { "are" };
            let by = held_by(&state.holders(inspection.holders));
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

    fn state(&self) -> Result<State, Error> {
        Ok(State::of(&self.lock.inspect()?))
    }
}
