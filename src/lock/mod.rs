//! The base type of all locks: every way to acquire one, written once over the engine.

pub(crate) mod any_lock;
pub(crate) mod condition;
mod hold;
pub(crate) mod holder;
pub(crate) mod inspect;
mod questions;
pub(crate) mod receipt;
mod terms;

use std::cell::Cell as StdCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) use self::hold::Hold;
use self::receipt::Receipt;
use crate::engine;
use crate::engine::call::several::Part;
use crate::engine::entries::entry::{LockEntries, LockEntry};
use crate::engine::entries::runtime::Shared;
use crate::engine::state::lock_state::{Request, Terms};
use crate::error::{Error, ErrorKind};
use crate::forms::{forms, timed_out};
use crate::guard::sealed::holder;
use crate::guard::{Guard, OwnedGuard, Ownership, ThreadOwned};
use crate::kind::{Kind, Queued, Queueing, Reentrancy, Sharing};
use crate::kinds::{Redisson, RedissonFenced, Reentrant, Simple, Spring};
use crate::names;
use crate::settings::within;
use crate::wait::Wait;

/// A lock in a string key, as left by `SET key owner NX PX lease`. Not reentrant: see [`Simple`].
pub type SimpleLock = RedisLock<Simple>;

/// A lock that its holder may acquire again: see [`Reentrant`].
pub type ReentrantLock = RedisLock<Reentrant>;

/// A lock shared with Java programs that use `redisson.getLock(key)`: see [`Redisson`].
pub type RedissonLock = RedisLock<Redisson>;

/// A lock shared with Java programs that use `redisson.getFencedLock(key)`: see [`RedissonFenced`].
pub type RedissonFencedLock = RedisLock<RedissonFenced>;

/// A lock shared with Java programs that use a `RedisLockRegistry` of Spring Integration: see [`Spring`].
pub type SpringLock = RedisLock<Spring>;

/// A lock kept in Redis: the handle of one name. Cheap to clone and to create; handles of the same client,
/// kind and name are the same lock.
///
/// ```
/// use std::time::Duration;
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let guard = client.reentrant_lock("job").lock()?; // a guard borrows nothing
/// guard.unlock()?;
///
/// let lock = client.reentrant_lock("stock:42");
/// let guard = lock.lock()?; // waits its turn; the lease is renewed while the guard lives
/// assert!(lock.try_lock()?.is_some()); // this thread holds it, and may acquire it again
/// guard.unlock()?;
///
/// match lock.try_lock_for(Duration::from_secs(2))? {
///     Some(guard) => println!("working under token {}", guard.token()),
///     None => println!("busy for two seconds"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Ownership
///
/// [`lock`](RedisLock::lock) makes the *thread* the owner: its [`Guard`] stays on the thread, and on a
/// reentrant lock the thread may lock again. [`lock_owned`](RedisLock::lock_owned) makes the *guard* the
/// owner: it may move to another thread, and never re-enters. Each call returns a guard. Guards may end in
/// any order; when the last one ends, the lock is released.
///
/// A guard borrows nothing: `let guard = client.reentrant_lock("job").lock()?;` keeps the hold, and either kind
/// of guard can be stored in a struct.
///
/// # Leases
///
/// A hold has a lease in Redis. It is renewed in the background until the guard is dropped, or is fixed with
/// [`with_lease`](RedisLock::with_lease). A hold whose lease expired is *lost*: its guard [reports
/// it](Guard::lost), and unlocking it is an error. A re-entry is the same hold once more, on the terms on
/// which the hold began, whichever handle is used. No lock with leases can guarantee that a process that
/// pauses for longer than its lease does nothing afterwards: that is what the [token](Guard::token) is for.
///
/// # Waiting
///
/// Waiting threads sleep, in order of arrival within a process. A released lock may go to the next thread of
/// the same process for one [local hand-off period](crate::ClientBuilder::local_handoff); then the process
/// that came first gets it. [`fair`](RedisLock::fair) locks have no local hand-off. `try_lock` never barges:
/// it returns `None` while a thread of this process waits (unlike `tryLock` in java.util.concurrent).
///
/// # Errors of all forms
///
/// `Unavailable` if Redis cannot be reached, or reports that it cannot serve requests now (loading, busy,
/// full, read-only, too few replicas). Timed methods then retry until their deadline, `lock()` gives up after
/// [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout), and `try_lock` returns the error at
/// once. Every method returns `Unavailable` at once for a permanent error: a wrong password, a missing
/// permission. `WrongType` if the key is in use by something else. `WouldDeadlock` if this thread holds the
/// lock and may not re-enter. `LeaseLost` if this thread has a guard of a lost hold. `Closed`, `Forked`, and
/// `InvalidInput` for an invalid name, key or lease. A busy lock is not an error: the call returns `None`. A
/// call with a deadline returns by it, give or take a quarter of a second.
pub struct RedisLock<K: Kind> {
    kind: Arc<K>,
    part: Result<Part, Error>,
}

impl<K: Kind> Clone for RedisLock<K> {
    fn clone(&self) -> Self {
        RedisLock { kind: self.kind.clone(), part: self.part.clone() }
    }
}

shows!(RedisLock<K> as "RedisLock", [K: Kind] |it| "kind": K::NAME, "name": it.name(), "terms": it.part().map(|part| &part.terms));

// The first block, so that these open the type's page.
impl<K: Kind> RedisLock<K> {
    forms!(K);
}

impl<K: Kind> RedisLock<K> {
    pub(crate) fn new(shared: &Arc<Shared>, kind: K, name: &str) -> Self {
        Self::of(shared, kind, LockEntries::get::<K>(shared, name, false))
    }

    /// The lock whose state is at this user-chosen key. If the key is the state key of a name, this is the
    /// lock of that name.
    pub(crate) fn at(shared: &Arc<Shared>, kind: K, key: &str) -> Self {
        if let Some(name) = names::of_state(&shared.config.namespace, key) {
            return Self::new(shared, kind, &name);
        }
        Self::of(shared, kind, LockEntries::get::<K>(shared, key, true))
    }

    fn of(shared: &Arc<Shared>, kind: K, entry: Result<Arc<LockEntry>, Error>) -> Self {
        let token_is_value = K::TOKEN_IS_VALUE;
        let terms = Terms { fair: token_is_value, token_is_value, ..Terms::new(shared.config.lease, "") };
        let counted = K::REENTRANCY == Reentrancy::Counted;
        let (other_mode, replicas, max_waiters) = (None, None, None);
        let part = entry.map(|entry| Part { entry, other_mode, counted, terms, replicas, max_waiters });
        let lock = RedisLock { kind: Arc::new(kind), part }.asking();
        // Nothing is held: a longer lease would only make others wait longer for a process that died.
        if K::SHARING == Sharing::PassThrough { lock.leased_as_a_waiter() } else { lock }
    }

    /// The same lock, asking as its kind does.
    fn asking(self) -> Self {
        let (args, class) = (self.kind.args(), self.kind.class());
        self.altered(|part| {
            (part.terms.args, part.terms.class) = (args.into(), class);
            class.map_or(Ok(()), |class| within("a class", class, 0..=7))
        })
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        match &self.part {
            Ok(part) => part.entry.name(),
            Err(error) => error.name(),
        }
    }

    /// The kind of the lock.
    pub fn kind(&self) -> &K {
        &self.kind
    }

    // ---- with another mode -----------------------------------------------------------------

    /// The same lock as one of two modes; `other_mode` is the other.
    pub(crate) fn with_other_mode<M: Kind>(mut self, other_mode: &RedisLock<M>) -> Self {
        if let Ok(part) = &mut self.part {
            part.other_mode = other_mode.entry().ok().cloned();
        }
        self
    }

    /// Acquires this mode in place of `guard`, this thread's hold of the other mode, in one request.
    pub(crate) fn instead_of<M: Kind>(&self, guard: Guard<M>) -> Result<Guard<K>, Error> {
        let (part, thread) = (self.part()?, this_thread());
        let ours = part.other_mode.as_ref().is_some_and(|it| Arc::ptr_eq(it, &guard.hold.entry));
        if !ours {
            return Err(self.error(ErrorKind::NotOwner, "the guard belongs to another lock"));
        }
        if guard.is_lost() {
            // Unlocking it returns the loss.
            guard.unlock()?;
            return Err(Error::new(ErrorKind::LeaseLost, self.name()));
        }
        let held = &guard.hold;
        // A thread that already reads re-enters without a request, so no request would end the other hold.
        let once = engine::call::held::is_last(&held.entry, held.ticket) && self.hold_count() == 0;
        let request = part.request(holder::<ThreadOwned>(thread), thread, false);
        let mut request = Request { instead: once, ..request };
        if let Some(held) = engine::call::held::terms(&held.entry, held.ticket) {
            request.terms = Terms { args: request.terms.args, ..held };
        }
        let hold = Self::take(part, request, &Wait::forever())?.ok_or_else(|| timed_out(self.name()))?;
        if once {
            guard.hold.end(engine::call::How::Replaced)?
        } else {
            guard.unlock()?
        }
        Ok(Guard::new(hold))
    }

    // ---- underneath ------------------------------------------------------------------------

    /// The error of a call on this lock.
    pub(crate) fn error(&self, kind: ErrorKind, why: impl Into<String>) -> Error {
        Error::new(kind, self.name()).because(why)
    }

    /// The same lock with the lease of a waiter, unless its own is shorter.
    pub(crate) fn leased_as_a_waiter(self) -> Self {
        self.altered(|part| {
            part.terms.lease = part.terms.lease.min(part.entry.shared.config.waiter_timeout);
            Ok(())
        })
    }

    pub(crate) fn part(&self) -> Result<&Part, Error> {
        self.part.as_ref().map_err(Clone::clone)
    }

    pub(crate) fn entry(&self) -> Result<&Arc<LockEntry>, Error> {
        Ok(&self.part()?.entry)
    }

    fn acquire<O: Ownership>(&self, wait: &Wait<'_>) -> Result<Option<Guard<K, O>>, Error> {
        let (part, thread) = (self.part()?, this_thread());
        let holder = holder::<O>(thread);
        let again = if part.counted && !wait.is_cancelled() { part.again(holder, thread) } else { None };
        if let Some(acquired) = again {
            return Ok(Some(Guard::new(Hold::new(part.entry.clone(), acquired))));
        }
        Ok(Self::take(part, part.request(holder, thread, wait.once), wait)?.map(Guard::new))
    }

    fn take(part: &Part, mut request: Request, wait: &Wait<'_>) -> Result<Option<Hold<K>>, Error> {
        let alone = matches!(K::QUEUEING, Queueing::PerCaller);
        let own = if alone { Some(LockEntries::alone(&part.entry, None)?) } else { None };
        let entry = own.as_ref().unwrap_or(&part.entry);
        let readers = part.readers(&mut request)?;
        let Some(acquired) = engine::call::acquire(entry, readers, &request, wait)? else { return Ok(None) };
        let mut hold = Hold::new(entry.clone(), acquired);
        (hold.has_modes, hold.replicas) = (part.other_mode.is_some(), part.replicas);
        if let Some(replicas) = part.replicas
            && let Err(error) = engine::call::replicas::have(entry, hold.ticket, replicas, wait)
        {
            hold.never_counted(wait);
            return Err(error);
        }
        Ok(Some(hold))
    }

    /// See [`Client::adopt`](crate::Client::adopt).
    pub(crate) fn adopt(&self, receipt: &Receipt) -> Result<OwnedGuard<K>, Error> {
        let entry = self.entry()?;
        if receipt.kind() != K::NAME {
            let why = format!("the receipt is for a {}, not for a {}", receipt.kind(), K::NAME);
            return Err(Error::new(ErrorKind::WrongType, receipt.name()).because(why));
        }
        let mut grant = receipt.grant();
        grant.terms.token_is_value = K::TOKEN_IS_VALUE;
        let acquired = engine::call::receipt::adopt(entry, receipt.owner(), grant)?;
        Ok(Guard::new(Hold::new(entry.clone(), acquired)))
    }
}

impl<K: Kind> Queued for RedisLock<K> {
    fn queue(&self) -> Option<usize> {
        Some(Arc::as_ptr(self.entry().ok()?).addr())
    }
}

/// Returns a number for this thread, which is never used again in this process.
pub(crate) fn this_thread() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    crate::sync::thread_local!(static MINE: StdCell<u64> = const { StdCell::new(0) });
    // The destructor of another thread-local may call us after ours was destroyed: any new number will do.
    MINE.try_with(|mine| {
        if mine.get() == 0 {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed));
        }
        mine.get()
    })
    .unwrap_or_else(|_| NEXT.fetch_add(1, Ordering::Relaxed))
}
