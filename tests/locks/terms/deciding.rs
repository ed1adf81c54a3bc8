//! A holder decides at the release whether its hold goes at once or stays for a while.

use std::thread;
use std::time::Duration;

use redis_concurrent::{ErrorKind, MultiLock};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::support::{LONG, SOON, connect, ms, nothing_left, queued};

/// Longer than any standstill of the machine.
const REST: Duration = Duration::from_secs(60);

#[test]
fn a_hold_that_was_to_stay_goes_at_once() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server).reentrant_lock("job"));
    let lock = a.reentrant_lock("job").min_hold(REST);
    lock.lock().unwrap().unlock_staying(Duration::ZERO).unwrap();
    assert!(!b.is_locked().unwrap());
    lock.lock_owned().unwrap().unlock_staying(Duration::ZERO).unwrap();
    assert!(b.try_lock().unwrap().is_some());
    drop((lock, b));
    nothing_left(&server);
}

#[test]
fn a_hold_stays_for_as_long_as_its_release_says() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server).reentrant_lock("job"));
    let lock = a.reentrant_lock("job");
    // So that Redis knows the script: a hold that stays for a moment only may have to go at once.
    a.reentrant_lock("first").lock().unwrap().unlock_staying(REST).unwrap();
    let another = a.reentrant_lock("another");
    let guard = another.lock().unwrap();
    let before = a.request_count();
    guard.unlock_staying(REST).unwrap();
    assert_eq!(a.request_count() - before, 1, "it costs what it always costs");
    lock.lock().unwrap().unlock_staying(ms(1)).unwrap();
    lock.try_lock_for(LONG).unwrap().expect("it is free by then").unlock_staying(REST).unwrap();
    assert_eq!(lock.hold_count(), 0);
    assert!(lock.try_lock().unwrap().is_none() && b.try_lock().unwrap().is_none());
    let left = b.holder().unwrap().and_then(|it| it.remaining).expect("it is there");
    assert!(left > ms(30_000) && left <= REST, "more than its lease, {left:?} is left");
    assert!(b.force_unlock().unwrap().holders > 0);
    // The other way round: its terms said longer.
    let longer = a.reentrant_lock("job").min_hold(REST);
    longer.lock().unwrap().unlock_staying(ms(300)).unwrap();
    assert!(b.try_lock_for(LONG).unwrap().is_some());
}

#[test]
fn what_stays_is_not_handed_to_the_next_thread() {
    let server = RedisServer::start().unwrap();
    let client =
        redis_concurrent::Client::builder().url(&server.url()).local_handoff(REST).connect().unwrap();
    let lock = client.reentrant_lock("job");
    let guard = lock.lock().unwrap();
    let waits = thread::spawn({
        let lock = lock.clone();
        move || lock.try_lock_for(LONG).unwrap().map(|guard| guard.token())
    });
    wait_until(SOON, "a thread waits", || lock.local_queue_length() == 1);
    let token = guard.token();
    guard.unlock_staying(ms(700)).unwrap();
    assert_eq!(lock.local_queue_length(), 1, "it still waits");
    assert!(waits.join().unwrap().unwrap() > token + 4096, "it has a grant of its own");
}

#[test]
fn the_last_guard_of_a_reentered_lock_decides() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("job");
    let outer = lock.lock().unwrap();
    lock.lock().unwrap().unlock_staying(REST).unwrap();
    assert_eq!(lock.hold_count(), 1);
    outer.unlock().unwrap();
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn several_locks_stay_or_go_together() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let names = ["a", "b"].map(|name| client.reentrant_lock(name).min_hold(REST));
    let both = MultiLock::new(&[&names[0], &names[1], client.read_write_lock("c").read_lock()]);
    both.lock().unwrap().unlock_staying(Duration::ZERO).unwrap();
    both.lock().unwrap().unlock_staying(REST).unwrap();
    for name in ["a", "b"] {
        let left = other.reentrant_lock(name).holder().unwrap().and_then(|it| it.remaining).unwrap();
        assert!(left > ms(30_000) && left <= REST, "{name}: {left:?}");
    }
    assert!(other.read_write_lock("c").write_lock().try_lock().unwrap().is_none());
}

#[test]
fn a_waiter_of_another_process_gets_it_when_the_time_is_over() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).simple_lock("job");
    let guard = lock.lock().unwrap();
    let waits = thread::spawn({
        let other = connect(&server).simple_lock("job");
        move || other.try_lock_for(LONG).unwrap().is_some()
    });
    queued(&lock, 1);
    guard.unlock_staying(ms(500)).unwrap();
    assert!(waits.join().unwrap());
}

#[test]
fn a_time_that_cannot_work_releases_at_once() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("job");
    for bad in [Duration::from_micros(1), Duration::from_secs(41 * 24 * 3600)] {
        let error = lock.lock().unwrap().unlock_staying(bad).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains("between 1ms and 3456000s"), "{error}");
        assert!(!lock.is_locked().unwrap());
    }
}
