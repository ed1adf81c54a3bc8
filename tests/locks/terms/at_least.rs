//! A hold that is released early is kept for the rest of its time.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::kinds::Kind;
use redis_concurrent::{Client, ErrorKind, RedisLock};
use redis_concurrent_testkit::{Proxy, RedisServer, closes_in_time, wait_until};

use crate::support::{LONG, SOON, builder, comes_in, connect, connected, ms, nothing_left, patient, queued};

/// Longer than any standstill of the machine.
const LEAST: Duration = Duration::from_secs(20);
/// For what waits for its end.
const SHORT: Duration = Duration::from_millis(1500);

#[track_caller]
fn is_kept<K: Kind>(lock: &RedisLock<K>, others: &RedisLock<K>) {
    assert!(lock.try_lock().unwrap().is_none(), "its own thread stays out");
    assert!(others.try_lock().unwrap().is_none(), "so do others");
    assert_eq!(lock.hold_count(), 0);
    let left = others.holder().unwrap().and_then(|it| it.remaining).expect("somebody holds it");
    assert!(left <= LEAST && left > ms(0), "{left:?} is left");
    assert!(others.force_unlock().unwrap().holders > 0);
}

fn of_a_kind<K: Kind>(make: impl Fn(&Client, &str) -> RedisLock<K>) {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let (lock, others) = (make(&a, "job").min_hold(LEAST), make(&b, "job"));

    drop(lock.lock().unwrap());
    is_kept(&lock, &others);

    let before = a.request_count();
    lock.lock_owned().unwrap().unlock().unwrap();
    assert_eq!(a.request_count() - before, 2, "it costs what it always costs");
    is_kept(&lock, &others);

    drop((lock, others));
    nothing_left(&server);
}

#[test]
fn a_simple_lock_is_kept() {
    of_a_kind(Client::simple_lock);
}

#[test]
fn a_reentrant_lock_is_kept() {
    of_a_kind(Client::reentrant_lock);
}

#[test]
fn a_write_lock_is_kept() {
    of_a_kind(|client, name| client.read_write_lock(name).write_lock().clone());
}

#[test]
fn a_reader_keeps_writers_out() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let read = a.read_write_lock("job").read_lock().min_hold(LEAST);
    drop(read.lock().unwrap());
    let write = b.read_write_lock("job").write_lock().clone();
    assert!(write.try_lock().unwrap().is_none());
    assert!(read.holder().unwrap().and_then(|it| it.remaining).unwrap() <= LEAST);
}

#[test]
fn an_inner_guard_ends_nothing() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("job").min_hold(LEAST);
    let outer = lock.lock().unwrap();
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(lock.hold_count(), 1);
    assert!(outer.remaining() > LEAST, "it has its lease");
    outer.unlock().unwrap();
    assert!(lock.holder().unwrap().and_then(|it| it.remaining).unwrap() <= LEAST);
}

#[test]
fn a_waiter_gets_in_when_its_time_is_over() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let (lock, others) = (a.reentrant_lock("job").min_hold(SHORT), b.reentrant_lock("job"));
    let began = Instant::now();
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let remote = scope.spawn(|| others.lock().unwrap().unlock().unwrap());
        queued(&lock, 1);
        // A thread of this process waits as well; nobody is handed what is kept.
        let local = scope.spawn(|| a.reentrant_lock("job").lock().unwrap().unlock().unwrap());
        queued(&lock, 2);
        guard.unlock().unwrap();
        assert!(!remote.is_finished() || began.elapsed() >= SHORT);
        remote.join().unwrap();
        assert!(began.elapsed() >= SHORT, "{:?}", began.elapsed());
        local.join().unwrap();
    });
    // Far less than the lease of 30 s that it had before.
    assert!(began.elapsed() < LONG, "{:?}", began.elapsed());
}

/// However long its heartbeat and the holder's lease are.
#[test]
fn a_waiter_that_asked_before_is_told_when_what_stays_ends() {
    for min_hold in [true, false] {
        let server = RedisServer::start().unwrap();
        let (a, b) = (patient(&server), patient(&server));
        let (lock, others) = (a.reentrant_lock("job"), b.reentrant_lock("job"));
        let lock = if min_hold { lock.min_hold(SHORT) } else { lock };
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| comes_in(&others));
            queued(&lock, 1);
            let ended = Instant::now();
            if min_hold { guard.unlock() } else { guard.unlock_staying(SHORT) }.unwrap();
            let came = waits.join().unwrap().duration_since(ended);
            assert!(came < LONG / 2, "min_hold {min_hold}: {came:?}");
        });
    }
}

#[test]
fn what_was_held_for_so_long_is_free_at_once() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.simple_lock("job").min_hold(ms(20));
    let guard = lock.lock().unwrap();
    let began = Instant::now();
    wait_until(SOON, "its time is over", || began.elapsed() > ms(40));
    guard.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn a_client_that_closes_keeps_it_too() {
    closes_in_time(|| {
        let server = RedisServer::start().unwrap();
        let (a, b) = (connect(&server), connect(&server));
        let lock = a.simple_lock("job").min_hold(LEAST);
        let guard = lock.lock().unwrap();
        let closed = a.close();
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
        let left =
            b.simple_lock("job").holder().unwrap().and_then(|it| it.remaining).expect("somebody holds it");
        assert!(left <= LEAST || closed.is_err(), "{left:?} is left");
        closed
    });
}

#[test]
fn a_release_that_redis_does_not_hear_is_repeated() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(ms(300)));
    let lock = client.simple_lock("job").with_lease(6 * LEAST).min_hold(LEAST);
    let guard = lock.lock().unwrap();
    proxy.black_hole(true);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    let others = connect(&server).simple_lock("job");
    assert!(others.holder().unwrap().and_then(|it| it.remaining).unwrap() > 2 * LEAST);
    proxy.heal().unwrap();
    wait_until(LONG, "its lease is the rest", || {
        others.holder().unwrap().and_then(|it| it.remaining).unwrap() <= LEAST
    });
}

#[test]
fn what_cannot_be_is_told() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.simple_lock("job");
    let day = Duration::from_secs(24 * 3600);
    for (lock, says) in [
        (lock.min_hold(ms(0)), "got 0ns"),
        (lock.min_hold(41 * day), "between 1ms and"),
        (lock.with_lease(ms(500)).min_hold(ms(501)), "a lease of 500ms cannot be kept for 501ms"),
        (lock.min_hold(ms(501)).with_lease(ms(500)), "a lease of 500ms cannot be kept for 501ms"),
    ] {
        let error = lock.lock().unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "job"));
        assert!(error.to_string().contains(says), "{error}");
    }
    assert_eq!(client.request_count(), 0);
    lock.with_lease(ms(500)).min_hold(ms(500)).lock().unwrap().unlock().unwrap();
    lock.min_hold(40 * day).try_lock().unwrap();
}

/// What was asked for twice may be asked for once more when its time is over.
#[test]
fn a_late_copy_of_its_ask_takes_nothing() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(LONG));
    let (lock, others) = (client.simple_lock("job").min_hold(SHORT), connect(&server).simple_lock("job"));
    // So that the next ask has a connection.
    client.simple_lock("other").lock().unwrap().unlock().unwrap();
    proxy.hold_next_requests(1);
    thread::scope(|scope| {
        let asks = scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        wait_until(SOON, "its ask is held", || proxy.held() == 1);
        proxy.cut_all();
        asks.join().unwrap();
    });
    assert!(others.is_locked().unwrap(), "it is kept");
    wait_until(LONG, "its time is over", || !others.is_locked().unwrap());
    proxy.release_held();
    wait_until(SOON, "the late copy was sent", || proxy.held() == 0);
    thread::sleep(ms(50));
    assert!(!others.is_locked().unwrap(), "nobody holds it");
}

/// Else it would be over with the lease that it had before.
#[test]
fn a_late_renewal_does_not_shorten_it() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).lease(ms(3000)).renew_every(ms(300)));
    let (lock, others) = (client.simple_lock("job").min_hold(LEAST), connect(&server).simple_lock("job"));
    let guard = lock.lock().unwrap();
    let before = client.request_count();
    wait_until(SOON, "it is renewed", || client.request_count() > before + 1);
    proxy.hold_next_requests(1);
    wait_until(SOON, "a renewal is held", || proxy.held() == 1);
    guard.unlock().unwrap();
    assert!(others.holder().unwrap().and_then(|it| it.remaining).unwrap() > LEAST / 2);
    proxy.release_held();
    wait_until(SOON, "it was sent", || proxy.held() == 0);
    thread::sleep(ms(50));
    assert!(
        others.holder().unwrap().and_then(|it| it.remaining).unwrap() > LEAST / 2,
        "nobody renews what is kept"
    );
}
