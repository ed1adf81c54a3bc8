//! What the lock under test is, and its conditions.

use std::thread;

use redis_concurrent::kinds::Reentrant;
use redis_concurrent::{Client, Condition, Guard, ReentrantLock};
use redis_concurrent_testkit::wait_until;

use crate::one_server::{self, Subject};
use crate::support::LONG;

pub type Fixture = one_server::Fixture<ReentrantLock>;

impl Subject for ReentrantLock {
    fn of(client: &Client) -> Self {
        client.reentrant_lock("it")
    }
}

impl Fixture {
    /// How many wait for any condition of the lock.
    pub fn waiting(&self) -> usize {
        self.ask(&["ZCARD", "rc:{it}:conditions"])
    }

    #[track_caller]
    pub fn await_waiting(&self, n: usize) {
        wait_until(LONG, &format!("{n} wait for a condition"), || self.waiting() == n);
    }

    /// Runs `meanwhile` while a thread waits for a signal; the thread has the lock again at
    /// the end of it, and gives it back.
    #[track_caller]
    pub fn while_one_waits<T>(&self, lock: &ReentrantLock, meanwhile: impl FnOnce() -> T) -> T {
        let before = self.waiting();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut guard = lock.lock().unwrap();
                assert!(not_empty(lock).wait_with(&mut guard, LONG).unwrap());
                is_held(lock, guard);
            });
            self.await_waiting(before + 1);
            let outcome = meanwhile();
            waits.join().unwrap();
            outcome
        })
    }
}

pub fn not_empty(lock: &ReentrantLock) -> Condition<Reentrant> {
    lock.condition("not_empty")
}

/// Signals once, under the lock.
#[track_caller]
pub fn signal(lock: &ReentrantLock) {
    let guard = lock.lock().unwrap();
    not_empty(lock).signal(&guard).unwrap();
    guard.unlock().unwrap();
}

/// The hold is as a hold should be, and can be given back.
#[track_caller]
pub fn is_held(lock: &ReentrantLock, guard: Guard<Reentrant>) {
    assert!(!guard.is_lost() && lock.is_held_by_current_thread());
    assert!(lock.is_locked().unwrap());
    guard.unlock().unwrap();
    assert!(!lock.is_held_by_current_thread());
}
