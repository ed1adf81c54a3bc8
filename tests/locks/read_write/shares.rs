//! The share: threads of a process that read under one hold in Redis.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::{Barrier, Proxy, wait_until};

use crate::read_write::Fixture;
use crate::support::{LONG, SOON, builder, connected, nothing_left, quiet};

/// (Renewals and heartbeats, which would be counted, come late.)
#[test]
fn threads_join_within_a_slice_without_a_request() {
    let fixture = Fixture::new();
    let client = fixture.client_with(|b| quiet(b).local_handoff(Duration::from_secs(600)));
    let lock = client.read_write_lock("it");
    // So that Redis knows the scripts.
    drop(lock.read_lock().lock().unwrap());
    let read = lock.read_lock().lock().unwrap();
    let before = client.request_count();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..100).for_each(|_| drop(lock.read_lock().lock().unwrap())));
        }
    });
    assert_eq!(client.request_count(), before);
    drop(read);
    assert_eq!(client.request_count(), before + 1);
    nothing_left(&fixture.server);
}

#[test]
fn without_a_slice_each_thread_asks() {
    let fixture = Fixture::new();
    let client = fixture.client_with(|b| quiet(b).local_handoff(Duration::ZERO));
    let lock = client.read_write_lock("it");
    // So that Redis knows the scripts.
    drop(lock.read_lock().lock().unwrap());
    let read = lock.read_lock().lock().unwrap();
    let before = client.request_count();
    thread::scope(|scope| {
        scope.spawn(|| (0..10).for_each(|_| drop(lock.read_lock().lock().unwrap())));
    });
    assert_eq!(client.request_count(), before + 20);
    drop(read);
    nothing_left(&fixture.server);
}

#[test]
fn a_slice_that_is_over_is_made_longer_by_one_request_while_nobody_waits() {
    let fixture = Fixture::new();
    let local_handoff = Duration::from_millis(20);
    // Nothing is renewed meanwhile.
    let lease = Duration::from_secs(3600);
    let client = fixture.client_with(|b| b.local_handoff(local_handoff).lease(lease));
    let lock = client.read_write_lock("it");
    let read = lock.read_lock().lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            // However often the hand-off period ends, it is one hold in Redis.
            let mut most = 0;
            for _ in 0..5 {
                let before = client.request_count();
                let began = Instant::now();
                wait_until(LONG, "the hand-off period is over", || began.elapsed() > local_handoff);
                drop(lock.read_lock().lock().unwrap());
                most = most.max(client.request_count() - before);
            }
            assert_eq!(most, 1);
            let fields: Vec<String> =
                redis::cmd("HKEYS").arg("rc:{it}").query(&mut fixture.server.connection().unwrap()).unwrap();
            assert_eq!(fields.iter().filter(|field| field.contains(':')).count(), 1, "{fields:?}");
        });
    });
    drop(read);
    nothing_left(&fixture.server);
}

#[test]
fn readers_come_in_also_where_each_reply_takes_longer_than_the_slice() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).local_handoff(Duration::from_micros(100)));
    let lock = client.read_write_lock("it");
    let read = lock.read_lock().lock().unwrap();
    proxy.delay(Duration::from_millis(5));
    let before = client.request_count();
    let waits = || {
        drop(lock.read_lock().try_lock_for(LONG).unwrap().expect("the others read"));
        drop(lock.read_lock().lock().unwrap());
    };
    thread::scope(|scope| (0..4).for_each(|_| _ = scope.spawn(waits)));
    let tries = || drop(lock.read_lock().try_lock().unwrap().expect("the others read"));
    thread::scope(|scope| _ = scope.spawn(tries));
    let requests = client.request_count() - before;
    assert!(requests <= 9, "each of nine reads asks at most once: {requests}");
    drop(read);
    proxy.heal().unwrap();
    nothing_left(&fixture.server);
}

#[test]
fn the_last_one_out_leaves_and_the_share_lasts_till_then() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let inside = Barrier::new(3);
    let left = AtomicUsize::new(0);
    thread::scope(|scope| {
        for i in 0..3 {
            let (lock, other, inside, left) = (&lock, &other, &inside, &left);
            scope.spawn(move || {
                let guard = lock.read_lock().lock().unwrap();
                inside.wait();
                wait_until(LONG, "its turn to leave", || left.load(Ordering::SeqCst) == i);
                assert!(other.write_lock().try_lock().unwrap().is_none());
                guard.unlock().unwrap();
                left.fetch_add(1, Ordering::SeqCst);
            });
        }
    });
    assert!(other.write_lock().try_lock().unwrap().is_some());
    nothing_left(&fixture.server);
}

#[test]
fn a_lost_share_is_lost_for_all_and_not_joined_any_more() {
    let fixture = Fixture::new();
    let client = fixture.client_with(|b| b.local_handoff(Duration::from_secs(600)));
    let (lock, other) = (client.read_write_lock("it"), fixture.lock());
    let mine = lock.read_lock().lock().unwrap();
    let lost = mine.lost();
    thread::scope(|scope| {
        let theirs = scope.spawn(|| {
            let guard = lock.read_lock().lock_owned().unwrap();
            assert!(other.read_lock().force_unlock().unwrap().holders > 0);
            wait_until(LONG, "it is told", || guard.is_lost());
            guard.unlock().unwrap_err().kind()
        });
        assert_eq!(theirs.join().unwrap(), ErrorKind::LeaseLost);
        wait_until(LONG, "the token fires", || lost.is_cancelled());
        let fresh = scope.spawn(|| lock.read_lock().lock().unwrap().is_lost());
        assert!(!fresh.join().unwrap(), "a hold of its own");
    });
    assert_eq!(
        lock.read_lock().lock().unwrap_err().kind(),
        ErrorKind::LeaseLost,
        "as long as its guard lives"
    );
    assert_eq!(mine.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    nothing_left(&fixture.server);
}

#[test]
fn a_reader_that_joins_late_in_a_slice_is_in_by_its_deadline_also_while_redis_is_silent() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let local_handoff = Duration::from_secs(4);
    let client = connected(|| builder(&proxy.url()).local_handoff(local_handoff).command_timeout(2 * LONG));
    let lock = client.read_write_lock("it");
    let read = lock.read_lock().lock().unwrap();
    let began = Instant::now();
    wait_until(LONG, "the hand-off period is half over", || began.elapsed() > local_handoff / 2);
    proxy.black_hole(true);
    thread::scope(|scope| {
        let joins = || {
            let began = Instant::now();
            let guard = lock.read_lock().try_lock_for(Duration::from_millis(100)).unwrap();
            assert!(guard.is_some(), "the others read");
            began.elapsed()
        };
        let took = scope.spawn(joins).join().unwrap();
        assert!(took < SOON, "{took:?}");
    });
    proxy.heal().unwrap();
    drop(read);
    nothing_left(&fixture.server);
}
