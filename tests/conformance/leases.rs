//! Leases: renewed, fixed, set anew, and over.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::wait_until;

use crate::conformance::fixture::{EVERY, Fixture, LASTING, LATE, LEASE, Tried, in_vain};
use crate::conformance::rows::rows;
use crate::support::{LONG, ms};

rows! { every_lock:
    a_renewed_hold_outlives_its_lease
    a_waiter_gets_in_when_the_lease_ends
    a_fixed_lease_ends_by_itself
    a_lease_can_be_set_anew_again_and_again
    a_lease_is_set_and_nothing_added
    a_renewed_hold_may_be_extended_too
    a_lease_cut_short_from_outside_is_made_whole
    a_lease_is_in_whole_milliseconds
}
rows! { reentrant_lock:
    a_hold_after_a_nested_one_is_renewed
}

/// Spring RedisLockRegistryTests.testRenewalOnExpire; python-redis-lock
/// test_timeout_expire_with_renewal.
fn a_renewed_hold_outlives_its_lease<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock_of(&fixture.client_with(|b| b.lease(LASTING).renew_every(EVERY)));
    let other = fixture.lock();
    let guard = lock.lock().unwrap();
    in_vain(LASTING * 3 / 2, |limit| other.try_lock_for(limit));
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    // What a try without an answer may have got is given back in the background.
    wait_until(LONG, "it is free", || other.try_lock().unwrap().is_some());
}

/// Redisson RedissonFairLockTest.testExpire (2 s there).
fn a_waiter_gets_in_when_the_lease_ends<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let lease = ms(1000);
    let began = Instant::now();
    let leased = lock.with_lease(lease);
    let guard = leased.lock().unwrap();
    let next = other.try_lock_for(LONG).unwrap().unwrap();
    let took = began.elapsed();
    // Its process gives it up a drift (1 %) before Redis would, and lets the next one in.
    assert!(took >= lease * 98 / 100 && took < lease + LATE, "{took:?}");
    assert!(guard.is_lost());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert!(!next.is_lost(), "a late unlock does not hurt the next holder");
    next.unlock().unwrap();
}

/// node-redlock "locks automatically expire".
fn a_fixed_lease_ends_by_itself<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let brief = lock.with_lease(ms(200));
    let guard = brief.lock().unwrap();
    let owner = fixture.owner();
    thread::sleep(ms(300));
    let next = other.try_lock().unwrap().expect("its lease is over");
    assert_ne!(fixture.owner(), owner);
    assert!(next.token() > guard.token());
    drop(guard);
    assert!(!next.is_lost());
    next.unlock().unwrap();
}

/// node-redlock "acquires, extends, and releases a single lock"; redsync TestMutexExtend.
fn a_lease_can_be_set_anew_again_and_again<K: Tried>(fixture: &Fixture<K>) {
    let lease = ms(10_000);
    let lock = fixture.lock().with_lease(lease);
    // When a lease set in between ends, by the server's clock.
    let ends_by = |began: Duration| {
        let end = fixture.ends_at();
        assert!(end >= began + lease && end <= fixture.server_time() + lease, "{end:?}, set after {began:?}");
        end
    };
    let began = fixture.server_time();
    let guard = lock.lock().unwrap();
    let owner = fixture.owner();
    let mut last = ends_by(began);
    for _ in 0..3 {
        thread::sleep(ms(100));
        let began = fixture.server_time();
        guard.renew_for(lease).unwrap();
        let end = ends_by(began);
        assert!(end >= last + ms(90), "{end:?} after {last:?}");
        last = end;
        assert_eq!(fixture.owner(), owner);
    }
    guard.unlock().unwrap();
    assert_eq!(fixture.owner(), None);
}

/// redis-py test_extend_lock: the same lease as there, but set, and never added to what is left.
fn a_lease_is_set_and_nothing_added<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock().with_lease(ms(10_000));
    let guard = lock.lock().unwrap();
    for _ in 0..2 {
        guard.renew_for(ms(20_000)).unwrap();
        for left in [fixture.pttl(), guard.remaining()] {
            assert!(left > ms(16_000) && left <= ms(20_000), "{left:?}");
        }
    }
    guard.unlock().unwrap();
}

/// redis-py test_extending_lock_with_no_timeout_raises_error: every hold has a lease here, so one
/// that is renewed may be extended too.
fn a_renewed_hold_may_be_extended_too<K: Tried>(fixture: &Fixture<K>) {
    let guard_of = fixture.lock_of(&fixture.client_with(|b| b.lease(LEASE).renew_every(EVERY)));
    let guard = guard_of.lock().unwrap();
    guard.renew_for(ms(60_000)).unwrap();
    // The renewals that go on do not shorten it.
    thread::sleep(LEASE / 2);
    assert!(fixture.pttl() > ms(50_000), "{:?}", fixture.pttl());
    guard.unlock().unwrap();
}

/// redis-py test_reacquire_lock.
fn a_lease_cut_short_from_outside_is_made_whole<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock().with_lease(ms(10_000));
    let guard = lock.lock().unwrap();
    let () = redis::cmd("PEXPIRE").arg(fixture.key("")).arg(5000).query(&mut fixture.redis()).unwrap();
    assert!(fixture.pttl() <= ms(5000));
    guard.renew_for(ms(10_000)).unwrap();
    assert!(fixture.pttl() > ms(8000) && fixture.pttl() <= ms(10_000), "{:?}", fixture.pttl());
    guard.unlock().unwrap();
}

/// node-redlock "refuses to use a non-integer duration": of a `Duration` whole milliseconds are
/// used, never more than asked for; what is refused is a lease that is too short to be one.
fn a_lease_is_in_whole_milliseconds<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let leased = lock.with_lease(Duration::from_micros(60_000_999));
    let guard = leased.lock().unwrap();
    for left in [fixture.pttl(), guard.remaining()] {
        assert!(left <= ms(60_000) && left > ms(50_000), "{left:?}");
    }
    guard.unlock().unwrap();
    for short in [Duration::ZERO, Duration::from_micros(1500), Duration::from_micros(99_999)] {
        let error = lock.with_lease(short).lock().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        assert_eq!(fixture.owner(), None, "nothing is stored");
    }
}

/// Redisson issue 6144: there the watchdog forgets a lock that was held twice.
fn a_hold_after_a_nested_one_is_renewed<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock_of(&fixture.client_with(|b| b.lease(LASTING).renew_every(EVERY)));
    let other = fixture.lock();
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    inner.unlock().unwrap();
    outer.unlock().unwrap();
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            in_vain(LASTING * 3 / 2, |limit| other.try_lock_for(limit));
            assert!(!guard.is_lost());
            guard.unlock().unwrap();
        });
        next.join().unwrap();
    });
}
