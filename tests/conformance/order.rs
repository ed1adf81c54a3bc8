//! Fair locks: first come, first served.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent_testkit::wait_until;

use crate::conformance::fixture::{Fixture, LATE, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, ms};

rows! { fair_lock:
    leases_that_end_let_in_by_arrival
    positions_stay_where_they_are
    clients_get_in_by_arrival
}

/// Redisson RedissonFairLockTest.testLeaseTimeout (1 s leases there).
fn leases_that_end_let_in_by_arrival<K: Tried>(fixture: &Fixture<K>) {
    let in_order = |granted: &[(usize, u64)]| {
        granted.iter().map(|(i, _)| *i).eq(0..granted.len())
            && granted.windows(2).all(|pair| pair[0].1 < pair[1].1)
    };
    // A thread that sleeps for the whole lease asks anew, behind the others: then once more, with a longer one.
    let tries = [400, 1500, 1500, 1500].map(ms).into_iter();
    assert!(tries.map(|lease| let_in(fixture, lease)).any(|granted| in_order(&granted)));
}

/// Eight callers arrive one after another, and each keeps the lock until its lease ends: who was let in, in the
/// order in which they ran, with their tokens.
fn let_in<K: Tried>(fixture: &Fixture<K>, lease: Duration) -> Vec<(usize, u64)> {
    const THREADS: usize = 8;
    let locks: Vec<_> = (0..THREADS).map(|_| fixture.lock().with_lease(lease)).collect();
    let (granted, ended) = (Mutex::new(Vec::new()), AtomicUsize::new(0));
    let began = Instant::now();
    thread::scope(|scope| {
        for (i, lock) in locks.iter().enumerate() {
            let (granted, ended) = (&granted, &ended);
            scope.spawn(move || {
                let guard = lock.try_lock_for(10 * LATE).unwrap().expect("in time");
                granted.lock().push((i, began.elapsed(), guard.token()));
                // Nobody unlocks.
                ended.fetch_add(1, Ordering::SeqCst);
                wait_until(LONG, "all were let in", || ended.load(Ordering::SeqCst) == THREADS);
                drop(guard);
            });
            // In this order: a caller that was just let in is in neither, for a moment.
            let here = || granted.lock().len() + fixture.positions().len();
            wait_until(LONG, "it waits, or is in", || here() > i);
        }
    });
    let granted = granted.into_inner();
    let (_, last, _) = granted.last().unwrap();
    // Each lease but the last one was waited for. A waiter counts its own from when it last asked,
    // and takes a grant of which that leaves more than half.
    assert!(*last > 7 * lease / 2 && *last < 11 * lease + 2 * LATE, "{last:?}");
    granted.into_iter().map(|(i, _, token)| (i, token)).collect()
}

/// Redisson RedissonFairLockTest.testLockAcquiredTimeoutDrift_Descrete: a queue position has no deadline here
/// that could drift. It stays where it is, also for longer than a silent one would live.
fn positions_stay_where_they_are<K: Tried>(fixture: &Fixture<K>) {
    let waiter_timeout = ms(1200);
    let holder = fixture.lock();
    let waiting: Vec<_> =
        (0..3).map(|_| fixture.lock_of(&fixture.client_with(|b| b.waiter_timeout(waiter_timeout)))).collect();
    let scores = || -> Vec<(String, f64)> {
        let mut range = redis::cmd("ZRANGE");
        range.arg(fixture.key(":queue")).arg(0).arg(-1).arg("WITHSCORES");
        range.query(&mut fixture.redis()).unwrap()
    };
    let first = holder.lock().unwrap();
    let turns = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (i, lock) in waiting.iter().enumerate() {
            let turns = &turns;
            scope.spawn(move || {
                let guard = lock.lock().unwrap();
                turns.lock().push(i);
                thread::sleep(waiter_timeout / 4);
                // Its answer may take longer than the waiter timeout on a busy machine.
                drop(guard);
            });
            fixture.await_positions(i + 1);
        }
        let before = scores();
        thread::sleep(waiter_timeout * 3 / 2);
        // (One that was not heard of, as the machine stood still, is back there soon.)
        wait_until(LONG, "they stand where they stood", || scores() == before);
        first.unlock().unwrap();
        wait_until(LONG, "the first one was let in", || turns.lock().len() == 1);
        assert!(before.ends_with(&scores()), "{:?} of {before:?}", scores());
    });
    assert_eq!(*turns.lock(), [0, 1, 2]);
}

/// Redisson RedissonFairLockTest.testConcurrency_MultiInstance_Ordering.
fn clients_get_in_by_arrival<K: Tried>(fixture: &Fixture<K>) {
    let clients = 2 * thread::available_parallelism().unwrap().get();
    let locks: Vec<_> = (0..clients).map(|_| fixture.lock()).collect();
    let turns = Mutex::new(Vec::new());
    let holder = fixture.lock();
    let guard = holder.lock().unwrap();
    thread::scope(|scope| {
        for (i, lock) in locks.iter().enumerate() {
            let turns = &turns;
            scope.spawn(move || lock.with(|_| turns.lock().push(i)).unwrap());
            fixture.await_positions(i + 1);
        }
        guard.unlock().unwrap();
    });
    assert!(turns.into_inner().into_iter().eq(0..clients));
}
