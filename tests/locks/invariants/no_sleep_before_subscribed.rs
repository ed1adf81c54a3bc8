//! *no-sleep-before-subscribed*: a waiter in the queue can hear of its grant.

use std::thread;
use std::time::Instant;

use redis_concurrent_testkit::*;

use crate::support::*;

const QUEUE: &str = "rc:{x}:queue";

#[test]
fn no_sleep_before_subscribed() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let holder = connect(&server).reentrant_lock("x");
    let held = holder.lock().unwrap();
    let waiter = connected(|| builder(&proxy.url())).reentrant_lock("x");
    proxy.only_matching(b"SUBSCRIBE");
    proxy.hold_requests(true);
    thread::scope(|scope| {
        let waits = scope.spawn(|| waiter.lock().map(|g| g.token()));
        wait_until(SOON, "the subscription is on its way", || proxy.held() == 1);
        let began = Instant::now();
        while began.elapsed() < ms(700) {
            assert!(!exists(&server, QUEUE), "in the queue without an ear");
            thread::sleep(ms(5));
        }
        // A release in between must not be missed for long either.
        proxy.hold_requests(false);
        queued(&holder, 1);
        let released = Instant::now();
        held.unlock().unwrap();
        waits.join().unwrap().unwrap();
        assert!(released.elapsed() < SOON);
    });
}

/// The lock is released at any moment between the first try, the subscription, the queue position and the
/// sleep of a client that waits for the first time.
#[test]
fn no_sleep_before_subscribed_wherever_the_release_falls() {
    let mut random = Random::new("no_sleep_before_subscribed");
    let server = RedisServer::start().unwrap();
    let holder = connect(&server).reentrant_lock("x");
    for _ in 0..150 {
        let held = holder.lock().unwrap();
        // A heartbeat of 10 s: a waiter that misses the message sleeps longer than the test allows.
        let client = connected(|| builder(&server.url()).waiter_timeout(LONG).command_timeout(LONG));
        let lock = client.reentrant_lock("x");
        let pause = random.micros(4000);
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let guard = lock.lock().unwrap();
                (Instant::now(), guard.unlock())
            });
            thread::sleep(pause);
            let released = Instant::now();
            held.unlock().unwrap();
            let (at, unlocked) = waits.join().unwrap();
            unlocked.unwrap();
            let took = at.saturating_duration_since(released);
            assert!(took < SOON, "woken after {took:?}, released after {pause:?}");
        });
        client.close().unwrap();
    }
}
