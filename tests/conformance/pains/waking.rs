//! Of waiters that are not woken, or all at once.

use redis_concurrent::internals::lock_count;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use redis_concurrent_testkit::*;

use crate::support::*;

/// One subscription for each contended lock, until there are no more to be had.
#[test]
fn pain_10_subscriptions_do_not_grow_with_the_locks_waited_for() {
    let server = RedisServer::start().unwrap();
    // It would listen as well once it has held one for longer than its heartbeat.
    let holder = connected(|| builder(&server.url()).waiter_timeout(ms(60_000)));
    let names: Vec<String> = (0..200).map(|i| format!("x{i}")).collect();
    let guards: Vec<_> = names.iter().map(|name| holder.reentrant_lock(name).lock_owned().unwrap()).collect();
    let client = connect(&server);
    thread::scope(|scope| {
        let waiters: Vec<_> = names
            .iter()
            .map(|name| {
                let lock = client.reentrant_lock(name);
                scope.spawn(move || lock.lock().map(drop))
            })
            .collect();
        let last = holder.reentrant_lock(&names[names.len() - 1]);
        wait_until(LONG, "all wait", || {
            let positions = server.keys().unwrap().iter().filter(|k| k.ends_with(":queue")).count();
            positions == names.len()
        });
        assert_eq!(last.queue_length().unwrap(), 1);
        assert_eq!(channels(&server).len(), 1);
        assert_eq!(server.clients(ClientKind::PubSub).unwrap().len(), 1);
        drop(guards);
        for waiter in waiters {
            waiter.join().unwrap().unwrap();
        }
    });
    wait_until(LONG, "all are released", || lock_count(&client) == 0);
    client.close().unwrap();
    wait_until(LONG, "no subscription is left", || channels(&server).is_empty());
    nothing_left(&server);
}

/// A listener whose peer is gone without a word waits for ever.
#[test]
fn pain_11_a_half_open_listener_is_replaced() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let recorder = Recorder::default();
    let holder = connect(&server).reentrant_lock("x");
    // Its heartbeat is 30 s: only the listener can be quicker.
    let client =
        builder(&proxy.url()).lease(ms(90_000)).waiter_timeout(ms(90_000)).observer(recorder.clone());
    let client = client.connect().unwrap();
    let lock = client.reentrant_lock("x");
    let waits = |released: &dyn Fn()| {
        let held = holder.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let guard = lock.lock().unwrap();
                (Instant::now(), guard.unlock())
            });
            queued(&holder, 1);
            released();
            let at = Instant::now();
            held.unlock().unwrap();
            let (got, unlocked) = waits.join().unwrap();
            unlocked.unwrap();
            got.saturating_duration_since(at)
        })
    };
    let quick = |released: &dyn Fn()| {
        let took = waits(released);
        assert!(took < LONG / 2, "{took:?}");
    };
    // Idle for several read time-outs and pings, it still hears. Once more where a ping had no answer within
    // a second, as the machine stood still.
    let reconnected = || recorder.count(Event::Reconnected);
    let before = eventually(LONG, || {
        let before = reconnected();
        quick(&|| thread::sleep(ms(2500)));
        (reconnected() == before).then_some(before)
    });
    // A ping goes into a black hole; a new connection gets through.
    let (connections, struck) = (proxy.connections(), proxy.struck());
    proxy.only_matching(b"PING");
    proxy.black_hole(true);
    wait_until(LONG, "a ping is lost", || proxy.struck() > struck);
    proxy.heal().unwrap();
    wait_until(LONG, "it is noticed", || reconnected() > before);
    assert!(proxy.connections() > connections);
    quick(&|| ());
}

/// Every process retries on every release, in no order.
#[test]
fn pain_12_two_scripts_a_grant_and_nobody_starves() {
    let server = RedisServer::start().unwrap();
    // Heartbeats would be scripts as well, the more the longer it takes.
    let clients: Vec<_> = (0..5).map(|_| patient(&server)).collect();
    let turns: Vec<AtomicU64> = (0..5).map(|_| AtomicU64::new(0)).collect();
    let stop = AtomicBool::new(false);
    // Scripts are known, listeners are there.
    for client in &clients {
        let lock = client.reentrant_lock("x");
        let guard = clients[0].simple_lock("warm").lock_owned().unwrap();
        drop(lock.lock().unwrap());
        assert!(in_brief(client.simple_lock("warm").try_lock_for(ms(30))).is_none());
        drop(guard);
    }
    let (mut grants, mut scripts) = (0, 0);
    thread::scope(|scope| {
        for (client, turns) in clients.iter().zip(&turns) {
            for _ in 0..8 {
                let (lock, stop) = (client.reentrant_lock("x").fair(), &stop);
                scope.spawn(move || {
                    while !stop.load(Ordering::Relaxed) {
                        let guard = lock.lock().unwrap();
                        turns.fetch_add(1, Ordering::Relaxed);
                        guard.unlock().unwrap();
                    }
                });
            }
        }
        let _stop = SetOnDrop(&stop);
        let total = || turns.iter().map(|t| t.load(Ordering::Relaxed)).sum::<u64>();
        let count = || server.command_calls().unwrap().get("evalsha").copied().unwrap_or(0);
        wait_until(LONG, "all take part", || turns.iter().all(|t| t.load(Ordering::Relaxed) > 10));
        let (grants_before, scripts_before) = (total(), count());
        wait_until(3 * LONG, "a thousand turns", || total() > grants_before + 1000);
        scripts = count() - scripts_before;
        grants = total() - grants_before;
    });
    // Some turns end between the two counts.
    let each = scripts as f64 / grants as f64;
    assert!(each < 2.1, "{each} scripts a grant: {scripts} for {grants}");
    let turns: Vec<f64> = turns.iter().map(|t| t.load(Ordering::Relaxed) as f64).collect();
    let sum: f64 = turns.iter().sum();
    let jain = sum * sum / (5.0 * turns.iter().map(|t| t * t).sum::<f64>());
    println!("{each:.2} scripts a grant, Jain's index {jain:.3}");
    assert!(jain >= 0.9, "{jain}: {turns:?}");
}
