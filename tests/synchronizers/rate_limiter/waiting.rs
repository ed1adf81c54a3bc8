//! Waiting for room.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{CancellationToken, ErrorKind, RateLimiter, Wait};
use redis_concurrent_testkit::wait_until;

use crate::names::{LONG, client, ms};
use crate::rate_limiter::HOUR;
use crate::support::SOON;

/// One of which nothing is left.
fn exhausted(name: &str, rate: Rate) -> RateLimiter {
    let limiter = client().rate_limiter(name, rate);
    let all = limiter.available().unwrap();
    assert!(limiter.try_acquire(all).unwrap().allowed);
    limiter
}

#[test]
fn a_waiter_comes_in_when_there_is_room_after_two_requests() {
    let rates = [("waits", Rate::fixed_window(2, ms(800))), ("waits smooth", Rate::smooth(2, ms(1600)))];
    for (name, rate) in rates {
        let client = client();
        let limiter = client.rate_limiter(name, rate);
        // Makes the script known.
        limiter.available().unwrap();
        // Once more if the machine stood still until there was room, so that nobody waited.
        wait_until(LONG, "it had to wait", || {
            limiter.delete().unwrap();
            let began = Instant::now();
            assert!(limiter.try_acquire(2).unwrap().allowed);
            let before = client.request_count();
            limiter.acquire(1).unwrap();
            let (took, requests) = (began.elapsed(), client.request_count() - before);
            assert!((ms(800)..ms(800) + SOON).contains(&took), "{name}: {took:?}");
            // It asks, sleeps, asks whether its connection is still open, and asks again: no spinning.
            assert!(requests == 3 || requests == 1, "{name}: {requests}");
            requests == 3
        });
    }
}

#[test]
fn a_timed_wait_comes_in_in_time() {
    let limiter = exhausted("timed", Rate::fixed_window(1, ms(300)));
    assert!(limiter.acquire_with(1, LONG).unwrap().allowed);
    assert!(limiter.acquire_with(1, Instant::now() + LONG).unwrap().allowed);
    assert!(limiter.acquire_with(1, Duration::MAX).unwrap().allowed);
    assert!(
        limiter.acquire_with(1, Wait::timeout(LONG).cancelled_by(&CancellationToken::new())).unwrap().allowed
    );
}

#[test]
fn a_wait_in_vain_is_none_and_says_how_long_it_would_take() {
    let client = client();
    let limiter = client.rate_limiter("vain", Rate::fixed_window(1, HOUR));
    limiter.acquire(1).unwrap();
    let (before, began) = (client.request_count(), Instant::now());
    let never = CancellationToken::new();
    for decision in [
        limiter.acquire_with(1, LONG),
        limiter.acquire_with(1, Duration::ZERO),
        limiter.acquire_with(1, began + LONG),
        limiter.acquire_with(1, began),
        limiter.acquire_with(1, Wait::timeout(LONG).cancelled_by(&never)),
    ] {
        let decision = decision.unwrap();
        assert!(!decision.allowed && decision.retry_after > HOUR / 2, "{decision:?}");
    }
    assert_eq!(client.request_count() - before, 5);
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn a_waiter_is_woken_by_its_token() {
    let client = client();
    let limiter = client.rate_limiter("token", Rate::fixed_window(1, LONG));
    limiter.acquire(1).unwrap();
    let (before, token) = (client.request_count(), CancellationToken::new());
    thread::scope(|scope| {
        let waiters = [
            scope.spawn(|| limiter.acquire_with(1, &token).map(drop)),
            scope.spawn(|| limiter.acquire_with(1, Wait::timeout(2 * LONG).cancelled_by(&token)).map(drop)),
        ];
        wait_until(LONG, "both were refused", || client.request_count() == before + 2);
        token.cancel();
        let began = Instant::now();
        for waiter in waiters {
            assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
        }
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    });
    // Cancelled before: nothing is asked, and nothing counted.
    let free = client.rate_limiter("token:free", Rate::fixed_window(1, LONG));
    assert!(free.acquire_with(1, &token).unwrap_err().is_cancelled());
    assert_eq!(client.request_count(), before + 2);
    assert_eq!(free.available().unwrap(), 1);
}

#[test]
fn a_waiter_is_woken_when_its_client_closes() {
    let client = client();
    let limiter = client.rate_limiter("closes", Rate::fixed_window(1, LONG));
    limiter.acquire(1).unwrap();
    let before = client.request_count();
    thread::scope(|scope| {
        let waiters =
            [scope.spawn(|| limiter.acquire(1)), scope.spawn(|| limiter.acquire_with(1, 2 * LONG).map(drop))];
        wait_until(LONG, "both were refused", || client.request_count() == before + 2);
        let closed = limiter.closed();
        assert!(!closed.is_cancelled());
        client.close().unwrap();
        assert!(closed.is_cancelled() && limiter.closed().is_cancelled());
        let began = Instant::now();
        for waiter in waiters {
            let error = waiter.join().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.name()), (ErrorKind::Closed, "closes"));
        }
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    });
}

#[test]
fn many_waiters_come_in_no_faster_than_the_rate() {
    const THREADS: u32 = 8;
    const WINDOW: Duration = ms(400);
    let clients = [client(), client()];
    let rate = Rate::smooth_with_burst(4, WINDOW, 1);
    let began = Instant::now();
    thread::scope(|scope| {
        for i in 0..THREADS {
            let limiter = clients[i as usize % 2].rate_limiter("many", rate);
            scope.spawn(move || limiter.acquire(1).unwrap());
        }
    });
    // The first at once, each other one a quarter of a window later.
    let least = WINDOW / 4 * (THREADS - 1);
    assert!((least..least + SOON).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[test]
fn threads_that_wait_for_the_same_ask_in_turn() {
    const THREADS: u32 = 20;
    let client = client();
    let rate = Rate::smooth_with_burst(THREADS, ms(600), 1);
    let before = client.request_count();
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| client.rate_limiter("in turn", rate).acquire(1).unwrap());
        }
    });
    // When they come, when their turn comes, and when there is room: not whenever there is room for one of them.
    let requests = client.request_count() - before;
    assert!(requests <= u64::from(4 * THREADS), "{requests}");
}

#[test]
fn a_waiter_that_gives_up_passes_its_turn_on() {
    let (limiter, token) = (exhausted("passes on", Rate::fixed_window(1, ms(200))), CancellationToken::new());
    thread::scope(|scope| {
        for i in 0..6 {
            let limiter = &limiter;
            let (cancelled, timed) = (Wait::timeout(LONG).cancelled_by(&token), Wait::timeout(ms(300)));
            scope.spawn(move || limiter.acquire_with(1, if i % 2 == 0 { cancelled } else { timed }));
        }
        let others = [(); 3].map(|()| scope.spawn(|| limiter.acquire_with(1, LONG).unwrap().allowed));
        assert!(limiter.acquire_with(1, LONG).unwrap().allowed);
        token.cancel();
        assert_eq!(others.map(|it| it.join().unwrap()), [true; 3]);
    });
}

#[test]
fn a_timed_wait_ends_in_time_before_its_turn() {
    let client = client();
    let limiter = client.rate_limiter("before its turn", Rate::fixed_window(1, SOON / 4));
    let (before, token) = (client.request_count(), CancellationToken::new());
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| limiter.acquire_with(1, &token).map(drop));
        }
        wait_until(LONG, "they have asked", || client.request_count() >= before + 20);
        let began = Instant::now();
        let _allowed = limiter.acquire_with(1, SOON / 2).unwrap().allowed;
        let took = began.elapsed();
        token.cancel();
        assert!(took < SOON, "{took:?}");
    });
}
