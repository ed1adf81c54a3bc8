//! A lock that is not reentrant, requested again by its holder: work under the lock calls a function that
//! locks as well. The holder waits for itself until its lease expires. Then the inner call acquires the lock,
//! and the inner unlock frees what the outer work still relies on.

use std::fmt;

use redis_concurrent::ErrorKind;

use super::bare::{give_back, take};
use super::fixture::{Fixture, LONG};
use super::table::counted;
use super::{Failure, Finding};

/// How often the inner call tries before the holder's own lease expires.
const TRIES: usize = 100;

/// The outcome of the inner call, and how many processes hold the lock after it, while the outer work
/// continues.
#[derive(Debug, PartialEq, Eq)]
pub struct Reentrancy {
    pub inner: Inner,
    pub at_once: usize,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Inner {
    /// Refused this many times, by its own process.
    Refused(usize),
    /// Acquired at once, with this many requests.
    In { requests: u64 },
    /// Got an error at once.
    Failed(ErrorKind),
}

impl Finding for Reentrancy {
    fn is_kept(&self) -> bool {
        self.at_once == 1 && !matches!(self.inner, Inner::Refused(_))
    }
}

impl fmt::Display for Reentrancy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.inner {
            Inner::Refused(tries) => write!(f, "refuses itself {}", counted(tries, "time"))?,
            Inner::In { requests } => write!(f, "in at once, {}", counted(requests as usize, "request"))?,
            Inner::Failed(kind) => write!(f, "{kind:?} at once")?,
        }
        write!(f, "; then {}", counted(self.at_once, "holder"))
    }
}

pub fn wrong(fixture: &Fixture) -> Result<Reentrancy, Failure> {
    let [mut process, mut other] = fixture.processes()?;
    let outer = take(&mut process, "lock", "outer", LONG)?;
    let mut refused = 0;
    for _ in 0..TRIES {
        refused += usize::from(!take(&mut process, "lock", "inner", LONG)?);
    }
    fixture.lease_ends("lock")?;
    // The inner call finally acquires the lock, works, and releases its own hold.
    let inner = take(&mut process, "lock", "inner", LONG)? && give_back(&mut process, "lock", "inner")?;
    // The outer work is not finished yet.
    let others = inner && take(&mut other, "lock", "other", LONG)?;
    Ok(Reentrancy { inner: Inner::Refused(refused), at_once: usize::from(outer) + usize::from(others) })
}

/// The same thread acquires the lock again, and only its last unlock frees it.
pub fn right(fixture: &Fixture) -> Result<Reentrancy, Failure> {
    let [client, other] = fixture.clients()?;
    let lock = client.reentrant_lock("lock");
    let outer = lock.lock()?;
    let before = client.request_count();
    lock.lock()?.unlock()?;
    let requests = client.request_count() - before;
    let others = other.reentrant_lock("lock").try_lock_owned()?;
    let at_once = lock.hold_count() + usize::from(others.is_some());
    outer.unlock()?;
    Ok(Reentrancy { inner: Inner::In { requests }, at_once })
}

/// A lock that is not reentrant returns an error instead of waiting.
pub fn right_refused(fixture: &Fixture) -> Result<Reentrancy, Failure> {
    let [client, other] = fixture.clients()?;
    let lock = client.simple_lock("lock");
    let outer = lock.lock()?;
    let Err(why) = lock.lock() else { return Err("it was let in twice".into()) };
    let others = other.simple_lock("lock").try_lock_owned()?;
    let at_once = lock.hold_count() + usize::from(others.is_some());
    outer.unlock()?;
    Ok(Reentrancy { inner: Inner::Failed(why.kind()), at_once })
}
