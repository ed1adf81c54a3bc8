//! Of waiters that nobody tells: connections that break again and again, messages that never come.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::Client;
use redis_concurrent_testkit::*;

use crate::pains::LOAD;
use crate::server_days::connected;
use crate::support::*;

const WAITER_TIMEOUT: Duration = ms(1500);
/// How often a waiter asks by itself.
const HEARTBEAT: Duration = ms(500);

/// How many subscriptions are broken before it is enough: three in a tenth of a second.
const BREAKS: u64 = 45;

/// What the server sends to subscribers.
const MESSAGE: &[u8] = b"$7\r\nmessage\r\n";

/// Runs `play` with three clients, each for a process: again and again while subscriptions are broken, then
/// once with messages of which none comes. It takes so many `steps`, each of which somebody waits for.
fn whatever_becomes_of_messages(steps: u32, play: impl Fn(&RedisServer, &[Client])) {
    for lost in [false, true] {
        let server = RedisServer::start().unwrap();
        let proxy = Proxy::start(server.port()).unwrap();
        let clients: Vec<_> =
            (0..3).map(|_| connected(|| builder(&proxy.url()).waiter_timeout(WAITER_TIMEOUT))).collect();
        if lost {
            proxy.swallow_replies_with(MESSAGE);
        }
        let (stop, broken) = (AtomicBool::new(false), AtomicU64::new(0));
        let (mut plays, mut longest) = (0, Duration::ZERO);
        thread::scope(|scope| {
            scope.spawn(|| {
                while !lost && !stop.load(Ordering::Relaxed) {
                    thread::sleep(ms(100));
                    broken.fetch_add(server.kill_clients(ClientKind::PubSub).unwrap(), Ordering::Relaxed);
                }
            });
            let _stop = SetOnDrop(&stop);
            while plays == 0 || !lost && broken.load(Ordering::Relaxed) < BREAKS {
                let began = Instant::now();
                play(&server, &clients);
                (plays, longest) = (plays + 1, longest.max(began.elapsed()));
            }
        });
        println!(
            "{plays} times {steps} steps in {longest:?} at most, {} messages lost, {broken:?} broken",
            proxy.struck()
        );
        assert_eq!(proxy.struck() > 0, lost);
        // Whoever neither is told nor asks waits for a lease of 30 s, or for ever.
        assert!(longest < steps * 2 * HEARTBEAT + 3 * LOAD, "{longest:?} for {steps} steps");
    }
}

/// `work` for each of two threads a client, with its number.
fn six_threads(clients: &[Client], work: impl Fn(&Client, usize) + Sync) {
    thread::scope(|scope| {
        for i in 0..6 {
            let (client, work) = (&clients[i % 3], &work);
            scope.spawn(move || work(client, i));
        }
    });
}

fn positions(server: &RedisServer) -> usize {
    redis::cmd("ZCARD").arg("rc:{x}:queue").query(&mut server.connection().unwrap()).unwrap()
}

#[test]
fn pain_09_readers_and_writers_get_in_without_being_told() {
    const ROUNDS: usize = 2;
    whatever_becomes_of_messages(6 * ROUNDS as u32, |server, clients| {
        // Below 0: somebody writes.
        let inside = AtomicI64::new(0);
        six_threads(clients, |client, i| {
            let lock = client.read_write_lock("x");
            for round in 0..ROUNDS {
                if (i + round) % 2 == 0 {
                    let guard = lock.write_lock().lock().unwrap();
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 0);
                    thread::sleep(ms(5));
                    inside.fetch_add(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                } else {
                    let guard = lock.read_lock().lock().unwrap();
                    assert!(inside.fetch_add(1, Ordering::SeqCst) >= 0);
                    thread::sleep(ms(5));
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.unlock().unwrap();
                }
            }
        });
        nothing_left(server);
    });
}

#[test]
fn pain_09_permits_come_to_a_waiter_that_is_not_told() {
    const ROUNDS: usize = 2;
    whatever_becomes_of_messages(6 * ROUNDS as u32, |_, clients| {
        let semaphore = clients[0].semaphore("x");
        semaphore.set_permits(2).unwrap();
        let out = AtomicI64::new(0);
        six_threads(clients, |client, i| {
            for round in 0..ROUNDS {
                let n = 1 + (i + round) as u32 % 2;
                let permit = client.semaphore("x").acquire(n).unwrap();
                assert!(out.fetch_add(n.into(), Ordering::SeqCst) + i64::from(n) <= 2);
                thread::sleep(ms(5));
                out.fetch_sub(n.into(), Ordering::SeqCst);
                permit.release().unwrap();
            }
        });
        assert_eq!(semaphore.available().unwrap(), 2);
    });
}

#[test]
fn pain_09_a_condition_wakes_a_waiter_that_is_not_told() {
    const TURNS: usize = 9;
    // Each turn wakes the two others.
    whatever_becomes_of_messages(2 * TURNS as u32, |server, clients| {
        let turn = AtomicUsize::new(0);
        thread::scope(|scope| {
            for (me, client) in clients.iter().enumerate() {
                let (lock, turn) = (client.reentrant_lock("x"), &turn);
                scope.spawn(move || {
                    let (mut guard, condition) = (lock.lock().unwrap(), lock.condition("turn"));
                    for _ in 0..TURNS / 3 {
                        condition.wait_while(&mut guard, || turn.load(Ordering::SeqCst) % 3 != me).unwrap();
                        turn.fetch_add(1, Ordering::SeqCst);
                        condition.signal_all(&guard).unwrap();
                    }
                    guard.unlock().unwrap();
                });
            }
        });
        assert_eq!(turn.into_inner(), TURNS);
        nothing_left(server);
    });
}

#[test]
fn pain_09_a_latch_opens_for_a_waiter_that_is_not_told() {
    whatever_becomes_of_messages(2, |server, clients| {
        let latch = clients[0].count_down_latch("x");
        latch.try_set_count(2).unwrap();
        thread::scope(|scope| {
            let waiters =
                scope.spawn(|| six_threads(clients, |it, _| it.count_down_latch("x").wait().unwrap()));
            wait_until(LONG, "all wait", || positions(server) == 6);
            latch.count_down().unwrap();
            assert!(!waiters.is_finished());
            latch.count_down().unwrap();
            waiters.join().unwrap();
        });
        assert!(latch.delete().unwrap());
    });
}

#[test]
fn pain_09_a_barrier_trips_for_a_party_that_is_not_told() {
    const ROUNDS: usize = 4;
    whatever_becomes_of_messages(ROUNDS as u32, |_, clients| {
        let arrived: Vec<_> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
        six_threads(clients, |client, i| {
            let barrier = client.cyclic_barrier("x", 6);
            for arrived in &arrived {
                arrived.fetch_add(1, Ordering::SeqCst);
                if i % 2 == 0 {
                    barrier.wait().unwrap()
                } else {
                    barrier.wait_then(|| ()).unwrap()
                };
                assert_eq!(arrived.load(Ordering::SeqCst), 6);
            }
        });
    });
}
