//! Holders that die, are silent, or have the lock taken away.

use std::thread;
use std::time::Instant;

use redis_concurrent::observe::LossReason;
use redis_concurrent_testkit::wait_until;

use crate::redisson::fixture::{Fixture, KEY, LEASE};
use crate::support::{Event, LONG, Recorder, builder, comes_in, connected, ms};

#[test]
fn a_dead_holder_of_redissons_is_waited_for_until_its_lease_ends_and_no_longer() {
    let fixture = Fixture::new();
    let lock = fixture.patient();
    let began = Instant::now();
    assert_eq!(fixture.java(1).takes(ms(700)), Ok(()));
    let took = comes_in(&lock) - began;
    assert!(took >= ms(699) && took < ms(700) + LONG / 4, "{took:?}");
}

#[test]
fn a_dead_holder_of_ours_is_gone_for_redisson_when_its_lease_ends() {
    let fixture = Fixture::new();
    let guard = fixture.lock().with_lease(ms(700)).lock_owned().unwrap();
    // As a process that is killed: nothing is sent for it any more.
    std::mem::forget(guard);
    let mut java = fixture.java(1);
    assert!(java.takes(LEASE).is_err());
    wait_until(LONG, "the lease ends", || java.takes(LEASE).is_ok());
}

#[test]
fn a_forced_unlock_by_redisson_is_a_loss_that_is_reported() {
    let fixture = Fixture::new();
    let recorder = Recorder::default();
    let client = connected(|| builder(&fixture.server.url()).lease(ms(6_000)).observer(recorder.clone()));
    let lock = client.redisson_lock(KEY);
    let guard = lock.lock().unwrap();
    let mut java = fixture.java(1);
    assert!(java.forces());
    assert_eq!(java.takes(LEASE), Ok(()));
    wait_until(LONG, "the loss", || guard.is_lost());
    wait_until(LONG, "the loss is reported", || recorder.losses() > 0);
    assert!(recorder.all().contains(&Event::Lost(LossReason::Revoked)));
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!(lock.holder().unwrap().unwrap().owner, java.owner, "our unlock does not release theirs");
    assert_eq!(java.frees(), Some(true));
}

#[test]
fn a_forced_unlock_takes_the_lock_from_redisson_and_wakes_the_waiters_of_both() {
    let fixture = Fixture::new();
    let (lock, waiter) = (fixture.lock(), fixture.patient());
    let mut java = fixture.java(1);
    assert_eq!(java.takes(LEASE), Ok(()));
    thread::scope(|scope| {
        let waits = scope.spawn(|| comes_in(&waiter));
        fixture.await_queued(1);
        let mut listener = fixture.server.connection().unwrap();
        let mut pubsub = listener.as_pubsub();
        pubsub.subscribe(crate::redisson::fixture::CHANNEL).unwrap();
        let forced = lock.force_unlock().unwrap();
        assert!(forced.holders == 1 && forced.notified == 0, "nobody can tell Redisson's holder");
        pubsub.set_read_timeout(Some(LONG)).unwrap();
        assert_eq!(pubsub.get_message().unwrap().get_payload::<String>().unwrap(), "0");
        waits.join().unwrap();
    });
    assert_eq!(java.frees(), None);
}

#[test]
fn scripts_that_the_server_forgot_are_sent_again() {
    let fixture = Fixture::new();
    let (lock, mut java) = (fixture.patient(), fixture.java(1));
    lock.lock().unwrap().unlock().unwrap();
    for _ in 0..3 {
        assert_eq!(java.takes(LEASE), Ok(()));
        thread::scope(|scope| {
            let waits = scope.spawn(|| comes_in(&lock));
            fixture.await_queued(1);
            let () = fixture.ask(&["SCRIPT", "FLUSH"]);
            assert_eq!(java.frees(), Some(true));
            waits.join().unwrap();
        });
        let () = fixture.ask(&["SCRIPT", "FLUSH"]);
    }
}
