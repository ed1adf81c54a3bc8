//! *nothing-left-behind*: with guards, waiters and handles gone, nothing is left but numbers that
//! end by themselves; with the client closed, no thread and no socket.

use std::thread;
use std::time::Instant;

use redis_concurrent::CancellationToken;
use redis_concurrent::internals::lock_count;
use redis_concurrent_testkit::*;

use crate::support::*;

#[track_caller]
fn no_more_threads(before: &[String]) {
    let began = Instant::now();
    while threads("").len() > before.len() {
        assert!(began.elapsed() < SOON, "before {before:?}, now {:?}", threads(""));
        thread::sleep(ms(5));
    }
}

#[test]
fn nothing_left_behind() {
    alone("invariants::nothing_left_behind::nothing_left_behind", || {
        let server = RedisServer::start().unwrap();
        let (before, sockets_before) = (threads(""), sockets());
        let recorder = Recorder::default();
        let often = || builder(&server.url()).lease(ms(6000)).renew_every(ms(300));
        let a = often().observer(recorder.clone()).connect().unwrap();
        let b = often().connect().unwrap();
        let mut random = Random::new("nothing_left_behind");
        thread::scope(|scope| {
            for client in [&a, &a, &b, &b] {
                let mut random = random.fork();
                scope.spawn(move || {
                    for _ in 0..150 {
                        let name = ["x", "y", "{z}", "with space"][random.below(4) as usize];
                        let lock = client.reentrant_lock(name);
                        let token = CancellationToken::new();
                        match random.below(6) {
                            0 => drop(lock.try_lock().unwrap()),
                            1 => drop(in_brief(lock.try_lock_for(random.micros(2000)))),
                            2 => drop(lock.lock_owned().unwrap()),
                            3 => drop((lock.lock().unwrap(), lock.lock().unwrap())),
                            4 => drop(client.simple_lock("simple").lock().unwrap()),
                            _ => thread::scope(|scope| {
                                let waits = scope.spawn(|| lock.lock_interruptibly(&token).map(drop));
                                thread::sleep(random.micros(1000));
                                token.cancel();
                                let _ = waits.join().unwrap();
                            }),
                        }
                    }
                });
            }
        });
        // One that was renewed, and one that was lost.
        let lock = a.reentrant_lock("x");
        let (guard, renewals) = (lock.lock().unwrap(), recorder.count(Event::Renewed));
        wait_until(LONG, "it is renewed", || recorder.count(Event::Renewed) > renewals + 1);
        guard.unlock().unwrap();
        let guard = lock.lock().unwrap();
        assert!(delete(&server, "rc:{x}"));
        wait_until(SOON, "it is lost", || guard.is_lost());
        drop(guard);
        drop(lock);

        nothing_left(&server);
        for client in [&a, &b] {
            wait_until(SOON, "no lock is in use", || lock_count(client) == 0);
        }
        assert_eq!(threads("rc-inbox").len(), 2);
        wait_until(LONG, "renewal ends after a period without work", || threads("rc-renewal").is_empty());
        // (A listener that had no answer in time connects anew.)
        wait_until(LONG, "both listen", || channels(&server).len() == 2);

        for client in [&a, &b] {
            let began = Instant::now();
            client.close().unwrap();
            assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        }
        // A thread that has said its last word may still be seen for a moment.
        wait_until(LONG, "no thread of ours is left", || threads("rc-").is_empty());
        wait_until(SOON, "no subscription is left", || channels(&server).is_empty());
        drop((a, b));
        no_more_threads(&before);
        wait_until(SOON, "no socket is left", || sockets() <= sockets_before);
        nothing_left(&server);
    });
}

/// A client that is not closed but let go.
#[test]
fn nothing_left_behind_without_a_close() {
    alone("invariants::nothing_left_behind::nothing_left_behind_without_a_close", || {
        let server = RedisServer::start().unwrap();
        let (before, sockets_before) = (threads(""), sockets());
        let other = connect(&server).reentrant_lock("x");
        let recorder = Recorder::default();
        let often = builder(&server.url()).lease(LONG).renew_every(ms(300));
        let client = often.observer(recorder.clone()).connect().unwrap();
        let lock = client.reentrant_lock("x");
        let held = other.lock_owned().unwrap();
        assert!(in_brief(lock.try_lock_for(ms(50))).is_none());
        held.unlock().unwrap();
        let guard = lock.lock_owned().unwrap();
        drop((client, lock));
        // The guard keeps alive what keeps it alive.
        let renewals = recorder.count(Event::Renewed);
        wait_until(LONG, "it is renewed several times", || recorder.count(Event::Renewed) > renewals + 2);
        assert!(!guard.is_lost());
        assert!(other.try_lock().unwrap().is_none());
        guard.unlock().unwrap();
        free_at_once(&other);
        drop(other);
        no_more_threads(&before);
        wait_until(SOON, "no socket is left", || sockets() <= sockets_before);
        wait_until(SOON, "no subscription is left", || channels(&server).is_empty());
        nothing_left(&server);
    });
}

/// A waiter that gives up leaves no queue position, whatever else waits.
#[test]
fn nothing_left_behind_by_a_waiter() {
    let server = RedisServer::start().unwrap();
    let held = connect(&server).reentrant_lock("x").lock_owned().unwrap();
    let client = connect(&server);
    for _ in 0..20 {
        assert!(in_brief(client.reentrant_lock("x").try_lock_for(ms(5))).is_none());
    }
    wait_until(SOON, "no queue position is left", || !exists(&server, "rc:{x}:queue"));
    assert!(!exists(&server, "rc:{x}:positions"));
    wait_until(SOON, "no lock is in use", || lock_count(&client) == 0);
    held.unlock().unwrap();
}
