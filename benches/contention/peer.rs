//! One of two processes that pass a lock back and forth.

use std::error::Error;

use redis_concurrent::kinds::Exclusive;
use redis_concurrent::{Client, Condition, Guard, RedisLock};

pub(crate) type Done<T> = Result<T, Box<dyn Error>>;

/// The conditions that the two wait for.
pub(crate) const CONDITIONS: [&str; 2] = ["ping", "pong"];

/// What a peer does, with the library or on [bare sockets](super::bare_peer::BarePeer).
pub(crate) trait Peer {
    /// Returns the token.
    fn lock(&mut self) -> Done<u64>;
    fn unlock(&mut self) -> Done<()>;
}

/// A peer whose lock has conditions.
pub(crate) trait Signaller: Peer {
    /// Signals one of the two conditions.
    fn signal(&mut self, condition: usize) -> Done<()>;
    /// Waits for one of them.
    fn wait(&mut self, condition: usize) -> Done<()>;
    fn has_waiters(&mut self, condition: usize) -> Done<bool>;
    /// How many requests it has sent.
    fn requests(&self) -> u64;
}

/// A peer that uses the library.
pub(crate) struct ByLibrary<'a, K: Exclusive> {
    client: &'a Client,
    lock: &'a RedisLock<K>,
    conditions: [Condition<K>; 2],
    guard: Option<Guard<K>>,
}

impl<'a, K: Exclusive> ByLibrary<'a, K> {
    pub(crate) fn new(client: &'a Client, lock: &'a RedisLock<K>) -> ByLibrary<'a, K> {
        ByLibrary { client, lock, conditions: CONDITIONS.map(|name| lock.condition(name)), guard: None }
    }
}

/// The error of a peer that does not hold the lock.
const NOT_HELD: &str = "the lock is not held";

impl<K: Exclusive> Peer for ByLibrary<'_, K> {
    fn lock(&mut self) -> Done<u64> {
        Ok(self.guard.insert(self.lock.lock()?).token())
    }

    fn unlock(&mut self) -> Done<()> {
        Ok(self.guard.take().ok_or(NOT_HELD)?.unlock()?)
    }
}

impl<K: Exclusive> Signaller for ByLibrary<'_, K> {
    fn signal(&mut self, condition: usize) -> Done<()> {
        Ok(self.conditions[condition].signal(self.guard.as_ref().ok_or(NOT_HELD)?)?)
    }

    fn wait(&mut self, condition: usize) -> Done<()> {
        Ok(self.conditions[condition].wait(self.guard.as_mut().ok_or(NOT_HELD)?)?)
    }

    fn has_waiters(&mut self, condition: usize) -> Done<bool> {
        Ok(self.conditions[condition].wait_queue_length(self.guard.as_ref().ok_or(NOT_HELD)?)? > 0)
    }

    fn requests(&self) -> u64 {
        self.client.request_count()
    }
}
