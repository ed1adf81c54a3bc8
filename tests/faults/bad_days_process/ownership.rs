//! Whose a hold is: the thread's by `lock()`, the guard's by `lock_owned()`.

use std::thread;
use std::time::Instant;

use redis_concurrent::{CancellationToken, ErrorKind, Wait};
use redis_concurrent_testkit::*;

use crate::support::*;

#[test]
fn guards_of_one_thread_end_in_any_order() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("x");
    let other = connect(&server).reentrant_lock("x");
    // Redis learns the scripts.
    free_at_once(&lock);
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let requests = client.request_count();
        let mut guards: Vec<_> = (0..3).map(|_| Some(lock.lock().unwrap())).collect();
        assert_eq!(client.request_count(), requests + 1, "re-entry costs no request");
        assert!(guards.iter().flatten().all(|g| g.token() == guards[0].as_ref().unwrap().token()));
        for (i, which) in order.into_iter().enumerate() {
            assert_eq!(lock.hold_count(), 3 - i);
            assert!(lock.is_held_by_current_thread());
            assert!(other.try_lock().unwrap().is_none());
            guards[which].take().unwrap().unlock().unwrap();
        }
        assert_eq!(lock.hold_count(), 0);
        assert!(!lock.is_held_by_current_thread());
        free_at_once(&other);
    }
}

#[test]
fn all_forms_re_enter() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let never = CancellationToken::new();
    let handle = lock.fair().with_lease(ms(200));
    let guards = [
        lock.lock().unwrap(),
        lock.try_lock().unwrap().unwrap(),
        lock.try_lock_for(ms(50)).unwrap().unwrap(),
        lock.lock_with(Instant::now() + ms(50)).unwrap().unwrap(),
        lock.lock_interruptibly(&never).unwrap(),
        lock.lock_with(Wait::timeout(ms(50)).cancelled_by(&never)).unwrap().unwrap(),
        // Another handle of the same lock, fair or with a lease of its own, is the same lock.
        handle.lock().unwrap(),
    ];
    assert_eq!(lock.hold_count(), 7);
    // Re-entry keeps the outer lease.
    assert!(guards[6].remaining() > SOON);
    drop(guards);
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn holds_belong_to_their_thread() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            assert_eq!(lock.hold_count(), 0);
            assert!(!lock.is_held_by_current_thread());
            assert!(lock.try_lock().unwrap().is_none());
            assert!(in_brief(lock.try_lock_for(ms(30))).is_none());
            assert!(lock.try_lock_owned().unwrap().is_none());
        });
    });
    guard.unlock().unwrap();
}

#[test]
fn an_owned_guard_goes_to_another_thread() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let other = connect(&server).reentrant_lock("x");
    let guard = lock.lock_owned().unwrap();
    assert_eq!(lock.hold_count(), 0);
    assert!(!lock.is_held_by_current_thread());
    let token = guard.token();
    let guard = thread::spawn(move || {
        assert_eq!(guard.token(), token);
        assert!(!guard.is_lost());
        guard
    });
    let guard = guard.join().unwrap();
    assert!(other.try_lock().unwrap().is_none());
    // It never re-enters, on whichever thread it is.
    assert!(lock.try_lock().unwrap().is_none());
    assert!(in_brief(lock.lock_owned_with(ms(30))).is_none());
    thread::spawn(move || guard.unlock().unwrap()).join().unwrap();
    free_at_once(&other);
    // Dropped on another thread it releases too.
    let guard = lock.lock_owned().unwrap();
    thread::spawn(move || drop(guard)).join().unwrap();
    free_at_once(&other);
}

#[test]
fn waiting_for_oneself_would_deadlock() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let never = CancellationToken::new();
    let reentrant = client.reentrant_lock("x");
    let simple = client.simple_lock("y");
    let (_x, _y) = (reentrant.lock().unwrap(), simple.lock().unwrap());
    let began = Instant::now();
    let deadlock = |e: redis_concurrent::Error| {
        assert_eq!(e.kind(), ErrorKind::WouldDeadlock, "{e}");
        assert!(e.to_string().contains(e.name()) && !e.name().is_empty(), "{e}");
    };
    // The thread holds it, and the guard would be another owner.
    deadlock(reentrant.lock_owned().unwrap_err());
    deadlock(reentrant.lock_owned_with(LONG).unwrap_err());
    deadlock(reentrant.lock_owned_with(Instant::now() + LONG).unwrap_err());
    deadlock(reentrant.lock_owned_with(&never).unwrap_err());
    deadlock(reentrant.lock_owned_with(Wait::timeout(LONG).cancelled_by(&never)).unwrap_err());
    assert!(reentrant.try_lock_owned().unwrap().is_none());
    // It is not reentrant: the timed forms say so as well.
    deadlock(simple.lock().unwrap_err());
    deadlock(simple.try_lock_for(LONG).unwrap_err());
    deadlock(simple.lock_with(Instant::now() + LONG).unwrap_err());
    deadlock(simple.lock_interruptibly(&never).unwrap_err());
    deadlock(simple.lock_with(Wait::timeout(LONG).cancelled_by(&never)).unwrap_err());
    deadlock(simple.lock_owned().unwrap_err());
    assert!(simple.try_lock().unwrap().is_none());
    assert!(simple.try_lock_owned().unwrap().is_none());
    assert!(began.elapsed() < SOON, "nothing waited");
    assert_eq!(simple.hold_count(), 1);
    assert_eq!((reentrant.local_queue_length(), simple.local_queue_length()), (0, 0));
}

#[test]
fn a_guard_of_a_lost_hold_must_go_before_its_thread_locks_again() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).renew_every(ms(100)));
    for fixed in [false, true] {
        let lock = client.reentrant_lock("x");
        let lock = if fixed { lock.with_lease(LONG) } else { lock };
        let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
        if fixed {
            outer.renew_for(ms(300)).unwrap();
        } else {
            assert!(delete(&server, "rc:{x}"));
        }
        assert!(outer.lost().wait_timeout(SOON));
        for _ in 0..2 {
            assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::LeaseLost);
            assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::LeaseLost);
            assert_eq!(lock.try_lock_for(LONG).unwrap_err().kind(), ErrorKind::LeaseLost);
            assert_eq!(lock.hold_count(), 0);
        }
        // Other threads are not concerned.
        thread::scope(|scope| {
            scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        });
        assert!(inner.is_lost() && outer.is_lost(), "lost is final");
        drop(inner);
        assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::LeaseLost);
        assert_eq!(outer.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
        lock.lock().unwrap().unlock().unwrap();
    }
}

/// An owned guard that was lost is nobody's: its thread may lock again while it lives.
#[test]
fn an_owned_guard_of_a_lost_hold_keeps_nobody_out() {
    let server = RedisServer::start().unwrap();
    let lock = connected(|| builder(&server.url()).renew_every(ms(100))).reentrant_lock("x");
    let old = lock.lock_owned().unwrap();
    assert!(delete(&server, "rc:{x}"));
    assert!(old.lost().wait_timeout(SOON));
    let new = lock.lock().unwrap();
    assert!(new.token() > old.token());
    assert_eq!(old.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    assert!(!new.is_lost());
    new.unlock().unwrap();
}
