//! What becomes of a signal: whose it is when a wait begins, ends or is given up in that moment.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::wait_until;

use crate::condition::fixture::{Fixture, not_empty, signal};
use crate::support::{LONG, ms};

#[test]
fn the_signal_of_a_client_that_closes_is_the_next_ones() {
    let fixture = Fixture::new();
    let (client, second, signals) = (fixture.client(), fixture.lock(), fixture.lock());
    let first = client.reentrant_lock("it");
    thread::scope(|scope| {
        let closed = scope.spawn(|| {
            let mut guard = first.lock().unwrap();
            let error = not_empty(&first).wait(&mut guard).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
        });
        fixture.await_waiting(1);
        fixture.await_queued(0);
        let woken = scope.spawn(|| {
            let mut guard = second.lock().unwrap();
            not_empty(&second).wait_with(&mut guard, 2 * LONG).unwrap()
        });
        fixture.await_waiting(2);
        fixture.await_queued(0);
        let guard = signals.lock().unwrap();
        not_empty(&signals).signal(&guard).unwrap();
        fixture.await_waiting(1);
        fixture.await_queued(1);
        client.close().unwrap();
        closed.join().unwrap();
        // In the place of the other.
        fixture.await_waiting(0);
        fixture.await_queued(1);
        guard.unlock().unwrap();
        assert!(woken.join().unwrap());
    });
}

#[test]
fn a_wait_whose_time_is_over_after_its_signal_was_signalled() {
    // On a busy machine the signal may come too late for the first limit.
    assert!(
        [1, 4, 16].into_iter().any(|s| signalled_in_time(Duration::from_secs(s))),
        "no signal came in time"
    );
}

/// Signals a wait for `limit`, and keeps the lock until its time is over. Returns whether the signal came in time.
fn signalled_in_time(limit: Duration) -> bool {
    let fixture = Fixture::new();
    let (mine, signals) = (fixture.lock(), fixture.lock());
    let positions = || {
        let hash = redis::cmd("HVALS").arg("rc:{it}:positions").clone();
        hash.query::<Vec<Vec<u8>>>(&mut fixture.server.connection().unwrap()).unwrap()
    };
    let began = Instant::now();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut guard = mine.lock().unwrap();
            not_empty(&mine).wait_with(&mut guard, limit).unwrap()
        });
        let waits_now = || (fixture.waiting(), fixture.queued()) == (1, 0);
        wait_until(LONG, "it waits for the signal", || waits_now() || began.elapsed() > limit);
        let guard = signals.lock().unwrap();
        not_empty(&signals).signal(&guard).unwrap();
        // It began to wait after `began`.
        if began.elapsed() >= limit {
            guard.unlock().unwrap();
            waits.join().unwrap();
            return false;
        }
        assert_eq!((fixture.waiting(), fixture.queued()), (0, 1));
        let over = Instant::now() + limit;
        wait_until(LONG, "its time is over", || Instant::now() > over);
        // If this was asked after it said so, then before its next heartbeat.
        let before = positions();
        wait_until(LONG, "it says that its time is over", || positions() != before);
        guard.unlock().unwrap();
        assert!(waits.join().unwrap(), "its signal is nobody else's");
        true
    })
}

#[test]
fn a_wait_takes_its_position_in_the_request_that_gives_the_lock_up() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let lock = client.reentrant_lock("it");
    let mut guard = lock.lock().unwrap();
    // From here on grants can be heard.
    assert!(!not_empty(&lock).wait_with(&mut guard, ms(1000)).unwrap());
    guard.unlock().unwrap();
    let signals = fixture.lock();
    thread::scope(|scope| {
        let before = client.request_count();
        let waits = scope.spawn(|| {
            let mut guard = lock.lock().unwrap();
            not_empty(&lock).wait(&mut guard).unwrap();
        });
        fixture.await_waiting(1);
        fixture.await_queued(0);
        let requests = client.request_count() - before;
        // Not before nobody waits any more: this test is to end, whatever is found.
        signal(&signals);
        waits.join().unwrap();
        assert_eq!(requests, 2, "the lock, and the wait");
    });
}
