//! *one-deadline*: a timed call ends by its deadline, wherever it is waiting.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{CancellationToken, Error, ErrorKind, ReentrantLock, Wait};
use redis_concurrent_testkit::*;

use crate::support::*;

const LIMIT: Duration = ms(300);
/// The promised quarter of a second, and what a loaded machine may add.
/// Far below the limits of a connection or a command here, whose neglect of the deadline would show.
const TOLERANCE: Duration = ms(250 + 4000);

type Outcome = Result<bool, Error>;

/// Calls every timed form; each must end by its deadline, and not before it.
#[track_caller]
fn all_end_in_time(lock: &ReentrantLock, state: &str, fits: impl Fn(&Outcome) -> bool) {
    let never = CancellationToken::new();
    type Form<'a> = &'a dyn Fn() -> Outcome;
    let forms: [(&str, Form<'_>); 6] = [
        ("try_lock_for", &|| lock.try_lock_for(LIMIT).map(|g| g.is_some())),
        ("try_lock_until", &|| lock.lock_with(Instant::now() + LIMIT).map(|g| g.is_some())),
        ("try_lock_for_interruptibly", &|| {
            lock.lock_with(Wait::timeout(LIMIT).cancelled_by(&never)).map(|g| g.is_some())
        }),
        ("try_lock_owned_for", &|| lock.lock_owned_with(LIMIT).map(|g| g.is_some())),
        ("try_lock_owned_until", &|| lock.lock_owned_with(Instant::now() + LIMIT).map(|g| g.is_some())),
        ("try_lock_owned_for_interruptibly", &|| {
            lock.lock_owned_with(Wait::timeout(LIMIT).cancelled_by(&never)).map(|g| g.is_some())
        }),
    ];
    for (name, form) in forms {
        eventually(LONG, || {
            let began = Instant::now();
            let outcome = form();
            let took = began.elapsed();
            assert!(took >= LIMIT - ms(5), "{state}: {name} ended early, after {took:?}: {outcome:?}");
            assert!(took < LIMIT + TOLERANCE, "{state}: {name} took {took:?}: {outcome:?}");
            // Once more where a machine that stood still had no answer by the deadline.
            if unavailable(&outcome) && !fits(&outcome) {
                return None;
            }
            assert!(fits(&outcome), "{state}: {name}: {outcome:?}");
            Some(())
        });
    }
}

fn busy(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(false))
}

fn unavailable(outcome: &Outcome) -> bool {
    outcome.as_ref().is_err_and(|e| e.kind() == ErrorKind::Unavailable)
}

#[test]
fn one_deadline_in_the_local_queue_and_in_redis() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("x");
    let guard = connect(&server).reentrant_lock("x").lock_owned().unwrap();
    all_end_in_time(&lock, "in the queue in Redis", busy);
    let token = CancellationToken::new();
    thread::scope(|scope| {
        scope.spawn(|| lock.lock_interruptibly(&token).map(drop));
        wait_until(SOON, "it is the head", || lock.local_queue_length() == 1);
        all_end_in_time(&lock, "behind another thread", busy);
        token.cancel();
    });
    guard.unlock().unwrap();
    let guard = lock.lock_owned().unwrap();
    all_end_in_time(&lock, "behind a local holder", busy);
    guard.unlock().unwrap();
    nothing_left(&server);
}

#[test]
fn one_deadline_for_an_attempt_behind_an_unlock_that_is_under_way() {
    let server = RedisServer::start().unwrap();
    let timeout = ms(6000);
    let client = connected(|| {
        builder(&server.url()).command_timeout(timeout).connect_timeout(timeout).waiter_timeout(LONG)
    });
    let lock = client.reentrant_lock("x");
    let guard = lock.lock_owned().unwrap();
    server.stop().unwrap();
    thread::scope(|scope| {
        let requests = client.request_count();
        let unlocking = scope.spawn(|| guard.unlock());
        wait_until(SOON, "it is under way", || client.request_count() > requests);
        thread::sleep(timeout / 2);
        // It waits for the rest of the unlock's time, and then has only as long for its own request.
        let began = Instant::now();
        let error = lock.try_lock().map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let took = began.elapsed();
        assert!(took < timeout + timeout / 3, "{took:?}");
        assert!(unlocking.join().unwrap().is_err());
    });
    server.cont().unwrap();
}

#[test]
fn one_deadline_while_redis_is_silent_though_the_call_has_none() {
    let server = RedisServer::start().unwrap();
    let limit = ms(1000);
    let slow = || builder(&server.url()).command_timeout(LONG).waiter_timeout(LONG).lease(3 * LONG);
    let client = connected(|| slow().unreachable_timeout(limit));
    let lock = client.reentrant_lock("x");
    lock.lock().unwrap().unlock().unwrap();
    server.stop().unwrap();
    let began = Instant::now();
    let error = lock.lock().map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    let took = began.elapsed();
    assert!((limit..limit + TOLERANCE).contains(&took), "{took:?}");
    server.cont().unwrap();
}

#[test]
fn one_deadline_while_the_inbox_starts() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let _held = connect(&server).reentrant_lock("x").lock_owned().unwrap();
    let client = patiently(&proxy.url());
    proxy.only_matching(b"SUBSCRIBE");
    proxy.hold_requests(true);
    all_end_in_time(&client.reentrant_lock("x"), "the inbox is starting", |o| busy(o) || unavailable(o));
    assert!(proxy.held() > 0);
}

#[test]
fn one_deadline_with_the_pool_exhausted() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let set = builder(&proxy.url()).max_connections(1);
    let client = set.command_timeout(LONG).connect_timeout(LONG).connect().unwrap();
    drop(client.reentrant_lock("stuck").lock().unwrap());
    proxy.hold_next_requests(1);
    thread::scope(|scope| {
        let stuck = scope.spawn(|| client.reentrant_lock("stuck").lock().map(drop));
        wait_until(SOON, "the request is held", || proxy.held() == 1);
        all_end_in_time(&client.reentrant_lock("x"), "the pool is exhausted", unavailable);
        proxy.release_held();
        stuck.join().unwrap().unwrap();
    });
}

#[test]
fn one_deadline_while_redis_is_silent_or_gone() {
    let server = RedisServer::start().unwrap();
    let client = patiently(&server.url());
    let lock = client.reentrant_lock("x");
    drop(lock.lock().unwrap());
    server.stop().unwrap();
    all_end_in_time(&lock, "Redis is silent", unavailable);
    server.kill().unwrap();
    all_end_in_time(&lock, "Redis is gone", unavailable);
    server.restart().unwrap();
    free_at_once(&lock);
    // Silent from the first connection on.
    let fresh = patiently(&server.url());
    let lock = fresh.reentrant_lock("x");
    server.stop().unwrap();
    all_end_in_time(&lock, "Redis is silent to a new client", unavailable);
    server.cont().unwrap();
    free_at_once(&lock);
}

/// A queue whose holder and whose server go silent in the middle of the wait.
#[test]
fn one_deadline_when_redis_falls_silent_in_the_middle() {
    // Time enough for a machine that stands still to stop the server.
    const LIMIT: Duration = ms(6000);
    let server = RedisServer::start().unwrap();
    let holder = connect(&server).reentrant_lock("x");
    let held = holder.lock_owned().unwrap();
    let client = builder(&server.url()).lease(ms(900)).command_timeout(LONG).connect_timeout(LONG);
    let lock = client.connect().unwrap().reentrant_lock("x");
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let began = Instant::now();
            (lock.try_lock_for(LIMIT).map(|g| g.is_some()), began.elapsed())
        });
        queued(&holder, 1);
        server.stop().unwrap();
        let (outcome, took) = waits.join().unwrap();
        assert!(unavailable(&outcome), "{outcome:?}");
        assert!(took >= LIMIT - ms(5) && took < LIMIT + TOLERANCE, "{took:?}");
        server.cont().unwrap();
    });
    held.unlock().unwrap();
    free_at_once(&lock);
}
