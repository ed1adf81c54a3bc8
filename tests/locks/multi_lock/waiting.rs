//! Waiters: for one lock while it holds none, within one deadline, until it is told to stop.

use std::thread;
use std::time::Instant;

use redis_concurrent::observe::AcquiredVia;
use redis_concurrent::{CancellationToken, ErrorKind, MultiLock, Wait};
use redis_concurrent_testkit::wait_until;

use crate::multi_lock::fixture::{Fixture, locks, multi};
use crate::support::{Event, LONG, Recorder, SOON, builder, connected, in_brief, ms, queued};

#[test]
fn it_waits_for_one_and_holds_none_of_the_others_meanwhile() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let it = multi(&here, &["a", "b", "c"]);
    let theirs = locks(&there, &["a", "b", "c"]);
    let b = theirs[1].lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| it.lock().unwrap().unlock().unwrap());
        queued(&theirs[1], 1);
        assert!(!theirs[0].is_locked().unwrap() && !theirs[2].is_locked().unwrap());
        // Now another one is in its way: it gives back what it waited for, and waits for that.
        let c = theirs[2].lock().unwrap();
        b.unlock().unwrap();
        queued(&theirs[2], 1);
        wait_until(SOON, "the other is given back", || !theirs[1].is_locked().unwrap());
        assert!(!theirs[0].is_locked().unwrap());
        c.unlock().unwrap();
        waiter.join().unwrap();
    });
    drop((it, theirs));
    fixture.end(&[&here, &there]);
}

/// It could never hold all of them, however long the one that it waits for is held.
#[test]
fn a_wait_ends_when_the_client_of_another_of_them_is_closed() {
    let fixture = Fixture::new();
    let (here, closes, there) = (fixture.client(), fixture.client(), fixture.client());
    let it = MultiLock::new(&[&closes.reentrant_lock("a"), &here.reentrant_lock("b")]);
    let theirs = locks(&there, &["a", "b"]);
    let b = theirs[1].lock().unwrap();
    let cancel = CancellationToken::new();
    let waits = [Wait::timeout(LONG), Wait::timeout(LONG).cancelled_by(&cancel)];
    thread::scope(|scope| {
        let waiters = waits.each_ref().map(|wait| scope.spawn(|| it.lock_with(*wait).map(drop)));
        wait_until(SOON, "both wait", || here.reentrant_lock("b").local_queue_length() == 2);
        closes.close().unwrap();
        for waiter in waiters {
            let error = waiter.join().unwrap().unwrap_err();
            assert_eq!((error.kind(), error.name()), (ErrorKind::Closed, "a"));
        }
    });
    queued(&theirs[1], 0);
    assert!(!cancel.is_cancelled());
    b.unlock().unwrap();
    drop((it, theirs));
    fixture.end(&[&here, &closes, &there]);
}

#[test]
fn one_deadline_is_for_all_of_them() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let theirs = locks(&there, &["a", "b", "c"]);
    let it = multi(&here, &["a", "b", "c"]);
    let limit = ms(4000);
    let (a, b) = (theirs[0].lock().unwrap(), theirs[1].lock_owned().unwrap());
    thread::scope(|scope| {
        let began = Instant::now();
        let waiter = scope.spawn(move || (in_brief(it.try_lock_for(limit)).is_none(), began.elapsed()));
        queued(&theirs[0], 1);
        wait_until(LONG, "half of its time is over", || began.elapsed() > limit / 2);
        let moved_on = began.elapsed();
        a.unlock().unwrap();
        let (none, elapsed) = waiter.join().unwrap();
        assert!(none && elapsed >= limit, "{elapsed:?}");
        // It spends the rest of its time on the next one, not all of it anew.
        assert!(elapsed < moved_on + limit, "{elapsed:?} after {moved_on:?}");
    });
    assert!(!theirs[0].is_locked().unwrap());
    b.unlock().unwrap();
    drop(theirs);
    fixture.end(&[&here, &there]);
}

#[test]
fn a_cancelled_wait_says_for_which_one_and_holds_none() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let it = multi(&here, &["a", "b", "c"]);
    let theirs = locks(&there, &["a", "b", "c"]);
    let busy = theirs[1].lock().unwrap();
    let cancel = CancellationToken::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| it.lock_interruptibly(&cancel).unwrap_err());
        queued(&theirs[1], 1);
        let began = Instant::now();
        cancel.cancel();
        let error = waiter.join().unwrap();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Cancelled, "b"));
        assert!(began.elapsed() < SOON);
    });
    let error = it.lock_with(Wait::timeout(LONG).cancelled_by(&cancel)).unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Cancelled, "a + b + c"), "before it began");
    assert!(!theirs[0].is_locked().unwrap() && !theirs[2].is_locked().unwrap());
    drop(busy);
    drop((it, theirs));
    fixture.end(&[&here, &there]);
}

#[test]
fn threads_of_one_process_take_turns_in_whatever_order_they_name_them() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let orders = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["c", "a", "b"]];
    let inside = parking_lot::Mutex::new(0);
    thread::scope(|scope| {
        for order in orders {
            let (client, inside) = (&client, &inside);
            scope.spawn(move || {
                let it = multi(client, &order);
                for _ in 0..50 {
                    let guard = it.try_lock_for(LONG).unwrap().expect("no deadlock");
                    *inside.try_lock().expect("alone") += 1;
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(inside.into_inner(), 200);
    fixture.end(&[&client]);
}

#[test]
fn a_waiter_for_one_of_them_is_let_in_as_all_are_given_back() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let it = multi(&here, &["a", "b"]);
    let (local, remote) = (here.reentrant_lock("a").fair(), there.reentrant_lock("b"));
    let guard = it.lock().unwrap();
    thread::scope(|scope| {
        let one = scope.spawn(|| local.lock().unwrap().unlock().unwrap());
        let other = scope.spawn(|| remote.lock().unwrap().unlock().unwrap());
        queued(&remote, 1);
        wait_until(SOON, "a thread waits here", || local.local_queue_length() == 1);
        let began = Instant::now();
        guard.unlock().unwrap();
        one.join().unwrap();
        other.join().unwrap();
        assert!(began.elapsed() < SOON);
    });
    drop((it, local, remote));
    fixture.end(&[&here, &there]);
}

#[test]
fn observers_hear_of_each_hold_as_of_any_other() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let client = connected(|| builder(&fixture.server.url()).observer(recorder.clone()));
    let it = multi(&client, &["a", "b", "c"]);
    it.lock().unwrap().unlock().unwrap();
    assert_eq!(recorder.count(Event::Acquired(AcquiredVia::Free)), 3);
    assert_eq!(recorder.count(Event::Released), 3);
    assert_eq!(recorder.all().len(), 6);
    drop(it);
    fixture.end(&[&client]);
}

#[test]
fn what_is_held_is_renewed() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let set = builder(&fixture.server.url()).lease(LONG).renew_every(ms(300));
    let client = set.observer(recorder.clone()).connect().unwrap();
    let a = client.reentrant_lock("a");
    let it = MultiLock::new(&[&a, &client.simple_lock("b")]);
    let guard = it.lock().unwrap();
    wait_until(LONG, "each was renewed twice", || recorder.count(Event::Renewed) >= 4);
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    drop((a, it));
    fixture.end(&[&client]);
}
