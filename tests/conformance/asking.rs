//! What a lock answers about itself.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, Client, Error, ErrorKind};
use redis_concurrent_testkit::{Barrier, wait_until};

use crate::conformance::fixture::{Fixture, NAME, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, ms, queued};

rows! { every_lock:
    a_new_lock_is_free_and_tells_its_order
    whether_it_is_locked_is_told_the_same_everywhere
    only_its_thread_holds_it
    the_queue_is_as_long_as_there_are_waiters
    the_queue_has_the_owners_that_wait
    its_holder_is_told_and_its_text_costs_no_request
    what_remains_of_a_lease_is_told
    an_error_has_the_name_of_its_lock
}
rows! { reentrant_lock:
    holds_are_counted
}

/// JSR-166 ReentrantLockTest.testConstructor: the order is told by the debug text.
fn a_new_lock_is_free_and_tells_its_order<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    assert!(format!("{lock:?}").contains(&format!("fair: {}", fixture.fair)), "{lock:?}");
    assert!(!lock.is_locked().unwrap());
    assert_eq!(lock.holder().unwrap(), None);
    assert_eq!(lock.holder().unwrap().and_then(|it| it.remaining), None);
    assert_eq!((lock.hold_count(), lock.is_held_by_current_thread()), (0, false));
    assert_eq!((lock.queue_length().unwrap(), lock.local_queue_length()), (0, 0));
}

/// JSR-166 ReentrantLockTest.testIsLocked; Redisson RedissonLockTest.testIsLocked and
/// testIsLockedOtherThread; redis-py test_locked.
fn whether_it_is_locked_is_told_the_same_everywhere<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let is = |locked: bool| {
        let check = || assert_eq!((lock.is_locked().unwrap(), other.is_locked().unwrap()), (locked, locked));
        check();
        thread::scope(|scope| scope.spawn(check).join().unwrap());
    };
    is(false);
    let outer = lock.lock().unwrap();
    is(true);
    if fixture.reentrant() {
        let inner = lock.lock().unwrap();
        is(true);
        inner.unlock().unwrap();
        is(true);
    }
    outer.unlock().unwrap();
    is(false);
    let (held, done) = (Barrier::new(2), Barrier::new(2));
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = other.lock().unwrap();
            held.wait();
            done.wait();
            guard.unlock().unwrap();
        });
        held.wait();
        is(true);
        done.wait();
    });
    is(false);
}

/// Redisson RedissonLockTest.testIsHeldByCurrentThread and testIsHeldByCurrentThreadOtherThread.
fn only_its_thread_holds_it<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let elsewhere =
        || thread::scope(|scope| scope.spawn(|| lock.is_held_by_current_thread()).join().unwrap());
    assert!(!lock.is_held_by_current_thread());
    let guard = lock.lock().unwrap();
    assert!(lock.is_held_by_current_thread());
    assert!(!elsewhere());
    guard.unlock().unwrap();
    assert!(!lock.is_held_by_current_thread());
    assert!(!elsewhere());
}

/// JSR-166 ReentrantLockTest.testGetHoldCount; Redisson RedissonLockTest.testGetHoldCount.
fn holds_are_counted<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let mut guards = Vec::new();
    for n in 1..=20 {
        guards.push(lock.lock().unwrap());
        assert_eq!(lock.hold_count(), n);
    }
    while let Some(guard) = guards.pop() {
        guard.unlock().unwrap();
        assert_eq!(lock.hold_count(), guards.len());
    }
    let guard = lock.lock().unwrap();
    assert_eq!(lock.hold_count(), 1);
    guard.unlock().unwrap();
    assert_eq!(lock.hold_count(), 0);
    let (one, two) = (lock.lock().unwrap(), lock.lock().unwrap());
    assert_eq!(lock.hold_count(), 2);
    one.unlock().unwrap();
    assert_eq!(lock.hold_count(), 1);
    two.unlock().unwrap();
    assert_eq!(lock.hold_count(), 0);
}

/// JSR-166 ReentrantLockTest.testGetQueueLength, with waiters in one process and in two.
fn the_queue_is_as_long_as_there_are_waiters<K: Tried>(fixture: &Fixture<K>) {
    let lengths = |first: &Client, second: &Client| {
        let (lock, cancelled, never) = (fixture.lock(), CancellationToken::new(), CancellationToken::new());
        let (first, second) = (fixture.lock_of(first), fixture.lock_of(second));
        let guard = lock.lock().unwrap();
        assert_eq!(lock.queue_length().unwrap(), 0);
        thread::scope(|scope| {
            let one = scope.spawn(|| first.lock_interruptibly(&cancelled).map(drop));
            queued(&lock, 1);
            let two = scope.spawn(|| second.lock_interruptibly(&never).map(drop));
            queued(&lock, 2);
            cancelled.cancel();
            assert!(one.join().unwrap().unwrap_err().is_cancelled());
            queued(&lock, 1);
            guard.unlock().unwrap();
            two.join().unwrap().unwrap();
            queued(&lock, 0);
        });
    };
    let (a, b) = (fixture.client(), fixture.client());
    lengths(&a, &a);
    lengths(&a, &b);
}

/// JSR-166 ReentrantLockTest.testGetQueuedThreads: a process counts its threads, and Redis knows the
/// owners that wait.
fn the_queue_has_the_owners_that_wait<K: Tried>(fixture: &Fixture<K>) {
    let (lock, first, second) = (fixture.lock(), fixture.lock(), fixture.lock());
    let (cancelled, never) = (CancellationToken::new(), CancellationToken::new());
    let guard = lock.lock().unwrap();
    assert_eq!(fixture.positions(), [""; 0]);
    thread::scope(|scope| {
        let one = scope.spawn(|| first.lock_interruptibly(&cancelled).map(drop));
        fixture.await_positions(1);
        let its = fixture.positions();
        let two = scope.spawn(|| {
            let guard = second.lock_interruptibly(&never).unwrap();
            let mine = second.holder().unwrap().map(|h| h.owner);
            guard.unlock().unwrap();
            mine
        });
        fixture.await_positions(2);
        let both = fixture.positions();
        assert_eq!(both[..1], its[..], "in order of arrival");
        assert_eq!(
            (first.local_queue_length(), second.local_queue_length(), lock.local_queue_length()),
            (1, 1, 0)
        );
        cancelled.cancel();
        assert!(one.join().unwrap().unwrap_err().is_cancelled());
        wait_until(LONG, "its queue position is gone", || fixture.positions() == both[1..]);
        assert_eq!((first.local_queue_length(), second.local_queue_length()), (0, 1));
        guard.unlock().unwrap();
        assert_eq!(two.join().unwrap().as_ref(), both.last());
        assert_eq!(fixture.positions(), [""; 0]);
        assert_eq!(second.local_queue_length(), 0);
    });
}

/// JSR-166 ReentrantLockTest.testToString: the holder would take a request, so `holder` tells it and
/// the debug text does not.
fn its_holder_is_told_and_its_text_costs_no_request<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client_with(|b| b.client_name("teller"));
    let lock = fixture.lock_of(&client);
    let other = fixture.lock();
    assert_eq!(other.holder().unwrap(), None);
    let guard = lock.lock().unwrap();
    let holder = other.holder().unwrap().unwrap();
    assert_eq!(Some(holder.owner), fixture.owner());
    if fixture.reentrant() {
        let process = holder.process.unwrap();
        assert_eq!((process.pid, process.client_name.as_str()), (std::process::id(), "teller"));
    }
    guard.unlock().unwrap();
    assert_eq!(other.holder().unwrap(), None);
    let before = client.request_count();
    let text = format!("{lock:?}");
    assert!(text.contains(K::NAME) && text.contains(NAME), "{text}");
    assert_eq!(client.request_count(), before);
}

/// Redisson RedissonLockTest.testRemainTimeToLive; redis-py test_timeout and test_float_timeout.
fn what_remains_of_a_lease_is_told<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let default = Duration::from_secs(30);
    for (lock, lease) in [
        (lock.with_lease(ms(3_600_000)), ms(3_600_000)),
        (lock.with_lease(ms(10_000)), ms(10_000)),
        (lock.with_lease(ms(9_500)), ms(9_500)),
        (lock.clone(), default),
    ] {
        let began = Instant::now();
        let guard = lock.lock().unwrap();
        for remaining in
            [lock.holder().unwrap().and_then(|it| it.remaining).unwrap(), fixture.pttl(), guard.remaining()]
        {
            // A hundredth is kept back for the drift of clocks, but only by the holder itself.
            let least = lease - lease / 100 - began.elapsed() - ms(10);
            assert!(remaining <= lease && remaining > least, "{remaining:?} of {lease:?}, not {least:?}");
        }
        let in_redis = fixture.pttl();
        assert!(in_redis + began.elapsed() + ms(10) > lease, "{in_redis:?} of {lease:?}");
        guard.unlock().unwrap();
        assert_eq!(lock.holder().unwrap().and_then(|it| it.remaining), None);
    }
}

/// redis-py test_lock_error_gives_correct_lock_name.
fn an_error_has_the_name_of_its_lock<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let lock = fixture.lock_of(&client);
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    let mut errors: Vec<Error> = vec![
        lock.lock_interruptibly(&cancelled).unwrap_err(),
        lock.with_lease(Duration::ZERO).lock().unwrap_err(),
    ];
    let guard = lock.lock().unwrap();
    if !fixture.reentrant() {
        errors.push(lock.lock().unwrap_err());
    }
    let () = redis::cmd("DEL").arg(fixture.key("")).query(&mut fixture.redis()).unwrap();
    errors.push(guard.unlock().unwrap_err());
    let () =
        redis::cmd("RPUSH").arg(fixture.key("")).arg("a foreign value").query(&mut fixture.redis()).unwrap();
    errors.push(lock.try_lock().unwrap_err());
    let () = redis::cmd("DEL").arg(fixture.key("")).query(&mut fixture.redis()).unwrap();
    client.close().unwrap();
    errors.push(lock.lock().unwrap_err());
    for error in &errors {
        assert_eq!(error.name(), NAME, "{error}");
        assert!(error.to_string().contains(&format!("{NAME:?}")), "{error}");
    }
    use ErrorKind::{Cancelled, Closed, InvalidInput, LeaseLost, WouldDeadlock, WrongType};
    let mut kinds = vec![Cancelled, InvalidInput, LeaseLost, WrongType, Closed];
    if !fixture.reentrant() {
        kinds.insert(2, WouldDeadlock);
    }
    assert_eq!(errors.iter().map(Error::kind).collect::<Vec<_>>(), kinds);
}
