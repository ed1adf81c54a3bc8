//! One decision, and what it says.

use std::time::Duration;

use redis::Commands;
use redis_concurrent::internals::lock_count;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent_testkit::wait_until;

use crate::names::{LONG, client, key, ms, server};
use crate::rate_limiter::{HOUR, used};

#[test]
fn either_rate_lets_in_so_many_and_says_how_many_are_left() {
    for (name, rate) in
        [("fixed", Rate::fixed_window(3, HOUR)), ("smooth", Rate::smooth_with_burst(60, HOUR, 3))]
    {
        let limiter = client().rate_limiter(name, rate);
        assert_eq!(limiter.available().unwrap(), 3);
        let one = limiter.try_acquire(1).unwrap();
        assert!(one.allowed && one.remaining == 2 && one.retry_after.is_zero(), "{one:?}");
        let three = limiter.try_acquire(3).unwrap();
        assert!(!three.allowed && three.remaining == 2, "{three:?}");
        assert_eq!(limiter.available().unwrap(), 2);
        let two = limiter.try_acquire(2).unwrap();
        assert!(two.allowed && two.remaining == 0, "{two:?}");
        let none = limiter.try_acquire(1).unwrap();
        assert!(!none.allowed && none.remaining == 0, "{none:?}");
        assert!(none.retry_after > Duration::ZERO && none.retry_after <= none.reset_after, "{none:?}");
        // The whole window from the first one on; or a minute for each.
        let most = if name == "fixed" { HOUR } else { HOUR / 60 * 3 };
        assert!((most / 2..=most).contains(&none.reset_after), "{none:?}");
    }
}

#[test]
fn a_decision_is_one_request_and_nothing_else() {
    let (client, limiter) = {
        let client = client();
        (client.clone(), client.rate_limiter("cost", Rate::smooth(50, HOUR)))
    };
    // Makes the script known.
    assert!(limiter.try_acquire(1).unwrap().allowed);
    let before = client.request_count();
    for _ in 0..100 {
        let _ = limiter.try_acquire(1).unwrap();
    }
    assert_eq!(client.request_count() - before, 100);
    assert!(format!("{limiter:?}").contains("cost"));
    assert_eq!((client.request_count() - before, lock_count(&client)), (100, 0));
}

#[test]
fn all_handles_count_together_and_each_by_its_own_rate() {
    let rate = Rate::fixed_window(10, HOUR);
    let ten = client().rate_limiter("rates", rate);
    for _ in 0..4 {
        assert!(client().rate_limiter("rates", rate).try_acquire(1).unwrap().allowed);
    }
    let twenty = client().rate_limiter("rates", Rate::fixed_window(20, HOUR));
    assert_eq!([ten.available().unwrap(), twenty.available().unwrap()], [6, 16]);
    assert!(twenty.try_acquire(12).unwrap().allowed);
    let decision = ten.try_acquire(1).unwrap();
    assert!(!decision.allowed && decision.remaining == 0, "{decision:?}");
    assert_eq!([ten.available().unwrap(), twenty.available().unwrap()], [0, 4]);
    assert_eq!(twenty.name(), "rates");
    // Another name is another count.
    assert_eq!(client().rate_limiter("rates:other", rate).available().unwrap(), 10);
}

#[test]
fn a_count_is_gone_when_nothing_of_it_is_used() {
    let client = client();
    for (name, rate) in [("gone", Rate::fixed_window(5, ms(300))), ("gone smooth", Rate::smooth(5, ms(300)))]
    {
        let limiter = client.rate_limiter(name, rate);
        assert!(limiter.try_acquire(5).unwrap().allowed);
        let mut redis = server().connection().unwrap();
        wait_until(LONG, "it is gone", || !redis.exists::<_, bool>(key(name, "")).unwrap());
        assert_eq!(limiter.available().unwrap(), 5);
    }
}

#[test]
fn what_was_used_can_be_forgotten() {
    let limiter = client().rate_limiter("forgotten", Rate::fixed_window(2, HOUR));
    assert!(!limiter.delete().unwrap());
    assert!(limiter.try_acquire(2).unwrap().allowed);
    assert!(limiter.delete().unwrap());
    assert_eq!((used("forgotten"), limiter.available().unwrap()), (None, 2));
}

#[test]
fn a_rate_says_what_it_is() {
    assert_eq!(Rate::smooth(10, HOUR), Rate::smooth_with_burst(10, HOUR, 10));
    assert_ne!(Rate::smooth(10, HOUR), Rate::fixed_window(10, HOUR));
}
