//! Rate limiters: so many in so much time.

use std::time::{Duration, Instant};

use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{ErrorKind, RateLimiter};
use redis_concurrent_testkit::wait_until;

use crate::conformance::fixture::{Fixture, NAME, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, ms};

rows! { one_lock:
    each_window_lets_in_its_limit_and_no_more
    a_timed_try_that_is_in_vain_is_refused
    without_a_wait_what_is_left_is_exact
    more_than_the_rate_is_refused_and_harms_nothing
    what_was_taken_is_there_again_a_window_later
    of_one_that_was_used_once_nothing_stays
    deleted_it_has_no_key
    it_lives_as_long_as_it_is_used
    of_a_higher_rate_more_is_left
    a_new_rate_holds_at_once
}

/// A window that a loaded machine does not sleep through.
const WINDOW: Duration = ms(3000);

fn limiter<K: Tried>(fixture: &Fixture<K>, rate: Rate) -> RateLimiter {
    fixture.client().rate_limiter(NAME, rate)
}

fn allows(limiter: &RateLimiter) -> bool {
    limiter.try_acquire(1).unwrap().allowed
}

fn exists<K: Tried>(fixture: &Fixture<K>) -> bool {
    redis::cmd("EXISTS").arg(fixture.key("")).query(&mut fixture.redis()).unwrap()
}

#[track_caller]
fn await_end<K: Tried>(fixture: &Fixture<K>) {
    wait_until(LONG, "it is gone by itself", || !exists(fixture));
}

/// Redisson RedissonRateLimiterTest.test: there is no rate to be set.
fn each_window_lets_in_its_limit_and_no_more<K: Tried>(fixture: &Fixture<K>) {
    let limiter = limiter(fixture, Rate::fixed_window(10, ms(1000)));
    let mut windows = 0;
    while windows < 3 {
        await_end(fixture);
        let began = Instant::now();
        let allowed = (0..20).filter(|_| allows(&limiter)).count();
        // Unless the machine stood still, and the window was over before its last try.
        if began.elapsed() < ms(1000) {
            assert_eq!(allowed, 10);
            windows += 1;
        }
    }
    await_end(fixture);
}

/// Redisson RedissonRateLimiterTest.testTryAcquire.
fn a_timed_try_that_is_in_vain_is_refused<K: Tried>(fixture: &Fixture<K>) {
    let limiter = limiter(fixture, Rate::fixed_window(1, ms(5000)));
    let began = Instant::now();
    assert!(limiter.acquire_with(1, ms(1000)).unwrap().allowed);
    assert!(!limiter.acquire_with(1, ms(1000)).unwrap().allowed);
    assert!(!allows(&limiter));
    assert!(began.elapsed() < ms(2000) + LONG / 10, "{:?}", began.elapsed());
    assert!(limiter.delete().unwrap());
}

/// Redisson RedissonRateLimiterTest.testZeroTimeout.
fn without_a_wait_what_is_left_is_exact<K: Tried>(fixture: &Fixture<K>) {
    let limiter = limiter(fixture, Rate::fixed_window(5, WINDOW));
    for _ in 0..2 {
        for left in (0..5).rev() {
            assert!(limiter.acquire_with(1, Duration::ZERO).unwrap().allowed);
            assert_eq!(limiter.available().unwrap(), left);
        }
        for _ in 0..5 {
            assert!(!limiter.acquire_with(1, Duration::ZERO).unwrap().allowed);
        }
        await_end(fixture);
        assert_eq!(limiter.available().unwrap(), 5);
    }
}

/// Redisson RedissonRateLimiterTest.testPermitsExceeding.
fn more_than_the_rate_is_refused_and_harms_nothing<K: Tried>(fixture: &Fixture<K>) {
    for rate in [Rate::fixed_window(1, WINDOW), Rate::smooth(1, WINDOW)] {
        let limiter = limiter(fixture, rate);
        assert_eq!(limiter.acquire_with(20, LONG).unwrap_err().kind(), ErrorKind::Refused);
        assert_eq!(limiter.acquire(20).unwrap_err().kind(), ErrorKind::Refused);
        assert!(allows(&limiter) && !allows(&limiter));
        assert!(limiter.delete().unwrap());
    }
}

/// Redisson RedissonRateLimiterTest.testAvailablePermits.
fn what_was_taken_is_there_again_a_window_later<K: Tried>(fixture: &Fixture<K>) {
    for rate in [Rate::fixed_window(10, WINDOW), Rate::smooth(10, 10 * WINDOW)] {
        let limiter = limiter(fixture, rate);
        assert_eq!(limiter.available().unwrap(), 10);
        limiter.acquire(1).unwrap();
        assert_eq!(limiter.available().unwrap(), 9);
        wait_until(LONG, "all of it again", || limiter.available().unwrap() == 10);
        await_end(fixture);
    }
}

/// Redisson RedissonRateLimiterTest.testExpire2: it has no life to be given.
fn of_one_that_was_used_once_nothing_stays<K: Tried>(fixture: &Fixture<K>) {
    for rate in [Rate::fixed_window(3, ms(500)), Rate::smooth(3, ms(1500))] {
        assert!(allows(&limiter(fixture, rate)));
        await_end(fixture);
    }
}

/// Redisson RedissonRateLimiterTest.testRemove.
fn deleted_it_has_no_key<K: Tried>(fixture: &Fixture<K>) {
    for rate in [Rate::fixed_window(5, LONG), Rate::smooth(5, LONG)] {
        let limiter = limiter(fixture, rate);
        assert!(allows(&limiter) && exists(fixture));
        assert!(limiter.delete().unwrap() && !exists(fixture));
    }
}

/// Redisson RedissonRateLimiterTest.testKeepAliveTime: it lives by being used.
fn it_lives_as_long_as_it_is_used<K: Tried>(fixture: &Fixture<K>) {
    let limiter = limiter(fixture, Rate::smooth_with_burst(1, ms(2000), 3));
    assert!(allows(&limiter));
    await_end(fixture);
    assert!(allows(&limiter));
    let once = fixture.pttl();
    assert!(allows(&limiter) && fixture.pttl() > once);
    await_end(fixture);
}

/// Redisson RedissonRateLimiterTest.testUpdateRateHigherRate.
fn of_a_higher_rate_more_is_left<K: Tried>(fixture: &Fixture<K>) {
    for rate in [Rate::fixed_window as fn(u32, Duration) -> Rate, Rate::smooth] {
        let ten = limiter(fixture, rate(10, LONG * 100));
        ten.acquire(4).unwrap();
        assert_eq!(ten.available().unwrap(), 6);
        let twenty = limiter(fixture, rate(20, LONG * 100));
        assert_eq!(twenty.available().unwrap(), 16);
        assert!(ten.delete().unwrap());
    }
}

/// Redisson RedissonRateLimiterTest.testChangeRate: what is to be counted for each client has a name for
/// each.
fn a_new_rate_holds_at_once<K: Tried>(fixture: &Fixture<K>) {
    let clients = [fixture.client(), fixture.client()];
    let (old, new) = (Rate::fixed_window(10, LONG), Rate::smooth(2, LONG * 100));
    let own = |i: usize, rate| clients[i].rate_limiter(&format!("{NAME}:{i}"), rate);
    for i in 0..2 {
        assert!(allows(&own(i, old)) && allows(&own(i, new)) && !allows(&own(i, new)));
        assert!(own(i, new).delete().unwrap());
    }
    let all = |i: usize, rate| clients[i].rate_limiter(NAME, rate);
    assert!(allows(&all(0, old)) && allows(&all(1, new)));
    assert!(!allows(&all(0, new)) && !allows(&all(1, new)) && allows(&all(0, old)));
    assert!(all(0, old).delete().unwrap());
}
