//! What becomes of a signal: whose it is when a wait begins, ends or is given up in that moment.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::testing::{RedisServer, wait_until};
use redis_concurrent::{Client, Condition, Reentrant, ReentrantLock};

/// For what is to happen.
const LONG: Duration = Duration::from_secs(20);

struct Stage {
    server: RedisServer,
}

impl Stage {
    fn new() -> Stage {
        Stage { server: RedisServer::start().unwrap() }
    }

    /// A client, and its handle of the lock.
    fn client(&self) -> (Client, ReentrantLock) {
        let client = Client::connect(&self.server.url()).unwrap();
        let lock = client.reentrant_lock("it");
        (client, lock)
    }

    fn count(&self, command: &str, key: &str) -> usize {
        redis::cmd(command).arg(key).query(&mut self.server.connection().unwrap()).unwrap()
    }

    /// How many wait for a signal, and how many for the lock.
    fn waiting(&self) -> (usize, usize) {
        (self.count("ZCARD", "rc:{it}:conditions"), self.count("ZCARD", "rc:{it}:queue"))
    }

    #[track_caller]
    fn await_waiting(&self, condition: usize, lock: usize) {
        let what = format!("{condition} wait for a signal and {lock} for the lock");
        wait_until(LONG, &what, || self.waiting() == (condition, lock));
    }
}

fn condition(lock: &ReentrantLock) -> Condition<Reentrant> {
    lock.condition("it")
}

#[test]
fn the_signal_of_a_client_that_closes_is_the_next_ones() {
    let stage = Stage::new();
    let ((mine, first), (_, second), (_, signals)) = (stage.client(), stage.client(), stage.client());
    thread::scope(|scope| {
        let closed = scope.spawn(|| {
            let mut guard = first.lock().unwrap();
            let error = condition(&first).wait(&mut guard).unwrap_err();
            assert!(error.is_closed(), "{error}");
        });
        stage.await_waiting(1, 0);
        let woken = scope.spawn(|| {
            let mut guard = second.lock().unwrap();
            condition(&second).wait_for(&mut guard, 2 * LONG).unwrap()
        });
        stage.await_waiting(2, 0);
        let guard = signals.lock().unwrap();
        condition(&signals).signal(&guard).unwrap();
        stage.await_waiting(1, 1);
        mine.close().unwrap();
        closed.join().unwrap();
        // In the place of the other.
        stage.await_waiting(0, 1);
        guard.unlock().unwrap();
        assert!(woken.join().unwrap());
    });
}

#[test]
fn a_wait_whose_time_is_over_after_its_signal_was_signalled() {
    let stage = Stage::new();
    let ((_, mine), (_, signals)) = (stage.client(), stage.client());
    let places = || {
        let hash = redis::cmd("HVALS").arg("rc:{it}:places").clone();
        hash.query::<Vec<Vec<u8>>>(&mut stage.server.connection().unwrap()).unwrap()
    };
    let limit = Duration::from_secs(1);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut guard = mine.lock().unwrap();
            condition(&mine).wait_for(&mut guard, limit).unwrap()
        });
        stage.await_waiting(1, 0);
        let guard = signals.lock().unwrap();
        condition(&signals).signal(&guard).unwrap();
        assert_eq!(stage.waiting(), (0, 1));
        let over = Instant::now() + limit;
        wait_until(LONG, "its time is over", || Instant::now() > over);
        // If this was asked after it said so, then before its next beat.
        let before = places();
        wait_until(LONG, "it says that its time is over", || places() != before);
        guard.unlock().unwrap();
        assert!(waits.join().unwrap(), "its signal is nobody else's");
    });
}

#[test]
fn a_wait_takes_its_place_in_the_request_that_gives_the_lock_up() {
    let stage = Stage::new();
    let (client, lock) = stage.client();
    let mut guard = lock.lock().unwrap();
    // From here on grants can be heard.
    assert!(!condition(&lock).wait_for(&mut guard, Duration::from_secs(1)).unwrap());
    guard.unlock().unwrap();
    let (_, signals) = stage.client();
    thread::scope(|scope| {
        let before = client.requests();
        let waits = scope.spawn(|| {
            let mut guard = lock.lock().unwrap();
            condition(&lock).wait(&mut guard).unwrap();
        });
        stage.await_waiting(1, 0);
        let requests = client.requests() - before;
        assert_eq!(requests, 2, "the lock, and the wait");
        let guard = signals.lock().unwrap();
        condition(&signals).signal(&guard).unwrap();
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
}
