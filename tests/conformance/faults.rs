//! What happens to the lock behind a holder's or a waiter's back.

use std::thread;

use redis_concurrent::internals::lock_count;
use redis_concurrent::{CancellationToken, ClientBuilder, Error, ErrorKind, Wait};
use redis_concurrent_testkit::{Proxy, RedisServer, eventually, wait_until};

use crate::conformance::fixture::{EVERY, Fixture, LASTING, LATE, LEASE, Tried, in_vain};
use crate::conformance::rows::rows;
use crate::support::{LONG, in_brief, ms, nothing_left};

rows! { every_lock:
    a_hold_that_a_restart_forgot_is_lost_and_the_next_is_renewed
    an_acquire_that_fails_half_way_leaves_nothing
    a_former_owner_cannot_renew_it
    a_foreign_owner_is_told_as_such
    a_release_that_comes_late_spares_the_next_hold
    a_waiter_whose_position_is_lost_takes_another
    a_wait_that_is_cancelled_as_it_ends_keeps_nothing
    a_lock_whose_release_failed_can_be_taken_again
    a_hold_that_is_over_is_not_made_again_by_its_renewal
    what_is_told_to_be_lost_is_not_renewed
}

/// Redisson RedissonLockExpirationRenewalTest.testLockAfterTimeout (a watchdog of 1 s there).
fn a_hold_that_a_restart_forgot_is_lost_and_the_next_is_renewed<K: Tried>(fixture: &Fixture<K>) {
    let server = RedisServer::start().unwrap();
    let clients = [(); 2].map(|()| {
        fixture.client_with(|b| b.url(&server.url()).namespace("rc").lease(LASTING).renew_every(EVERY))
    });
    let [lock, other] = [&clients[0], &clients[1]].map(|client| fixture.lock_of(client));
    let guard = lock.lock().unwrap();
    server.restart().unwrap();
    wait_until(LONG, "it is lost", || guard.is_lost());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!(lock.hold_count(), 0);

    let guard = lock.lock().unwrap();
    in_vain(LASTING * 3 / 2, |limit| other.try_lock_for(limit));
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    nothing_left(&server);
    // While the server is there.
    for client in clients {
        client.close().unwrap();
    }
}

/// Curator TestLockInternals.testNodeDeletedCleanlyWithFaults.
fn an_acquire_that_fails_half_way_leaves_nothing<K: Tried>(fixture: &Fixture<K>) {
    let proxy = Proxy::start(fixture.place.port).unwrap();
    let url = fixture.place.url_at(proxy.port());
    // What is dialled in a black hole is not answered when that is over either.
    let client = fixture.client_with(|b| b.url(&url).command_timeout(ms(500)).connect_timeout(ms(5000)));
    let (lock, holder) = (fixture.lock_of(&client), fixture.lock());
    let guard = holder.lock().unwrap();
    // Once without a fault: it listens then, and the scripts are known.
    in_vain(ms(300), |limit| lock.try_lock_for(limit));

    // It has its queue position, but the answer is lost with its connection: it asks for that again. Once
    // more where a busy machine had no time for that.
    eventually(LONG, || {
        let before = proxy.struck();
        proxy.only_matching(b"wait");
        proxy.swallow_next_reply_and_reset();
        let outcome = lock.try_lock_for(ms(300));
        proxy.heal().unwrap();
        wait_until(LONG, "its queue position is gone", || fixture.positions().is_empty());
        if outcome.as_ref().is_err_and(Error::is_unavailable) || proxy.struck() == before {
            return None;
        }
        assert!(outcome.unwrap().is_none());
        assert_eq!(proxy.struck(), before + 1);
        Some(())
    });

    // It has its queue position, and the server is out of reach until its time is up. Once more where the
    // machine stood still for all of that time.
    eventually(LONG, || {
        let mut is_there = false;
        let outcome = thread::scope(|scope| {
            let waits = scope.spawn(|| lock.try_lock_for(ms(1500)).map(|it| it.is_some()));
            wait_until(LONG, "its queue position", || {
                is_there = fixture.positions().len() == 1;
                is_there || waits.is_finished()
            });
            proxy.black_hole(true);
            waits.join().unwrap()
        });
        proxy.heal().unwrap();
        wait_until(LONG, "its queue position is gone", || fixture.positions().is_empty());
        match outcome {
            Err(error) => assert!(error.is_unavailable(), "{error}"),
            Ok(got) => {
                assert!(!got);
                return None;
            }
        }
        is_there.then_some(())
    });

    guard.unlock().unwrap();
    drop(lock);
    wait_until(LONG, "no lock is in use", || lock_count(&client) == 0);
    // While the proxy is there.
    client.close().unwrap();

    // It has the lock, but is never told: by a proxy that lets nothing else be struck.
    let proxy = Proxy::start(fixture.place.port).unwrap();
    proxy.only_matching(b"try");
    let url = fixture.place.url_at(proxy.port());
    let client = fixture.client_with(|b| b.url(&url).command_timeout(ms(1000)));
    let lock = fixture.lock_of(&client);
    // Once more where a busy machine had its reply later than in that time, when nobody waited for it.
    eventually(LONG, || {
        let before = proxy.struck();
        proxy.swallow_replies(1);
        match lock.try_lock() {
            Err(error) => assert!(error.is_unavailable(), "{error}"),
            // What was asked for in vain came late, and is not given back yet.
            Ok(got) => {
                drop(got);
                return None;
            }
        }
        // The lease is of 30 s.
        wait_until(LONG, "the lock is free again", || fixture.owner().is_none());
        (proxy.struck() > before).then_some(())
    });
    holder.try_lock().unwrap().expect("for everybody").unlock().unwrap();
    drop(lock);
    wait_until(LONG, "no lock is in use", || lock_count(&client) == 0);
    client.close().unwrap();
}

/// redis-py test_reacquiring_lock_no_longer_owned_raises_error.
fn a_former_owner_cannot_renew_it<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let guard = lock.lock().unwrap();
    give_to_a_foreign_holder(fixture);
    assert!(guard.renew_for(ms(10_000)).unwrap_err().is_lease_lost());
    assert!(guard.is_lost() && !lock.is_held_by_current_thread());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!(fixture.owner().as_deref(), Some("a foreign holder"), "and that keeps it");
    assert!(lock.force_unlock().unwrap().holders > 0);
}

/// rslock test_redis_key_mismatch.
fn a_foreign_owner_is_told_as_such<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let guard = lock.lock().unwrap();
    give_to_a_foreign_holder(fixture);
    // Neither free nor ours.
    for lock in [&lock, &other] {
        assert!(lock.is_locked().unwrap());
        let holder = lock.holder().unwrap().unwrap();
        assert_eq!((holder.owner.as_str(), holder.since), ("a foreign holder", None));
    }
    assert!(other.try_lock().unwrap().is_none());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert!(lock.force_unlock().unwrap().holders > 0);

    // What is no lock of this kind at all.
    let () =
        redis::cmd("RPUSH").arg(fixture.key("")).arg("a foreign value").query(&mut fixture.redis()).unwrap();
    for answer in [lock.is_locked().map(drop), lock.try_lock().map(drop), lock.holder().map(drop)] {
        assert_eq!(answer.unwrap_err().kind(), ErrorKind::WrongType);
    }
    let () = redis::cmd("DEL").arg(fixture.key("")).query(&mut fixture.redis()).unwrap();
    assert!(lock.try_lock().unwrap().is_some());
}

/// etcd issue 22082: there it deletes the next lock of the same session.
fn a_release_that_comes_late_spares_the_next_hold<K: Tried>(fixture: &Fixture<K>) {
    let proxy = Proxy::start(fixture.place.port).unwrap();
    let url = fixture.place.url_at(proxy.port());
    let client = fixture.client_with(|b| b.url(&url).command_timeout(ms(1000)));
    let (lock, other) = (fixture.lock_of(&client), fixture.lock());
    let guard = lock.lock().unwrap();
    // The release is on its way for long: a copy of it is quicker.
    proxy.only_matching(fixture.owner().unwrap().as_bytes());
    proxy.hold_next_requests(1);
    let released = guard.unlock();
    assert!(released.as_ref().err().is_none_or(Error::is_outcome_unknown), "{released:?}");
    assert_eq!(proxy.held(), 1);

    let guard = lock.lock().unwrap();
    let owner = fixture.owner();
    proxy.release_held();
    wait_until(LONG, "the late release has arrived", || proxy.held() == 0);
    in_vain(ms(300), |limit| other.try_lock_for(limit));
    assert_eq!(fixture.owner(), owner);
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    drop(lock);
    wait_until(LONG, "no lock is in use", || lock_count(&client) == 0);
    // While the proxy is there.
    client.close().unwrap();
}

/// etcd issue 19597: there a waiter whose session has ended waits until the holder leaves.
fn a_waiter_whose_position_is_lost_takes_another<K: Tried>(fixture: &Fixture<K>) {
    let (lock, other) = (fixture.lock(), fixture.lock());
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| other.lock().unwrap().unlock());
        fixture.await_positions(1);
        let () = redis::cmd("DEL")
            .arg(&[fixture.key(":queue"), fixture.key(":positions")])
            .query(&mut fixture.redis())
            .unwrap();
        fixture.await_positions(1);
        assert!(!waits.is_finished());
        guard.unlock().unwrap();
        waits.join().unwrap().unwrap();
    });
}

/// Redisson issue 7272: there the key may be renewed for ever afterwards.
fn a_wait_that_is_cancelled_as_it_ends_keeps_nothing<K: Tried>(fixture: &Fixture<K>) {
    let renewed = || fixture.lock_of(&fixture.client_with(|b| b.renew_every(EVERY)));
    let (lock, other, third) = (renewed(), renewed(), fixture.lock());
    for _ in 0..20 {
        let token = CancellationToken::new();
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| match other.lock_with(Wait::forever().cancelled_by(&token)) {
                Ok(guard) => guard.expect("no deadline").unlock().unwrap(),
                Err(error) => assert!(error.is_cancelled(), "{error}"),
            });
            fixture.await_positions(1);
            scope.spawn(|| token.cancel());
            guard.unlock().unwrap();
            waits.join().unwrap();
        });
        // Long before the lease of 30 s is over.
        third.try_lock_for(LATE).unwrap().expect("nobody has it").unlock().unwrap();
    }
}

/// Curator issue 1006 (CURATOR-486): there the lock stays, and its process can neither release nor acquire it.
fn a_lock_whose_release_failed_can_be_taken_again<K: Tried>(fixture: &Fixture<K>) {
    let proxy = Proxy::start(fixture.place.port).unwrap();
    let url = fixture.place.url_at(proxy.port());
    let client = fixture.client_with(|b| b.url(&url).command_timeout(ms(500)).connect_timeout(ms(1000)));
    let (lock, other) = (fixture.lock_of(&client), fixture.lock());
    let guard = lock.lock().unwrap();
    proxy.black_hole(true);
    let error = guard.unlock().unwrap_err();
    assert!(error.is_outcome_unknown() || error.is_unavailable(), "{error}");
    proxy.heal().unwrap();
    for lock in [&lock, &other] {
        // The lease is of 30 s.
        let again = eventually(LONG, || in_brief(lock.try_lock_for(LATE)));
        again.unlock().unwrap();
    }
    drop(lock);
    wait_until(LONG, "no lock is in use", || lock_count(&client) == 0);
    client.close().unwrap();
}

/// redis-semaphore (Node.js) issue 175: there the late renewal takes the lock anew, and nobody is told.
fn a_hold_that_is_over_is_not_made_again_by_its_renewal<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock_of(&fixture.client_with(|b| b.renew_every(EVERY)));
    let guard = lock.lock().unwrap();
    let () = redis::cmd("DEL").arg(fixture.key("")).query(&mut fixture.redis()).unwrap();
    wait_until(LONG, "it is told", || guard.is_lost());
    assert_eq!(fixture.owner(), None);
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!(fixture.owner(), None);
}

/// Consul issue 2371: there the lock is renewed for ever although its holder was told that it is lost.
fn what_is_told_to_be_lost_is_not_renewed<K: Tried>(fixture: &Fixture<K>) {
    let proxy = Proxy::start(fixture.place.port).unwrap();
    let url = fixture.place.url_at(proxy.port());
    // A renewal is waited for a sixth of a lease.
    let set = |b: ClientBuilder| b.url(&url).command_timeout(ms(3000)).lease(LEASE).renew_every(EVERY);
    let client = fixture.client_with(set);
    let (lock, other) = (fixture.lock_of(&client), fixture.lock());
    let guard = lock.lock().unwrap();
    // Its renewals arrive, but it does not hear so.
    proxy.swallow_replies(usize::MAX);
    wait_until(LONG, "it is told", || guard.is_lost());
    other.try_lock_for(LEASE + LATE).unwrap().expect("it is released, or its lease ends").unlock().unwrap();
    proxy.heal().unwrap();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    drop(lock);
    wait_until(LONG, "no lock is in use", || lock_count(&client) == 0);
    client.close().unwrap();
}

/// Overwrites the owner, as a program of somebody else's might.
fn give_to_a_foreign_holder<K: Tried>(fixture: &Fixture<K>) {
    let mut set = if fixture.reentrant() { redis::cmd("HSET") } else { redis::cmd("SET") };
    set.arg(fixture.key(""));
    if fixture.reentrant() {
        set.arg("owner");
    }
    set.arg("a foreign holder");
    if !fixture.reentrant() {
        set.arg("KEEPTTL");
    }
    set.exec(&mut fixture.redis()).unwrap();
}
