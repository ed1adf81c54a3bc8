//! Conditions: the right to wait and signal, when a wait ends, and what is held then.

use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use redis_concurrent::{CancellationToken, Condition, Error, ErrorKind, Guard, Wait};

use crate::conformance::fixture::{Fixture, LATE, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, ms, replied};

rows! { every_lock:
    a_wait_wants_a_guard_of_its_lock
    a_signal_and_a_question_want_a_guard_of_their_lock
    a_timed_wait_is_false_in_time_and_not_early
    a_signalled_waiter_comes_in_when_the_signaller_has_left
    a_waiter_is_counted_until_it_is_signalled
    a_cancelled_wait_holds_the_lock_again
    a_signal_for_all_ends_two_waits_of_each_form
}

rows! { read_write_lock:
    a_wait_wants_a_guard_of_its_lock
    a_timed_wait_is_false_in_time_and_not_early
    a_signalled_waiter_comes_in_when_the_signaller_has_left
    a_waiter_is_counted_until_it_is_signalled
    a_cancelled_wait_holds_the_lock_again
    the_longest_waiter_is_signalled_first
}

type Form<K> = fn(&Condition<K>, &mut Guard<K>, &CancellationToken) -> Result<(), Error>;

/// Untimed, timed, until, interruptible; and timed and interruptible.
fn forms<K: Tried>() -> [Form<K>; 5] {
    [
        |it, guard, _| it.wait(guard),
        |it, guard, _| it.wait_with(guard, LONG).map(|signalled| assert!(signalled)),
        |it, guard, _| it.wait_with(guard, Instant::now() + LONG).map(|signalled| assert!(signalled)),
        |it, guard, cancel| it.wait_with(guard, cancel).map(|signalled| assert!(signalled)),
        |it, guard, cancel| {
            it.wait_with(guard, Wait::timeout(LONG).cancelled_by(cancel)).map(|signalled| assert!(signalled))
        },
    ]
}

/// The waiters for a signal, the longest-waiting first.
fn waiters<K: Tried>(fixture: &Fixture<K>) -> Vec<String> {
    redis::cmd("ZRANGE").arg(fixture.key(":conditions")).arg(0).arg(-1).query(&mut fixture.redis()).unwrap()
}

fn waiting<K: Tried>(fixture: &Fixture<K>) -> usize {
    waiters(fixture).len()
}

#[track_caller]
fn await_waiting<K: Tried>(fixture: &Fixture<K>, n: usize) {
    redis_concurrent_testkit::wait_until(LONG, "so many wait", || waiting(fixture) == n);
}

#[track_caller]
fn is_refused<R>(outcome: Result<R, Error>) {
    assert_eq!(outcome.err().map(|e| e.kind()), Some(ErrorKind::NotOwner));
}

/// JSR-166 ReentrantLockTest.testAwait_IMSE, ReentrantReadWriteLockTest.testAwait_IMSE: without a guard it does
/// not compile, so the guard is one of another lock.
fn a_wait_wants_a_guard_of_its_lock<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let it = fixture.lock_of(&client).condition("it");
    let other = fixture.named(&client, "other");
    let mut guard = other.lock().unwrap();
    let began = Instant::now();
    for form in forms() {
        is_refused(form(&it, &mut guard, &CancellationToken::new()));
    }
    assert!(began.elapsed() < LATE);
    guard.unlock().unwrap();
}

/// JSR-166 ReentrantLockTest.testSignal_IMSE, testHasWaitersIMSE, testGetWaitQueueLengthIMSE and
/// testGetWaitQueueLengthIAE, likewise.
fn a_signal_and_a_question_want_a_guard_of_their_lock<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let it = fixture.lock_of(&client).condition("it");
    let other = fixture.named(&client, "other");
    let guard = other.lock().unwrap();
    is_refused(it.signal(&guard));
    is_refused(it.signal_all(&guard));
    is_refused(it.wait_queue_length(&guard));
    is_refused(it.wait_queue_length(&guard));
    guard.unlock().unwrap();
}

/// JSR-166 ReentrantLockTest.testAwaitNanos_Timeout and testAwait_Timeout,
/// ReentrantReadWriteLockTest.testAwaitNanos_Timeout.
fn a_timed_wait_is_false_in_time_and_not_early<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let it = lock.condition("it");
    let mut guard = lock.lock().unwrap();
    let limit = ms(300);
    for until in [false, true] {
        let mut began = Instant::now();
        let signalled = replied(|| {
            began = Instant::now();
            if until { it.wait_with(&mut guard, began + limit) } else { it.wait_with(&mut guard, limit) }
        });
        assert!(!signalled);
        let took = began.elapsed();
        assert!(took >= limit && took < limit + LATE, "{took:?}");
        assert!(lock.is_held_by_current_thread() && !guard.is_lost());
    }
    guard.unlock().unwrap();
}

/// JSR-166 ReentrantLockTest.testAwait, ReentrantReadWriteLockTest.testAwait.
fn a_signalled_waiter_comes_in_when_the_signaller_has_left<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut guard = lock.lock().unwrap();
            lock.condition("it").wait(&mut guard).unwrap();
            guard.unlock().unwrap();
        });
        await_waiting(fixture, 1);
        let guard = other.lock().unwrap();
        other.condition("it").signal(&guard).unwrap();
        fixture.await_positions(1);
        let owner = fixture.owner();
        thread::sleep(ms(100));
        assert!(!waits.is_finished() && fixture.owner() == owner);
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
}

/// JSR-166 ReentrantLockTest.testHasWaiters, ReentrantReadWriteLockTest.testGetWaitQueueLength.
fn a_waiter_is_counted_until_it_is_signalled<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let it = other.condition("it");
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut guard = lock.lock().unwrap();
            let it = lock.condition("it");
            assert_eq!(it.wait_queue_length(&guard).unwrap(), 0);
            it.wait(&mut guard).unwrap();
            assert_eq!(it.wait_queue_length(&guard).unwrap(), 0);
            guard.unlock().unwrap();
        });
        await_waiting(fixture, 1);
        let guard = other.lock().unwrap();
        assert_eq!(it.wait_queue_length(&guard).unwrap(), 1);
        assert_eq!(it.wait_queue_length(&guard).unwrap(), 1);
        it.signal(&guard).unwrap();
        assert_eq!(it.wait_queue_length(&guard).unwrap(), 0);
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    let guard = other.lock().unwrap();
    assert_eq!(it.wait_queue_length(&guard).unwrap(), 0);
    guard.unlock().unwrap();
}

/// JSR-166 ReentrantLockTest.testInterruptible_await, ReentrantReadWriteLockTest.testInterruptible_await.
fn a_cancelled_wait_holds_the_lock_again<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let it = lock.condition("it");
    for form in &forms()[3..] {
        let cancel = CancellationToken::new();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut guard = lock.lock().unwrap();
                assert!(form(&it, &mut guard, &cancel).unwrap_err().is_cancelled());
                assert!(lock.is_held_by_current_thread() && lock.is_locked().unwrap());
                assert_eq!(it.wait_queue_length(&guard).unwrap(), 0);
                guard.unlock().unwrap();
            });
            await_waiting(fixture, 1);
            cancel.cancel();
            waits.join().unwrap();
        });
    }
    assert_eq!(waiting(fixture), 0);
}

/// JSR-166 ReentrantLockTest.testSignalAll_await.
fn a_signal_for_all_ends_two_waits_of_each_form<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    for form in forms() {
        thread::scope(|scope| {
            let waits = [&lock, &other].map(|lock| {
                scope.spawn(move || {
                    let mut guard = lock.lock().unwrap();
                    form(&lock.condition("it"), &mut guard, &CancellationToken::new()).unwrap();
                    guard.unlock().unwrap();
                })
            });
            await_waiting(fixture, 2);
            let guard = other.lock().unwrap();
            other.condition("it").signal_all(&guard).unwrap();
            guard.unlock().unwrap();
            waits.into_iter().for_each(|wait| wait.join().unwrap());
        });
    }
}

/// JSR-166 ReentrantReadWriteLockTest.testSignalWakesFifo.
fn the_longest_waiter_is_signalled_first<K: Tried>(fixture: &Fixture<K>) {
    let (first, second, other) = (fixture.lock(), fixture.lock(), fixture.lock());
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (i, lock) in [&first, &second].into_iter().enumerate() {
            let order = &order;
            scope.spawn(move || {
                let mut guard = lock.lock().unwrap();
                lock.condition("it").wait(&mut guard).unwrap();
                order.lock().push(i);
                guard.unlock().unwrap();
            });
            await_waiting(fixture, i + 1);
        }
        let guard = other.lock().unwrap();
        let it = other.condition("it");
        assert!(fixture.positions().is_empty());
        let last = waiters(fixture).pop();
        it.signal(&guard).unwrap();
        assert_eq!((waiters(fixture), fixture.positions().len()), (Vec::from_iter(last), 1));
        it.signal(&guard).unwrap();
        assert_eq!((waiters(fixture).len(), fixture.positions().len()), (0, 2));
        assert_eq!(it.wait_queue_length(&guard).unwrap(), 0);
        guard.unlock().unwrap();
    });
    assert_eq!(order.into_inner(), [0, 1]);
}
