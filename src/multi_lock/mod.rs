//! Any locks as one: all of them, or none.

mod guard;
mod member;

use std::fmt;
use std::time::{Duration, Instant};

pub use self::guard::{MultiGuard, MultiHold, OwnedMultiGuard};
pub use self::member::Member;
use crate::cancel::CancellationToken;
use crate::engine::several::{Call, Holds, Part};
use crate::engine::state::lock_state::Taker;
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;
use crate::lock::any_lock::{Lock, LockGuard};
use crate::lock::this_thread;
use crate::wait::Wait;

/// Several locks that are held together: all of them, or none. They may be of any kinds, and of any
/// clients; both halves of read/write locks and permits (`client.lock_with_kind(name, Permits::of(3)?)`) are
/// locks too.
///
/// ```
/// use redis_concurrent::{Client, MultiLock};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let (from, to) = (client.reentrant_lock("account:1"), client.reentrant_lock("account:2"));
/// let prices = client.read_write_lock("prices");
///
/// let transfer = MultiLock::new(&[&from, &to, prices.read_lock()]);
/// let guard = transfer.lock()?;
/// let tokens = guard.tokens(); // in the order of the locks; readers have none
/// assert!(tokens[0].is_some() && tokens[1].is_some() && tokens[2].is_none());
/// guard.unlock()?; // dropping it does the same
/// # Ok(())
/// # }
/// ```
///
/// # How it comes in
///
/// As C++'s `std::lock` does: it waits for one lock, in its queue as anybody does, and only tries the
/// rest; when one of those is busy it gives all back and waits for that one. So it never waits for one
/// lock while it holds another by this call, and cannot deadlock with other multi-locks, in whatever
/// order they name theirs. Who comes first in one queue may have to queue again in another: among several
/// locks there is no order of arrival. A lock that this thread holds already is re-entered where its kind
/// allows it, and stays held while the others are waited for: **locks held outside of it are their
/// caller's order to keep.**
///
/// There is one deadline for all; what is not given back by then is given back in the background. Each lock is
/// taken once, and given back in reverse. Locks of one
/// client and one kind are tried, and given back, by one request each time, in one step; so ten names
/// of one client cost two requests, ten names of ten clients twenty. Redis does nothing else in such a step:
/// what it takes grows with the names in it.
///
/// # While it is held
///
/// It has an ordinary hold of each lock, on its handle's terms: renewed like others, told to observers like
/// others. Replicas that [are to have one](crate::RedisLock::with_replicas) are waited for when all are there;
/// [what stays](crate::RedisLock::min_hold) does so only where all were held. It is
/// [lost](MultiHold::lost) when any of them is, and certain to last as long as the one that ends first.
///
/// # Over several masters
///
/// Redis replicates after it has answered: a lock may be given to two, if its master fails before
/// a replica heard of the first and the replica takes its place. A multi-lock of the same name on several
/// independent masters, with a client of each, is the cure where that must not be: it is held only if
/// every master gave it, so all of them would have to lose it at once. The price is that every master must
/// be there.
///
/// # Errors of all forms
///
/// Those of [each lock](crate::RedisLock#errors-of-all-forms), about the lock that it came from; nothing is
/// held then. Where the time is up, or at the one attempt of `try_lock`, a lock that cannot be had is
/// `None`. `LeaseLost` also where one ended before the last one was there. `Config`, with nothing sent: for
/// no locks at all; for the same lock twice, which are also the halves of one read/write lock, or two clients'
/// handles where both have the same address; for a kind that [nobody holds](Sharing::PassThrough).
#[derive(Clone)]
pub struct MultiLock {
    parts: Result<Vec<Part>, Error>,
    /// The names of all.
    name: String,
}

impl MultiLock {
    /// These locks as one. Making it asks nothing of Redis and cannot fail: what is wrong with them is told
    /// by every call on it.
    pub fn new(members: &[&dyn Member]) -> MultiLock {
        let parts: Result<Vec<Part>, Error> = members.iter().map(|member| member.part()).collect();
        let parts = parts.and_then(checked);
        let names: Vec<_> = match &parts {
            Ok(parts) => parts.iter().map(|part| &*part.cell.name).collect(),
            Err(error) => vec![error.name()],
        };
        MultiLock { name: names.join(" + "), parts }
    }

    /// The same locks with a fixed lease, each as [`RedisLock::with_lease`](crate::RedisLock::with_lease)
    /// has it: the hold ends by itself and is never renewed; where the thread holds one of them already, that
    /// one keeps its lease. At least 100 ms, at most a year.
    #[must_use]
    pub fn with_lease(&self, lease: Duration) -> MultiLock {
        let with_lease = |parts: Vec<Part>| parts.into_iter().map(|part| part.with_lease(lease)).collect();
        MultiLock { parts: self.parts.clone().and_then(with_lease), name: self.name.clone() }
    }

    /// The names of its locks, with ` + ` between them.
    pub fn name(&self) -> &str {
        &self.name
    }

    // ---- for the thread --------------------------------------------------------------------

    /// Waits for all of them, without a deadline.
    ///
    /// # Errors
    /// See [the type](MultiLock#errors-of-all-forms).
    pub fn lock(&self) -> Result<MultiGuard<'_>, Error> {
        self.must(&Wait::forever(), thread()).map(|holds| MultiGuard::new(self, holds))
    }

    /// One attempt: `None` when one is busy, or when this thread holds one that it may not re-enter. Blocks
    /// for one request for each client and kind, at most the command limit each.
    ///
    /// # Errors
    /// See [the type](MultiLock#errors-of-all-forms).
    pub fn try_lock(&self) -> Result<Option<MultiGuard<'_>>, Error> {
        Ok(self.try_once(thread())?.map(|holds| MultiGuard::new(self, holds)))
    }

    /// Waits for at most `limit` for all of them together; `None` when the time is up. Nothing means one
    /// attempt, an enormous limit means for ever.
    ///
    /// # Errors
    /// See [the type](MultiLock#errors-of-all-forms).
    pub fn try_lock_for(&self, limit: Duration) -> Result<Option<MultiGuard<'_>>, Error> {
        self.guarded(&Wait::for_at_most(limit))
    }

    /// Waits until `deadline`; `None` when the time is up.
    ///
    /// # Errors
    /// See [the type](MultiLock#errors-of-all-forms).
    pub fn try_lock_until(&self, deadline: Instant) -> Result<Option<MultiGuard<'_>>, Error> {
        self.guarded(&Wait::until(deadline))
    }

    /// Waits for all of them until `cancel` is cancelled. A thread that sleeps wakes at once; one inside a
    /// request sees it when that ends, after at most the command limit.
    ///
    /// # Errors
    /// `Cancelled`, about the lock that it waited for. See also [the type](MultiLock#errors-of-all-forms).
    pub fn lock_interruptibly(&self, cancel: &CancellationToken) -> Result<MultiGuard<'_>, Error> {
        self.must(&Wait::forever().with(cancel), thread()).map(|holds| MultiGuard::new(self, holds))
    }

    /// Waits for at most `limit`, until `cancel` is cancelled; `None` when the time is up.
    ///
    /// # Errors
    /// `Cancelled`, about the lock that it waited for. See also [the type](MultiLock#errors-of-all-forms).
    pub fn try_lock_for_interruptibly(
        &self,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Option<MultiGuard<'_>>, Error> {
        self.guarded(&Wait::for_at_most(limit).with(cancel))
    }

    /// Runs `work` under all of them and returns its value. An error of the unlock afterwards goes to the
    /// observers, as the work is done.
    ///
    /// # Errors
    /// Those of [`lock`](MultiLock::lock); then `work` did not run.
    pub fn with<R>(&self, work: impl FnOnce(&MultiGuard<'_>) -> R) -> Result<R, Error> {
        let guard = self.lock()?;
        Ok(work(&guard))
    }

    // ---- for the guard ---------------------------------------------------------------------

    /// Like [`lock`](MultiLock::lock), for a guard that may go to another thread.
    ///
    /// # Errors
    /// See [the type](MultiLock#errors-of-all-forms).
    pub fn lock_owned(&self) -> Result<OwnedMultiGuard, Error> {
        self.must(&Wait::forever(), Taker::Guard).map(OwnedMultiGuard::new)
    }

    /// Like [`try_lock`](MultiLock::try_lock), for a guard that may go to another thread.
    ///
    /// # Errors
    /// See [the type](MultiLock#errors-of-all-forms).
    pub fn try_lock_owned(&self) -> Result<Option<OwnedMultiGuard>, Error> {
        Ok(self.try_once(Taker::Guard)?.map(OwnedMultiGuard::new))
    }

    /// Like [`try_lock_for`](MultiLock::try_lock_for), for a guard that may go to another thread.
    ///
    /// # Errors
    /// See [the type](MultiLock#errors-of-all-forms).
    pub fn try_lock_owned_for(&self, limit: Duration) -> Result<Option<OwnedMultiGuard>, Error> {
        Ok(self.get(&Wait::for_at_most(limit), Taker::Guard)?.map(OwnedMultiGuard::new))
    }

    /// Like [`try_lock_until`](MultiLock::try_lock_until), for a guard that may go to another thread.
    ///
    /// # Errors
    /// See [the type](MultiLock#errors-of-all-forms).
    pub fn try_lock_owned_until(&self, deadline: Instant) -> Result<Option<OwnedMultiGuard>, Error> {
        Ok(self.get(&Wait::until(deadline), Taker::Guard)?.map(OwnedMultiGuard::new))
    }

    /// Like [`lock_interruptibly`](MultiLock::lock_interruptibly), for a guard that may go to another thread.
    ///
    /// # Errors
    /// See that method.
    pub fn lock_owned_interruptibly(&self, cancel: &CancellationToken) -> Result<OwnedMultiGuard, Error> {
        self.must(&Wait::forever().with(cancel), Taker::Guard).map(OwnedMultiGuard::new)
    }

    /// Like [`try_lock_for_interruptibly`](MultiLock::try_lock_for_interruptibly), for a guard that may go to
    /// another thread.
    ///
    /// # Errors
    /// See that method.
    pub fn try_lock_owned_for_interruptibly(
        &self,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Option<OwnedMultiGuard>, Error> {
        Ok(self.get(&Wait::for_at_most(limit).with(cancel), Taker::Guard)?.map(OwnedMultiGuard::new))
    }

    // ---- questions -------------------------------------------------------------------------

    /// Whether this thread holds all of them, by whichever calls. No request.
    pub fn is_held_by_current_thread(&self) -> bool {
        let me = this_thread();
        self.parts.as_ref().is_ok_and(|parts| parts.iter().all(|part| part.is_held_by(me)))
    }

    // ---- underneath ------------------------------------------------------------------------

    fn get(&self, wait: &Wait<'_>, taker: Taker) -> Result<Option<Holds>, Error> {
        let parts = self.parts.as_ref().map_err(Clone::clone)?;
        let outcome = Call { parts, taker, thread: this_thread(), wait }.acquire();
        outcome.map_err(|error| if error.name().is_empty() { error.about(&self.name) } else { error })
    }

    fn must(&self, wait: &Wait<'_>, taker: Taker) -> Result<Holds, Error> {
        // Without a deadline the time is never up.
        self.get(wait, taker)?.ok_or_else(|| Error::new(ErrorKind::Timeout, &self.name))
    }

    fn try_once(&self, taker: Taker) -> Result<Option<Holds>, Error> {
        match self.get(&Wait::once(), taker) {
            Err(e) if e.kind() == ErrorKind::WouldDeadlock => Ok(None),
            other => other,
        }
    }

    fn guarded(&self, wait: &Wait<'_>) -> Result<Option<MultiGuard<'_>>, Error> {
        Ok(self.get(wait, thread())?.map(|holds| MultiGuard::new(self, holds)))
    }
}

fn thread() -> Taker {
    Taker::Thread(this_thread())
}

/// Whether these can be held together.
fn checked(parts: Vec<Part>) -> Result<Vec<Part>, Error> {
    if parts.is_empty() {
        return Err(Error::new(ErrorKind::InvalidInput, "").because("a multi-lock of no locks"));
    }
    for (i, part) in parts.iter().enumerate() {
        let why = if parts[..i].iter().any(|other| part.cell.is_where(&other.cell)) {
            "a multi-lock has it twice, and would wait for itself"
        } else if part.sharing == Sharing::PassThrough {
            "nobody holds a lock of this kind, so that a multi-lock cannot"
        } else {
            continue;
        };
        return Err(part.cell.error(Error::new(ErrorKind::InvalidInput, "").because(why)));
    }
    Ok(parts)
}

impl fmt::Debug for MultiLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MultiLock").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Lock for MultiLock {
    fn name(&self) -> &str {
        MultiLock::name(self)
    }

    fn lock(&self) -> Result<Box<dyn LockGuard + '_>, Error> {
        MultiLock::lock(self).map(boxed)
    }

    fn try_lock(&self) -> Result<Option<Box<dyn LockGuard + '_>>, Error> {
        Ok(MultiLock::try_lock(self)?.map(boxed))
    }

    fn try_lock_for(&self, limit: Duration) -> Result<Option<Box<dyn LockGuard + '_>>, Error> {
        Ok(MultiLock::try_lock_for(self, limit)?.map(boxed))
    }

    fn lock_interruptibly(&self, cancel: &CancellationToken) -> Result<Box<dyn LockGuard + '_>, Error> {
        MultiLock::lock_interruptibly(self, cancel).map(boxed)
    }

    fn try_lock_for_interruptibly(
        &self,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<Option<Box<dyn LockGuard + '_>>, Error> {
        Ok(MultiLock::try_lock_for_interruptibly(self, limit, cancel)?.map(boxed))
    }
}

fn boxed(guard: MultiGuard<'_>) -> Box<dyn LockGuard + '_> {
    Box::new(guard)
}
