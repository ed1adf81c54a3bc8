//! The public ways to ask for a lock, as one list.

use std::ops::Deref;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, Error, Guard, Hold, Kind, OwnedGuard, RedisLock};

/// What a form gives: whichever guard it is, a hold.
pub(super) enum Held<'a, K: Kind> {
    Thread(Guard<'a, K>),
    Own(OwnedGuard<K>),
}

impl<K: Kind> Deref for Held<'_, K> {
    type Target = Hold<K>;

    fn deref(&self) -> &Hold<K> {
        match self {
            Held::Thread(guard) => guard,
            Held::Own(guard) => guard,
        }
    }
}

impl<K: Kind> Held<'_, K> {
    pub(super) fn unlock(self) -> Result<(), Error> {
        match self {
            Held::Thread(guard) => guard.unlock(),
            Held::Own(guard) => guard.unlock(),
        }
    }
}

type Outcome<'a, K> = Result<Option<Held<'a, K>>, Error>;

/// One way to ask.
pub(super) struct Form<K: Kind> {
    pub(super) name: &'static str,
    pub(super) ends: Ends,
    pub(super) cancellable: bool,
    pub(super) owned: bool,
    take: for<'a> fn(&'a RedisLock<K>, Duration, &CancellationToken) -> Outcome<'a, K>,
}

/// When a form gives up by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ends {
    Never,
    AtOnce,
    InTime,
}

impl<K: Kind> Form<K> {
    /// Asks in this form; one without a limit or a token takes no notice of them.
    pub(super) fn take<'a>(
        &self,
        lock: &'a RedisLock<K>,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Outcome<'a, K> {
        (self.take)(lock, limit, cancel)
    }
}

fn thread<'a, K: Kind>(guard: Option<Guard<'a, K>>) -> Option<Held<'a, K>> {
    guard.map(Held::Thread)
}

fn own<'a, K: Kind>(guard: Option<OwnedGuard<K>>) -> Option<Held<'a, K>> {
    guard.map(Held::Own)
}

pub(super) fn all<K: Kind>() -> Vec<Form<K>> {
    fn form<K: Kind>(
        name: &'static str,
        ends: Ends,
        take: for<'a> fn(&'a RedisLock<K>, Duration, &CancellationToken) -> Outcome<'a, K>,
    ) -> Form<K> {
        let (cancellable, owned) = (name.ends_with("interruptibly"), name.contains("owned"));
        Form { name, ends, cancellable, owned, take }
    }
    use Ends::{AtOnce, InTime, Never};
    vec![
        form("lock", Never, |lock, _, _| lock.lock().map(|g| thread(Some(g)))),
        form("try_lock", AtOnce, |lock, _, _| lock.try_lock().map(thread)),
        form("try_lock_for", InTime, |lock, limit, _| lock.try_lock_for(limit).map(thread)),
        form("try_lock_until", InTime, |lock, limit, _| {
            lock.try_lock_until(Instant::now() + limit).map(thread)
        }),
        form("lock_interruptibly", Never, |lock, _, cancel| {
            lock.lock_interruptibly(cancel).map(|g| thread(Some(g)))
        }),
        form("try_lock_for_interruptibly", InTime, |lock, limit, cancel| {
            lock.try_lock_for_interruptibly(limit, cancel).map(thread)
        }),
        form("lock_owned", Never, |lock, _, _| lock.lock_owned().map(|g| own(Some(g)))),
        form("try_lock_owned", AtOnce, |lock, _, _| lock.try_lock_owned().map(own)),
        form("try_lock_owned_for", InTime, |lock, limit, _| lock.try_lock_owned_for(limit).map(own)),
        form("try_lock_owned_until", InTime, |lock, limit, _| {
            lock.try_lock_owned_until(Instant::now() + limit).map(own)
        }),
        form("lock_owned_interruptibly", Never, |lock, _, cancel| {
            lock.lock_owned_interruptibly(cancel).map(|g| own(Some(g)))
        }),
        form("try_lock_owned_for_interruptibly", InTime, |lock, limit, cancel| {
            lock.try_lock_owned_for_interruptibly(limit, cancel).map(own)
        }),
    ]
}
