//! Conditions: every form, what a wait gives up and gets back, and who is signalled when.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::testing::{RedisServer, wait_until};
use redis_concurrent::{CancellationToken, Client, Condition, ErrorKind, Reentrant, ReentrantLock};

/// For what is to happen.
const LONG: Duration = Duration::from_secs(20);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A server, and the lock under test for one client after another.
struct Stage {
    server: RedisServer,
}

impl Stage {
    fn new() -> Stage {
        Stage { server: RedisServer::start().unwrap() }
    }

    fn client(&self) -> Client {
        Client::connect(&self.server.url()).unwrap()
    }

    fn lock(&self) -> ReentrantLock {
        self.client().reentrant_lock("it")
    }

    fn redis(&self) -> redis::Connection {
        self.server.connection().unwrap()
    }

    /// How many wait for any condition.
    fn waiting(&self) -> usize {
        redis::cmd("ZCARD").arg("rc:{it}:conditions").query(&mut self.redis()).unwrap()
    }

    /// How many wait for the lock.
    fn queued(&self) -> usize {
        redis::cmd("ZCARD").arg("rc:{it}:queue").query(&mut self.redis()).unwrap()
    }

    #[track_caller]
    fn await_waiting(&self, n: usize) {
        wait_until(LONG, &format!("{n} wait for a condition"), || self.waiting() == n);
    }
}

fn condition(lock: &ReentrantLock) -> Condition<Reentrant> {
    lock.condition("not_empty")
}

#[test]
fn a_signal_wakes_a_waiter_of_another_client() {
    let stage = Stage::new();
    let (mine, other) = (stage.lock(), stage.lock());
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut guard = mine.lock().unwrap();
            let before = guard.token();
            condition(&mine).wait(&mut guard).unwrap();
            assert!(guard.token() > before && !guard.is_lost());
            assert_eq!(mine.hold_count(), 1);
            guard.unlock().unwrap();
        });
        stage.await_waiting(1);
        let guard = other.lock().unwrap();
        let not_empty = condition(&other);
        assert!(not_empty.has_waiters(&guard).unwrap());
        not_empty.signal(&guard).unwrap();
        assert_eq!(not_empty.wait_queue_length(&guard).unwrap(), 0);
        assert_eq!(stage.queued(), 1);
        assert!(!waits.is_finished());
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    assert!(!mine.is_locked().unwrap());
}

#[test]
fn without_a_signal_a_timed_wait_is_false_and_holds_the_lock() {
    let stage = Stage::new();
    let lock = stage.lock();
    let mut guard = lock.lock().unwrap();
    let began = Instant::now();
    assert!(!condition(&lock).wait_for(&mut guard, ms(200)).unwrap());
    assert!(began.elapsed() >= ms(200));
    assert_eq!((lock.hold_count(), stage.waiting()), (1, 0));
    assert!(!condition(&lock).wait_until(&mut guard, Instant::now()).unwrap());
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn every_hold_of_the_thread_is_given_up_and_comes_back() {
    let stage = Stage::new();
    let (lock, other) = (stage.lock(), stage.lock());
    let mut first = lock.lock().unwrap();
    let (second, third) = (lock.lock().unwrap(), lock.lock().unwrap());
    let lost = second.lost();
    thread::scope(|scope| {
        let signals = scope.spawn(|| {
            stage.await_waiting(1);
            let guard = other.try_lock().unwrap().expect("it is given up whole");
            condition(&other).signal_all(&guard).unwrap();
            guard.unlock().unwrap();
        });
        condition(&lock).wait(&mut first).unwrap();
        signals.join().unwrap();
    });
    assert_eq!(lock.hold_count(), 3);
    assert_eq!((first.token(), second.token()), (third.token(), third.token()));
    assert!(!lost.is_cancelled());
    first.unlock().unwrap();
    third.unlock().unwrap();
    assert!(other.try_lock().unwrap().is_none());
    // The token that was asked for before the wait tells of the hold after it.
    assert!(other.force_unlock().unwrap());
    wait_until(LONG, "it is told", || lost.is_cancelled());
    assert!(second.unlock().unwrap_err().is_lease_lost());
}
