//! `Client::close`: waiters are woken, holders are told, Redis gets everything back, threads end.

mod synchronizers;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent::internals::lock_count;
use redis_concurrent::observe::{LockInfo, LossReason, Observer};
use redis_concurrent::{CancellationToken, Client, Error, ErrorKind, Wait};
use redis_concurrent_testkit::*;

use crate::support::*;

/// What a loaded machine may add to the promised second.
const LOAD: Duration = ms(4000);

#[test]
fn close_wakes_all_waiters() {
    closes_in_time(|| wakes_all_waiters(&RedisServer::start().unwrap()));
}

/// What its close said.
fn wakes_all_waiters(server: &RedisServer) -> Result<(), Error> {
    let _held = connect(server).reentrant_lock("x0").lock_owned().unwrap();
    // A waiter that is not woken sleeps for longer than is waited here.
    let client = patient(server);
    let other = connect(server).reentrant_lock("x0");
    let mine = client.reentrant_lock("x1").lock_owned().unwrap();
    let closed = thread::scope(|scope| {
        let waiters: Vec<_> = (0..50)
            .map(|i| {
                // Behind another client, and behind our own.
                let lock = client.reentrant_lock(&format!("x{}", i % 2));
                scope.spawn(move || {
                    let token = CancellationToken::new();
                    let error = match i % 3 {
                        0 => lock.lock().map(drop).unwrap_err(),
                        1 => lock.try_lock_for(LONG).map(drop).unwrap_err(),
                        _ => lock.lock_interruptibly(&token).map(drop).unwrap_err(),
                    };
                    (Instant::now(), error.kind())
                })
            })
            .collect();
        wait_until(SOON, "25 wait for each", || {
            ["x0", "x1"].iter().all(|x| client.reentrant_lock(x).local_queue_length() == 25)
        });
        // The head of the queue in Redis has its position.
        wait_until(SOON, "one has its queue position", || other.queue_length().unwrap() > 0);
        let began = Instant::now();
        let closed = client.close();
        assert!(began.elapsed() < ms(1000) + LOAD, "{:?}", began.elapsed());
        for waiter in waiters {
            let (at, kind) = waiter.join().unwrap();
            assert_eq!(kind, ErrorKind::Closed);
            assert!(at - began < ms(1000) + LOAD, "{:?}", at - began);
        }
        closed
    });
    assert!(mine.is_lost());
    assert!(other.queue_length().unwrap() == 0 || closed.is_err(), "a queue position is left");
    assert_eq!(client.reentrant_lock("x0").local_queue_length(), 0);
    closed
}

#[test]
fn close_takes_hundreds_of_holds_away_and_ends_its_threads() {
    alone("close::close_takes_hundreds_of_holds_away_and_ends_its_threads", || {
        // (Once more where the machine kept it from running for most of its second.)
        assert!((0..5).any(|_| left_by_close(100) == 0), "a hundred holds are too many");
        // More releases may take a busy machine longer than it has: then it says so.
        println!("{} of 500 holds were left", left_by_close(500));
    });
}

/// Closes a client that has so many holds. Returns how many it could not release in time.
fn left_by_close(holds: usize) -> usize {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    // No machine is so slow that a hold is over before.
    let builder = builder(&server.url()).observer(recorder.clone()).lease(2 * LONG).renew_every(ms(300));
    let client = builder.connect().unwrap();
    let names: Vec<String> = (0..holds).map(|i| format!("lock {i}")).collect();
    let locks: Vec<_> = names.iter().map(|name| client.reentrant_lock(name)).collect();
    let (first, second) = locks.split_at(holds / 2);
    let mut guards: Vec<_> = first.iter().map(|lock| lock.lock().unwrap()).collect();
    let owned: Vec<_> = second.iter().map(|lock| lock.lock_owned().unwrap()).collect();
    let tokens: Vec<_> = guards.iter().map(|g| g.lost()).chain(owned.iter().map(|g| g.lost())).collect();
    // A re-entry, which costs nothing here either.
    guards.push(locks[0].lock().unwrap());
    wait_until(LONG, "renewals are under way", || recorder.count(Event::Renewed) > holds);
    assert!(!threads("rc-").is_empty());
    let began = Instant::now();
    let closed = client.close();
    assert!(began.elapsed() < ms(1000) + LOAD, "{:?}", began.elapsed());
    wait_until(LONG, "its threads have ended", || threads("rc-").is_empty());
    assert!(tokens.iter().all(CancellationToken::is_cancelled));
    assert_eq!(recorder.count(Event::Lost(LossReason::Closed)), holds);
    // What it could not release is told to observers, and all else is free.
    let left = recorder.failures();
    assert_eq!(closed.is_ok(), left == 0, "{closed:?}, and {left} are left");
    let keys = server.keys().unwrap();
    assert!(keys.iter().filter(|k| !(k.ends_with(":fence") || k.ends_with(":tombstones"))).count() <= left);
    let reentry = guards.pop().unwrap();
    assert!(reentry.is_lost() && reentry.remaining().is_zero());
    drop(reentry);
    for guard in guards {
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
    }
    for guard in owned {
        assert!(guard.is_lost() && guard.lost().is_cancelled());
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
    }
    assert_eq!(
        recorder.failures(),
        left + 1,
        "a thread that unlocks is told, and of the re-entry an observer was"
    );
    assert_eq!(recorder.losses(), holds, "told once");
    if left == 0 {
        free_at_once(&connect(&server).reentrant_lock("lock 7"));
    }
    left
}

#[test]
fn close_is_final_and_may_be_repeated() {
    closes_in_time(is_final);
}

/// What its first close said.
fn is_final() -> Result<(), Error> {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&server.url()).observer(recorder.clone()));
    let before = client.reentrant_lock("x");
    let guard = before.lock().unwrap();
    let clone = client.clone();
    let closed = client.close();
    if !released_all(&closed) {
        return closed;
    }
    client.close().unwrap();
    clone.close().unwrap();
    let after = clone.reentrant_lock("never seen");
    let requests = clone.request_count();
    for lock in [&before, &after] {
        let token = CancellationToken::new();
        let closed = |kind: ErrorKind| assert_eq!(kind, ErrorKind::Closed, "{lock:?}");
        closed(lock.lock().unwrap_err().kind());
        closed(lock.try_lock().unwrap_err().kind());
        closed(lock.try_lock_for(SOON).unwrap_err().kind());
        closed(lock.lock_with(Instant::now() + SOON).unwrap_err().kind());
        closed(lock.lock_interruptibly(&token).unwrap_err().kind());
        closed(lock.lock_with(Wait::timeout(SOON).cancelled_by(&token)).unwrap_err().kind());
        closed(lock.lock_owned().unwrap_err().kind());
        closed(lock.try_lock_owned().unwrap_err().kind());
        closed(lock.lock_owned_with(SOON).unwrap_err().kind());
        closed(lock.lock_owned_with(&token).unwrap_err().kind());
        closed(lock.is_locked().unwrap_err().kind());
        closed(lock.holder().unwrap_err().kind());
        closed(lock.queue_length().unwrap_err().kind());
        closed(lock.force_unlock().unwrap_err().kind());
        closed(lock.with(|_| panic!("without a hold")).unwrap_err().kind());
        assert_eq!(lock.hold_count(), 0);
        assert_eq!(lock.local_queue_length(), 0, "a refused caller is no waiter");
    }
    let kind = guard.renew_for(SOON).unwrap_err().kind();
    assert!(matches!(kind, ErrorKind::Closed), "{kind:?}");
    assert_eq!(clone.request_count(), requests, "nothing was sent");
    // A guard that is dropped has nobody else to tell: once, and only then.
    assert_eq!(recorder.failures(), 0);
    drop(guard);
    assert_eq!(recorder.failures(), 1, "{:?}", recorder.all());
    drop((before, after));
    assert_eq!(lock_count(&clone), 0);
    nothing_left(&server);
    closed
}

#[test]
fn close_returns_in_time_while_redis_is_silent() {
    alone("close::close_returns_in_time_while_redis_is_silent", || {
        let server = RedisServer::start().unwrap();
        let recorder = Recorder::default();
        // A close that does not keep to its own limit takes as long.
        let client = connected(|| builder(&server.url()).command_timeout(LONG).observer(recorder.clone()));
        let locks: Vec<_> = (0..5).map(|i| client.reentrant_lock(&format!("x{i}"))).collect();
        let guards: Vec<_> = locks.iter().map(|l| l.lock_owned().unwrap()).collect();
        let tokens: Vec<_> = guards.iter().map(|g| g.lost()).collect();
        // One waits, so that the listener runs.
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let error = locks[0].lock().map(drop).unwrap_err();
                (Instant::now(), error.kind())
            });
            wait_until(SOON, "it waits", || locks[0].local_queue_length() == 1);
            server.stop().unwrap();
            let began = Instant::now();
            let error = client.close().unwrap_err();
            let took = began.elapsed();
            assert!(took < ms(1200) + LOAD, "{took:?}");
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
            assert!(tokens.iter().all(CancellationToken::is_cancelled));
            assert_eq!(recorder.failures(), 5, "{:?}", recorder.all());
            assert_eq!(recorder.count(Event::Lost(LossReason::Closed)), 5);
            let (at, kind) = waits.join().unwrap();
            assert_eq!(kind, ErrorKind::Closed);
            assert!(at - began < ms(1200) + LOAD, "{:?}", at - began);
        });
        let began = Instant::now();
        client.close().unwrap();
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        for guard in guards {
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
        }
        wait_until(2 * LONG, "its threads end, though nobody answers them", || threads("rc-").is_empty());
        server.cont().unwrap();
    });
}

/// An unlock whose answer is outstanding is finished by close, or told of.
#[test]
fn close_finishes_what_was_to_be_released_in_the_background() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&proxy.url()).observer(recorder.clone()).command_timeout(ms(200)));
    let lock = client.reentrant_lock("x");
    let guard = lock.lock().unwrap();
    proxy.black_hole(true);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    let closed = client.close();
    let failures = recorder.failures();
    proxy.black_hole(false);
    assert_eq!(closed.unwrap_err().kind(), ErrorKind::OutcomeUnknown, "silently left to its lease");
    assert_eq!(failures, 1, "{:?}", recorder.all());
}

#[test]
fn close_releases_over_connections_made_anew_where_all_were_cut() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    for kept in [false, true] {
        closes_in_time(|| {
            let client = connected(|| builder(&proxy.url()));
            let guard = client.reentrant_lock("x").linger(SOON).lock_owned().unwrap();
            let _held = (!kept).then_some(guard);
            proxy.cut_all();
            let closed = client.close();
            assert_eq!(closed.is_ok(), !exists(&server, "rc:{x}"), "{closed:?}");
            closed
        });
    }
}

/// What was to be released later is released now.
#[test]
fn close_sends_what_was_to_be_released_in_the_background() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let other = connect(&server).reentrant_lock("x");
    for _ in 0..5 {
        closes_in_time(|| {
            let client = connected(|| builder(&proxy.url()).command_timeout(ms(200)));
            let guard = client.reentrant_lock("x").lock_owned().unwrap();
            proxy.black_hole(true);
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
            proxy.black_hole(false);
            let closed = client.close();
            if closed.is_err() {
                other.force_unlock().unwrap();
            }
            assert!(!other.is_locked().unwrap(), "left to its lease");
            closed
        });
    }
}

#[test]
fn close_from_many_threads_at_once() {
    // A process of its own bounds a hang.
    alone("close::close_from_many_threads_at_once", || {
        let server = RedisServer::start().unwrap();
        let fixture = || {
            let client = connect(&server);
            let guards: Vec<_> =
                (0..20).map(|i| client.reentrant_lock(&format!("x{i}")).lock_owned().unwrap()).collect();
            let closed = thread::scope(|scope| {
                let closers: Vec<_> = (0..4).map(|_| scope.spawn(|| client.close())).collect();
                // Among them threads that come and go.
                let users: Vec<_> = (0..4)
                    .map(|_| {
                        scope.spawn(|| {
                            loop {
                                match client.reentrant_lock("y").lock_owned().and_then(|g| g.unlock()) {
                                    Ok(()) => {}
                                    Err(e) => return e.kind(),
                                }
                            }
                        })
                    })
                    .collect();
                // One of them closes, and says how it went.
                let closed = closers.into_iter().try_for_each(|closer| closer.join().unwrap());
                for user in users {
                    assert_eq!(user.join().unwrap(), ErrorKind::Closed);
                }
                closed
            });
            drop(guards);
            if closed.is_err() {
                server.flush_all().unwrap();
            }
            nothing_left(&server);
            closed
        };
        (0..10).for_each(|_| closes_in_time(fixture));
    });
}

/// What is told during a close may use the client.
#[test]
fn close_tells_its_observer_outside_all_locks() {
    #[derive(Clone, Default)]
    struct Asks(Arc<Mutex<Option<Client>>>, Arc<AtomicUsize>);
    impl Observer for Asks {
        fn lost(&self, lock: LockInfo<'_>, why: LossReason) {
            assert_eq!(why, LossReason::Closed);
            let client = self.0.lock().clone().unwrap();
            let handle = client.reentrant_lock(lock.name);
            assert!(lock_count(&client) > 0);
            assert_eq!(handle.try_lock().unwrap_err().kind(), ErrorKind::Closed);
            drop((client.reentrant_lock("another"), handle));
            self.1.fetch_add(1, Ordering::SeqCst);
        }
    }
    alone("close::close_tells_its_observer_outside_all_locks", || {
        let server = RedisServer::start().unwrap();
        closes_in_time(|| {
            let asks = Asks::default();
            let client = connected(|| builder(&server.url()).observer(asks.clone()));
            *asks.0.lock() = Some(client.clone());
            let guards: Vec<_> =
                (0..3).map(|i| client.reentrant_lock(&format!("x{i}")).lock_owned().unwrap()).collect();
            let closed = client.close();
            assert_eq!(asks.1.load(Ordering::SeqCst), 3);
            drop(guards);
            if closed.is_err() {
                server.flush_all().unwrap();
            }
            nothing_left(&server);
            closed
        });
    });
}

/// A process may end as soon as its client is closed.
#[test]
fn close_waits_until_its_observer_knows_of_all_losses() {
    // (Once more where the machine kept it from running for most of its second.)
    assert!((0..5).any(|_| known_when_closed() == 3), "its observer knew less");
}

/// Closes a client that has lost three holds. Returns of how many its observer knew by then, which takes its time.
fn known_when_closed() -> usize {
    #[derive(Clone, Default)]
    struct Slow(Arc<AtomicUsize>);
    impl Observer for Slow {
        fn lost(&self, _: LockInfo<'_>, why: LossReason) {
            assert_eq!(why, LossReason::Forced);
            thread::sleep(ms(100));
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let server = RedisServer::start().unwrap();
    let slow = Slow::default();
    let client = connected(|| unhurried(&server.url()).observer(slow.clone()));
    let other = connect(&server);
    let lost: Vec<_> =
        (0..3).map(|i| client.reentrant_lock(&format!("x{i}")).lock_owned().unwrap()).collect();
    for (i, guard) in lost.iter().enumerate() {
        let token = guard.lost();
        other.reentrant_lock(&format!("x{i}")).force_unlock().unwrap();
        assert!(token.wait_timeout(LONG));
    }
    let began = Instant::now();
    client.close().unwrap();
    assert!(began.elapsed() < ms(1000) + LOAD, "{:?}", began.elapsed());
    slow.0.load(Ordering::SeqCst)
}

/// An observer's thread that closes the client does not wait for itself.
#[test]
fn close_by_an_observer_of_losses() {
    let took: Vec<_> = (0..5).map(|_| closed_by_its_observer()).collect();
    assert!(took.iter().any(|took| *took < ms(600)), "{took:?}");
}

/// How long the close took.
fn closed_by_its_observer() -> Duration {
    #[derive(Clone, Default)]
    struct Closes(Arc<OnceLock<Client>>, Arc<OnceLock<Duration>>);
    impl Observer for Closes {
        fn lost(&self, _: LockInfo<'_>, _: LossReason) {
            let began = Instant::now();
            let _ = released_all(&self.0.get().unwrap().close());
            self.1.set(began.elapsed()).unwrap();
        }
    }
    let server = RedisServer::start().unwrap();
    let closes = Closes::default();
    let client = connected(|| unhurried(&server.url()).observer(closes.clone()));
    assert!(closes.0.set(client.clone()).is_ok());
    let held = client.reentrant_lock("x").lock_owned().unwrap();
    let lost = held.lost();
    connect(&server).reentrant_lock("x").force_unlock().unwrap();
    assert!(lost.wait_timeout(LONG));
    eventually(LONG, || closes.1.get().copied())
}

/// The closing thread may be one that holds, and its guard may go before or after.
#[test]
fn close_by_an_observer_or_with_a_guard_in_hand() {
    #[derive(Clone, Default)]
    struct Closes(Arc<Mutex<Option<Client>>>, Arc<Mutex<Option<Result<(), Error>>>>);
    impl Observer for Closes {
        fn released(&self, _: LockInfo<'_>, _: Duration) {
            let client = self.0.lock().take();
            if let Some(client) = client {
                *self.1.lock() = Some(client.close());
            }
        }
    }
    let server = RedisServer::start().unwrap();
    closes_in_time(|| {
        let closes = Closes::default();
        let client = connected(|| builder(&server.url()).observer(closes.clone()));
        *closes.0.lock() = Some(client.clone());
        let held = client.reentrant_lock("held").lock_owned().unwrap();
        client.reentrant_lock("x").lock_owned().unwrap().unlock().unwrap();
        assert!(held.is_lost());
        drop(held);
        let closed = closes.1.lock().take().expect("the observer has closed it");
        if closed.is_err() {
            server.flush_all().unwrap();
        }
        nothing_left(&server);
        closed
    });
}

/// Its connection is as good as closed, and nobody else would send it.
#[test]
fn a_release_that_is_on_its_way_is_made_by_close() {
    closes_in_time(|| {
        let server = RedisServer::start().unwrap();
        let proxy = Proxy::start(server.port()).unwrap();
        // A machine that stands still closes it later than the release gives up by itself.
        let client = connected(|| builder(&proxy.url()).command_timeout(LONG));
        let guard = client.reentrant_lock("x").lock_owned().unwrap();
        proxy.hold_next_requests(1);
        thread::scope(|scope| {
            let unlock = scope.spawn(|| guard.unlock());
            wait_until(SOON, "the release is on its way", || proxy.held() == 1);
            let closed = client.close();
            if !released_all(&closed) {
                proxy.release_held();
                return closed;
            }
            let other = connect(&server).reentrant_lock("x");
            free_at_once(&other);
            let held = other.lock_owned().unwrap();
            proxy.release_held();
            assert_eq!(unlock.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
            assert!(held.unlock().is_ok(), "the late copy has released another's hold");
            closed
        })
    });
}
