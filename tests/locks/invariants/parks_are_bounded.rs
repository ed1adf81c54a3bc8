//! *parks-are-bounded*: by the deadline, the holder's lease, the heartbeat.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::Client;
use redis_concurrent_testkit::*;

use crate::support::*;

/// What a loaded machine may add to any bound.
const LOAD: Duration = Duration::from_secs(4);

/// With the usual heartbeats, of which there is one a second.
#[track_caller]
fn connect(server: &RedisServer) -> Client {
    connected(|| builder(&server.url()))
}

#[test]
fn parks_are_bounded_when_no_message_gets_through() {
    let server = RedisServer::start().unwrap();
    let stop = AtomicBool::new(false);
    let longest = thread::scope(|scope| {
        let killer = scope.spawn(|| {
            let mut kills = 0;
            while !stop.load(Ordering::Relaxed) {
                kills += server.kill_clients(ClientKind::PubSub).unwrap();
                thread::sleep(ms(50));
            }
            kills
        });
        let contenders: Vec<_> = (0..2)
            .flat_map(|_| {
                // The heartbeat is the park's bound: 200 ms.
                let client = connected(|| builder(&server.url()).waiter_timeout(ms(600)));
                [client.clone(), client]
            })
            .map(|client| {
                scope.spawn(move || {
                    let lock = client.reentrant_lock("x").fair();
                    let mut longest = Duration::ZERO;
                    let start = Instant::now();
                    while start.elapsed() < ms(2500) {
                        let began = Instant::now();
                        // A request has 600 ms.
                        let came_in = in_brief(lock.lock().map(Some));
                        longest = longest.max(began.elapsed());
                        let Some(guard) = came_in else { continue };
                        thread::sleep(ms(1));
                        // Where that is late, it is released in the background.
                        released_all(&guard.unlock());
                    }
                    longest
                })
            })
            .collect();
        let stop = SetOnDrop(&stop);
        let longest = contenders.into_iter().map(|c| c.join().unwrap()).max().unwrap();
        drop(stop);
        assert!(killer.join().unwrap() > 10, "hardly a listener was killed");
        longest
    });
    // Three others ahead, each of which may sleep for a heartbeat and an ask.
    assert!(longest < 4 * ms(200) + LOAD, "{longest:?}");
}

const HOLDER: &str = "invariants::parks_are_bounded::role_holder";
const WAITER: &str = "invariants::parks_are_bounded::role_waiter";

#[test]
#[ignore = "a role, played by a child process"]
fn role_holder() {
    if is_role(HOLDER) {
        let lock = connected(|| builder(&env("URL")).lease(ms(1000))).reentrant_lock("x");
        let guard = lock.lock().unwrap();
        tell_parent("holds").unwrap();
        let _ = hear_parent();
        drop(guard);
    }
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_waiter() {
    if is_role(WAITER) {
        let client = connected(|| builder(&env("URL")).lease(ms(1000)).waiter_timeout(ms(1000)));
        let lock = client.reentrant_lock("x");
        tell_parent("waits").unwrap();
        drop(lock.lock());
    }
}

fn child(role: &str, server: &RedisServer) -> Child {
    let child = Child::spawn(role, &[("URL", &server.url())]).unwrap();
    child.read_line_within(LONG).unwrap();
    child
}

#[test]
fn parks_are_bounded_by_a_dead_holders_lease() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let mut holder = child(HOLDER, &server);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            (Instant::now(), guard.unlock())
        });
        queued(&lock, 1);
        let killed = Instant::now();
        holder.kill9().unwrap();
        let (at, unlocked) = waits.join().unwrap();
        unlocked.unwrap();
        assert!(at - killed < ms(1000) + ms(250) + LOAD, "{:?}", at - killed);
    });
}

/// A dead head is passed over: at once when its process is gone, after its waiter timeout when it only
/// stands still.
#[test]
fn parks_are_bounded_by_a_dead_waiters_window() {
    for stands_still in [false, true] {
        let server = RedisServer::start().unwrap();
        let lock = connect(&server).reentrant_lock("x");
        let held = lock.lock().unwrap();
        let mut dead = child(WAITER, &server);
        queued(&lock, 1);
        let next = connect(&server).reentrant_lock("x");
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let guard = next.lock().unwrap();
                (Instant::now(), guard.unlock())
            });
            queued(&lock, 2);
            let died = Instant::now();
            if stands_still {
                dead.stop().unwrap();
                // Silent for its waiter timeout, it counts no more.
                queued(&lock, 1);
                assert!(died.elapsed() < ms(1000) + LOAD, "{:?}", died.elapsed());
            } else {
                dead.kill9().unwrap();
            }
            let released = Instant::now();
            held.unlock().unwrap();
            let (at, unlocked) = waits.join().unwrap();
            unlocked.unwrap();
            let took = at.saturating_duration_since(released);
            assert!(took < ms(1000) + LOAD, "stands still {stands_still}: {took:?}");
        });
    }
}

#[test]
fn parks_are_bounded_when_holder_and_head_die_together() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let mut holder = child(HOLDER, &server);
    let mut head = child(WAITER, &server);
    queued(&lock, 1);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let guard = lock.lock().unwrap();
            (Instant::now(), guard.unlock())
        });
        queued(&lock, 2);
        let died = Instant::now();
        // The head only stands still: what it is granted, it keeps for a lease.
        head.stop().unwrap();
        holder.kill9().unwrap();
        let (at, unlocked) = waits.join().unwrap();
        unlocked.unwrap();
        assert!(at - died < 2 * ms(1000) + ms(250) + LOAD, "{:?}", at - died);
    });
}
