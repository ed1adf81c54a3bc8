//! Of renewals that go on for ever, or do not go on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::internals::lock_count;
use redis_concurrent::{CancellationToken, Client};
use redis_concurrent_testkit::*;

use crate::support::*;

fn requests(client: &Client, during: Duration) -> u64 {
    let before = client.request_count();
    thread::sleep(during);
    client.request_count() - before
}

/// A released lock is renewed for ever: an acquire that was cancelled at just the wrong moment has
/// left its renewal behind.
#[test]
fn pain_01_nothing_is_renewed_after_its_release() {
    let mut random = Random::new("pain_01");
    let server = RedisServer::start().unwrap();
    // Renewed at once if at all, and no hold of a thread that stands still for a while is lost.
    let every = ms(100);
    let client = || connected(|| builder(&server.url()).lease(ms(10_000)).renew_every(every));
    let clients: Vec<_> = (0..2).map(|_| client()).collect();
    thread::scope(|scope| {
        for i in 0..4 {
            let (mut random, lock) = (random.fork(), clients[i % 2].reentrant_lock("x"));
            scope.spawn(move || {
                for _ in 0..400 {
                    let token = CancellationToken::new();
                    let pause = random.micros(1500);
                    thread::scope(|scope| {
                        scope.spawn(|| {
                            thread::sleep(pause);
                            token.cancel();
                        });
                        match lock.lock_interruptibly(&token) {
                            Ok(guard) => guard.unlock().unwrap(),
                            Err(e) => assert!(e.is_cancelled(), "{e}"),
                        }
                    });
                }
            });
        }
    });
    nothing_left(&server);
    for client in &clients {
        wait_until(SOON, "no lock is in use", || lock_count(client) == 0);
        assert_eq!(requests(client, 6 * every), 0, "something is renewed still");
    }
}

/// A held lock is silently not renewed: its entry was another acquisition's of the same name, or a
/// failed renewal has left one that blocks all later ones.
#[test]
fn pain_02_a_held_lock_is_renewed_whatever_was_before() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).lease(ms(9000)).renew_every(ms(200)));
    let lock = client.reentrant_lock("x");
    let is_renewed = || {
        let guard = lock.lock().unwrap();
        renewed_again(|| guard.remaining());
        guard.unlock().unwrap();
    };
    // Two threads take turns on one name.
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..2).for_each(|_| is_renewed()));
        }
    });
    // After a loss the same thread comes again.
    let guard = lock.lock().unwrap();
    assert!(delete(&server, "rc:{x}"));
    assert!(guard.lost().wait_timeout(SOON));
    drop(guard);
    is_renewed();
    // The connection is cut again and again, during renewals too.
    let guard = lock.lock().unwrap();
    for _ in 0..14 {
        thread::sleep(ms(170));
        proxy.cut_all();
    }
    // No cut during a renewal has ended all renewals. No release is cut, which might have to go on in the background.
    renewed_again(|| guard.remaining());
    guard.unlock().unwrap();
}

/// A release that races a running renewal is reported as a loss.
#[test]
fn pain_05_a_release_during_a_renewal_is_no_loss() {
    let mut random = Random::new("pain_05");
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let recorder = Recorder::default();
    let client =
        connected(|| builder(&proxy.url()).lease(LONG).renew_every(ms(5)).observer(recorder.clone()));
    // Answers to renewals come when the release is long over.
    proxy.delay(ms(4));
    let (holds, hardly_renewed) = (AtomicUsize::new(0), || recorder.count(Event::Renewed) <= 10);
    thread::scope(|scope| {
        for i in 0..4 {
            let (mut random, lock) = (random.fork(), client.reentrant_lock(&format!("x{i}")));
            let (holds, hardly_renewed) = (&holds, &hardly_renewed);
            scope.spawn(move || {
                // A busy machine renews late, and then there is none to race with.
                for _ in (0..1_000).take_while(|round| *round < 100 || hardly_renewed()) {
                    holds.fetch_add(1, Ordering::Relaxed);
                    let guard = lock.lock().unwrap();
                    thread::sleep(random.micros(25_000));
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert!(!hardly_renewed(), "hardly a renewal to race with");
    assert_eq!(recorder.count(Event::Released), holds.into_inner());
    assert_eq!(recorder.losses() + recorder.failures(), 0, "{:?}", recorder.all());
    nothing_left(&server);
}

/// Every cycle of lock and unlock starts another chain of renewals.
#[test]
fn pain_07_renewals_cost_what_is_held() {
    let server = RedisServer::start().unwrap();
    let every = ms(200);
    let client = unhurried(&server.url()).renew_every(every).connect().unwrap();
    let held = client.reentrant_lock("held").lock_owned().unwrap();
    let lock = client.reentrant_lock("x");
    for _ in 0..3000 {
        lock.lock().unwrap().unlock().unwrap();
    }
    let (began, before) = (Instant::now(), client.request_count());
    thread::sleep(8 * every);
    wait_until(LONG, "it is renewed", || client.request_count() >= before + 4);
    let sent = client.request_count() - before;
    // A machine that stands still lets them pass, too: by the time that has passed.
    let due = began.elapsed().as_millis() / every.as_millis();
    assert!(u128::from(sent) <= due + 2, "{sent} requests for one lock, renewed {due} times");
    held.unlock().unwrap();

    // Many at once: none comes near the end of its lease.
    let recorder = Recorder::default();
    let lease = ms(60_000);
    let client = unhurried(&server.url()).lease(lease).renew_every(ms(2000)).observer(recorder.clone());
    let client = client.connect().unwrap();
    let guards: Vec<_> =
        (0..1000).map(|i| client.reentrant_lock(&format!("{i}")).lock_owned().unwrap()).collect();
    wait_until(LONG, "all were renewed", || recorder.count(Event::Renewed) >= guards.len());
    let least = guards.iter().map(|g| g.remaining()).min().unwrap();
    // As much as a busy machine takes for the holds, and some seconds of standing still, are gone of it at
    // most.
    assert!(least > lease / 2, "{least:?} left");
    assert_eq!(recorder.losses(), 0);
    // A loaded machine does not release so many in the time that closing takes at most.
    let _ = client.close();
}
