//! What a kept lock is to its own process.

use redis_concurrent::kinds::Exclusive;
use redis_concurrent::observe::AcquiredVia;
use redis_concurrent::{Client, Error, ErrorKind, RedisLock};
use redis_concurrent_testkit::{RedisServer, closes_in_time};

use super::{LINGER, is_given_back, is_kept};
use crate::support::{Event, Recorder, builder, connect, ms, nothing_left, queued, quiet};

fn of_a_kind<K: Exclusive>(make: impl Fn(&Client) -> RedisLock<K>) {
    closes_in_time(|| is_kept_for_its_process(&make));
}

/// What the close at its end said.
fn is_kept_for_its_process<K: Exclusive>(make: impl Fn(&Client) -> RedisLock<K>) -> Result<(), Error> {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let client = quiet(builder(&server.url())).observer(recorder.clone()).connect().unwrap();
    let other = connect(&server);
    let (lock, others) = (make(&client).linger(LINGER), make(&other));
    is_kept(&client, &lock);
    let (before, mut newest) = (client.request_count(), 0);
    for _ in 0..50 {
        let guard = lock.lock().unwrap();
        assert!(guard.token() > newest && !guard.is_lost());
        newest = guard.token();
        guard.unlock().unwrap();
        assert!(!lock.is_held_by_current_thread());
        // By any form, and given back by a guard's end.
        drop(lock.try_lock().unwrap().expect("it is kept here"));
        lock.try_lock_owned().unwrap().expect("it is kept here").unlock().unwrap();
    }
    assert_eq!(client.request_count(), before, "it asks no more");
    assert!(recorder.count(Event::Acquired(AcquiredVia::Kept)) >= 150);

    let guard = others.lock().unwrap();
    assert!(guard.token() > newest);
    guard.unlock().unwrap();
    is_kept(&client, &lock);
    let closed = client.close();
    assert_eq!(recorder.losses(), 0, "what is kept is nobody's to lose");
    if closed.is_ok() {
        nothing_left(&server);
    }
    closed
}

#[test]
fn a_simple_lock_is_kept() {
    of_a_kind(|client| client.simple_lock("it"));
}

#[test]
fn a_reentrant_lock_is_kept() {
    of_a_kind(|client| client.reentrant_lock("it"));
}

#[test]
fn a_lock_at_a_key_is_kept() {
    of_a_kind(|client| client.simple_lock_at("app:it"));
}

#[test]
fn a_write_lock_is_kept() {
    of_a_kind(|client| client.read_write_lock("it").write_lock().clone());
}

#[test]
fn it_is_reentered_and_ends_with_its_last_guard() {
    let server = RedisServer::start().unwrap();
    let client = quiet(builder(&server.url())).connect().unwrap();
    let lock = client.reentrant_lock("it").linger(LINGER);
    is_kept(&client, &lock);
    let before = client.request_count();
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    assert_eq!((outer.token(), lock.hold_count()), (inner.token(), 2));
    outer.unlock().unwrap();
    assert!(lock.is_held_by_current_thread());
    inner.unlock().unwrap();
    assert!(!lock.is_held_by_current_thread());
    // The guard of another thread is not this thread's.
    let owned = lock.lock_owned().unwrap();
    assert!(!lock.is_held_by_current_thread() && lock.try_lock().unwrap().is_none());
    std::thread::spawn(move || owned.unlock().unwrap()).join().unwrap();
    assert_eq!(client.request_count(), before);
}

/// Its threads take turns without a request, long after the period for which one may hand it on.
#[test]
fn threads_of_its_process_share_it() {
    let server = RedisServer::start().unwrap();
    let client = quiet(builder(&server.url())).local_handoff(ms(1)).connect().unwrap();
    let lock = client.simple_lock("it").linger(LINGER);
    is_kept(&client, &lock);
    let before = client.request_count();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..200).for_each(|_| lock.lock().unwrap().unlock().unwrap()));
        }
    });
    assert_eq!(client.request_count(), before);
}

/// A client that begins to listen tells all its locks that they may have missed messages, which takes a while: not those of
/// them that it keeps because it listens.
#[test]
fn it_stays_from_the_first_time_on() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let _many: Vec<_> = (0..20_000).map(|n| client.simple_lock(&n.to_string())).collect();
    let (lock, last) = (client.simple_lock("it").linger(LINGER), client.simple_lock("last"));
    let (others, token) = (other.simple_lock("last"), || {
        let guard = lock.lock().unwrap();
        (guard.token(), guard.unlock().unwrap()).0
    });
    let held = others.lock().unwrap();
    std::thread::scope(|scope| {
        // It waits at a position once its client listens, and has told this lock, too.
        let waits = scope.spawn(|| last.lock().unwrap().unlock().unwrap());
        let kept = std::iter::repeat_with(|| (token(), token())).find(|(first, next)| first + 1 == *next);
        queued(&others, 1);
        assert_eq!(kept.map(|(_, token)| token + 1), Some(token()), "it is the same grant");
        held.unlock().unwrap();
        waits.join().unwrap();
    });
}

#[test]
fn with_other_terms_it_does_not_linger() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("it");
    let lingering = lock.linger(LINGER);
    is_kept(&client, &lingering);
    let after = |lock: &RedisLock<_>| {
        lock.lock().unwrap().unlock().unwrap();
        is_given_back(lock);
    };
    after(&lingering.fair());
    after(&lock.fair().linger(LINGER));
    after(&lingering.with_lease(ms(30_000)));
    after(&lock.with_lease(ms(30_000)).linger(LINGER));
    after(&lock);
    lingering.min_hold(ms(1)).lock().unwrap().unlock().unwrap();
    is_given_back(&lock);
}

/// What is kept on other terms is given back by the request that asks for it.
#[test]
fn other_terms_cost_one_request() {
    let server = RedisServer::start().unwrap();
    let client = quiet(builder(&server.url())).connect().unwrap();
    let lock = client.simple_lock("it");
    is_kept(&client, &lock.linger(ms(1_000)));
    is_kept(&client, &lock.linger(LINGER));
    let (before, fair) = (client.request_count(), lock.fair());
    let guard = fair.lock().unwrap();
    assert_eq!(client.request_count() - before, 1);
    guard.unlock().unwrap();
    is_given_back(&lock);
}

#[test]
fn its_lease_is_short_and_renewed() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.simple_lock("it");
    let left = |lock: &RedisLock<_>| lock.lock().unwrap().remaining();
    assert!(left(&lock.linger(ms(5))) <= ms(3_000));
    assert!(left(&lock.linger(ms(2_000))) <= ms(6_000));
    assert!(left(&lock.linger(ms(60_000))) > ms(6_000), "never longer than the client's");
    assert!(left(&lock.linger(ms(5)).fair()) > ms(6_000), "this one does not linger");
}

#[test]
fn how_long_it_may_linger() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.simple_lock("it");
    for bad in [ms(0), std::time::Duration::from_micros(999), ms(60_001), std::time::Duration::MAX] {
        let error = lock.linger(bad).lock().expect_err("it is not of that time");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{bad:?}");
        assert!(error.to_string().contains("it") && lock.fair().linger(bad).lock().is_err(), "{error}");
    }
    for good in [ms(1), ms(60_000)] {
        lock.linger(good).lock().unwrap().unlock().unwrap();
    }
}
