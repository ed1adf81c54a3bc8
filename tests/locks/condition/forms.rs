//! Every form of a wait, and what it gives up and gets back.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use redis_concurrent::kinds::Reentrant;
use redis_concurrent::observe::AcquiredVia;
use redis_concurrent::{CancellationToken, Error, ErrorKind, Guard, ReentrantLock, Wait};
use redis_concurrent_testkit::wait_until;

use crate::condition::fixture::{Fixture, is_held, not_empty, signal};
use crate::support::{Event, LONG, Recorder, SOON, SetOnDrop, ms, nothing_left, replied};

/// A form of a wait: whether it was signalled. None of them comes to its end by itself.
type Form = fn(&ReentrantLock, &mut Guard<Reentrant>, &CancellationToken) -> Result<bool, Error>;

const FORMS: [Form; 7] = [
    |lock, guard, _| not_empty(lock).wait(guard).map(|()| true),
    |lock, guard, _| not_empty(lock).wait_with(guard, LONG),
    |lock, guard, _| not_empty(lock).wait_with(guard, Instant::now() + LONG),
    |lock, guard, cancel| not_empty(lock).wait_with(guard, cancel),
    |lock, guard, cancel| not_empty(lock).wait_with(guard, Wait::timeout(LONG).cancelled_by(cancel)),
    |lock, guard, cancel| {
        let wait = Wait::until(Instant::now() + LONG).cancelled_by(cancel);
        not_empty(lock).wait_with(guard, wait)
    },
    |lock, guard, _| {
        let mut calls = 0;
        not_empty(lock).wait_while(guard, || (calls += 1, calls < 2).1).map(|()| true)
    },
];

#[test]
fn a_signal_ends_a_wait_of_every_form() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    for form in FORMS {
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut guard = lock.lock().unwrap();
                let before = guard.token();
                assert!(form(&lock, &mut guard, &CancellationToken::new()).unwrap());
                assert!(guard.token() > before);
                is_held(&lock, guard);
            });
            fixture.await_waiting(1);
            assert!(!lock.is_locked().unwrap());
            let guard = other.lock().unwrap();
            assert_eq!(not_empty(&other).wait_queue_length(&guard).unwrap(), 1);
            assert_eq!(other.condition("not").wait_queue_length(&guard).unwrap(), 0);
            not_empty(&other).signal(&guard).unwrap();
            assert_eq!(not_empty(&other).wait_queue_length(&guard).unwrap(), 0);
            // It does not come in before the one that signalled has left.
            assert_eq!((fixture.queued(), lock.queue_length().unwrap()), (1, 1));
            assert!(!waits.is_finished());
            guard.unlock().unwrap();
            waits.join().unwrap();
        });
    }
    nothing_left(&fixture.server);
}

#[test]
fn an_owned_guard_waits_and_signals_on_whichever_thread() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let mut guard = lock.lock_owned().unwrap();
    let before = guard.token();
    let waiting = {
        let condition = not_empty(&lock);
        thread::spawn(move || {
            let signalled = condition.wait_with(&mut guard, LONG);
            signalled.map(|signalled| (signalled, guard))
        })
    };
    fixture.await_waiting(1);
    let theirs = other.lock_owned().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| not_empty(&other).signal(&theirs).unwrap());
    });
    theirs.unlock().unwrap();
    let (signalled, mut guard) = waiting.join().unwrap().unwrap();
    assert!(signalled && !guard.is_lost() && guard.token() > before);
    assert_eq!(lock.hold_count(), 0, "it is the guard's still");
    assert!(other.try_lock().unwrap().is_none());
    // Without a signal: at once, in time, and when it is cancelled.
    let (condition, token) = (not_empty(&lock), CancellationToken::new());
    assert!(!condition.wait_with(&mut guard, Wait::once()).unwrap());
    assert!(!replied(|| condition.wait_with(&mut guard, ms(100))));
    assert!(!guard.is_lost());
    token.cancel();
    let wait = Wait::forever().cancelled_by(&token);
    assert!(condition.wait_with(&mut guard, wait).unwrap_err().is_cancelled());
    assert!(!guard.is_lost() && other.try_lock().unwrap().is_none());
    guard.unlock().unwrap();
    nothing_left(&fixture.server);
}

#[test]
fn without_a_signal_a_timed_wait_is_false_in_time_and_not_early() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let condition = not_empty(&lock);
    let mut guard = lock.lock().unwrap();
    let limit = ms(200);
    for form in 0..3 {
        let mut began = Instant::now();
        let signalled = replied(|| {
            began = Instant::now();
            match form {
                0 => condition.wait_with(&mut guard, limit),
                1 => condition.wait_with(&mut guard, began + limit),
                _ => condition
                    .wait_with(&mut guard, Wait::timeout(limit).cancelled_by(&CancellationToken::new())),
            }
        });
        assert!(!signalled);
        let took = began.elapsed();
        assert!(took >= limit && took < limit + SOON, "{took:?}");
        assert_eq!((lock.hold_count(), fixture.waiting(), fixture.queued()), (1, 0, 0));
    }
    // No time at all is a wait too: it lets others in.
    assert!(!replied(|| condition.wait_with(&mut guard, Instant::now())));
    is_held(&lock, guard);
    nothing_left(&fixture.server);
}

#[test]
fn a_wait_that_is_over_waits_for_the_lock() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut guard = lock.lock().unwrap();
            assert!(!not_empty(&lock).wait_with(&mut guard, ms(2000)).unwrap());
            is_held(&lock, guard);
        });
        fixture.await_waiting(1);
        let guard = other.lock().unwrap();
        fixture.await_queued(1);
        // Too late for it.
        not_empty(&other).signal(&guard).unwrap();
        assert!(!waits.is_finished());
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
}

#[test]
fn cancelled_it_holds_the_lock_while_the_error_is_handled() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let mut guard = lock.lock().unwrap();
    let token = guard.token();
    for form in [FORMS[3], FORMS[4]] {
        let cancel = CancellationToken::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                fixture.await_waiting(1);
                cancel.cancel();
            });
            assert!(form(&lock, &mut guard, &cancel).unwrap_err().is_cancelled());
        });
        assert!(guard.token() > token && !guard.is_lost());
        // Cancelled before, it is not given up at all.
        let token = guard.token();
        assert!(form(&lock, &mut guard, &cancel).unwrap_err().is_cancelled());
        assert_eq!(guard.token(), token);
        assert_eq!(fixture.waiting(), 0);
    }
    is_held(&lock, guard);
    nothing_left(&fixture.server);
}

#[test]
fn a_waiter_signalled_and_then_cancelled_or_late_was_signalled() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    for timed in [false, true] {
        let cancel = CancellationToken::new();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut guard = lock.lock().unwrap();
                let limit = if timed { ms(600) } else { LONG };
                let signalled =
                    not_empty(&lock).wait_with(&mut guard, Wait::timeout(limit).cancelled_by(&cancel));
                is_held(&lock, guard);
                signalled.unwrap()
            });
            fixture.await_waiting(1);
            let began = Instant::now();
            let guard = other.lock().unwrap();
            not_empty(&other).signal(&guard).unwrap();
            if timed {
                wait_until(LONG, "its time is over", || began.elapsed() > ms(900));
            } else {
                cancel.cancel();
            }
            guard.unlock().unwrap();
            assert!(waits.join().unwrap());
        });
    }
}

#[test]
fn every_hold_of_the_thread_is_given_up_and_comes_back() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let mut first = lock.lock().unwrap();
    let (second, third) = (lock.lock().unwrap(), lock.lock().unwrap());
    let lost = second.lost();
    thread::scope(|scope| {
        scope.spawn(|| {
            fixture.await_waiting(1);
            let guard = other.try_lock().unwrap().expect("it is given up whole");
            not_empty(&other).signal_all(&guard).unwrap();
            guard.unlock().unwrap();
        });
        not_empty(&lock).wait(&mut first).unwrap();
    });
    assert_eq!(lock.hold_count(), 3);
    assert_eq!((first.token(), second.token()), (third.token(), third.token()));
    assert!(!lost.is_cancelled());
    second.renew_for(SOON).unwrap();
    first.unlock().unwrap();
    third.unlock().unwrap();
    assert!(other.try_lock().unwrap().is_none());
    // The token that was asked for before the wait tells of what comes after it.
    assert!(other.force_unlock().unwrap().holders > 0);
    wait_until(SOON, "it is told", || lost.is_cancelled());
    assert!(second.unlock().unwrap_err().is_lease_lost());
}

#[test]
fn a_hold_that_came_back_is_renewed() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let often = fixture.client_with(|b| b.lease(LONG).renew_every(ms(300)).observer(recorder.clone()));
    let lock = often.reentrant_lock("it");
    let mut guard = lock.lock().unwrap();
    assert!(!replied(|| not_empty(&lock).wait_with(&mut guard, ms(50))));
    let renewals = recorder.count(Event::Renewed);
    wait_until(LONG, "several renewals", || recorder.count(Event::Renewed) > renewals + 3);
    is_held(&lock, guard);
}

#[test]
fn the_guard_of_another_lock_is_refused_at_once() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let (lock, other) = (client.reentrant_lock("it"), client.reentrant_lock("other"));
    let same_name = fixture.lock();
    let condition = not_empty(&lock);
    let cancel = CancellationToken::new();
    for foreign in [&other, &same_name] {
        let mut guard = foreign.lock().unwrap();
        let refused = [
            condition.wait(&mut guard),
            condition.wait_with(&mut guard, LONG).map(drop),
            condition.wait_with(&mut guard, Instant::now() + LONG).map(drop),
            condition.wait_with(&mut guard, &cancel).map(drop),
            condition.wait_with(&mut guard, Wait::timeout(LONG).cancelled_by(&cancel)).map(drop),
            condition.wait_while(&mut guard, || true),
            condition.signal(&guard),
            condition.signal_all(&guard),
            condition.wait_queue_length(&guard).map(drop),
        ];
        for refused in refused {
            let error = refused.unwrap_err();
            assert_eq!((error.kind(), error.name()), (ErrorKind::NotOwner, "it"));
        }
        guard.unlock().unwrap();
    }
}

#[test]
fn a_lost_hold_is_no_hold() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let condition = not_empty(&lock);
    let taken_away = || {
        let _: () =
            redis::cmd("DEL").arg("rc:{it}").query(&mut fixture.server.connection().unwrap()).unwrap();
    };
    // Redis knows first, and answers each caller so.
    let mut guard = lock.lock().unwrap();
    taken_away();
    assert!(condition.signal(&guard).unwrap_err().is_lease_lost());
    assert!(guard.is_lost());
    let lost =
        [condition.wait(&mut guard), condition.signal(&guard), condition.wait_queue_length(&guard).map(drop)];
    assert!(lost.into_iter().all(|lost| lost.unwrap_err().is_lease_lost()));
    drop(guard);
    let mut guard = lock.lock().unwrap();
    taken_away();
    assert!(condition.wait(&mut guard).unwrap_err().is_lease_lost());
    assert!(guard.is_lost());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    nothing_left(&fixture.server);
}

#[test]
fn a_bad_name_is_told_by_the_first_call() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let mut guard = lock.lock().unwrap();
    for name in [String::new(), "x".repeat(1025)] {
        let condition = lock.condition(&name);
        assert_eq!(condition.wait(&mut guard).unwrap_err().kind(), ErrorKind::InvalidInput);
        assert_eq!(condition.signal(&guard).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    is_held(&lock, guard);
}

#[test]
fn conditions_are_told_apart_by_their_names() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let names = ["a", "a|", "a|b", "ab", "a}", "%7C", "ключ"];
    for name in names {
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let mut guard = lock.lock().unwrap();
                lock.condition(name).wait(&mut guard).unwrap();
                guard.unlock().unwrap();
            });
            fixture.await_waiting(1);
            let guard = other.lock().unwrap();
            for another in names.into_iter().filter(|another| *another != name) {
                other.condition(another).signal_all(&guard).unwrap();
            }
            assert_eq!(other.condition(name).wait_queue_length(&guard).unwrap(), 1);
            other.condition(name).signal(&guard).unwrap();
            guard.unlock().unwrap();
            waits.join().unwrap();
        });
    }
}

#[test]
fn an_observer_is_told_released_and_then_acquired() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let lock = fixture.client_with(|b| b.observer(recorder.clone())).reentrant_lock("it");
    let other = fixture.lock();
    let mut guard = lock.lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            fixture.await_waiting(1);
            signal(&other);
        });
        not_empty(&lock).wait(&mut guard).unwrap();
    });
    let held = [Event::Acquired(AcquiredVia::Free), Event::Released, Event::Acquired(AcquiredVia::Granted)];
    assert_eq!(recorder.all(), held);
    guard.unlock().unwrap();
    assert_eq!(recorder.all()[3..], [Event::Released]);
}

#[test]
fn threads_of_the_waiters_process_get_in_meanwhile_and_after() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    signal(&lock);
                }
            });
        }
        let _stop = SetOnDrop(&stop);
        for _ in 0..30 {
            let mut guard = lock.lock().unwrap();
            not_empty(&lock).wait(&mut guard).unwrap();
            is_held(&lock, guard);
        }
    });
    nothing_left(&fixture.server);
}
