//! A guard that is dropped does not wait for its reply, and nobody notices but by the time that it takes.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::observe::{AcquiredVia, LossReason};
use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::{Child, Proxy, RedisServer, is_role, wait_until};

use crate::support::*;

struct Fixture {
    server: RedisServer,
    proxy: Proxy,
    client: Client,
    recorder: Recorder,
}

/// A client of one connection, on which Redis knows the scripts.
fn fixture() -> Fixture {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let recorder = Recorder::default();
    let client = builder(&proxy.url()).max_connections(1).command_timeout(LONG);
    let client = client.observer(recorder.clone()).connect().unwrap();
    drop(client.reentrant_lock("other").lock().unwrap());
    wait_until(LONG, "its reply is read", || recorder.count(Event::Released) == 1);
    Fixture { server, proxy, client, recorder }
}

/// Whether the client has soon sent this many requests.
fn sends(client: &Client, requests: u64) -> bool {
    let until = Instant::now() + ms(200);
    while client.request_count() < requests && Instant::now() < until {
        thread::sleep(ms(1));
    }
    client.request_count() >= requests
}

#[test]
fn it_does_not_wait_and_the_next_request_goes_behind_it() {
    let Fixture { server, proxy, client, recorder } = fixture();
    let lock = client.reentrant_lock("x");
    let other = connect(&server).reentrant_lock("x");
    // After a while, a thread of the client waits for the reply, and the next request waits for that.
    let behind = (1..=20).find(|round| {
        let guard = lock.lock().unwrap();
        let (first, requests) = (guard.token(), client.request_count());
        proxy.hold_requests(true);
        drop(guard);
        let behind = thread::scope(|scope| {
            let next = scope.spawn(|| {
                let guard = lock.try_lock().unwrap().expect("it does not pass the release");
                assert!(guard.token() > first);
                guard.unlock().unwrap();
            });
            let behind = sends(&client, requests + 2);
            assert!(other.is_locked().unwrap(), "the release has not even arrived");
            proxy.hold_requests(false);
            next.join().unwrap();
            behind
        });
        let released = 1 + 2 * round;
        wait_until(LONG, "both replies are read", || recorder.count(Event::Released) == released);
        behind
    });
    assert!(behind.is_some(), "it was sent while the release was on its way");
    assert_eq!(recorder.failures() + recorder.losses(), 0, "{:?}", recorder.all());
    nothing_left(&server);
}

#[test]
fn a_client_that_is_told_to_waits() {
    let Fixture { server, proxy, .. } = fixture();
    let recorder = Recorder::default();
    let client = connected(|| builder(&proxy.url()).drop_waits(true).observer(recorder.clone()));
    proxy.delay(ms(20));
    for round in 1..=5 {
        drop(client.reentrant_lock("x").lock().unwrap());
        assert_eq!(recorder.count(Event::Released), round);
    }
    nothing_left(&server);
}

#[test]
fn a_thread_of_the_same_lock_that_comes_meanwhile_waits_for_the_reply() {
    let Fixture { server, proxy, client, .. } = fixture();
    let (lock, other) = (client.reentrant_lock("x"), client.reentrant_lock("y"));
    // As above: a thread of the client may have that connection first.
    let taken = (1..=20).any(|_| {
        let guard = lock.lock().unwrap();
        let requests = client.request_count();
        proxy.hold_requests(true);
        drop(guard);
        thread::scope(|scope| {
            let others = scope.spawn(|| drop(other.lock().unwrap()));
            let taken = sends(&client, requests + 2);
            let next = scope.spawn(|| drop(lock.try_lock().unwrap().expect("it does not pass the release")));
            proxy.hold_requests(false);
            others.join().unwrap();
            next.join().unwrap();
            taken
        })
    });
    assert!(taken, "no other thread took the connection of the release");
    nothing_left(&server);
}

#[test]
fn another_lock_of_the_same_threads_goes_behind_it_too() {
    let Fixture { server, proxy, client, recorder } = fixture();
    for n in 0..10 {
        drop(client.reentrant_lock(&format!("x{n}")).lock().unwrap());
        // What the thread asks next was asked after that.
        assert!(!client.reentrant_lock(&format!("x{n}")).is_locked().unwrap());
    }
    assert_eq!(proxy.connections(), 2);
    assert_eq!(recorder.failures() + recorder.losses(), 0, "{:?}", recorder.all());
    nothing_left(&server);
}

#[test]
fn a_read_write_lock_is_free_for_readers_when_its_writer_is_dropped() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(LONG));
    let lock = client.read_write_lock("x");
    proxy.delay(ms(5));
    for _ in 0..10 {
        drop(lock.write_lock().lock().unwrap());
        drop(lock.read_lock().try_lock().unwrap().expect("nobody writes"));
    }
    proxy.heal().unwrap();
    nothing_left(&server);
}

#[test]
fn a_loss_is_told() {
    let Fixture { server, proxy: _proxy, client, recorder } = fixture();
    let guard = client.reentrant_lock("x").lock().unwrap();
    let lost = guard.lost();
    let _: () = redis::cmd("FLUSHALL").query(&mut server.connection().unwrap()).unwrap();
    drop(guard);
    wait_until(LONG, "the observer is told", || {
        recorder.count(Event::UnlockFailed(ErrorKind::LeaseLost)) == 1
    });
    assert_eq!(recorder.count(Event::Lost(LossReason::Revoked)), 1);
    assert!(lost.is_cancelled());
}

#[test]
fn one_whose_connection_is_lost_is_released_all_the_same() {
    for reply in [false, true] {
        let Fixture { server, proxy, client, recorder } = fixture();
        let lock = client.reentrant_lock("x");
        let guard = lock.lock().unwrap();
        match reply {
            true => proxy.swallow_next_reply_and_reset(),
            false => proxy.reset_before_next_request(),
        }
        drop(guard);
        let unknown = || recorder.count(Event::UnlockFailed(ErrorKind::OutcomeUnknown));
        wait_until(LONG, "the observer is told", || unknown() == 1);
        comes_in(&connect(&server).reentrant_lock("x"));
        comes_in(&lock);
        assert_eq!((unknown(), recorder.losses()), (1, 0), "{:?}", recorder.all());
        nothing_left(&server);
    }
}

#[test]
fn the_next_request_survives_the_loss_of_their_connection() {
    let Fixture { server, proxy, client, .. } = fixture();
    let lock = client.reentrant_lock("x");
    for _ in 0..5 {
        // The first on a connection waits.
        drop(lock.lock().unwrap());
        let guard = lock.lock().unwrap();
        proxy.hold_requests(true);
        drop(guard);
        thread::scope(|scope| {
            let requests = client.request_count();
            let next = scope.spawn(|| comes_in(&lock));
            // Not where a thread of the client waits for the reply already.
            sends(&client, requests + 1);
            proxy.cut_all();
            proxy.hold_requests(false);
            next.join().unwrap();
        });
    }
    nothing_left(&server);
}

#[test]
fn scripts_that_redis_forgot_are_sent_again() {
    let Fixture { server, proxy: _proxy, client, recorder } = fixture();
    let lock = client.reentrant_lock("x");
    for _ in 0..5 {
        let guard = lock.lock().unwrap();
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.connection().unwrap()).unwrap();
        drop(guard);
        comes_in(&connect(&server).reentrant_lock("x"));
        comes_in(&lock);
    }
    assert_eq!(recorder.losses(), 0, "{:?}", recorder.all());
    nothing_left(&server);
}

#[test]
fn a_client_that_closes_waits_for_it() {
    for held in [false, true] {
        let Fixture { server, proxy, client, recorder } = fixture();
        let guard = client.reentrant_lock("x").lock().unwrap();
        match held {
            true => proxy.hold_next_requests(1),
            false => proxy.delay(ms(100)),
        }
        drop(guard);
        let closed = client.close();
        assert!(held || closed.is_ok(), "{closed:?}");
        if held {
            // The first copy never came.
            assert!(
                connect(&server).reentrant_lock("x").try_lock().unwrap().is_some(),
                "close() sent another"
            );
        } else {
            assert_eq!((recorder.count(Event::Released), recorder.losses()), (2, 0), "{:?}", recorder.all());
        }
        proxy.heal().unwrap();
    }
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_ends() {
    if !is_role("dropping::role_ends") {
        return;
    }
    let client = connected(|| builder(&std::env::var("URL").unwrap()));
    drop(client.reentrant_lock("x").lock().unwrap());
}

#[test]
fn a_process_that_ends_has_sent_it() {
    let server = RedisServer::start().unwrap();
    for _ in 0..5 {
        let mut child = Child::spawn("dropping::role_ends", &[("URL", &server.url())]).unwrap();
        assert!(child.wait_within(LONG).unwrap().success());
        let began = Instant::now();
        let guard = connect(&server).reentrant_lock("x").try_lock_for(SOON).unwrap();
        assert!(guard.is_some(), "after {:?}", began.elapsed());
    }
}

#[test]
fn a_lock_that_lingers_is_kept_all_the_same() {
    let Fixture { server: _server, proxy: _proxy, client, recorder } = fixture();
    let lock = client.reentrant_lock("x").linger(LONG);
    lock.lock().unwrap().unlock().unwrap();
    wait_until(LONG, "it is kept", || {
        drop(lock.lock().unwrap());
        recorder.count(Event::Acquired(AcquiredVia::Kept)) > 0
    });
}

// ---- a storm -------------------------------------------------------------------------------

/// Replies are late, split, lost or cut off, while threads drop guards and ask what has only one right answer. At
/// the end nothing is held. `CHAOS_SECONDS` for a longer one.
fn storm(connections: u32) {
    const THREADS: u64 = 40;
    let seconds = std::env::var("CHAOS_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(3.0);
    let mut random = Random::new("dropping::storm");
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).max_connections(connections).command_timeout(ms(500)));
    let rival = connect(&server);
    let theirs = rival.reentrant_lock("theirs");
    let held = theirs.lock().unwrap();
    let latches: Vec<_> = (0..THREADS).map(|n| format!("latch-{n}")).collect();
    for (name, n) in latches.iter().zip(100..) {
        rival.count_down_latch(name).reset(n).unwrap();
    }
    let (within, end) =
        ([const { AtomicBool::new(false) }; 2], Instant::now() + Duration::from_secs_f64(seconds));
    let (dropped, failed) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for (latch, n) in latches.iter().zip(0..THREADS) {
            let (client, within, dropped, failed) = (&client, &within, &dropped, &failed);
            let mut random = random.fork();
            scope.spawn(move || {
                let own = client.reentrant_lock(&format!("own-{n}"));
                let shared = [0, 1].map(|i| client.reentrant_lock(&format!("shared-{i}")));
                let (their, latch) = (client.reentrant_lock("theirs"), client.count_down_latch(latch));
                let mut last = 0;
                while Instant::now() < end {
                    // So that connections are idle at times.
                    thread::sleep(random.micros(30_000));
                    let done = match random.below(8) {
                        0 => latch.count().map(|count| assert_eq!(count, Some(100 + n), "another's reply")),
                        1 => their.try_lock().map(|guard| assert!(guard.is_none(), "another's reply")),
                        2 => {
                            let i = random.below(2) as usize;
                            shared[i].try_lock_for(SOON).map(|guard| {
                                let Some(guard) = guard else { return };
                                assert!(!within[i].swap(true, SeqCst), "two hold it");
                                thread::sleep(random.micros(500));
                                assert!(within[i].swap(false, SeqCst));
                                drop(guard);
                            })
                        }
                        _ => own.try_lock_for(SOON).map(|guard| {
                            let Some(guard) = guard else { return };
                            assert!(guard.token() > last, "another's reply");
                            last = guard.token();
                            dropped.fetch_add(1, SeqCst);
                        }),
                    };
                    if let Err(error) = done {
                        assert!(
                            error.is_unavailable() || error.kind() == ErrorKind::OutcomeUnknown,
                            "{error:#}"
                        );
                        failed.fetch_add(1, SeqCst);
                    }
                }
            });
        }
        while Instant::now() < end {
            match random.below(7) {
                0 => proxy.delay(random.micros(3_000)),
                1 => proxy.split_replies(random.micros(2_000)),
                2 => proxy.silence(1),
                3 => proxy.swallow_next_reply_and_reset(),
                4 => proxy.reset_before_next_request(),
                5 => proxy.cut_all(),
                _ => proxy.heal().unwrap(),
            }
            thread::sleep(random.micros(60_000));
        }
    });
    proxy.heal().unwrap();
    println!("{connections} connections: {dropped:?} dropped, {failed:?} failed");
    held.unlock().unwrap();
    for n in 0..THREADS {
        comes_in(&rival.reentrant_lock(&format!("own-{n}")));
        comes_in(&client.reentrant_lock(&format!("own-{n}")));
    }
    for i in 0..2 {
        comes_in(&rival.reentrant_lock(&format!("shared-{i}")));
    }
}

#[test]
fn in_a_storm_no_reply_is_taken_for_anothers_on_one_connection() {
    storm(1);
}

#[test]
fn in_a_storm_no_reply_is_taken_for_anothers_on_three_connections() {
    storm(3);
}
