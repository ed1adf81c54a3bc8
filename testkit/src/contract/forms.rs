//! The public ways to acquire a lock, as one list.

use std::time::{Duration, Instant};

use redis_concurrent::kinds::Kind;
use redis_concurrent::{CancellationToken, Error, LockGuard, RedisLock, Wait};

/// What a form returns: a hold, with a guard of either type.
pub(super) type Held = Box<dyn LockGuard>;

type Outcome = Result<Option<Held>, Error>;

/// One way to acquire a lock.
pub(super) struct Form<K: Kind> {
    pub(super) name: &'static str,
    pub(super) ends: Ends,
    pub(super) cancellable: bool,
    pub(super) owned: bool,
    take: fn(&RedisLock<K>, Duration, &CancellationToken) -> Outcome,
}

/// When a form gives up by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Never,
    AtOnce,
    InTime,
}

impl<K: Kind> Form<K> {
    /// Acquires in this way; a form without a timeout or a token ignores them.
    pub(super) fn take(&self, lock: &RedisLock<K>, limit: Duration, cancel: &CancellationToken) -> Outcome {
        (self.take)(lock, limit, cancel)
    }
}

/// Returns the outcome of a call whose timeout is a few milliseconds. On a busy machine no answer may arrive
/// in that time; the call is then repeated.
pub(super) fn in_brief<T>(call: impl Fn() -> Result<Option<T>, Error>) -> Result<Option<T>, Error> {
    const TIMES: usize = 5;
    let answered = |outcome: &Result<Option<T>, Error>| !outcome.as_ref().is_err_and(Error::is_unavailable);
    (1..TIMES).map(|_| call()).find(answered).unwrap_or_else(call)
}

fn held(guard: impl LockGuard + 'static) -> Held {
    Box::new(guard)
}

pub(super) fn all<K: Kind>() -> Vec<Form<K>> {
    fn form<K: Kind>(
        name: &'static str,
        ends: Ends,
        take: fn(&RedisLock<K>, Duration, &CancellationToken) -> Outcome,
    ) -> Form<K> {
        let cancellable = name.ends_with("interruptibly") || name.ends_with("both");
        let owned = name.contains("owned");
        Form { name, ends, cancellable, owned, take }
    }
    use Ends::{AtOnce, InTime, Never};
    vec![
        form("lock", Never, |lock, _, _| lock.lock().map(|guard| Some(held(guard)))),
        form("try_lock", AtOnce, |lock, _, _| Ok(lock.try_lock()?.map(held))),
        form("try_lock_for", InTime, |lock, limit, _| Ok(lock.try_lock_for(limit)?.map(held))),
        form("lock_interruptibly", Never, |lock, _, cancel| {
            lock.lock_interruptibly(cancel).map(|guard| Some(held(guard)))
        }),
        form("lock_with a deadline", InTime, |lock, limit, _| {
            Ok(lock.lock_with(Instant::now() + limit)?.map(held))
        }),
        form("lock_with both", InTime, |lock, limit, cancel| {
            let wait = Wait::until(Instant::now() + limit).cancelled_by(cancel);
            Ok(lock.lock_with(wait)?.map(held))
        }),
        form("lock_owned", Never, |lock, _, _| lock.lock_owned().map(|guard| Some(held(guard)))),
        form("try_lock_owned", AtOnce, |lock, _, _| Ok(lock.try_lock_owned()?.map(held))),
        form("lock_owned_with a timeout", InTime, |lock, limit, _| {
            Ok(lock.lock_owned_with(limit)?.map(held))
        }),
        form("lock_owned_with a token, interruptibly", Never, |lock, _, cancel| {
            Ok(lock.lock_owned_with(cancel)?.map(held))
        }),
        form("lock_owned_with both", InTime, |lock, limit, cancel| {
            let wait = Wait::timeout(limit).cancelled_by(cancel);
            Ok(lock.lock_owned_with(wait)?.map(held))
        }),
    ]
}
