//! How long it is held, what loses it, and which callers learn of it.

use std::time::{Duration, Instant};

use redis_concurrent::{ErrorKind, RedLock};
use redis_concurrent_testkit::{released_all, wait_until};

use crate::red_lock::fixture::{Fixture, LEASE, LONG, NAME, ms};

/// A lease whose end can be waited for.
const SHORT: Duration = Duration::from_secs(3);
/// A loaded machine may miss some renewals.
const OFTEN: Duration = ms(300);

fn short(fixture: &Fixture) -> RedLock {
    fixture.red_with(|b| b.lease(SHORT).renew_every(OFTEN)).with_node_timeout(SHORT / 3).lock(NAME)
}

#[test]
fn it_is_renewed_beyond_its_lease_also_by_three_of_five() {
    // Again where a busy machine had no answer of one of the three in time.
    assert!((0..5).any(|_| is_renewed_by_three()), "the three have not all answered, each time");
}

/// It is held for longer than its lease while two servers hang. Returns whether the others had all answered.
fn is_renewed_by_three() -> bool {
    let (fixture, lease) = (Fixture::five(), 2 * SHORT);
    let lock =
        fixture.red_with(|b| b.lease(lease).renew_every(OFTEN)).with_node_timeout(lease / 3).lock(NAME);
    let guard = fixture.by_all(|| lock.lock().unwrap());
    for hung in &fixture.servers[..2] {
        hung.stop().unwrap();
    }
    let began = Instant::now();
    wait_until(LONG, "a lease is over", || began.elapsed() > lease * 3 / 2);
    let servers = guard.servers();
    // A machine that stands still renews nothing.
    let stood_still = began.elapsed() > lease * 2;
    assert!(
        stood_still || !guard.is_lost() && !guard.lost().is_cancelled(),
        "lost after {:?}",
        began.elapsed()
    );
    assert!(servers <= 3, "those that hang are not believed to have it: {servers}");
    let unlocked = guard.unlock();
    for hung in &fixture.servers[..2] {
        hung.cont().unwrap();
    }
    fixture.nothing_stays();
    !stood_still && released_all(&unlocked) && servers == 3
}

/// Whichever servers forgot it, and though they are heard first.
#[test]
fn a_holder_that_asks_again_hears_what_the_majority_says() {
    for forgotten in [0..1, 1..3, 3..5] {
        let fixture = Fixture::five();
        let lock = fixture.red_with(|b| b.renew_every(OFTEN)).lock(NAME);
        let guard = fixture.by_all(|| lock.lock().unwrap());
        let left = 5 - forgotten.len();
        fixture.servers[forgotten].iter().for_each(|server| server.flush_all().unwrap());
        wait_until(LONG, "the loss of these is known", || guard.servers() == left);
        assert_eq!(lock.lock().map(drop).unwrap_err().kind(), ErrorKind::WouldDeadlock);
        drop(guard);
    }
}

#[test]
fn what_a_minority_forgot_is_no_loss_and_what_a_majority_forgot_is() {
    let fixture = Fixture::five();
    let lock = fixture.red_with(|b| b.renew_every(OFTEN)).lock(NAME);
    let guard = fixture.by_all(|| lock.lock_owned().unwrap());
    let lost = guard.lost();
    for server in &fixture.servers[..2] {
        server.flush_all().unwrap();
    }
    wait_until(LONG, "the next renewal tells it", || guard.servers() == 3);
    assert!(!guard.is_lost() && !lost.is_cancelled());
    fixture.servers[2].flush_all().unwrap();
    assert!(lost.wait_timeout(LONG), "the next renewal tells it");
    assert!(guard.is_lost());
    assert_eq!((guard.remaining(), guard.servers()), (Duration::ZERO, 0));
    // The two that have it still are not to be in others' way.
    wait_until(LEASE / 2, "given back there", || fixture.held_on() == 0);
    let error = guard.renew().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::LeaseLost, NAME));
    let error = guard.unlock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::LeaseLost, NAME), "{error}");
    lock.try_lock_for(LONG).unwrap().unwrap().unlock().unwrap();
}

#[test]
fn it_is_lost_when_the_lease_of_a_majority_must_be_over_though_nobody_says_so() {
    let fixture = Fixture::five();
    let lock = short(&fixture);
    let guard = fixture.by_all(|| lock.lock().unwrap());
    let lost = guard.lost();
    for hung in &fixture.servers[..3] {
        hung.stop().unwrap();
    }
    let began = Instant::now();
    assert!(lost.wait_timeout(LONG));
    assert!(began.elapsed() > SHORT / 2 && began.elapsed() < SHORT + LONG / 4, "{:?}", began.elapsed());
    // While a guard of it lives, its thread is told.
    assert!(lock.try_lock().unwrap_err().is_lease_lost());
    assert!(lock.lock().unwrap_err().is_lease_lost());
    let began = Instant::now();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert!(began.elapsed() < LONG / 4, "a lost hold is given back at once: {:?}", began.elapsed());
    for hung in &fixture.servers[..3] {
        hung.cont().unwrap();
    }
    fixture.nothing_stays();
}

#[test]
fn a_fixed_lease_ends_by_itself() {
    let fixture = Fixture::of(3);
    let (lock, other) = (short(&fixture).with_lease(SHORT), fixture.red().lock(NAME));
    let began = Instant::now();
    let guard = lock.lock_owned().unwrap();
    assert!(guard.remaining() < SHORT);
    let lost = guard.lost();
    // (Unless the machine stood still for all of it.)
    assert!(other.try_lock().unwrap().is_none() || began.elapsed() > SHORT * 9 / 10);
    let next = other.try_lock_for(LONG).unwrap().unwrap();
    // Its owner has given it up before: a hundredth of the lease is for clocks that differ.
    assert!(began.elapsed() > SHORT * 9 / 10, "{:?}", began.elapsed());
    assert!(guard.is_lost() && lost.is_cancelled());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    next.unlock().unwrap();
    fixture.nothing_stays();
}

#[test]
fn a_renewal_sets_the_full_lease_on_every_server() {
    let fixture = Fixture::five();
    let lock = fixture.red().lock(NAME).with_lease(LEASE);
    let guard = lock.lock().unwrap();
    wait_until(LONG, "some of it is over", || guard.remaining() < LEASE - ms(2000));
    let before = guard.remaining();
    // A machine that stands still may have no answer in time.
    let renewed = || match guard.renew() {
        Ok(()) => true,
        Err(error) => {
            assert!(!error.is_lease_lost(), "{error}");
            false
        }
    };
    // It also lets some of the lease pass, but not each time.
    wait_until(LONG, "the full lease", || {
        let is_renewed = renewed();
        let (remaining, leases) = (guard.remaining(), fixture.leases());
        println!("{remaining:?}, {before:?} before: {leases:?}");
        is_renewed && remaining > before + ms(200) && leases.iter().all(|lease| *lease > LEASE - ms(1500))
    });
    // By a majority too, and the others have what they had.
    for hung in &fixture.servers[..2] {
        hung.stop().unwrap();
    }
    wait_until(LEASE / 2, "three renew it", renewed);
    for hung in &fixture.servers[..2] {
        hung.cont().unwrap();
    }
    guard.unlock().unwrap();
    fixture.nothing_stays();
}

/// A server that forgot it counts for others again after one lease: nobody may believe in a longer one.
#[test]
fn no_renewal_is_for_longer_than_the_lease() {
    let fixture = Fixture::of(3);
    let red = fixture.red();
    for lock in [red.lock(NAME), red.lock(NAME).with_lease(LEASE)] {
        let guard = lock.lock().unwrap();
        for lease in [LEASE + ms(1), LEASE * 20] {
            let error = guard.renew_for(lease).unwrap_err();
            assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, NAME), "{error}");
            for text in [LEASE, lease].map(|it| format!("{it:?}")) {
                assert!(error.to_string().contains(&text), "{text}: {error}");
            }
        }
        assert!(!guard.is_lost() && guard.remaining() <= LEASE, "{:?}", guard.remaining());
        assert!(fixture.leases().iter().all(|lease| *lease <= LEASE), "{:?}", fixture.leases());
        guard.renew_for(LEASE).unwrap();
        guard.unlock().unwrap();
    }
    fixture.nothing_stays();
}

#[test]
fn a_lease_that_is_over_before_the_answers_come_is_no_hold() {
    let fixture = Fixture::of(3);
    let red = fixture.red();
    let hasty = red.with_node_timeout(ms(100)).lock(NAME).with_lease(ms(200));
    wait_until(LONG, "they are connected", || hasty.lock().is_ok());
    for server in &fixture.servers {
        server.stop().unwrap();
    }
    let error = hasty.try_lock().unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    let text = format!("{error:#}");
    assert!(text.matches("no answer within").count() >= 2 && !text.contains("within 1 ms"), "{text}");
    for server in &fixture.servers {
        server.cont().unwrap();
    }
    // What came too late is given back in the background.
    let lock = red.lock(NAME).with_lease(LEASE);
    lock.try_lock_for(LONG).unwrap().unwrap().unlock().unwrap();
    fixture.nothing_stays();
}
