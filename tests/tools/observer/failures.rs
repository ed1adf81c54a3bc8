//! Losses, and requests that fail.

use std::time::Duration;

use redis::Commands;
use redis_concurrent::ErrorKind;
use redis_concurrent::observe::{AcquiredVia, LossReason};
use redis_concurrent_testkit::{ClientKind, Proxy, RedisServer, eventually, released_all, wait_until};

use super::{LONG, ms};
use crate::diary::{Event, watched};
use crate::support::{connect, in_brief};

#[test]
fn each_loss_is_told_once_with_its_reason() {
    let server = RedisServer::start().unwrap();
    let mut redis = server.connection().unwrap();
    let (client, diary) = watched(&server.url(), |b| b.renew_every(ms(60)));
    let other = connect(&server).reentrant_lock("watched");
    let lock = client.reentrant_lock("watched");
    // Returns which of these reasons was told.
    let lose = |whys: &[LossReason], how: &mut dyn FnMut()| {
        diary.clear();
        let held = lock.lock_owned().unwrap();
        // Its listener stands from the first renewal on: it can be told of a forced unlock.
        wait_until(LONG, "a renewal", || diary.has(&Event::Renewed));
        wait_until(LONG, "a listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
        how();
        let why = eventually(LONG, || whys.iter().copied().find(|why| diary.has(&Event::Lost(*why))));
        assert!(held.is_lost());
        let error = held.unlock().unwrap_err();
        assert!(error.is_lease_lost() || error.kind() == ErrorKind::Closed, "{error}");
        let losses = diary.all().iter().filter(|it| matches!(it, Event::Lost(_))).count();
        assert_eq!(losses, 1, "{:?}", diary.all());
        assert_eq!(diary.count(&Event::Released), 0, "{:?}", diary.all());
        why
    };
    lose(&[LossReason::Revoked], &mut || redis.del("rc:{watched}").unwrap());
    // A renewal may find out before the message comes, and then it was revoked.
    let whys = [LossReason::Forced, LossReason::Revoked];
    wait_until(LONG, "the message comes first", || {
        lose(&whys, &mut || assert!(other.force_unlock().unwrap().holders > 0)) == LossReason::Forced
    });
    lose(&[LossReason::Closed], &mut || {
        let _ = released_all(&client.close());
    });
}

#[test]
fn a_lease_that_ran_out_is_a_loss_by_the_deadline() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched").with_lease(ms(150));
    let guard = lock.lock().unwrap();
    wait_until(LONG, "it is told, though nobody asks", || diary.has(&Event::Lost(LossReason::Expired)));
    drop(guard);
    // Nobody else would hear of this one.
    assert!(diary.has(&Event::UnlockFailed(ErrorKind::LeaseLost)), "{:?}", diary.all());
    assert_eq!(diary.count(&Event::Lost(LossReason::Expired)), 1, "{:?}", diary.all());
}

#[test]
fn a_loss_found_by_the_release_is_told() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let guard = lock.lock().unwrap();
    server.flush_all().unwrap();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!(diary.count(&Event::Lost(LossReason::Revoked)), 1, "{:?}", diary.all());
    assert!(!diary.has(&Event::UnlockFailed(ErrorKind::LeaseLost)), "unlock() said it itself");
}

#[test]
fn a_drop_that_fails_is_told() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (client, diary) = watched(&proxy.url(), |b| b.command_timeout(ms(500)));
    let lock = client.reentrant_lock("watched");
    for how in 0..2 {
        let guard = lock.lock().unwrap();
        proxy.black_hole(true);
        if how == 0 {
            drop(guard);
        } else {
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        }
        proxy.heal().unwrap();
        let other = connect(&server).reentrant_lock("watched");
        wait_until(LONG, "it is given back", || !other.is_locked().unwrap());
        // What unlock() returned is not told again.
        assert_eq!(diary.count(&Event::UnlockFailed(ErrorKind::OutcomeUnknown)), 1, "{:?}", diary.all());
    }
}

#[test]
fn a_new_inbox_connection_is_told_but_not_the_first() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let other = connect(&server).reentrant_lock("watched");
    let held = other.lock_owned().unwrap();
    assert!(in_brief(lock.try_lock_for(ms(400))).is_none());
    wait_until(LONG, "a listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
    assert!(!diary.has(&Event::Reconnected));
    for n in 1..=2 {
        wait_until(LONG, "a listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
        server.kill_clients(ClientKind::PubSub).unwrap();
        wait_until(LONG, "it is told", || diary.count(&Event::Reconnected) == n);
    }
    held.unlock().unwrap();
}

/// A server that is silent for much less than the lease.
#[test]
fn renewals_that_fail_are_told_with_what_is_left() {
    const LEASE: Duration = Duration::from_secs(6);
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (client, diary) =
        watched(&proxy.url(), |b| b.lease(LEASE).renew_every(ms(100)).command_timeout(ms(1000)));
    let lock = client.reentrant_lock("watched");
    let guard = lock.lock().unwrap();
    wait_until(LONG, "a renewal", || diary.has(&Event::Renewed));
    // Making the first connection is no failure.
    assert_eq!(diary.count(&Event::RenewalFailed), 0, "{:?}", diary.all());
    proxy.black_hole(true);
    wait_until(LONG, "a failure", || diary.has(&Event::RenewalFailed));
    let left = diary.times(&Event::RenewalFailed)[0];
    assert!(left > Duration::ZERO && left < LEASE, "{left:?}");
    proxy.heal().unwrap();
    let before = diary.count(&Event::Renewed);
    wait_until(LONG, "renewals again", || diary.count(&Event::Renewed) > before);
    guard.unlock().unwrap();
    assert_eq!(diary.count(&Event::Released), 1, "{:?}", diary.all());
}

#[test]
fn a_release_that_goes_on_is_told_and_so_is_its_end() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (client, diary) = watched(&proxy.url(), |b| b.command_timeout(ms(2000)));
    let lock = client.reentrant_lock("watched");
    // Given back in the background, where nobody hears of it, long before its lease is over.
    let long = lock.with_lease(LONG * 3);
    let guard = long.lock().unwrap();
    proxy.black_hole(true);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(diary.all(), [Event::Acquired(AcquiredVia::Free), Event::Deferred]);
    proxy.heal().unwrap();
    // (A hold of this client might be given back too late, and that would be told, too.)
    let other = connect(&server).reentrant_lock("watched");
    wait_until(LONG, "it was given back", || !other.is_locked().unwrap());
    diary.clear();
    // Silent until there is nothing to give back any more. (A fixed lease is not renewed, however long that takes.)
    let brief = lock.with_lease(ms(5000));
    let guard = brief.lock().unwrap();
    proxy.black_hole(true);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    wait_until(LONG, "it is given up", || diary.has(&Event::Abandoned));
    assert_eq!(diary.all(), [Event::Acquired(AcquiredVia::Free), Event::Deferred, Event::Abandoned]);
    proxy.heal().unwrap();
}
