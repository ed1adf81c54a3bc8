//! A waiter that does not get the lock: not early, not for long, and nothing of it stays.

use std::thread;
use std::time::Duration;

use redis_concurrent::{CancellationToken, Error, Wait};
use redis_concurrent_testkit::{eventually, released_all, wait_until};

use crate::conformance::fixture::{Fixture, Tried, in_vain};
use crate::conformance::rows::rows;
use crate::support::{LONG, in_brief, ms, queued};

rows! { every_lock:
    a_timed_try_is_none_in_time_and_not_early
    a_timed_try_can_be_cancelled
    the_hold_of_a_finished_thread_is_waited_for_in_vain
    a_waiter_does_not_ask_again_and_again
    a_try_does_not_pass_threads_that_wait
    without_the_lock_the_work_is_not_done
}
rows! { fair_lock:
    a_waiter_that_gave_up_delays_nobody
}

/// JSR-166 ReentrantLockTest.testTryLock_Timeout.
fn a_timed_try_is_none_in_time_and_not_early<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let guard = lock.lock().unwrap();
    in_vain(ms(300), |limit| other.try_lock_for(limit));
    // Another thread of the holder's own process.
    thread::scope(|scope| scope.spawn(|| in_vain(ms(300), |limit| lock.try_lock_for(limit))).join().unwrap());
    assert!(lock.is_held_by_current_thread());
    guard.unlock().unwrap();
}

/// JSR-166 ReentrantLockTest.testTryLock_Interruptible.
fn a_timed_try_can_be_cancelled<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let guard = lock.lock().unwrap();
    let (owner, token) = (fixture.owner(), guard.token());
    for waiting in [&lock, &other] {
        let cancel = CancellationToken::new();
        thread::scope(|scope| {
            let waits =
                scope.spawn(|| waiting.lock_with(Wait::timeout(LONG).cancelled_by(&cancel)).map(drop));
            queued(&lock, 1);
            cancel.cancel();
            assert!(waits.join().unwrap().unwrap_err().is_cancelled());
        });
        queued(&lock, 0);
    }
    assert_eq!((fixture.owner(), guard.token()), (owner, token), "the holder's state is untouched");
    assert!(lock.is_held_by_current_thread() && !guard.is_lost());
    guard.unlock().unwrap();
}

/// Redisson RedissonLockTest.testTryLockWait and RedissonSpinLockTest.testTryLockWait (3 s there).
fn the_hold_of_a_finished_thread_is_waited_for_in_vain<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let lock = fixture.lock_of(&client);
    // A guard ends with its thread, unless it is leaked.
    let leaked = || std::mem::forget(lock.lock().unwrap());
    thread::scope(|scope| scope.spawn(leaked).join().unwrap());
    in_vain(ms(600), |limit| lock.try_lock_for(limit));
    let other = fixture.lock();
    in_vain(ms(600), |limit| other.try_lock_for(limit));
    assert_eq!(lock.hold_count(), 0, "it is not this thread's");
    if !released_all(&client.close()) {
        other.force_unlock().unwrap();
    }
}

/// node-redlock "individual locks are exclusive": there are no retries here that could be counted,
/// so the requests of a waiter are.
fn a_waiter_does_not_ask_again_and_again<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client_with(|b| b.waiter_timeout(6 * LONG).lease(6 * LONG));
    let (lock, other) = (fixture.lock(), fixture.lock_of(&client));
    let guard = lock.lock().unwrap();
    // Once more where a busy machine had no answer for it in its time.
    let sent = eventually(LONG, || {
        let before = client.request_count();
        let outcome = other.try_lock_for(ms(600));
        if outcome.as_ref().is_err_and(Error::is_unavailable) {
            fixture.await_positions(0);
            return None;
        }
        assert!(outcome.unwrap().is_none());
        Some(client.request_count() - before)
    });
    // It asks and it leaves; heartbeats come much later. As many to spare, as a request brings the script along where
    // the server does not know it.
    assert!((2..=4).contains(&sent), "{sent} requests");
    guard.unlock().unwrap();
}

/// No row of anybody's: in java.util.concurrent the untimed try does pass them.
fn a_try_does_not_pass_threads_that_wait<K: Tried>(fixture: &Fixture<K>) {
    // Its waiter sends nothing by itself for as long as this takes.
    let client = fixture.client_with(|b| b.waiter_timeout(6 * LONG).lease(6 * LONG));
    let (lock, other) = (fixture.lock_of(&client), fixture.lock());
    let guard = other.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| lock.try_lock_for(LONG).unwrap().map(drop));
        fixture.await_positions(1);
        let before = client.request_count();
        assert!(lock.try_lock().unwrap().is_none());
        assert_eq!(client.request_count(), before, "it may not even ask");
        guard.unlock().unwrap();
        assert_eq!(waits.join().unwrap(), Some(()));
    });
}

/// redis-py test_context_manager_raises_when_locked_not_acquired: busy is no error here, but there
/// is no guard either.
fn without_the_lock_the_work_is_not_done<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let guard = lock.lock().unwrap();
    let mut done = false;
    if let Some(_guard) = in_brief(other.try_lock_for(ms(1000))) {
        done = true;
    }
    assert!(!done);
    guard.unlock().unwrap();
    // What would be an error here: then `with` does not do the work either.
    let outcome = other.with_lease(Duration::ZERO).with(|_| done = true);
    assert!(outcome.is_err() && !done);
}

/// Redisson RedissonFairLockTest.testTryLockNonDelayed.
fn a_waiter_that_gave_up_delays_nobody<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other, third) = (fixture.lock(), fixture.lock(), fixture.lock());
    let guard = lock.lock().unwrap();
    in_vain(ms(200), |limit| other.try_lock_for(limit));
    wait_until(LONG, "its queue position is gone", || fixture.positions().is_empty());
    guard.unlock().unwrap();
    let guard = third.try_lock().unwrap();
    assert!(guard.is_some(), "nobody holds it and nobody waits");
}
