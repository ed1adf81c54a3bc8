//! The ways to acquire a lock, written once for every sort of lock.

/// Defines the methods of a lock whose `lock_with` returns `$Guard`, and whose `lock_owned_with` returns
/// `$Owned`.
///
/// Their error sections refer to the section of the type that is headed `# Errors of all forms`.
macro_rules! forms {
    ($vis:vis, $Guard:ty, $Owned:ty) => {
        // ---- holds of the thread -----------------------------------------------------------

        /// Acquires the lock, waiting without a timeout.
        ///
        /// # Errors
        /// See [the type](Self#errors-of-all-forms).
        #[doc(alias = "acquire")]
        $vis fn lock(&self) -> Result<$Guard, $crate::error::Error> {
            // Without a deadline, the wait cannot time out.
            self.lock_with($crate::wait::Wait::forever())?.ok_or_else(|| $crate::forms::timed_out(self.name()))
        }

        /// Makes one attempt: `None` if the lock is busy, or if this thread holds it and may not re-enter.
        /// Blocks for one request, at most the command timeout (for several locks, one for each client and
        /// kind; for a lock over several servers, the node timeout, and as long again if what a minority
        /// granted has to be given back).
        ///
        /// # Errors
        /// See [the type](Self#errors-of-all-forms).
        $vis fn try_lock(&self) -> Result<Option<$Guard>, $crate::error::Error> {
            $crate::forms::busy_if_held(self.lock_with($crate::wait::Wait::once()))
        }

        /// Waits for at most `timeout`; returns `None` if it expires. A zero timeout makes a single attempt;
        /// `Duration::MAX` waits forever.
        ///
        /// # Errors
        /// See [the type](Self#errors-of-all-forms).
        #[doc(alias = "lock_timeout")]
        $vis fn try_lock_for(&self, timeout: std::time::Duration) -> Result<Option<$Guard>, $crate::error::Error> {
            self.lock_with($crate::wait::Wait::timeout(timeout))
        }

        /// Waits for the lock until `cancel` is cancelled. A sleeping thread wakes at once; a thread inside a
        /// request notices when the request ends.
        ///
        /// # Errors
        /// `Cancelled`, even if the lock was free, if the token was cancelled before the call. See also [the
        /// type](Self#errors-of-all-forms).
        $vis fn lock_interruptibly(
            &self,
            cancel: &$crate::cancel::CancellationToken,
        ) -> Result<$Guard, $crate::error::Error> {
            let wait = $crate::wait::Wait::forever().cancelled_by(cancel);
            self.lock_with(wait)?.ok_or_else(|| $crate::forms::timed_out(self.name()))
        }

        // ---- holds of the guard ------------------------------------------------------------

        /// Like [`lock`](Self::lock), with a guard that may move to another thread.
        ///
        /// Such a guard never re-enters. A thread that keeps one and waits for the same lock without a
        /// timeout waits for itself and gets no error: only the program knows whether the guard has moved to
        /// a thread that will drop it.
        ///
        /// # Errors
        /// See [the type](Self#errors-of-all-forms).
        $vis fn lock_owned(&self) -> Result<$Owned, $crate::error::Error> {
            self.lock_owned_with($crate::wait::Wait::forever())?
                .ok_or_else(|| $crate::forms::timed_out(self.name()))
        }

        /// Like [`try_lock`](Self::try_lock), with a guard that may move to another thread.
        ///
        /// # Errors
        /// See [the type](Self#errors-of-all-forms).
        $vis fn try_lock_owned(&self) -> Result<Option<$Owned>, $crate::error::Error> {
            $crate::forms::busy_if_held(self.lock_owned_with($crate::wait::Wait::once()))
        }
    };
    // The same methods, made public, and those that every lock defines over its own `acquire`. `$L` is what
    // its guards hold.
    ($L:ty) => {
        forms!(pub, $crate::guard::Guard<$L>, $crate::guard::OwnedGuard<$L>);

        /// Waits as `wait` says: a timeout, a deadline, a token, or [several of them](crate::Wait). Returns
        /// `None` if the time is up.
        ///
        /// # Errors
        /// `Cancelled` if `wait` has a token that is cancelled. See also [the
        /// type](Self#errors-of-all-forms).
        pub fn lock_with<'w>(
            &self,
            wait: impl Into<$crate::wait::Wait<'w>>,
        ) -> Result<Option<$crate::guard::Guard<$L>>, $crate::error::Error> {
            self.acquire(&wait.into())
        }

        /// Like [`lock_with`](Self::lock_with), with a guard that may move to another thread.
        ///
        /// # Errors
        /// See [`lock_with`](Self::lock_with).
        pub fn lock_owned_with<'w>(
            &self,
            wait: impl Into<$crate::wait::Wait<'w>>,
        ) -> Result<Option<$crate::guard::OwnedGuard<$L>>, $crate::error::Error> {
            self.acquire(&wait.into())
        }

        /// Runs `work` under the lock and returns its value. If the unlock afterwards fails, the error is
        /// reported to the observer only, as the work is done.
        ///
        /// # Errors
        /// See [`lock`](Self::lock): if it fails, `work` does not run.
        pub fn with<R>(
            &self,
            work: impl FnOnce(&$crate::guard::Guard<$L>) -> R,
        ) -> Result<R, $crate::error::Error> {
            let guard = self.lock()?;
            Ok(work(&guard))
        }
    };
}

pub(crate) use forms;

use crate::error::{Error, ErrorKind};

/// The timeout error of a method that does not return an `Option`.
pub(crate) fn timed_out(name: &str) -> Error {
    Error::new(ErrorKind::Timeout, name)
}

/// Turns `WouldDeadlock` into `None`: to a single attempt, a lock that the thread may not re-enter is busy.
pub(crate) fn busy_if_held<G>(outcome: Result<Option<G>, Error>) -> Result<Option<G>, Error> {
    match outcome {
        Err(e) if e.kind() == ErrorKind::WouldDeadlock => Ok(None),
        other => other,
    }
}
