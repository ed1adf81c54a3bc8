//! When a kept lock is given back: as soon as another caller wants it, or when its time is up.

use std::thread;
use std::time::Instant;

use redis_concurrent::Client;
use redis_concurrent_testkit::{RedisServer, closes_in_time, eventually, wait_until};

use super::{LINGER, is_given_back, is_kept};
use crate::support::{LONG, Recorder, builder, connect, connected, ms, nothing_left, queued};

#[test]
fn to_a_waiter_at_once() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let (lock, others) = (a.simple_lock("it").linger(LINGER), b.simple_lock("it"));
    for _ in 0..5 {
        is_kept(&a, &lock);
        let began = Instant::now();
        others.lock().unwrap().unlock().unwrap();
        assert!(began.elapsed() < LONG, "after {:?}", began.elapsed());
    }
}

#[test]
fn to_one_attempt_the_next_time() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let (lock, others) = (a.reentrant_lock("it").linger(LINGER), b.reentrant_lock("it"));
    is_kept(&a, &lock);
    assert!(others.try_lock().unwrap().is_none(), "its process has it");
    is_given_back(&others);
    others.try_lock().unwrap().expect("it was told").unlock().unwrap();
}

/// A waiter that came while it was held has it when the hold ends, and no thread of its process in between.
#[test]
fn to_a_waiter_when_its_hold_ends() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let (lock, others) = (a.simple_lock("it").linger(LINGER), b.simple_lock("it"));
    is_kept(&a, &lock);
    let guard = lock.lock().unwrap();
    let before = guard.token();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let guard = others.lock().unwrap();
            (guard.token(), guard.unlock()).0
        });
        queued(&lock, 1);
        // The message is not waited for: it is there, or the lock is given back when it comes.
        guard.unlock().unwrap();
        let theirs = waits.join().unwrap();
        assert!(theirs > before);
        assert!(lock.lock().unwrap().token() > theirs);
    });
}

/// A waiter came before its client listened at all, so that the message for it reached nobody.
#[test]
fn to_a_waiter_from_before_it_listened() {
    let server = RedisServer::start().unwrap();
    let a = connect(&server);
    // The waiter's next heartbeat is far away.
    let b = connected(|| builder(&server.url()).waiter_timeout(LINGER * 2).lease(LINGER * 2));
    let (lock, others) = (a.simple_lock("it").linger(LINGER), b.simple_lock("it"));
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| others.lock().unwrap().unlock().unwrap());
        queued(&lock, 1);
        let lost = guard.lost();
        let mut admin = server.connection().unwrap();
        wait_until(LONG, "it listens", || {
            let channels = redis::cmd("PUBSUB").arg("CHANNELS").query::<Vec<String>>(&mut admin).unwrap();
            channels.len() == 2
        });
        let began = Instant::now();
        guard.unlock().unwrap();
        waits.join().unwrap();
        assert!(!lost.is_cancelled() && began.elapsed() < LONG, "after {:?}", began.elapsed());
    });
}

#[test]
fn when_its_time_is_up() {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&server.url()).observer(recorder.clone()));
    let lock = client.simple_lock("it").linger(ms(300));
    wait_until(LONG, "the lock is kept", || {
        lock.lock().unwrap().unlock().unwrap();
        lock.is_locked().unwrap()
    });
    is_given_back(&lock);
    nothing_left(&server);
    assert_eq!(recorder.losses(), 0);
}

/// Long holds and short ones, of processes that take it in turn: nobody waits for long.
#[test]
fn processes_take_it_in_turn() {
    let server = RedisServer::start().unwrap();
    closes_in_time(|| {
        let clients = [connect(&server), connect(&server), connect(&server)];
        thread::scope(|scope| {
            for (n, client) in clients.iter().enumerate() {
                let lock = client.reentrant_lock("it");
                // One of them does not know of lingering.
                let lock = if n == 2 { lock } else { lock.linger(LINGER) };
                scope.spawn(move || (0..100).for_each(|_| lock.lock().unwrap().unlock().unwrap()));
            }
        });
        let outcomes = clients.each_ref().map(Client::close);
        let closed = outcomes.into_iter().collect::<Result<(), _>>();
        if closed.is_err() {
            server.flush_all().unwrap();
        }
        nothing_left(&server);
        closed
    });
}

#[test]
fn when_its_client_closes() {
    closes_in_time(|| {
        let server = RedisServer::start().unwrap();
        let (a, b) = (connect(&server), connect(&server));
        let (lock, others) = (a.simple_lock("it").linger(LINGER), b.simple_lock("it"));
        is_kept(&a, &lock);
        let closed = a.close();
        if closed.is_ok() {
            others.try_lock().unwrap().expect("it was given back").unlock().unwrap();
            nothing_left(&server);
        }
        closed
    });
}

#[test]
fn by_force() {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let a = connected(|| builder(&server.url()).observer(recorder.clone()));
    let b = connect(&server);
    let (lock, others) = (a.simple_lock("it").linger(LINGER), b.simple_lock("it"));
    is_kept(&a, &lock);
    assert!(others.force_unlock().unwrap().holders > 0);
    let guard = others.try_lock_for(LONG).unwrap().expect("it is free");
    // Its process hears of that, and asks like any other.
    eventually(LONG, || lock.try_lock().unwrap().is_none().then_some(()));
    drop(guard);
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(recorder.losses(), 0);
}
