//! How long a hold lasts.

use std::time::{Duration, Instant};

use redis_concurrent::CancellationToken;
use redis_concurrent::kinds::Kind;

use super::cases;
use crate::contract::fixture::{Fixture, LONG};
use crate::contract::forms;
use crate::wait_until;

cases! {
    a_renewed_hold_outlives_its_lease
    a_fixed_lease_ends_by_itself_in_every_form
    a_fixed_lease_is_never_renewed
    a_waiter_gets_in_when_a_fixed_lease_ends
    renew_for_sets_and_never_adds
    renewals_never_shorten_what_renew_for_set
}

fn a_renewed_hold_outlives_its_lease<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    // So long a lease that it is renewed in time even on a machine that stalls for seconds.
    let (lease, often) = (Duration::from_secs(10), Duration::from_millis(200));
    let renewed =
        || fixture.client(|b| b.lease(lease).renew_every(often).waiter_timeout(LONG).command_timeout(LONG));
    let (lock, kept_out) = (fixture.lock(&renewed()), fixture.keeper());
    let (other, guard) = (fixture.fresh(), lock.lock().unwrap());
    let owned = fixture.other(&renewed(), "owned").lock_owned().unwrap();
    let (start, owner) = (Instant::now(), other.holder().unwrap().map(|h| h.owner));
    while start.elapsed() < lease + Duration::from_secs(1) {
        assert!(kept_out.try_lock().unwrap().is_none(), "after {:?}", start.elapsed());
        assert!(!guard.is_lost() && !owned.is_lost(), "after {:?}", start.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(other.holder().unwrap().map(|h| h.owner), owner);
    guard.unlock().unwrap();
    owned.unlock().unwrap();
}

fn a_fixed_lease_ends_by_itself_in_every_form<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, never) = (fixture.fresh(), CancellationToken::new());
    let fixed = lock.with_lease(Duration::from_millis(150));
    for form in forms::all::<K>() {
        let began = Instant::now();
        // A machine that stalls for longer than the lease has lost the hold when it resumes.
        let held = loop {
            match form.take(&fixed, LONG, &never).unwrap() {
                Some(held) => break held,
                None => assert!(began.elapsed() < LONG, "{}", form.name),
            }
        };
        let lost = held.lost();
        assert!(held.remaining() <= Duration::from_millis(150), "{}", form.name);
        assert!(lost.wait_timeout(LONG), "{}: told without being asked", form.name);
        assert!(held.is_lost() && held.remaining().is_zero(), "{}", form.name);
        assert_eq!(lock.hold_count(), 0, "{}", form.name);
        assert!(held.unlock().unwrap_err().is_lease_lost(), "{}", form.name);
        wait_until(LONG, "Redis has it free", || !lock.is_locked().unwrap());
    }
}

fn a_fixed_lease_is_never_renewed<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    // The client renews its own leases often.
    let (lock, other) = (fixture.lock(&fixture.brisk()), fixture.fresh());
    let fixed = lock.with_lease(LONG);
    let guard = fixed.lock().unwrap();
    let start = Instant::now();
    let mut before = guard.remaining();
    while start.elapsed() < Duration::from_millis(800) {
        let remaining = guard.remaining();
        assert!(remaining <= before, "it only runs out: {remaining:?} after {before:?}");
        before = remaining;
        // Computed before Redis is asked, since this thread may be delayed afterwards.
        let most = (LONG + Duration::from_millis(2)).saturating_sub(start.elapsed());
        let in_redis = other.holder().unwrap().and_then(|it| it.remaining).unwrap_or_default();
        assert!(in_redis <= most + Duration::from_millis(50), "{in_redis:?}, at most {most:?}");
        std::thread::sleep(Duration::from_millis(40));
    }
    guard.unlock().unwrap();
}

fn a_waiter_gets_in_when_a_fixed_lease_ends<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    const LEASE: Duration = Duration::from_millis(400);
    let (keeper, other) = (fixture.keeper(), fixture.fresh());
    let start = Instant::now();
    let guard = keeper.with_lease(LEASE).lock_owned().unwrap();
    // The next heartbeat is much later: the waiter asks again when the holder's lease expires.
    let next = other.try_lock_for(LONG).unwrap().unwrap();
    let took = start.elapsed();
    // The holder's process gives up its hold a drift (1 %) before Redis, as it can no longer be sure of it.
    assert!(took + LEASE / 50 >= LEASE, "after {took:?}");
    assert!(took < Duration::from_secs(5), "after {took:?}");
    assert!(guard.is_lost(), "it knew before anybody else could be inside");
    next.unlock().unwrap();
}

fn renew_for_sets_and_never_adds<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, other) = (fixture.fresh(), fixture.fresh());
    let fixed = lock.with_lease(Duration::from_secs(60));
    let guard = fixed.lock().unwrap();
    for seconds in [100, 100, 20, 40] {
        let lease = Duration::from_secs(seconds);
        guard.renew_for(lease).unwrap();
        for left in
            [guard.remaining(), other.holder().unwrap().and_then(|it| it.remaining).unwrap_or_default()]
        {
            let most = lease + Duration::from_millis(1);
            assert!(left <= most && left > lease - Duration::from_secs(8), "{left:?} for {lease:?}");
        }
    }
    guard.unlock().unwrap();
}

/// One that was under way when `renew_for` was called may be run after it; no later one shortens it.
fn renewals_never_shorten_what_renew_for_set<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, other) = (fixture.lock(&fixture.brisk()), fixture.fresh());
    let (guard, least) = (lock.lock().unwrap(), Duration::from_secs(30));
    guard.renew_for(least * 2).unwrap();
    let mut long_since = Instant::now();
    // Three renewals on end at least.
    wait_until(LONG, "it is as long as was asked for a second", || {
        let in_redis = other.holder().unwrap().and_then(|it| it.remaining).unwrap_or_default();
        if in_redis.min(guard.remaining()) <= least {
            long_since = Instant::now();
        }
        long_since.elapsed() > Duration::from_secs(1)
    });
    guard.unlock().unwrap();
}
