//! What cannot be: an error that says what and why, nothing sent, nothing changed.

use std::time::{Duration, Instant};

use redis::Commands;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{CancellationToken, Error, ErrorKind, RateLimiter, Wait};

use crate::names::{LONG, client, key, ms, server};
use crate::rate_limiter::{HOUR, used};

/// Every way to come in.
fn all_forms(limiter: &RateLimiter, n: u32) -> Vec<Error> {
    let never = CancellationToken::new();
    let outcomes = [
        limiter.try_acquire(n).map(drop),
        limiter.acquire(n),
        limiter.acquire_with(n, LONG).map(drop),
        limiter.acquire_with(n, Instant::now() + LONG).map(drop),
        limiter.acquire_with(n, &never).map(drop),
        limiter.acquire_with(n, Wait::timeout(LONG).cancelled_by(&never)).map(drop),
    ];
    outcomes.into_iter().map(Result::unwrap_err).collect()
}

#[track_caller]
fn all_say(errors: Vec<Error>, kind: ErrorKind, why: &str) {
    for error in errors {
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
}

#[test]
fn a_rate_that_cannot_work_is_told_by_every_call() {
    let client = client();
    let long = Duration::from_secs(400 * 24 * 3600);
    let most = i32::MAX as u32;
    let rates = [
        (Rate::fixed_window(0, HOUR), "limit must be between 1 and 2147483647, got 0"),
        (Rate::smooth(0, HOUR), "limit must be between 1 and 2147483647, got 0"),
        (Rate::fixed_window(most + 1, HOUR), "got 2147483648"),
        (Rate::smooth(u32::MAX, HOUR), "got 4294967295"),
        (Rate::smooth_with_burst(5, HOUR, 0), "burst must be between 1 and 2147483647, got 0"),
        (Rate::smooth_with_burst(5, HOUR, most + 1), "burst"),
        (Rate::fixed_window(5, Duration::ZERO), "window must be between 100ms"),
        (Rate::smooth(5, ms(99)), "got 99ms"),
        (Rate::fixed_window(5, long), "window must be between"),
        (Rate::smooth(5, Duration::MAX), "window must be between"),
    ];
    for (rate, why) in rates {
        let limiter = client.rate_limiter("bad", rate);
        all_say(all_forms(&limiter, 1), ErrorKind::InvalidInput, why);
        all_say(vec![limiter.available().unwrap_err()], ErrorKind::InvalidInput, why);
        assert_eq!(limiter.acquire(1).unwrap_err().name(), "bad");
    }
    assert_eq!(client.request_count(), 0);
    // The ends of what can work do.
    for (i, rate) in
        [Rate::smooth(most, ms(100)), Rate::fixed_window(1, long - 34 * 24 * HOUR)].iter().enumerate()
    {
        assert!(client.rate_limiter(&format!("good {i}"), *rate).try_acquire(1).unwrap().allowed);
    }
}

#[test]
fn none_and_more_than_there_ever_is_room_for_are_no_requests() {
    let client = client();
    for rate in [Rate::fixed_window(3, HOUR), Rate::smooth_with_burst(100, HOUR, 3)] {
        let limiter = client.rate_limiter("amount", rate);
        all_say(all_forms(&limiter, 0), ErrorKind::InvalidInput, "got 0");
        for n in [4, u32::MAX] {
            all_say(
                all_forms(&limiter, n),
                ErrorKind::Refused,
                &format!("at most 3 permits can be acquired at once, got {n}"),
            );
        }
    }
    assert_eq!((client.request_count(), used("amount")), (0, None));
    assert!(client.rate_limiter("amount", Rate::fixed_window(3, HOUR)).try_acquire(3).unwrap().allowed);
}

#[test]
fn a_bad_name_is_told_by_every_call() {
    let client = client();
    for (name, why) in [(String::new(), "empty"), ("x".repeat(1025), "1025"), ("€".repeat(342), "1026")] {
        let limiter = client.rate_limiter(&name, Rate::smooth(5, HOUR));
        let more = vec![limiter.available().unwrap_err(), limiter.delete().unwrap_err()];
        all_say([all_forms(&limiter, 1), more].concat(), ErrorKind::InvalidInput, why);
    }
    assert_eq!(client.request_count(), 0);
    // Odd ones are names like others.
    for name in ["{", "}", "a{b}c", "%", "\0", " ", "ключ"] {
        let limiter = client.rate_limiter(&format!("odd:{name}"), Rate::smooth(5, HOUR));
        assert_eq!(limiter.try_acquire(1).unwrap().remaining, 4, "{name:?}");
    }
}

#[test]
fn a_name_in_use_by_another_kind_stays_that_ones() {
    let client = client();
    let limiter = client.rate_limiter("taken", Rate::smooth(5, HOUR));
    let guard = client.reentrant_lock("taken").lock_owned().unwrap();
    let more = vec![limiter.available().unwrap_err(), limiter.delete().unwrap_err()];
    all_say([all_forms(&limiter, 1), more].concat(), ErrorKind::WrongType, "taken");
    guard.unlock().unwrap();
    // And the other way round.
    assert!(limiter.try_acquire(1).unwrap().allowed);
    let error = client.reentrant_lock("taken").try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
    assert_eq!(client.simple_lock("taken").lock().unwrap_err().kind(), ErrorKind::WrongType);
    assert!(limiter.delete().unwrap());
    let mut redis = server().connection().unwrap();
    let _: () = redis.set(key("taken", ""), "theirs").unwrap();
    all_say(all_forms(&limiter, 1), ErrorKind::WrongType, "taken");
    assert_eq!(redis.get::<_, String>(key("taken", "")).unwrap(), "theirs");
}
