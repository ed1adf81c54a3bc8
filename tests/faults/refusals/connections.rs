//! A server that refuses connections.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{Client, ClientBuilder, Error, ErrorKind};
use redis_concurrent_testkit::{Proxy, RedisServer, eventually, wait_until};

use crate::refusals::{AskOnce, tell};
use crate::support::*;

/// A client that bears silence for long: what it says sooner, it was told.
fn patient(url: &str) -> Client {
    builder(url).command_timeout(LONG).connect_timeout(LONG).connect_later().unwrap()
}

#[track_caller]
fn at_once<T>(what: &str, call: impl FnOnce() -> Result<T, Error>) -> Error {
    let began = Instant::now();
    let outcome = call().map(drop);
    assert!(began.elapsed() < SOON, "{what} took {:?}", began.elapsed());
    let error = outcome.expect_err(what);
    assert!(format!("{error:#}").to_lowercase().contains("refused"), "{what}: {error:#}");
    error
}

#[test]
fn a_refusal_is_told_at_once_where_nothing_waits() {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let client = patient(&door.url());
    let guard = client
        .reentrant_lock("held")
        .lock()
        .unwrap()
        .unlock()
        .and_then(|()| client.reentrant_lock("held").lock_owned());
    let guard = guard.unwrap();
    door.refuse_connections(true).unwrap();
    door.cut_all();
    let lock = client.simple_lock("x");
    let limiter = client.rate_limiter("r", Rate::fixed_window(1, ms(1000)));
    let calls: [(&str, AskOnce<'_>); 8] = [
        ("try_lock", &|| lock.try_lock().map(drop)),
        ("is_locked", &|| lock.is_locked().map(drop)),
        ("holder", &|| lock.holder().map(drop)),
        ("queue_length", &|| lock.queue_length().map(drop)),
        ("permits", &|| client.semaphore("s").set_permits(1).map(drop)),
        ("count", &|| client.count_down_latch("l").count().map(drop)),
        ("limiter", &|| limiter.try_acquire(1).map(drop)),
        ("renew_for", &|| guard.renew_for(ms(30_000))),
    ];
    // The first one may find the connection that was cut.
    let _ = lock.is_locked();
    for (what, call) in calls {
        assert_eq!(at_once(what, call).kind(), ErrorKind::Unavailable, "{what}");
    }
    // It was not run, and is done in the background.
    assert_eq!(at_once("unlock", || guard.unlock()).kind(), ErrorKind::Unavailable);
    door.heal().unwrap();
    wait_until(LONG, "the release in the background", || !exists(&server, "rc:{held}"));
}

#[test]
fn a_client_of_a_server_that_was_never_there_hears_why() {
    let client = patient(NOWHERE);
    for _ in 0..3 {
        let error = at_once("try_lock", || client.simple_lock("x").try_lock().map(drop));
        assert_eq!(error.kind(), ErrorKind::Unavailable);
    }
    client.close().unwrap();
}

#[test]
fn a_waiter_gets_in_when_the_server_is_there() {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let client = patient(&door.url());
    let lock = client.reentrant_lock("x");
    door.refuse_connections(true).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| lock.lock().unwrap().unlock());
        let timed = scope.spawn(|| {
            let began = Instant::now();
            let outcome = client.reentrant_lock("y").try_lock_for(ms(700)).map(drop);
            (outcome, began.elapsed())
        });
        let (outcome, took) = timed.join().unwrap();
        assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unavailable);
        assert!(took >= ms(695), "it did not wait: {took:?}");
        assert!(!waits.is_finished());
        door.refuse_connections(false).unwrap();
        waits.join().unwrap().unwrap();
    });
    nothing_left(&server);
}

#[test]
fn an_untimed_wait_ends_after_its_patience_with_the_cause() {
    let patience = ms(800);
    let client =
        builder(NOWHERE).command_timeout(LONG).unreachable_timeout(patience).connect_later().unwrap();
    let began = Instant::now();
    let error = at_once("lock", || client.simple_lock("x").lock().map(drop));
    assert!(began.elapsed() >= patience && error.kind() == ErrorKind::Unavailable, "{error}");
}

#[test]
fn more_callers_than_connections_all_hear_of_it() {
    let client = builder(NOWHERE).max_connections(2).command_timeout(LONG).connect_later().unwrap();
    thread::scope(|scope| {
        for n in 0..16 {
            let client = &client;
            scope.spawn(move || {
                at_once("try_lock", || client.simple_lock(&format!("x{n}")).try_lock().map(drop))
            });
        }
    });
}

/// As where the server has as many clients as it wants.
#[test]
fn a_connection_that_is_in_use_is_waited_for_where_no_other_can_be_made() {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let client = patient(&door.url());
    drop(client.simple_lock("x").lock().unwrap());
    door.hold_next_requests(1);
    thread::scope(|scope| {
        let first = scope.spawn(|| client.simple_lock("x").try_lock().map(|guard| guard.is_some()));
        wait_until(SOON, "it is on its way", || door.held() == 1);
        door.refuse_connections(true).unwrap();
        let second = scope.spawn(|| client.simple_lock("y").try_lock().map(|guard| guard.is_some()));
        // Long enough for many refusals.
        assert!(!ended_within(ms(300), || second.is_finished()));
        door.release_held();
        assert!(first.join().unwrap().unwrap() && second.join().unwrap().unwrap());
    });
    door.heal().unwrap();
    nothing_left(&server);
}

fn ended_within(limit: Duration, ended: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < limit && !ended() {
        thread::sleep(ms(5));
    }
    ended()
}

#[test]
fn a_wrong_password_is_told_at_once_also_to_waiters() {
    let server = RedisServer::builder().password("right").start().unwrap();
    let url = format!("redis://:wrong@127.0.0.1:{}/", server.port());
    let client = builder(&url).command_timeout(LONG).unreachable_timeout(LONG).connect_later().unwrap();
    let began = Instant::now();
    for error in [
        client.simple_lock("x").try_lock().map(drop).unwrap_err(),
        client.simple_lock("x").lock().map(drop).unwrap_err(),
        client.simple_lock("x").try_lock_for(LONG).map(drop).unwrap_err(),
        client.semaphore("s").acquire(1).map(drop).unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        assert!(format!("{error:#}").to_lowercase().contains("authentication"), "{error:#}");
    }
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
    // Nothing of it is left to be settled.
    client.close().unwrap();
}

/// Nobody refused it: another one is made.
#[test]
fn a_connection_that_breaks_as_it_is_made_is_made_again() {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let client = patient(&door.url());
    for n in 1..=4 {
        // What a client library sends on connecting is struck.
        door.swallow_next_reply_and_reset();
        assert!(client.simple_lock("x").try_lock().unwrap().is_some());
        assert_eq!(door.struck(), n);
        door.cut_all();
    }
    client.close().unwrap();
}

/// Neither what the system calls it, "Resource temporarily unavailable", nor what the library below makes of it.
#[test]
fn a_server_that_does_not_answer_is_told_with_the_time_it_had() {
    let server = RedisServer::start().unwrap();
    let timed = |it: ClientBuilder| it.command_timeout(ms(300)).connect_timeout(ms(400));
    // Times that a busy machine may not keep.
    let client = eventually(LONG, || timed(Client::builder().url(&server.url())).connect().ok());
    let lock = client.simple_lock("x");
    eventually(LONG, || lock.try_lock().ok()??.unlock().ok());
    server.stop().unwrap();
    let says = |error: Error, start: &str| {
        assert!(error.is_unavailable() && error.is_retryable(), "{error:?}");
        let text = format!("{error:#}");
        assert!(text.starts_with(start) && !text.contains("temporarily"), "{text}");
    };
    let silent = lock.try_lock().map(drop).unwrap_err();
    let time = silent.to_string();
    let time =
        time.strip_prefix("\"x\": unavailable: no answer within ").and_then(|it| it.strip_suffix(" ms"));
    // What was left of the call's own time.
    assert!(time.is_some_and(|it| (1..=300).contains(&it.parse::<u32>().unwrap())), "{silent:?}");
    says(silent, "\"x\": unavailable: no answer within ");
    // Its connection was the only one, and another one is not made.
    says(lock.try_lock().map(drop).unwrap_err(), "\"x\": unavailable: no connection to Redis in time");
    let other = timed(Client::builder().url(&server.url())).connect().map(drop).unwrap_err();
    says(other, "unavailable: no connection to Redis in time");
    server.cont().unwrap();
}

/// A server that does not know a script is sent it; where the time is up before, that is what is told.
#[test]
fn a_try_whose_time_is_up_while_its_script_is_loaded_is_told_so() {
    let server = RedisServer::start().unwrap();
    let door = Proxy::start(server.port()).unwrap();
    let client = patient(&door.url());
    assert!(!client.simple_lock("x").is_locked().unwrap());
    tell(&server, &["SCRIPT", "FLUSH"]);
    // Each half comes before a read times out, both come after the call's time and the grace for its last request.
    door.split_replies(ms(250));
    let error = client.simple_lock("x").try_lock_for(ms(300)).map(drop).unwrap_err();
    let text = format!("{error:#}");
    assert!(error.is_unavailable() && error.is_retryable(), "{text}");
    assert!(text.contains("no answer") && !text.to_lowercase().contains("script"), "{text}");
    door.heal().unwrap();
    assert!(client.simple_lock("x").try_lock().unwrap().is_some());
}
