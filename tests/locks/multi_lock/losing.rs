//! One of them is lost: all are told, the rest is given back, and the error says which it was.

use std::time::Instant;

use redis_concurrent::crossbeam_channel::Receiver;
use redis_concurrent::observe::LossReason;
use redis_concurrent::{ErrorKind, MultiLock};
use redis_concurrent_testkit::{Proxy, closes_in_time, wait_until};

use crate::multi_lock::fixture::{Fixture, locks, multi};
use crate::support::{Event, LONG, Recorder, SOON, builder, channels, connected, delete, ms};

#[test]
fn one_that_was_unlocked_by_force() {
    let fixture = Fixture::new();
    // Before its first wait or renewal a client is told by its next renewal.
    let here = connected(|| builder(&fixture.server.url()).lease(ms(3000)));
    let there = fixture.client();
    let (it, theirs) = (multi(&here, &["a", "b", "c"]), locks(&there, &["a", "b", "c"]));
    for lost in 0..3 {
        let guard = it.lock().unwrap();
        let (fires, alone) = (guard.lost(), here.reentrant_lock(["b", "c", "a"][lost]));
        assert!(theirs[lost].force_unlock().unwrap().holders > 0);
        assert!(fires.wait_timeout(LONG), "told of {lost}");
        assert!(guard.is_lost() && guard.remaining().is_zero());
        assert!(alone.is_held_by_current_thread(), "the others are held until it ends");
        let error = guard.unlock().unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::LeaseLost, theirs[lost].name()));
        for lock in &theirs {
            assert!(!lock.is_locked().unwrap(), "the rest is given back");
        }
    }
    drop((it, theirs));
    fixture.end(&[&here, &there]);
}

/// The token that its guard gives away goes at once: what was made of it does not.
#[test]
fn one_that_was_unlocked_by_force_is_told_to_what_came_from_its_token() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let (it, theirs) = (multi(&here, &["a", "b"]), there.reentrant_lock("b"));
    let is_open = |lost: &Receiver<()>| lost.try_recv().is_err_and(|e| e.is_empty());
    let guard = it.lock().unwrap();
    let (receiver, child) = (guard.lost().receiver(), guard.lost().child());
    assert!(is_open(&receiver) && !child.is_cancelled(), "it is held");
    wait_until(SOON, "the holder listens", || !channels(&fixture.server).is_empty());
    assert!(theirs.force_unlock().unwrap().holders > 0);
    assert!(child.wait_timeout(SOON));
    assert!(receiver.recv_timeout(SOON).is_err_and(|e| e.is_disconnected()));
    guard.unlock().unwrap_err();
    drop((it, theirs));
    fixture.end(&[&here, &there]);
}

#[test]
fn one_whose_key_is_gone() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let (it, b) = (multi(&client, &["a", "b", "c"]), client.reentrant_lock("b"));
    let guard = it.lock().unwrap();
    assert!(delete(&fixture.server, "rc:{b}"));
    let error = guard.unlock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::LeaseLost, "b"));
    for name in ["a", "b", "c"] {
        assert!(!client.reentrant_lock(name).is_locked().unwrap());
    }
    drop((it, b));
    fixture.end(&[&client]);
}

#[test]
fn one_that_a_renewal_finds_gone() {
    let fixture = Fixture::new();
    let client = connected(|| builder(&fixture.server.url()).lease(ms(1500)));
    let it = multi(&client, &["a", "b"]);
    let guard = it.lock().unwrap();
    let fires = guard.lost();
    assert!(delete(&fixture.server, "rc:{a}"));
    assert!(fires.wait_timeout(LONG));
    assert_eq!(guard.unlock().unwrap_err().name(), "a");
    drop(it);
    fixture.end(&[&client]);
}

#[test]
fn one_whose_lease_ended() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let mut locks = locks(&client, &["a", "b", "c"]);
    locks[2] = locks[2].with_lease(ms(600));
    let it = MultiLock::new(&[&locks[0], &locks[1], &locks[2]]);
    let guard = it.lock().unwrap();
    let (fires, began) = (guard.lost(), Instant::now());
    assert!(!fires.is_cancelled());
    assert!(fires.wait_timeout(LONG));
    assert!(began.elapsed() < ms(600) + SOON && guard.is_lost());
    assert!(guard.lost().is_cancelled(), "a later caller is told at once");
    let error = guard.unlock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::LeaseLost, "c"));
    drop((locks, it));
    fixture.end(&[&client]);
}

#[test]
fn of_several_the_first_is_told_and_observers_hear_of_the_others() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let client = connected(|| builder(&fixture.server.url()).observer(recorder.clone()));
    let it = multi(&client, &["a", "b", "c"]);
    let guard = it.lock().unwrap();
    assert!(delete(&fixture.server, "rc:{b}") && delete(&fixture.server, "rc:{c}"));
    assert_eq!(guard.unlock().unwrap_err().name(), "b");
    assert_eq!(recorder.count(Event::UnlockFailed(ErrorKind::LeaseLost)), 1);
    wait_until(LONG, "the observer is told", || recorder.count(Event::Lost(LossReason::Revoked)) == 2);
    assert_eq!(recorder.count(Event::Released), 1);
    // Of a guard that is dropped they hear of all.
    let guard = it.lock().unwrap();
    assert!(delete(&fixture.server, "rc:{b}") && delete(&fixture.server, "rc:{c}"));
    drop(guard);
    assert_eq!(recorder.failures(), 3);
    drop(it);
    fixture.end(&[&client]);
}

#[test]
fn one_that_was_lost_is_not_re_entered() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let (it, b) = (multi(&client, &["a", "b"]), client.reentrant_lock("b").with_lease(ms(300)));
    let outer = b.lock().unwrap();
    wait_until(SOON, "its lease ends", || outer.is_lost());
    for error in [it.lock().unwrap_err(), it.try_lock().unwrap_err(), it.try_lock_for(LONG).unwrap_err()] {
        assert_eq!((error.kind(), error.name()), (ErrorKind::LeaseLost, "b"));
    }
    assert!(!client.reentrant_lock("a").is_locked().unwrap());
    assert!(outer.unlock().is_err());
    drop((it, b));
    fixture.end(&[&client]);
}

#[test]
fn one_whose_client_closes() {
    let fixture = Fixture::new();
    closes_in_time(|| {
        let (here, there) = (fixture.client(), fixture.client());
        let (a, b) = (here.reentrant_lock("a"), there.reentrant_lock("b"));
        let it = MultiLock::new(&[&a, &b]);
        let guard = it.lock().unwrap();
        let fires = guard.lost();
        let closed = there.close();
        assert!(fires.is_cancelled());
        let error = guard.unlock().unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Closed, "b"));
        assert!(!a.is_locked().unwrap());
        drop((a, b, it));
        if closed.is_err() {
            fixture.server.flush_all().unwrap();
        }
        fixture.end(&[&here]);
        closed
    });
}

#[test]
fn one_that_ends_before_the_others_are_there() {
    let (near, far) = (Fixture::new(), Fixture::new());
    let proxy = Proxy::start(far.server.port()).unwrap();
    let (here, there) = (near.client(), connected(|| builder(&proxy.url())));
    let (a, b) = (here.reentrant_lock("a").with_lease(ms(300)), there.reentrant_lock("b"));
    let it = MultiLock::new(&[&a, &b]);
    b.lock().unwrap().unlock().unwrap();
    proxy.delay(ms(600));
    for error in [it.lock().unwrap_err(), it.try_lock().unwrap_err()] {
        assert_eq!((error.kind(), error.name()), (ErrorKind::LeaseLost, "a"), "{error}");
    }
    proxy.delay(ms(0));
    assert!(!b.is_locked().unwrap());
    drop((a, b, it));
    near.end(&[&here]);
    far.end(&[&there]);
}
