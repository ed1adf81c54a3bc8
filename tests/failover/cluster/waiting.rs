//! Waiting, and being told, on all primaries.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent_testkit::wait_until;

use super::{calm, channels_of_locks, connect, home, key, spread};
use crate::support::{LONG, SOON, alone, builder, in_brief, ms, queued, threads};

/// Each hand-off is told by a message, on the primary that grants: no waiter finds it by asking.
#[test]
fn a_waiter_is_told_on_whatever_primary_its_lock_is() {
    // Its heartbeats come every ten seconds.
    let waiter = builder(&calm().url()).waiter_timeout(3 * LONG).lease(Duration::from_secs(30));
    let (holder, waiter) = (connect(calm()), waiter.connect().unwrap());
    let names = spread(calm(), "told");
    for name in &names {
        let lock = holder.reentrant_lock(name);
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let lock = waiter.reentrant_lock(name);
                lock.lock().unwrap().unlock().unwrap();
            });
            queued(&lock, 1);
            let began = Instant::now();
            guard.unlock().unwrap();
            waiting.join().unwrap();
            assert!(began.elapsed() < SOON, "{name}: {:?}", began.elapsed());
        });
    }
}

#[test]
fn forced_unlocks_are_told_on_every_primary() {
    let (holder, other) = (connect(calm()), connect(calm()));
    for name in spread(calm(), "forced") {
        let lock = holder.reentrant_lock(&name);
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        wait_until(SOON, "the holder listens there", || {
            channels_of_locks(&home(calm(), &name)).iter().any(|channel| channel.starts_with(&key(&name)))
        });
        other.reentrant_lock(&name).force_unlock().unwrap();
        wait_until(SOON, "the holder is told", || lost.is_cancelled());
        assert!(guard.unlock().unwrap_err().is_lease_lost());
    }
}

/// An inbox for each primary where somebody waits; the pools share their threads.
#[test]
fn no_thread_is_started_for_a_node_where_nobody_waits() {
    alone("cluster::waiting::no_thread_is_started_for_a_node_where_nobody_waits", || {
        let (holder, waiter) = (connect(calm()), connect(calm()));
        let names = spread(calm(), "threads");
        for name in &names {
            holder.reentrant_lock(name).lock().unwrap().unlock().unwrap();
        }
        assert_eq!(threads("rc-inbox").len(), 0);
        let connects = threads("r2d2-worker").len();
        assert!(connects <= 12, "{connects} threads for two clients");
        let lock = holder.reentrant_lock(&names[1]);
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                waiter.reentrant_lock(&names[1]).try_lock_for(LONG).unwrap().unwrap().unlock().unwrap();
            });
            queued(&lock, 1);
            // (The holder has one as soon as it has held for a heartbeat.)
            assert!((1..=2).contains(&threads("rc-inbox").len()), "{:?}", threads("rc-inbox"));
            guard.unlock().unwrap();
            waiting.join().unwrap();
        });
        holder.close().unwrap();
        waiter.close().unwrap();
        wait_until(SOON, "all threads have ended", || {
            threads("rc-inbox").is_empty() && threads("r2d2-worker").is_empty()
        });
    });
}

#[test]
fn deadlines_are_kept_on_every_primary() {
    let (holder, waiter) = (connect(calm()), connect(calm()));
    for name in spread(calm(), "deadline") {
        let lock = holder.simple_lock(&name);
        let guard = lock.lock().unwrap();
        let began = Instant::now();
        assert!(in_brief(waiter.simple_lock(&name).try_lock_for(ms(200))).is_none());
        assert!((ms(200)..Duration::from_secs(5)).contains(&began.elapsed()), "{:?}", began.elapsed());
        guard.unlock().unwrap();
    }
}
