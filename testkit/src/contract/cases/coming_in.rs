//! Acquiring and releasing in all forms, without waiters.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::internals::lock_count;
use redis_concurrent::kinds::{Kind, Queueing, Reentrancy};
use redis_concurrent::{CancellationToken, ErrorKind, Lock, LockGuard, Wait};

use super::cases;
use crate::contract::fixture::{Fixture, LONG};
use crate::contract::forms::{self, Ends, in_brief};
use crate::{closes_in_time, wait_until};

cases! {
    every_form_takes_a_free_lock
    every_form_that_ends_gives_up_on_a_held_lock_and_not_too_early
    every_form_without_time_is_one_attempt
    a_token_cancelled_before_is_told_even_on_a_free_lock
    every_form_can_be_told_that_the_name_is_bad
    a_lease_that_is_too_short_is_told
    the_same_thread_asks_again
    an_owned_guard_never_reenters
    another_thread_stays_out_until_the_last_guard_has_ended
    handles_of_one_name_are_one_lock_and_names_are_apart
    with_returns_the_value_and_releases
    with_releases_when_the_work_panics
    a_panicking_thread_releases
    a_trait_object_does_it_all
    a_foreign_key_is_refused_and_kept
    a_closed_client_lets_nobody_in_and_gives_back_what_it_held
}

fn every_form_takes_a_free_lock<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, other, never) = (fixture.fresh(), fixture.fresh(), CancellationToken::new());
    let kept_out = fixture.keeper();
    for form in forms::all::<K>() {
        for drop_it in [true, false] {
            let held = form.take(&lock, LONG, &never).unwrap().unwrap_or_else(|| panic!("{}", form.name));
            assert!(other.is_locked().unwrap(), "{}", form.name);
            assert!(kept_out.try_lock().unwrap().is_none(), "{}", form.name);
            assert!(!held.is_lost() && !held.remaining().is_zero(), "{}", form.name);
            assert_eq!(lock.is_held_by_current_thread(), !form.owned, "{}", form.name);
            if drop_it {
                drop(held);
            } else {
                held.unlock().unwrap();
            }
            // A guard that is dropped does not wait until another client can see it.
            wait_until(LONG, form.name, || !drop_it || !other.is_locked().unwrap());
            assert!(!other.is_locked().unwrap(), "{}", form.name);
            assert!(!lock.is_held_by_current_thread(), "{}", form.name);
        }
    }
}

fn every_form_that_ends_gives_up_on_a_held_lock_and_not_too_early<K: Kind, W: Kind>(
    fixture: &Fixture<'_, K, W>,
) {
    const LIMIT: Duration = Duration::from_millis(120);
    let ((here, keeper), never) = (fixture.both(), CancellationToken::new());
    let (there, witness) = fixture.both();
    let held = keeper.lock_owned().unwrap();
    let owner = keeper.holder().unwrap().map(|h| h.owner);
    // A thread of the same process, then another process.
    for lock in [&here, &there] {
        for form in forms::all::<K>().iter().filter(|f| f.ends != Ends::Never) {
            let outcome = in_brief(|| {
                let start = Instant::now();
                let outcome = form.take(lock, LIMIT, &never);
                let took = start.elapsed();
                assert!(form.ends == Ends::AtOnce || took >= LIMIT, "{}: after {took:?}", form.name);
                assert!(took < LONG, "{}: after {took:?}", form.name);
                outcome
            });
            assert!(outcome.unwrap().is_none(), "{}", form.name);
            // A request whose reply nobody awaited is undone in the background.
            wait_until(LONG, "nobody waits any more", || lock.queue_length().unwrap() == 0);
        }
    }
    assert_eq!(witness.holder().unwrap().map(|h| h.owner), owner, "the holder is untouched");
    fixture.await_positions(0);
    held.unlock().unwrap();
    assert!(there.try_lock().unwrap().is_some(), "a waiter that gave up is not in the way");
}

fn every_form_without_time_is_one_attempt<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let ((here, keeper), there, never) = (fixture.both(), fixture.fresh(), CancellationToken::new());
    for form in forms::all::<K>().iter().filter(|f| f.ends == Ends::InTime) {
        let free = form.take(&here, Duration::ZERO, &never).unwrap();
        free.unwrap_or_else(|| panic!("{}: the lock is free", form.name)).unlock().unwrap();
        let held = keeper.lock_owned().unwrap();
        assert!(form.take(&there, Duration::ZERO, &never).unwrap().is_none(), "{}", form.name);
        assert_eq!(fixture.positions(), 0, "{}: it did not queue", form.name);
        held.unlock().unwrap();
    }
    let past = Instant::now().checked_sub(Duration::from_secs(1)).unwrap_or_else(Instant::now);
    assert!(here.lock_with(past).unwrap().is_some(), "one attempt");
    assert!(here.lock_owned_with(past).unwrap().is_some(), "one attempt");
}

fn a_token_cancelled_before_is_told_even_on_a_free_lock<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let client = fixture.patient();
    let (lock, parent) = (fixture.lock(&client), CancellationToken::new());
    let child = parent.child();
    parent.cancel();
    for form in forms::all::<K>().iter().filter(|f| f.cancellable) {
        for token in [&parent, &child] {
            let before = client.request_count();
            let error = form.take(&lock, LONG, token).err().unwrap_or_else(|| panic!("{}", form.name));
            assert_eq!(error.kind(), ErrorKind::Cancelled, "{}", form.name);
            assert_eq!(error.name(), fixture.name(), "{}", form.name);
            assert_eq!(client.request_count(), before, "{}: nothing was asked", form.name);
        }
    }
    assert!(!lock.is_locked().unwrap());
}

fn every_form_can_be_told_that_the_name_is_bad<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (client, never) = (fixture.patient(), CancellationToken::new());
    let long = "x".repeat(2_000);
    let lock = fixture.other(&client, &long);
    for form in forms::all::<K>() {
        let error = form.take(&lock, LONG, &never).err();
        assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::InvalidInput), "{}", form.name);
    }
    assert_eq!(lock.is_locked().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(lock.holder().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(lock.force_unlock().unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!((lock.hold_count(), lock.local_queue_length()), (0, 0));
}

fn a_lease_that_is_too_short_is_told<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, never) = (fixture.fresh(), CancellationToken::new());
    let short = lock.with_lease(Duration::from_millis(99));
    for form in forms::all::<K>() {
        let error = form.take(&short, LONG, &never).err();
        assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::InvalidInput), "{}", form.name);
    }
    let guard = lock.lock().unwrap();
    assert_eq!(guard.renew_for(Duration::from_millis(99)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert!(!guard.is_lost());
}

fn the_same_thread_asks_again<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    const LIMIT: Duration = Duration::from_millis(80);
    let client = fixture.patient();
    let (lock, never) = (fixture.lock(&client), CancellationToken::new());
    let guard = lock.lock().unwrap();
    let token = LockGuard::token(&guard);
    for form in forms::all::<K>() {
        // A thread that asks for an owned guard would wait for itself.
        let refuses = fixture.reentry() == Reentrancy::Forbidden
            || (fixture.reentry() == Reentrancy::Counted && form.owned);
        if fixture.reentry() == Reentrancy::Independent && form.ends == Ends::Never {
            // An independent request like any other: it would wait.
            continue;
        }
        let before = client.request_count();
        let outcome = in_brief(|| form.take(&lock, LIMIT, &never));
        if fixture.reentry() != Reentrancy::Independent {
            assert_eq!(client.request_count(), before, "{}: Redis is not asked", form.name);
        }
        match outcome {
            Err(error) => {
                assert!(refuses && form.ends != Ends::AtOnce, "{}: {error}", form.name);
                assert_eq!(error.kind(), ErrorKind::WouldDeadlock, "{}", form.name);
            }
            Ok(None) => {
                assert!(
                    fixture.reentry() == Reentrancy::Independent || form.ends == Ends::AtOnce,
                    "{}",
                    form.name
                );
                assert!(fixture.reentry() == Reentrancy::Independent || refuses, "{}", form.name);
            }
            Ok(Some(again)) => {
                assert!(fixture.reentry() == Reentrancy::Counted && !form.owned, "{}", form.name);
                assert_eq!(again.token(), token, "{}: the same hold", form.name);
                assert_eq!(lock.hold_count(), 2, "{}", form.name);
                again.unlock().unwrap();
            }
        }
        assert_eq!(lock.hold_count(), 1, "{}", form.name);
        assert!(!guard.is_lost(), "{}", form.name);
    }
    guard.unlock().unwrap();
    assert_eq!(lock.hold_count(), 0);
}

fn an_owned_guard_never_reenters<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, keeper) = fixture.both();
    let owned = lock.lock_owned().unwrap();
    assert_eq!(lock.hold_count(), 0, "it is the guard's, not the thread's");
    assert!(keeper.try_lock().unwrap().is_none());
    assert!(keeper.try_lock_owned().unwrap().is_none());
    let waits = in_brief(|| keeper.try_lock_for(Duration::from_millis(50)));
    assert!(waits.unwrap().is_none());
    // The guard may move to another thread and be dropped there.
    thread::scope(|scope| scope.spawn(move || owned.unlock()).join().unwrap()).unwrap();
    assert!(keeper.try_lock().unwrap().is_some());
}

fn another_thread_stays_out_until_the_last_guard_has_ended<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    if fixture.reentry() != Reentrancy::Counted {
        return;
    }
    let ((lock, keeper), other) = (fixture.both(), fixture.keeper());
    let out = |lock: &redis_concurrent::RedisLock<W>| {
        thread::scope(|scope| scope.spawn(|| lock.try_lock().unwrap().is_none()).join().unwrap())
    };
    let mut guards = Vec::new();
    for n in 1..=20 {
        guards.push(lock.lock().unwrap());
        assert_eq!(lock.hold_count(), n);
    }
    // The guards may end in any order.
    while !guards.is_empty() {
        assert!(out(&keeper) && out(&other), "{} guards live", guards.len());
        let guard = guards.swap_remove(guards.len() / 2);
        guard.unlock().unwrap();
        assert_eq!(lock.hold_count(), guards.len());
    }
    assert!(!out(&keeper) && !out(&other));
}

fn handles_of_one_name_are_one_lock_and_names_are_apart<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let client = fixture.patient();
    let (one, same) = (fixture.lock(&client), fixture.keeper_of(&client));
    // A name may stand for two locks (read and write).
    let of_one_name = lock_count(&client);
    let another = fixture.other(&client, "too");
    let _owned = one.lock_owned().unwrap();
    assert!(same.try_lock_owned().unwrap().is_none());
    assert!(same.clone().try_lock_owned().unwrap().is_none());
    assert!(another.try_lock_owned().unwrap().is_some());
    assert_eq!(one.name(), fixture.name());
    // Where each caller queues by itself, each hold counts as another lock.
    if K::QUEUEING == Queueing::PerProcess {
        assert_eq!(lock_count(&client), 2 * of_one_name);
    }
}

fn with_returns_the_value_and_releases<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, other) = (fixture.fresh(), fixture.fresh());
    let value = lock.with(|guard| {
        assert!(other.is_locked().unwrap() && !guard.is_lost());
        42
    });
    assert_eq!(value.unwrap(), 42);
    assert!(!other.is_locked().unwrap());
}

fn with_releases_when_the_work_panics<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let lock = fixture.fresh();
    let outcome = catch_unwind(AssertUnwindSafe(|| lock.with(|_| std::panic::resume_unwind(Box::new(())))));
    assert!(outcome.is_err());
    assert!(!lock.is_locked().unwrap());
    assert_eq!(lock.hold_count(), 0);
}

fn a_panicking_thread_releases<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, other) = (fixture.fresh(), fixture.keeper());
    let panics = || {
        let _guard = lock.lock().unwrap();
        std::panic::resume_unwind(Box::new(()));
    };
    thread::scope(|scope| assert!(scope.spawn(panics).join().is_err()));
    assert!(other.try_lock().unwrap().is_some());
}

fn a_trait_object_does_it_all<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (mine, theirs) = (fixture.fresh(), fixture.keeper());
    let (lock, other): (&dyn Lock, &dyn Lock) = (&mine, &theirs);
    let cancel = CancellationToken::new();
    let mut last = None;
    for i in 0..5 {
        let guard = match i {
            0 => Some(lock.lock().unwrap()),
            1 => lock.try_lock().unwrap(),
            2 => lock.try_lock_for(LONG).unwrap(),
            3 => Some(lock.lock_interruptibly(&cancel).unwrap()),
            _ => lock.lock_with(Wait::timeout(LONG).cancelled_by(&cancel)).unwrap(),
        };
        let guard = guard.unwrap_or_else(|| panic!("form {i}"));
        assert_eq!(guard.token().is_some(), fixture.exclusive());
        assert!(guard.token() > last || !fixture.exclusive(), "tokens rise");
        last = guard.token();
        assert!(!guard.is_lost() && !guard.remaining().is_zero() && !guard.lost().is_cancelled());
        assert!(other.try_lock().unwrap().is_none());
        let waits = in_brief(|| other.try_lock_for(Duration::from_millis(20)));
        assert!(waits.unwrap().is_none());
        guard.unlock().unwrap();
    }
    assert_eq!(lock.name(), fixture.name());
    cancel.cancel();
    assert!(lock.lock_interruptibly(&cancel).unwrap_err().is_cancelled());
    assert!(other.try_lock().unwrap().is_some());
}

fn a_foreign_key_is_refused_and_kept<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, never, key) = (fixture.fresh(), CancellationToken::new(), fixture.state_key());
    let mut redis = fixture.redis();
    let _: () = redis::cmd("DEL").arg(&key).query(&mut redis).unwrap();
    let _: () = redis::cmd("RPUSH").arg(&key).arg("a foreign value").query(&mut redis).unwrap();
    for form in forms::all::<K>() {
        let error = form.take(&lock, LONG, &never).err().unwrap_or_else(|| panic!("{}", form.name));
        assert_eq!(error.kind(), ErrorKind::WrongType, "{}: {error}", form.name);
        assert!(error.to_string().contains(fixture.name()), "{}: {error}", form.name);
    }
    assert_eq!(lock.is_locked().unwrap_err().kind(), ErrorKind::WrongType);
    let kept: Vec<String> = redis::cmd("LRANGE").arg(&key).arg(0).arg(-1).query(&mut redis).unwrap();
    assert_eq!(kept, ["a foreign value"]);
    let _: () = redis::cmd("DEL").arg(&key).query(&mut redis).unwrap();
    assert!(fixture.fresh().try_lock().unwrap().is_some());
}

fn a_closed_client_lets_nobody_in_and_gives_back_what_it_held<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (other, never) = (fixture.fresh(), CancellationToken::new());
    let waits = |lock: &redis_concurrent::RedisLock<K>| lock.lock_owned().map(drop).unwrap_err().kind();
    closes_in_time(|| {
        let client = fixture.patient();
        let (lock, keeper) = (fixture.lock(&client), fixture.keeper_of(&client));
        let guard = keeper.lock_owned().unwrap();
        let lost = guard.lost();
        let (kind, closed) = thread::scope(|scope| {
            let waiter = scope.spawn(|| waits(&lock));
            wait_until(LONG, "a thread waits", || lock.local_queue_length() == 1);
            let closed = client.close();
            (waiter.join().unwrap(), closed)
        });
        assert_eq!(kind, ErrorKind::Closed, "the waiter");
        assert!(guard.is_lost() && lost.is_cancelled());
        // Released, rather than left to a lease of minutes.
        drop(other.try_lock_for(LONG).unwrap().unwrap());
        assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Closed);
        for form in forms::all::<K>() {
            let error = form.take(&lock, LONG, &never).err();
            assert_eq!(error.map(|e| e.kind()), Some(ErrorKind::Closed), "{}", form.name);
        }
        closed
    });
}
