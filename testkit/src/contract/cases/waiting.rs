//! Waiting: order, wake-ups, giving up.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use redis_concurrent::kinds::{Kind, Queueing};
use redis_concurrent::{CancellationToken, ErrorKind, RedisLock};

use super::cases;
use crate::contract::fixture::{Fixture, LONG};
use crate::contract::forms::{self, Ends};
use crate::{closes_in_time, wait_until};

/// Far less than the time to a patient client's next heartbeat: a waiter that has the lock by then was woken.
const AT_ONCE: Duration = Duration::from_secs(10);

cases! {
    every_form_that_waits_is_woken_by_a_release
    a_waiting_thread_can_be_cancelled_in_every_form
    a_cancelled_head_passes_the_lead_on
    a_timed_out_head_passes_the_lead_on
    processes_come_in_by_arrival
    threads_of_a_process_come_in_by_arrival
    waiters_are_counted_exactly
    a_waiter_too_many_gets_queue_full_at_once
    a_try_does_not_overtake_a_local_waiter
    a_waiter_whose_client_closes_holds_nobody_up
    a_dead_waiter_holds_nobody_up
    a_dead_holder_holds_for_its_lease_and_no_longer
}

fn every_form_that_waits_is_woken_by_a_release<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let ((here, keeper), there, never) = (fixture.both(), fixture.fresh(), CancellationToken::new());
    for form in forms::all::<K>().iter().filter(|f| f.ends != Ends::AtOnce) {
        // Released by a thread of the same process, then by another process.
        for waits in [&here, &there] {
            let guard = keeper.lock_owned().unwrap();
            let released = Mutex::new(None);
            thread::scope(|scope| {
                let waiter = scope.spawn(|| {
                    let held = form.take(waits, AT_ONCE * 3, &never).unwrap();
                    let at = Instant::now();
                    held.unwrap_or_else(|| panic!("{}: time was up", form.name)).unlock().unwrap();
                    at
                });
                wait_until(LONG, "a thread waits", || waits.local_queue_length() == 1);
                if std::ptr::eq(waits, &there) {
                    fixture.await_positions(1);
                }
                *released.lock() = Some(Instant::now());
                guard.unlock().unwrap();
                let at = waiter.join().unwrap();
                let took = at.saturating_duration_since(released.lock().unwrap_or(at));
                assert!(took < AT_ONCE, "{}: after {took:?}", form.name);
            });
        }
    }
}

fn a_waiting_thread_can_be_cancelled_in_every_form<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let ((here, keeper), (there, witness)) = (fixture.both(), fixture.both());
    let guard = keeper.lock_owned().unwrap();
    let owner = keeper.holder().unwrap().map(|h| h.owner);
    for form in forms::all::<K>().iter().filter(|f| f.cancellable) {
        for waits in [&here, &there] {
            let parent = CancellationToken::new();
            let token = parent.child();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| form.take(waits, LONG * 4, &token).map(|held| held.is_some()));
                wait_until(LONG, "a thread waits", || waits.local_queue_length() == 1);
                if std::ptr::eq(waits, &there) {
                    fixture.await_positions(1);
                }
                let start = Instant::now();
                parent.cancel();
                let error = waiter.join().unwrap().unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Cancelled, "{}", form.name);
                assert!(start.elapsed() < AT_ONCE, "{}: after {:?}", form.name, start.elapsed());
            });
            fixture.await_positions(0);
            assert_eq!(waits.local_queue_length(), 0, "{}", form.name);
        }
    }
    assert_eq!(witness.holder().unwrap().map(|h| h.owner), owner, "the holder is untouched");
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    assert!(there.try_lock().unwrap().is_some(), "nobody is in the way");
}

fn a_cancelled_head_passes_the_lead_on<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (holder, waits) = (fixture.keeper(), fixture.fresh());
    let (guard, token) = (holder.lock_owned().unwrap(), CancellationToken::new());
    thread::scope(|scope| {
        let head = scope.spawn(|| waits.lock_interruptibly(&token).map(drop));
        fixture.await_positions(1);
        let second = scope.spawn(|| waits.try_lock_for(LONG).map(|held| held.is_some()));
        wait_until(LONG, "two wait", || waits.local_queue_length() == 2);
        token.cancel();
        assert!(head.join().unwrap().unwrap_err().is_cancelled());
        assert_eq!(waits.local_queue_length(), 1);
        guard.unlock().unwrap();
        let start = Instant::now();
        assert!(second.join().unwrap().unwrap(), "the second gets in");
        assert!(start.elapsed() < AT_ONCE, "after {:?}", start.elapsed());
    });
}

fn a_timed_out_head_passes_the_lead_on<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (holder, waits) = (fixture.keeper(), fixture.fresh());
    let guard = holder.lock_owned().unwrap();
    thread::scope(|scope| {
        let head = scope.spawn(|| waits.try_lock_for(Duration::from_secs(4)).map(|held| held.is_some()));
        fixture.await_positions(1);
        let second = scope.spawn(|| waits.try_lock_for(LONG).map(|held| held.is_some()));
        wait_until(LONG, "two wait", || waits.local_queue_length() == 2);
        assert!(!head.join().unwrap().unwrap());
        guard.unlock().unwrap();
        let start = Instant::now();
        assert!(second.join().unwrap().unwrap(), "the second gets in");
        assert!(start.elapsed() < AT_ONCE, "after {:?}", start.elapsed());
    });
}

fn processes_come_in_by_arrival<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    const PROCESSES: usize = 5;
    if !fixture.one_holder() {
        return;
    }
    let guard = fixture.fresh().lock_owned().unwrap();
    let locks: Vec<_> = (0..PROCESSES).map(|_| fixture.fresh()).collect();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for (i, lock) in locks.iter().enumerate() {
            let order = &order;
            scope.spawn(move || {
                let held = lock.lock().unwrap();
                order.lock().push(i);
                held.unlock().unwrap();
            });
            fixture.await_positions(i + 1);
        }
        guard.unlock().unwrap();
    });
    assert_eq!(order.into_inner(), (0..PROCESSES).collect::<Vec<_>>());
}

fn threads_of_a_process_come_in_by_arrival<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    const THREADS: usize = 6;
    if !fixture.one_holder() {
        return;
    }
    let lock = fixture.fresh();
    let guard = lock.lock_owned().unwrap();
    let order = Mutex::new(Vec::new());
    thread::scope(|scope| {
        for i in 0..THREADS {
            let (lock, order) = (&lock, &order);
            scope.spawn(move || {
                let held = lock.lock().unwrap();
                order.lock().push(i);
                held.unlock().unwrap();
            });
            wait_until(LONG, "one more waits", || lock.local_queue_length() == i + 1);
            if K::QUEUEING == Queueing::PerCaller {
                fixture.await_positions(i + 1);
            }
        }
        guard.unlock().unwrap();
    });
    assert_eq!(order.into_inner(), (0..THREADS).collect::<Vec<_>>());
}

fn waiters_are_counted_exactly<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let ((here, keeper), there) = (fixture.both(), fixture.fresh());
    let counts = || (here.queue_length().unwrap(), here.local_queue_length(), there.local_queue_length());
    let guard = keeper.lock_owned().unwrap();
    assert_eq!(counts(), (0, 0, 0));
    let token = CancellationToken::new();
    thread::scope(|scope| {
        let first = scope.spawn(|| there.lock_interruptibly(&token).map(drop));
        fixture.await_positions(1);
        assert_eq!(counts(), (1, 0, 1));
        let second = scope.spawn(|| here.lock().map(drop));
        wait_until(LONG, "both wait", || counts() == (2, 1, 1));
        token.cancel();
        assert!(first.join().unwrap().unwrap_err().is_cancelled());
        wait_until(LONG, "one waits", || counts() == (1, 1, 0));
        guard.unlock().unwrap();
        second.join().unwrap().unwrap();
    });
    assert_eq!(counts(), (0, 0, 0));
}

fn a_waiter_too_many_gets_queue_full_at_once<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (keeper, one, other) = (fixture.keeper(), fixture.fresh(), fixture.fresh());
    let guard = keeper.lock_owned().unwrap();
    let full = |it: &RedisLock<K>, most: usize| {
        let error = it.max_waiters(most).lock().map(drop).unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::QueueFull, it.name()), "{error}");
    };
    thread::scope(|scope| {
        full(&one, 0);
        let waits = one.max_waiters(1);
        let waiter = scope.spawn(move || drop(waits.lock_owned_with(LONG).unwrap().unwrap()));
        fixture.await_positions(1);
        full(&one, 1);
        full(&other, 1);
        assert!(other.max_waiters(0).try_lock().unwrap().is_none());
        let waits = other.max_waiters(2);
        let second = scope.spawn(move || drop(waits.lock_owned_with(LONG).unwrap().unwrap()));
        fixture.await_positions(2);
        guard.unlock().unwrap();
        waiter.join().unwrap();
        second.join().unwrap();
    });
    let nobody_waits = || other.max_waiters(0).lock();
    wait_until(LONG, "it is free", || one.queue_length().unwrap() == 0);
    drop(nobody_waits().unwrap());
}

fn a_try_does_not_overtake_a_local_waiter<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (holder, lock) = (fixture.keeper(), fixture.fresh());
    let guard = holder.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().map(drop));
        fixture.await_positions(1);
        assert!(lock.try_lock().unwrap().is_none());
        guard.unlock().unwrap();
        waiter.join().unwrap().unwrap();
    });
    assert!(lock.try_lock().unwrap().is_some());
}

fn a_waiter_whose_client_closes_holds_nobody_up<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (holder, last) = (fixture.keeper(), fixture.fresh());
    closes_in_time(|| {
        let closes = fixture.patient();
        let guard = holder.lock_owned().unwrap();
        let lock = fixture.lock(&closes);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| lock.lock().map(drop));
            fixture.await_positions(1);
            let second = scope.spawn(|| last.try_lock_for(LONG).map(|held| held.is_some()));
            fixture.await_positions(2);
            let closed = closes.close();
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
            guard.unlock().unwrap();
            assert!(second.join().unwrap().unwrap());
            closed
        })
    });
}

fn a_dead_waiter_holds_nobody_up<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    const TIMEOUT: Duration = Duration::from_millis(700);
    let (holder, lock) = (fixture.keeper(), fixture.fresh());
    let guard = holder.lock_owned().unwrap();
    // A queue position that sends no more heartbeats.
    let start = Instant::now();
    fixture.ask_as_the_dead(&lock, "wait", Duration::from_secs(60), TIMEOUT);
    assert_eq!(fixture.positions(), 1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(LONG).map(|held| held.is_some()));
        // If this takes a busy machine longer, the dead waiter's position has expired by then.
        wait_until(LONG, "a waiter behind it", || fixture.positions() == 2 || start.elapsed() > TIMEOUT);
        guard.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
}

fn a_dead_holder_holds_for_its_lease_and_no_longer<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    const LEASE: Duration = Duration::from_millis(600);
    let (lock, other) = (fixture.fresh(), fixture.keeper());
    let start = Instant::now();
    fixture.ask_as_the_dead(&lock, "try", LEASE, LEASE);
    let is_over = |took: Duration| took + Duration::from_millis(2) >= LEASE;
    // On a machine so busy that this took longer, the lease may have expired.
    let early = other.try_lock().unwrap();
    assert!(early.is_none() || is_over(start.elapsed()), "after {:?}", start.elapsed());
    drop(early);
    let guard = other.try_lock_for(LONG).unwrap().unwrap();
    let took = start.elapsed();
    assert!(is_over(took) && took < LEASE + AT_ONCE, "after {took:?}");
    guard.unlock().unwrap();
}
