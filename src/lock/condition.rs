//! Conditions of a lock: its holder waits until another holder has brought about a state.

use std::sync::Arc;

use super::{RedisLock, this_thread};
use crate::engine::call::condition::{signal, wait};
use crate::engine::call::modes::may_exclude;
use crate::engine::call::replicas::have;
use crate::error::{Error, ErrorKind};
use crate::guard::{Guard, Ownership};
use crate::kind::Exclusive;
use crate::names;
use crate::wait::Wait;

/// A condition of a lock. A thread that holds the lock waits here, without the lock, for a signal from
/// another holder in any process. Made by [`RedisLock::condition`]; cheap to clone.
///
/// ```
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let lock = client.reentrant_lock("buffer");
/// let not_empty = lock.condition("not_empty");
/// # let items = std::sync::atomic::AtomicUsize::new(0);
/// # let is_empty = || items.load(std::sync::atomic::Ordering::SeqCst) == 0;
/// # let put = || items.store(1, std::sync::atomic::Ordering::SeqCst);
///
/// std::thread::scope(|scope| {
///     let holder = scope.spawn(|| {
///         let mut guard = lock.lock()?;
///         not_empty.wait_while(&mut guard, is_empty)?;
///         // the lock is held, and there is something to take
///         guard.unlock()
///     });
///     let guard = lock.lock()?;
///     put();
///     not_empty.signal(&guard)?;
///     guard.unlock()?;
///     holder.join().expect("it does not panic")
/// })?;
/// # Ok(())
/// # }
/// ```
///
/// # What a wait does
///
/// A wait releases the lock entirely, however often the thread holds it. It returns with the lock held just
/// as often, under a new [token](crate::Guard::token), even if it timed out or was cancelled; all guards of
/// the thread are valid again then. (If the time is up before a request could be sent, the lock is not released
/// at all, and the token stays.) Other threads hold the lock in between, so check the state that you wait for
/// before and after: [`wait_while`](Condition::wait_while) does. In rare cases a wait ends without a signal:
/// when Redis was restarted without its data, or when a request had no reply.
///
/// An owned guard waits and signals in the same way as a guard that belongs to its thread.
///
/// Each waiting thread has a position of its own in Redis, in order of arrival. A signal moves the first one
/// to the end of the lock's queue, and the releasing holder then makes it the owner: it does not have to ask
/// again. No signal is lost. A wait that times out after it was signalled counts as signalled. If a process
/// dies after its thread was signalled and before it was admitted, or if a wait ends with an error instead,
/// the signal goes to the next waiter. A wait and a signal are one request each.
///
/// # Errors of all forms
///
/// `NotOwner` at once for a guard of another lock. `LeaseLost` if the guard's hold is lost. `InvalidInput`
/// for an invalid condition name. `WouldDeadlock` for a wait of a thread that also holds the read lock: it
/// would wait for itself. `Closed`, `Forked`, `WrongType` as for [the lock](RedisLock). A wait may also end
/// with `Unavailable`, if Redis could not be reached for
/// [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout). If the hold is
/// [lost](crate::Guard::is_lost) by such a wait, unlocking its guards is an error, too.
pub struct Condition<K: Exclusive> {
    lock: RedisLock<K>,
    /// The name as Redis knows it, or the error that every call returns.
    name: Result<Arc<str>, Error>,
}

impl<K: Exclusive> Clone for Condition<K> {
    fn clone(&self) -> Self {
        Condition { lock: self.lock.clone(), name: self.name.clone() }
    }
}

shows!(Condition<K> as "Condition", [K: Exclusive] |it| "lock": it.lock.name(), "name": it.name);

impl<K: Exclusive> RedisLock<K> {
    /// Returns the condition `name` of this lock: its holders wait there for a state that other holders bring
    /// about, in any process. A lock may have any number of conditions; the same name is the same condition.
    ///
    /// Making a handle sends no request and cannot fail: an invalid name (it must have 1 to 1024 bytes) is
    /// reported by the first call on it.
    pub fn condition(&self, name: &str) -> Condition<K> {
        let name = names::field("condition's name", name).map(Arc::from);
        let name = name.map_err(|why| Error::new(ErrorKind::InvalidInput, self.name()).because(why));
        Condition { lock: self.clone(), name }
    }
}

impl<K: Exclusive> Condition<K> {
    // ---- waiting ---------------------------------------------------------------------------

    /// Waits for a signal, without a deadline.
    ///
    /// # Errors
    /// See [the type](Condition#errors-of-all-forms).
    pub fn wait<O: Ownership>(&self, guard: &mut Guard<K, O>) -> Result<(), Error> {
        self.wait_within(guard, &Wait::forever()).map(drop)
    }

    /// Waits for a signal as `wait` says (a timeout, a deadline, a token, a [`Wait`]); returns `false` if the
    /// time is up without a signal, which for a zero timeout is immediately. Returns once the lock is held
    /// again, which may take longer.
    ///
    /// # Errors
    /// `Cancelled`, with the lock held, if a token is cancelled; if it was before the call, the lock is not
    /// released at all. See also [the type](Condition#errors-of-all-forms).
    pub fn wait_with<'w, O: Ownership>(
        &self,
        guard: &mut Guard<K, O>,
        wait: impl Into<Wait<'w>>,
    ) -> Result<bool, Error> {
        self.wait_within(guard, &wait.into().begun())
    }

    /// Waits for signals while `condition` returns `true`. It is evaluated with the lock held.
    ///
    /// # Errors
    /// See [the type](Condition#errors-of-all-forms).
    pub fn wait_while<O: Ownership>(
        &self,
        guard: &mut Guard<K, O>,
        mut condition: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        while condition() {
            self.wait(guard)?;
        }
        Ok(())
    }

    // ---- signalling ------------------------------------------------------------------------

    /// Signals the longest-waiting thread, if there is one: it gets the lock after this thread and all
    /// threads that wait for the lock now have released it. One request, unless dozens of waiters ahead of it
    /// died.
    ///
    /// # Errors
    /// `OutcomeUnknown` if Redis did not reply: a thread may have been signalled, and signalling again may
    /// wake another. See also [the type](Condition#errors-of-all-forms).
    pub fn signal<O: Ownership>(&self, guard: &Guard<K, O>) -> Result<(), Error> {
        self.ask(guard, "one").map(drop)
    }

    /// Signals all waiting threads: they get the lock one after the other, in order of arrival. One request
    /// for each dozen waiters.
    ///
    /// # Errors
    /// `OutcomeUnknown` if Redis did not reply: the waiters may have been signalled. See also [the
    /// type](Condition#errors-of-all-forms).
    pub fn signal_all<O: Ownership>(&self, guard: &Guard<K, O>) -> Result<(), Error> {
        self.ask(guard, "all").map(drop)
    }

    /// Returns the number of threads, in all processes, that wait and were not signalled. One request for
    /// each hundred waiters.
    ///
    /// # Errors
    /// See [the type](Condition#errors-of-all-forms).
    pub fn wait_queue_length<O: Ownership>(&self, guard: &Guard<K, O>) -> Result<usize, Error> {
        self.ask(guard, "count")
    }

    // ---- underneath ------------------------------------------------------------------------

    fn wait_within<O: Ownership>(&self, guard: &mut Guard<K, O>, limits: &Wait<'_>) -> Result<bool, Error> {
        let (condition, part) = (self.name(guard)?, self.lock.part()?);
        if let Some(other_mode) = &part.other_mode {
            may_exclude(&part.entry, other_mode, this_thread())?;
        }
        let signalled = wait(&part.entry, condition, guard.hold.ticket, this_thread(), limits)?;
        // The wait was granted a new hold, which the replicas may not have yet.
        if let Some(replicas) = part.replicas {
            have(&part.entry, guard.hold.ticket, replicas, &Wait::forever())?;
        }
        Ok(signalled)
    }

    fn ask<O: Ownership>(&self, guard: &Guard<K, O>, what: &str) -> Result<usize, Error> {
        signal(&guard.hold.entry, self.name(guard)?, guard.hold.ticket, what)
    }

    /// The name as Redis knows it, if the guard is of this lock.
    fn name<O: Ownership>(&self, guard: &Guard<K, O>) -> Result<&str, Error> {
        let lock = self.lock.entry()?;
        if !Arc::ptr_eq(lock, &guard.hold.entry) {
            let why = format!("the guard belongs to {:?}, or to another client", guard.name());
            return Err(lock.error(ErrorKind::NotOwner.because(why)));
        }
        self.name.as_deref().map_err(Clone::clone)
    }
}
