//! A forced unlock with a precondition, and with a reason for the holder.

use redis_concurrent::admin::HeldBy;
use redis_concurrent::{CancellationToken, ErrorKind, MultiLock};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use crate::support::{LONG, SOON, channels, comes_in, connect, connected, ms, patient, queued, unhurried};

#[test]
fn only_the_holder_that_was_looked_at_loses_it() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let (lock, view) = (client.reentrant_lock("job"), other.reentrant_lock("job"));
    let first = lock.lock().unwrap();
    let (owner, token) = (view.holder().unwrap().unwrap().owner, first.token());
    first.unlock().unwrap();
    let second = lock.lock().unwrap();
    for before in [HeldBy::Owner(owner), HeldBy::Token(token), HeldBy::Token(0), HeldBy::Token(u64::MAX)] {
        let forced = view.force_unlock_if(&before, "too late", false).unwrap();
        assert!(forced.holders == 0 && forced.skipped == 1, "{before:?}: {forced:?}");
    }
    assert!(!second.is_lost() && view.is_locked().unwrap());
    let forced = view.force_unlock_if(&HeldBy::Token(second.token()), "", false).unwrap();
    assert_eq!((forced.holders, forced.skipped), (1, 0));
    assert!(!view.is_locked().unwrap() && second.unlock().is_err());
    assert_eq!(view.force_unlock_if(&HeldBy::Token(token), "", false).unwrap().skipped, 0, "nobody holds it");
}

#[test]
fn the_holder_is_told_the_reason() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let (lock, view) = (client.reentrant_lock("job"), other.reentrant_lock("job"));
    let guard = lock.lock_owned().unwrap();
    let lost = guard.lost();
    assert!(guard.loss().is_none());
    wait_until(SOON, "the holder listens", || !channels(&server).is_empty());
    let owner = view.holder().unwrap().unwrap().owner;
    let forced = view
        .force_unlock_if(&HeldBy::Owner(owner), " stuck since noon\nno:forced 0 0; alice ", false)
        .unwrap();
    assert!(forced.holders == 1 && forced.notified == 1);
    assert!(lost.wait_timeout(SOON));
    let why = "it was unlocked by force: stuck since noon no:forced 0 0; alice";
    for error in [guard.loss().unwrap(), guard.renew().unwrap_err(), guard.unlock().unwrap_err()] {
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
        assert!(error.to_string().ends_with(why), "{error}");
    }
    // Without one, and the next hold does not inherit it.
    let guard = lock.lock_owned().unwrap();
    assert!(view.force_unlock().unwrap().notified == 1);
    assert!(guard.lost().wait_timeout(SOON));
    assert!(guard.loss().unwrap().to_string().ends_with("by force"));
}

/// In whatever way it notices: by asking again, or by passing the hold on.
#[test]
fn a_holder_that_still_uses_its_hold_is_told_the_reason() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let (lock, view) = (client.reentrant_lock("job"), other.reentrant_lock("job"));
    let forces = |lost: CancellationToken| {
        wait_until(SOON, "the holder listens", || !channels(&server).is_empty());
        assert_eq!(view.force_unlock_if(&HeldBy::Anyone, "maintenance", false).unwrap().notified, 1);
        assert!(lost.wait_timeout(SOON));
    };
    let guard = lock.lock().unwrap();
    forces(guard.lost());
    let again = [lock.try_lock().map(drop), lock.lock().map(drop), guard.unlock()];
    let guard = lock.lock_owned().unwrap();
    forces(guard.lost());
    for outcome in again.into_iter().chain([guard.into_receipt().map(drop)]) {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LeaseLost);
        assert!(error.to_string().ends_with("by force: maintenance"), "{error}");
    }
}

#[test]
fn one_of_several_holders_loses_its_share() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let semaphore = client.semaphore("gpu");
    semaphore.set_permits(3).unwrap();
    let (a, b) = (semaphore.acquire(1).unwrap(), semaphore.acquire(1).unwrap());
    let permits = other.lock_with_kind("gpu", redis_concurrent::kinds::Permits::of(1).unwrap());
    let holders = other.semaphore("gpu").holders().unwrap();
    let forced = permits.force_unlock_if(&HeldBy::Owner(holders[0].owner.clone()), "", false).unwrap();
    assert_eq!((forced.holders, forced.skipped), (1, 1));
    assert_eq!(other.semaphore("gpu").available().unwrap(), 2);
    assert_eq!(
        permits.force_unlock_if(&HeldBy::Token(1), "", false).unwrap().skipped,
        1,
        "they have no tokens"
    );
    let released = [a.release(), b.release()];
    assert_eq!(released.iter().filter(|it| it.is_ok()).count(), 1);
}

#[test]
fn a_multi_lock_says_which_was_taken_and_why() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let (a, b) = (client.reentrant_lock("a"), client.simple_lock("b"));
    let both = MultiLock::new(&[&a, &b]);
    let guard = both.lock().unwrap();
    let lost = guard.lost();
    wait_until(SOON, "the holder listens", || !channels(&server).is_empty());
    assert!(guard.loss().is_none());
    assert!(
        other.simple_lock("b").force_unlock_if(&HeldBy::Anyone, "maintenance", false).unwrap().notified == 1
    );
    assert!(lost.wait_timeout(SOON));
    let error = guard.loss().unwrap();
    assert!(error.name() == "b" && error.to_string().ends_with("by force: maintenance"), "{error}");
    assert!(guard.unlock().is_err());
}

#[test]
fn a_reason_that_is_too_long_is_refused_before_anything_is_taken() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("job");
    let guard = lock.lock().unwrap();
    let error = lock.force_unlock_if(&HeldBy::Anyone, &"x".repeat(1025), false).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("at most 1024 bytes, got 1025"), "{error}");
    assert!(guard.remaining() > ms(0));
    guard.unlock().unwrap();
}

/// Its client does not listen, and is not told by a message.
#[test]
fn a_hold_is_told_of_what_its_own_client_forces() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    for gently in [false, true] {
        let lock = client.reentrant_lock("job").with_lease(LONG);
        let guard = lock.lock_owned().unwrap();
        let forced = lock.force_unlock_if(&HeldBy::Anyone, "mine", gently);
        assert!(forced.unwrap().notified == 1 && guard.is_lost(), "gently: {gently}");
        assert!(guard.unlock().unwrap_err().to_string().ends_with("by force: mine"), "gently: {gently}");
        assert!(!lock.is_locked().unwrap(), "gently: {gently}");
    }
}

/// The one who was asked to give up has done so: the next one need not wait for the rest of the lease.
#[test]
fn the_end_of_a_revoked_hold_frees_the_lock() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (patient(&server), patient(&server));
    for unlocks in [true, false] {
        let (lock, view) = (client.reentrant_lock("job"), other.reentrant_lock("job"));
        let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
        let lost = outer.lost();
        wait_until(SOON, "the holder listens", || !channels(&server).is_empty());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| comes_in(&view));
            queued(&lock, 1);
            assert!(
                view.force_unlock_if(&HeldBy::Anyone, "", true).unwrap().notified == 1
                    && lost.wait_timeout(SOON)
            );
            assert!(inner.unlock().is_err() && lock.is_locked().unwrap(), "it has not ended");
            match unlocks {
                true => assert_eq!(outer.unlock().unwrap_err().kind(), ErrorKind::LeaseLost),
                false => drop(outer),
            }
            waits.join().unwrap();
        });
    }
}

/// Its thread has not begun to work: nobody need wait for the rest of the lease.
#[test]
fn a_hold_that_is_revoked_before_its_waiter_knows_of_it_frees_the_lock() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (client, other) = (connect(&server), connected(|| unhurried(&proxy.url()).waiter_timeout(10 * LONG)));
    let (lock, view) = (client.reentrant_lock("job"), other.reentrant_lock("job"));
    let held = lock.lock().unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| comes_in(&view));
        queued(&lock, 1);
        wait_until(SOON, "the waiter listens", || !channels(&server).is_empty());
        proxy.swallow_replies_with(b" in ");
        held.unlock().unwrap();
        wait_until(LONG, "it is not told", || proxy.struck() == 1);
        assert_eq!(lock.force_unlock_if(&HeldBy::Anyone, "", true).unwrap().notified, 1);
        waits.join().unwrap();
    });
}

#[test]
fn the_end_of_a_revoked_hold_that_is_to_stay_keeps_others_out() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let (lock, view) = (client.reentrant_lock("job").with_lease(2 * LONG), other.reentrant_lock("job"));
    let guard = lock.lock().unwrap();
    assert!(lock.force_unlock_if(&HeldBy::Anyone, "", true).unwrap().notified == 1);
    assert!(guard.unlock_staying(LONG).is_err());
    wait_until(SOON, "it stays for that long", || {
        view.holder().unwrap().and_then(|it| it.remaining).unwrap() <= LONG
    });
    assert!(view.try_lock().unwrap().is_none());
}

/// No thread works under it, so nobody need be kept out.
#[test]
fn a_kept_lock_that_is_revoked_is_free() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (patient(&server), patient(&server));
    let (lock, view) = (client.reentrant_lock("job").linger(LONG), other.reentrant_lock("job"));
    wait_until(SOON, "it is kept", || {
        lock.lock().unwrap().unlock().unwrap();
        view.is_locked().unwrap()
    });
    assert_eq!(view.force_unlock_if(&HeldBy::Anyone, "", true).unwrap().holders, 1);
    wait_until(SOON, "it is free", || !view.is_locked().unwrap());
}
