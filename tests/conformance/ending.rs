//! How holds end, and who can end them.

use std::thread;

use redis_concurrent::ErrorKind;
use redis_concurrent::internals::lock_count;
use redis_concurrent_testkit::{closes_in_time, wait_until};

use crate::conformance::fixture::{EVERY, Fixture, LASTING, LATE, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, in_brief, ms, queued};

rows! { every_lock:
    a_guard_releases_at_the_end_of_its_scope
    work_may_take_longer_than_the_lease
    only_the_holder_can_release
    a_guard_may_be_given_to_another_thread
    a_hold_may_be_given_to_another_client
    it_can_be_taken_away
    a_closed_client_lets_the_next_one_in
    a_hold_that_ended_before_its_unlock_is_lost
    nothing_is_kept_of_locks_that_were_used
}

/// Curator TestInterProcessMutexBase.testLocker; redis-py test_context_manager; rslock
/// test_lock_lock_unlock_raii.
fn a_guard_releases_at_the_end_of_its_scope<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    {
        let _guard = lock.lock().unwrap();
        assert!(lock.is_held_by_current_thread() && other.is_locked().unwrap());
        assert!(fixture.owner().is_some());
    }
    assert!(!lock.is_held_by_current_thread());
    wait_until(LONG, "it is released", || !other.is_locked().unwrap());
    assert_eq!(fixture.owner(), None);
    let inside = lock.with(|guard| (guard.token() > 0, other.is_locked().unwrap()));
    assert_eq!(inside.unwrap(), (true, true));
    wait_until(LONG, "it is released", || !other.is_locked().unwrap());
}

/// node-redlock "the using helper acquires, extends, and releases locks".
fn work_may_take_longer_than_the_lease<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock_of(&fixture.client_with(|b| b.lease(LASTING).renew_every(EVERY)));
    let work = |guard: &redis_concurrent::Guard<K>| {
        let before = (fixture.owner(), guard.token());
        thread::sleep(LASTING * 3 / 2);
        assert!(!guard.is_lost());
        assert_eq!((fixture.owner(), guard.token()), before);
        assert!(before.0.is_some());
    };
    lock.with(work).unwrap();
    assert_eq!(fixture.owner(), None);
}

/// Redisson RedissonLockTest.testUnlockFail; Spring RedisLockRegistryTests
/// .testTwoThreadsWrongOneUnlocks; Hazelcast test_unlock_when_locked_by_another_thread. That another
/// thread unlocks does not compile (`tests/tools/compile_fail/`); whatever else it does, the hold stays.
fn only_the_holder_can_release<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let guard = lock.lock().unwrap();
    let owner = fixture.owner();
    let all_that_it_can = || {
        let handle = lock.clone();
        drop(handle.try_lock().unwrap());
        drop(in_brief(handle.try_lock_for(ms(50))));
        drop(handle);
        assert_eq!(lock.hold_count(), 0);
    };
    thread::scope(|scope| scope.spawn(all_that_it_can).join().unwrap());
    assert_eq!(fixture.owner(), owner);
    assert!(lock.is_held_by_current_thread() && !guard.is_lost());
    guard.unlock().unwrap();
}

/// python-redis-lock test_given_id: a hold is passed on by passing the guard, not an id; the thread that gave it
/// away cannot release it any more.
fn a_guard_may_be_given_to_another_thread<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let guard = lock.with_lease(ms(10_000)).lock_owned().unwrap();
    let receiver = move || {
        guard.renew_for(ms(60_000)).unwrap();
        assert!(fixture.pttl() > ms(50_000), "{:?}", fixture.pttl());
        guard.unlock().unwrap();
    };
    thread::scope(|scope| scope.spawn(receiver).join().unwrap());
    assert!(!lock.is_locked().unwrap());
}

/// python-redis-lock test_given_id: passed on to another process as a receipt, it is extended and released
/// there, and the thread that gave it away has none any more.
fn a_hold_may_be_given_to_another_client<K: Tried>(fixture: &Fixture<K>) {
    let (lock, client) = (fixture.lock(), fixture.client());
    let guard = lock.with_lease(ms(10_000)).lock_owned().unwrap();
    let (token, before) = (guard.token(), fixture.owner());
    let receipt = guard.into_receipt().unwrap();
    let guard = client.adopt::<K>(&receipt).unwrap();
    assert_eq!(guard.token(), token);
    assert_ne!(fixture.owner(), before);
    guard.renew_for(ms(60_000)).unwrap();
    assert!(fixture.pttl() > ms(50_000), "{:?}", fixture.pttl());
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
    assert_eq!(client.adopt::<K>(&receipt).map(drop).unwrap_err().kind(), ErrorKind::NotOwner);
}

/// Redisson RedissonLockTest.testForceUnlock.
fn it_can_be_taken_away<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other, third) = (fixture.lock(), fixture.lock(), fixture.lock());
    assert!(other.force_unlock().unwrap().holders == 0, "nobody holds it");
    let guard = lock.lock().unwrap();
    assert!(other.force_unlock().unwrap().holders > 0);
    for lock in [&lock, &other, &third] {
        assert!(!lock.is_locked().unwrap());
    }
    third.try_lock().unwrap().expect("it is free").unlock().unwrap();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    lock.try_lock().unwrap().expect("for its last holder too").unlock().unwrap();
}

/// Hazelcast test_lock_after_client_shutdown.
fn a_closed_client_lets_the_next_one_in<K: Tried>(fixture: &Fixture<K>) {
    closes_in_time(|| {
        let client = fixture.client();
        let (lock, other) = (fixture.lock_of(&client), fixture.lock());
        let guard = lock.lock().unwrap();
        let closed = thread::scope(|scope| {
            let waits = scope.spawn(|| other.try_lock_for(LATE).map(|it| it.map(drop)));
            queued(&other, 1);
            let closed = client.close();
            let comes_in = waits.join().unwrap();
            // The lease was of 30 s.
            assert!(closed.is_err() || comes_in.unwrap().is_some(), "not within {LATE:?}");
            closed
        });
        assert!(guard.is_lost());
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
        if closed.is_err() {
            other.force_unlock().unwrap();
        }
        closed
    });
}

/// Spring RedisLockRegistryTests.testUnlockAfterLockStatusHasBeenExpired.
fn a_hold_that_ended_before_its_unlock_is_lost<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let brief = lock.with_lease(ms(100));
    let guard = brief.lock().unwrap();
    thread::sleep(ms(200));
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!((lock.hold_count(), lock.local_queue_length()), (0, 0));
    let again = lock.try_lock_for(LONG).unwrap().unwrap();
    again.unlock().unwrap();
}

/// Spring RedisLockRegistryTests.testThreadLocalListLeaks.
fn nothing_is_kept_of_locks_that_were_used<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    for _ in 0..2 {
        let locks: Vec<_> = (0..10).map(|i| fixture.named(&client, &format!("lock {i}"))).collect();
        let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
        assert_eq!(lock_count(&client), 10);
        for (lock, guard) in locks.iter().zip(guards) {
            assert_eq!(lock.hold_count(), 1);
            guard.unlock().unwrap();
            assert_eq!(lock.hold_count(), 0);
        }
        assert_eq!(lock_count(&client), 10, "the handles are there");
        drop(locks);
        assert_eq!(lock_count(&client), 0);
    }
}
