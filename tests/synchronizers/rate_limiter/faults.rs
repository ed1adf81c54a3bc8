//! Answers that do not come: said, never sent again.

use std::time::{Duration, Instant};

use redis_concurrent::Client;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use crate::names::{LONG, ms, server};
use crate::rate_limiter::{HOUR, used};
use crate::support::{SOON, builder, connect, connected};

const RATE: Rate = Rate::fixed_window(100, HOUR);

fn behind(proxy: &Proxy) -> Client {
    waiting(proxy, SOON)
}

/// A client that waits for an answer so long.
fn waiting(proxy: &Proxy, limit: Duration) -> Client {
    let client = connected(|| builder(&proxy.url()).command_timeout(limit));
    // The script is known from here on, and a connection is there.
    wait_until(LONG, "it is answered", || client.rate_limiter("faults:warm", RATE).available().is_ok());
    client
}

#[test]
fn an_answer_that_is_lost_is_unknown_and_counts_once() {
    let proxy = Proxy::start(server().port()).unwrap();
    let client = behind(&proxy);
    let limiter = client.rate_limiter("lost", RATE);
    // Not what a new connection says first.
    proxy.only_matching(b"{lost}");
    for i in 1..=3 {
        let before = client.request_count();
        proxy.swallow_next_reply_and_reset();
        let error = if i == 2 { limiter.acquire(1) } else { limiter.try_acquire(1).map(drop) }.unwrap_err();
        assert!(error.is_outcome_unknown() && error.name() == "lost", "{error}");
        assert_eq!(client.request_count() - before, 1);
        assert_eq!(proxy.struck(), i);
        assert_eq!(used("lost"), Some(i as f64));
    }
    let decision = limiter.try_acquire(1).unwrap();
    assert!(decision.allowed && decision.remaining == 96, "{decision:?}");
}

#[test]
fn a_request_that_may_not_have_arrived_is_unknown_and_not_sent_again() {
    let proxy = Proxy::start(server().port()).unwrap();
    let client = behind(&proxy);
    let limiter = client.rate_limiter("cut", RATE);
    assert!(limiter.try_acquire(1).unwrap().allowed);
    proxy.only_matching(b"{cut}");
    proxy.reset_before_next_request();
    let before = client.request_count();
    assert!(limiter.try_acquire(1).unwrap_err().is_outcome_unknown());
    assert_eq!((client.request_count() - before, proxy.struck(), used("cut")), (1, 1, Some(1.0)));
    assert_eq!(limiter.try_acquire(1).unwrap().remaining, 98);
    proxy.reset_before_next_request();
    assert!(limiter.delete().unwrap_err().is_outcome_unknown());
    assert!(limiter.delete().unwrap());
}

#[test]
fn an_answer_that_takes_too_long_is_unknown_in_time() {
    let proxy = Proxy::start(server().port()).unwrap();
    let (client, limiter) = (waiting(&proxy, ms(500)), behind(&proxy).rate_limiter("late", RATE));
    proxy.hold_next_requests(1);
    let began = Instant::now();
    assert!(client.rate_limiter("late", RATE).acquire(1).unwrap_err().is_outcome_unknown());
    assert!(began.elapsed() < ms(500) + SOON, "{:?}", began.elapsed());
    assert_eq!(used("late"), None);
    // It runs yet, once.
    proxy.release_held();
    wait_until(LONG, "the held request has run", || used("late").is_some());
    assert_eq!(limiter.try_acquire(1).unwrap().remaining, 98);
}

#[test]
fn a_question_may_be_asked_twice() {
    let proxy = Proxy::start(server().port()).unwrap();
    let client = behind(&proxy);
    let limiter = client.rate_limiter("question", RATE);
    assert!(limiter.try_acquire(1).unwrap().allowed);
    proxy.swallow_next_reply_and_reset();
    assert_eq!(limiter.available().unwrap(), 99);
    let hasty = waiting(&proxy, ms(500)).rate_limiter("question", RATE);
    proxy.black_hole(true);
    assert!(hasty.available().unwrap_err().is_unavailable());
    proxy.black_hole(false);
    assert_eq!(limiter.available().unwrap(), 99);
}

#[test]
fn a_server_that_is_not_there_is_unavailable_at_once() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| Client::builder().url(&server.url()).command_timeout(ms(500)));
    let limiter = client.rate_limiter("away", RATE);
    drop(server);
    let began = Instant::now();
    // Nothing was connected yet: what never left is not unknown.
    for outcome in
        [limiter.acquire(1), limiter.acquire_with(1, LONG).map(drop), limiter.available().map(drop)]
    {
        let error = outcome.unwrap_err();
        assert!(error.is_unavailable(), "{error}");
    }
    assert!(began.elapsed() < 3 * ms(1000) + SOON, "{:?}", began.elapsed());
}

#[test]
fn scripts_that_were_flushed_are_sent_once_and_count_once() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let limiter = client.rate_limiter("flushed", RATE);
    for left in [99, 98] {
        redis::cmd("SCRIPT").arg("FLUSH").exec(&mut server.connection().unwrap()).unwrap();
        let before = client.request_count();
        assert_eq!(limiter.try_acquire(1).unwrap().remaining, left);
        assert_eq!(client.request_count() - before, 2);
    }
}

#[test]
fn a_restart_costs_one_call_its_answer_however_many_connections_there_were() {
    let proxy = Proxy::start(server().port()).unwrap();
    let client = behind(&proxy);
    let limiter = client.rate_limiter("restart", RATE);
    // So many connections are in the pool: requests that were under way together.
    proxy.hold_requests(true);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| limiter.available().unwrap());
        }
        wait_until(LONG, "four are under way", || proxy.held() == 4);
        proxy.hold_requests(false);
    });
    proxy.cut_all();
    assert!(limiter.try_acquire(1).unwrap_err().is_outcome_unknown());
    for _ in 0..4 {
        assert!(limiter.try_acquire(1).unwrap().allowed);
    }
}
