//! A lock is taken and given back, by one at a time.

use std::thread;
use std::time::Instant;

use redis_concurrent::{CancellationToken, ErrorKind};

use crate::conformance::fixture::{Fixture, LATE, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, in_brief, ms, queued};

rows! { every_lock:
    a_free_lock_is_taken_and_given_back
    a_try_on_a_held_lock_is_none_at_once
    a_valid_hold_keeps_everybody_else_out
    a_contender_blocks_until_the_release
    two_clients_take_turns
    tokens_rise_and_do_not_change_while_it_is_held
    a_namespace_is_a_world_of_its_own
}
rows! { reentrant_lock:
    a_thread_may_come_in_twice
    a_nested_hold_has_the_token_of_the_outer_one
}
rows! { simple_lock:
    the_holder_of_a_lock_that_is_not_reentrant_is_refused
}

/// JSR-166 ReentrantLockTest.testLock; Redisson RedissonLockTest.testLockUnlock; redis-py test_lock.
fn a_free_lock_is_taken_and_given_back<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    for _ in 0..2 {
        let guard = lock.lock().unwrap();
        assert!(lock.is_held_by_current_thread());
        // The key has the owner, and unlike redis-py's always an end.
        assert_eq!(fixture.owner(), lock.holder().unwrap().map(|h| h.owner));
        assert!(fixture.owner().is_some());
        assert!(!fixture.pttl().is_zero());
        guard.unlock().unwrap();
        assert!(!lock.is_held_by_current_thread());
        assert_eq!(fixture.owner(), None);
        assert!(!lock.is_locked().unwrap());
    }
}

/// JSR-166 ReentrantLockTest.testTryLockWhenLocked; redsync TestMutexAlreadyLocked.
fn a_try_on_a_held_lock_is_none_at_once<K: Tried>(fixture: &Fixture<K>) {
    let (client, other) = (fixture.deaf(), fixture.lock());
    let lock = fixture.lock_of(&client);
    let guard = lock.lock().unwrap();
    let try_it = || {
        for lock in [&lock, &other] {
            let began = Instant::now();
            assert!(lock.try_lock().unwrap().is_none());
            assert!(lock.try_lock_owned().unwrap().is_none());
            assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
        }
    };
    thread::scope(|scope| scope.spawn(try_it).join().unwrap());
    // Nobody waited: nobody began to listen.
    assert_eq!(fixture.channels(), [""; 0]);
    guard.unlock().unwrap();
}

/// redsync TestValid.
fn a_valid_hold_keeps_everybody_else_out<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let guard = lock.lock().unwrap();
    assert!(!guard.is_lost() && !guard.remaining().is_zero() && !guard.lost().is_cancelled());
    assert!(other.try_lock().unwrap().is_none());
    assert!(in_brief(other.try_lock_for(ms(100))).is_none());
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
}

/// Redisson RedissonNonReentrantFairLockTest.testContendingThreadBlocksAndAcquiresOnRelease.
fn a_contender_blocks_until_the_release<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    for contender in [&lock, &other] {
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| contender.try_lock_for(LONG).unwrap().map(drop));
            queued(&lock, 1);
            assert!(!waits.is_finished(), "two are inside");
            guard.unlock().unwrap();
            let released = Instant::now();
            assert_eq!(waits.join().unwrap(), Some(()));
            assert!(released.elapsed() < LATE, "{:?}", released.elapsed());
        });
        assert!(!lock.is_locked().unwrap());
    }
}

/// Curator TestInterProcessMutexBase.test2Clients; redis-py test_competing_locks.
fn two_clients_take_turns<K: Tried>(fixture: &Fixture<K>) {
    let (a, b) = (fixture.lock(), fixture.lock());
    for _ in 0..5 {
        let first = a.lock_owned().unwrap();
        assert!(b.try_lock().unwrap().is_none());
        thread::scope(|scope| {
            let waits = scope.spawn(|| b.lock_owned().unwrap());
            fixture.await_positions(1);
            assert!(!waits.is_finished(), "two are inside");
            first.unlock().unwrap();
            let second = waits.join().unwrap();
            assert!(a.try_lock().unwrap().is_none());
            second.unlock().unwrap();
        });
    }
}

/// Redisson RedissonFencedLockTest.testTokenIncrease: ours rise, but not by one.
fn tokens_rise_and_do_not_change_while_it_is_held<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let leased = lock.with_lease(ms(10_000));
    let mut last = 0;
    for i in 0..5 {
        let guard = match i {
            0 | 1 => lock.lock().unwrap(),
            2 => leased.lock().unwrap(),
            3 => lock.try_lock().unwrap().unwrap(),
            _ => leased.try_lock_for(LONG).unwrap().unwrap(),
        };
        let token = guard.token();
        assert!(token > last, "{token} after {last}");
        guard.renew_for(ms(20_000)).unwrap();
        assert_eq!(guard.token(), token);
        last = token;
        guard.unlock().unwrap();
    }
}

/// Curator TestInterProcessMutexBase.testWithNamespace.
fn a_namespace_is_a_world_of_its_own<K: Tried>(fixture: &Fixture<K>) {
    let elsewhere = fixture.place.namespace() + ".other";
    let lock = fixture.lock();
    let other = fixture.lock_of(&fixture.client_with(|b| b.namespace(&elsewhere)));
    let guard = lock.lock().unwrap();
    let theirs = other.try_lock().unwrap().expect("another lock");
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut fixture.redis()).unwrap();
    for namespace in [fixture.place.namespace(), elsewhere] {
        let prefix = namespace + ":";
        assert_eq!(keys.iter().filter(|k| k.starts_with(&prefix)).count(), 2, "{keys:?}");
    }
    assert_eq!(keys.len(), 4, "the state and the fence of each: {keys:?}");
    theirs.unlock().unwrap();
    assert!(lock.is_locked().unwrap() && !other.is_locked().unwrap());
    guard.unlock().unwrap();
}

/// JSR-166 ReentrantLockTest.testTryLock; Redisson RedissonLockTest.testReentrancy and
/// RedissonFairLockTest.testReentrancy.
fn a_thread_may_come_in_twice<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let other_thread = || {
        let attempt = || lock.try_lock().unwrap().map(drop);
        thread::scope(|scope| scope.spawn(attempt).join().unwrap())
    };
    let outer = lock.try_lock().unwrap().unwrap();
    let inner = lock.try_lock().unwrap().unwrap();
    assert_eq!(other_thread(), None);
    inner.unlock().unwrap();
    assert!(lock.is_held_by_current_thread() && lock.is_locked().unwrap());
    assert_eq!(other_thread(), None);
    outer.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    assert_eq!(other_thread(), Some(()));
}

/// Hazelcast fenced_lock_test, test_lock_when_locked_by_self.
fn a_nested_hold_has_the_token_of_the_outer_one<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let outer = lock.lock().unwrap();
    let inner = lock.lock().unwrap();
    assert_eq!(inner.token(), outer.token());
    assert_eq!(lock.hold_count(), 2);
    let before = outer.token();
    outer.unlock().unwrap();
    assert_eq!(lock.hold_count(), 1);
    inner.unlock().unwrap();
    assert_eq!(lock.hold_count(), 0);
    let again = lock.lock().unwrap();
    assert!(again.token() > before, "{} after {before}", again.token());
    again.unlock().unwrap();
}

/// Redisson RedissonNonReentrantLockTest.testSameThreadReacquireThrows; python-redis-lock
/// test_double_acquire.
fn the_holder_of_a_lock_that_is_not_reentrant_is_refused<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let guard = lock.lock().unwrap();
    let never = CancellationToken::new();
    for again in
        [lock.lock().map(drop), lock.lock_interruptibly(&never).map(drop), lock.try_lock_for(LONG).map(drop)]
    {
        assert_eq!(again.unwrap_err().kind(), ErrorKind::WouldDeadlock);
    }
    // One attempt cannot dead-lock: here it says what it says to everybody.
    assert!(lock.try_lock().unwrap().is_none());
    assert!(lock.is_held_by_current_thread());
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}
