//! Several locks as one.

use std::thread;
use std::time::Instant;

use redis_concurrent::{Client, ErrorKind, MultiLock};
use redis_concurrent_testkit::wait_until;

use crate::conformance::fixture::{Fixture, LATE, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, ms};

rows! { every_lock:
    three_are_held_as_one
    a_waiter_for_several_gets_all_of_them
    each_has_its_owner_and_all_are_gone_after_the_unlock
    a_waiter_for_several_gets_in_when_a_lease_ends
    one_that_fails_leaves_none_held
}

const NAMES: [&str; 3] = ["it", "second", "third"];

fn multi<K: Tried>(fixture: &Fixture<K>, client: &Client) -> MultiLock {
    let [a, b, c] = NAMES.map(|name| fixture.named(client, name));
    MultiLock::new(&[&a, &b, &c])
}

/// Redisson RedissonMultiLockTest.testLockUnlock.
fn three_are_held_as_one<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let it = multi(fixture, &client).with_lease(ms(10_000));
    let are_held = || NAMES.map(|name| fixture.named(&client, name).is_held_by_current_thread());
    let guard = it.lock().unwrap();
    assert!(are_held() == [true; 3]);
    guard.unlock().unwrap();
    assert!(are_held() == [false; 3]);
    let guard = it.lock().unwrap();
    assert!(are_held() == [true; 3] && guard.remaining() <= ms(10_000));
    guard.unlock().unwrap();
    assert!(are_held() == [false; 3]);
}

/// Redisson RedissonMultiLockTest.testMultiThreads.
fn a_waiter_for_several_gets_all_of_them<K: Tried>(fixture: &Fixture<K>) {
    let (here, there) = (multi(fixture, &fixture.client()), multi(fixture, &fixture.client()));
    let guard = here.lock().unwrap();
    let held = ms(300);
    thread::scope(|scope| {
        let began = Instant::now();
        let waiter = scope.spawn(move || {
            let guard = there.lock().unwrap();
            (began.elapsed(), guard.unlock())
        });
        fixture.await_positions(1);
        thread::sleep(held);
        guard.unlock().unwrap();
        let (waited, unlocked) = waiter.join().unwrap();
        unlocked.unwrap();
        assert!(waited >= held && waited < held + LATE, "{waited:?}");
    });
}

/// Redisson RedissonFasterMultiLockTest.testSimpleLock.
fn each_has_its_owner_and_all_are_gone_after_the_unlock<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let (it, locks) = (multi(fixture, &client), NAMES.map(|name| fixture.named(&client, name)));
    let before = client.request_count();
    let guard = it.lock().unwrap();
    // Where its scripts are not known yet, they are sent.
    assert!(client.request_count() - before <= 2, "one request");
    for lock in &locks {
        assert_eq!(lock.hold_count(), 1);
        let holder = lock.holder().unwrap().expect("it has an owner");
        assert!(holder.remaining.is_some());
    }
    guard.unlock().unwrap();
    assert!(locks.iter().all(|lock| !lock.is_locked().unwrap() && lock.hold_count() == 0));
}

/// Redisson RedissonFasterMultiLockTest.testTryLockWait.
fn a_waiter_for_several_gets_in_when_a_lease_ends<K: Tried>(fixture: &Fixture<K>) {
    let (here, there) = (multi(fixture, &fixture.client()), multi(fixture, &fixture.client()));
    let lease = ms(600);
    let began = Instant::now();
    let holds = thread::scope(|scope| {
        let holder = scope.spawn(|| here.with_lease(lease).lock_owned().unwrap());
        holder.join().unwrap()
    });
    let guard = there.try_lock_for(LONG).unwrap().expect("when the lease is over");
    let waited = began.elapsed();
    // What has ended for its owner, it gives up at once: up to a hundredth before its end.
    assert!(waited >= lease - lease / 50 && waited < lease + LATE, "{waited:?}");
    wait_until(LONG, "it is lost", || holds.is_lost());
    assert!(holds.unlock().unwrap_err().is_lease_lost());
    guard.unlock().unwrap();
}

/// Curator TestInterProcessMultiMutex.testSomeLocksFailToLock.
fn one_that_fails_leaves_none_held<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let it = multi(fixture, &client);
    let key = format!("{}:{{{}}}", fixture.place.namespace(), NAMES[1]);
    redis::cmd("RPUSH").arg(&key).arg("somebody else's").exec(&mut fixture.redis()).unwrap();
    for outcome in [it.lock().map(drop), it.try_lock().map(drop), it.try_lock_for(LONG).map(drop)] {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::WrongType, NAMES[1]), "{error}");
        for name in [NAMES[0], NAMES[2]] {
            assert!(!fixture.named(&client, name).is_locked().unwrap(), "{name}");
        }
    }
    redis::cmd("DEL").arg(&key).exec(&mut fixture.redis()).unwrap();
    it.lock().unwrap().unlock().unwrap();
}
