//! What can be observed of a hold, from its own process and from others.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use redis_concurrent::LockGuard;
use redis_concurrent::kinds::Kind;

use super::cases;
use crate::contract::fixture::{Fixture, LONG};
use crate::wait_until;

cases! {
    a_lock_tells_who_holds_it
    counts_are_of_this_thread_alone
    tokens_rise_with_every_hold_in_whichever_process
    two_are_never_inside
    force_unlock_takes_it_away
    what_redis_no_longer_knows_is_lost
    a_lost_hold_does_not_hurt_the_next_one
}

fn a_lock_tells_who_holds_it<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let client = fixture.patient();
    let (lock, other) = (fixture.lock(&client), fixture.fresh());
    assert!(!other.is_locked().unwrap());
    assert_eq!(other.holder().unwrap(), None);
    assert_eq!(other.holder().unwrap().and_then(|it| it.remaining), None);
    let (before, guard) = (SystemTime::now(), lock.lock().unwrap());
    let holder = other.holder().unwrap().unwrap();
    let mut same = lock.holder().unwrap().unwrap();
    same.remaining = holder.remaining;
    assert_eq!(same, holder);
    if let Some(process) = &holder.process {
        assert_eq!(process.pid, std::process::id());
        assert_eq!(process.client_name, "contract");
    }
    if let Some(since) = holder.since {
        let second = Duration::from_secs(1);
        assert!(since + second >= before && since <= SystemTime::now() + second, "{since:?}");
    }
    let remaining = other.holder().unwrap().and_then(|it| it.remaining).unwrap();
    assert!(
        remaining > Duration::from_secs(60) && remaining <= Duration::from_millis(120_001),
        "{remaining:?}"
    );
    assert!(guard.remaining() <= remaining, "what is certain here is never more than what Redis has");
    guard.unlock().unwrap();
    assert_eq!(other.holder().unwrap(), None);
    assert_eq!(other.holder().unwrap().and_then(|it| it.remaining), None);
}

fn counts_are_of_this_thread_alone<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, other) = (fixture.fresh(), fixture.fresh());
    let counts = || (lock.hold_count(), lock.is_held_by_current_thread());
    assert_eq!(counts(), (0, false));
    let guard = lock.lock().unwrap();
    assert_eq!(counts(), (1, true));
    assert_eq!(other.hold_count(), 0, "another client's handle is not this one's");
    thread::scope(|scope| {
        scope.spawn(|| assert_eq!(counts(), (0, false))).join().unwrap();
    });
    drop(guard);
    assert_eq!(counts(), (0, false));
}

fn tokens_rise_with_every_hold_in_whichever_process<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    if !fixture.exclusive() {
        return;
    }
    let locks = [fixture.fresh(), fixture.fresh()];
    let mut last = 0;
    let mut rises = |token: Option<u64>| {
        let token = token.unwrap_or_default();
        assert!(token > last, "{token} after {last}");
        last = token;
    };
    for i in 0..20 {
        let guard = locks[i % 2].lock().unwrap();
        let token = LockGuard::token(&guard);
        rises(token);
        assert_eq!(LockGuard::token(&guard), token, "it does not change while it is held");
    }
    // Tokens also rise across a hold that was taken away, and across one that expired.
    let guard = locks[0].lock().unwrap();
    rises(LockGuard::token(&guard));
    locks[1].force_unlock().unwrap();
    rises(LockGuard::token(&locks[1].lock().unwrap()));
    drop(guard);
    let brief = locks[0].with_lease(Duration::from_millis(100));
    let guard = brief.lock().unwrap();
    rises(LockGuard::token(&guard));
    rises(LockGuard::token(&locks[1].lock().unwrap()));
    assert!(guard.is_lost());
}

fn two_are_never_inside<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    const THREADS: u64 = 3;
    const ROUNDS: u64 = 40;
    if !fixture.one_holder() {
        return;
    }
    let locks = [fixture.fresh(), fixture.fresh()];
    // Read, pause, write: two threads inside together lose an update.
    let (sum, newest) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for lock in &locks {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let guard = lock.lock().unwrap();
                        if let Some(token) = LockGuard::token(&guard) {
                            let before = newest.swap(token, Ordering::SeqCst);
                            assert!(before < token, "{token} after {before}");
                        }
                        let seen = sum.load(Ordering::SeqCst);
                        thread::yield_now();
                        sum.store(seen + 1, Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                });
            }
        }
    });
    assert_eq!(sum.into_inner(), locks.len() as u64 * THREADS * ROUNDS);
}

fn force_unlock_takes_it_away<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let client = fixture.patient();
    let (lock, other, third) = (fixture.lock(&client), fixture.fresh(), fixture.keeper());
    assert!(other.force_unlock().unwrap().holders == 0, "nobody holds it");
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| third.lock().map(|g| g.is_lost()));
        fixture.await_positions(1);
        assert!(other.force_unlock().unwrap().holders > 0);
        assert!(!waiter.join().unwrap().unwrap(), "the next one is let in");
    });
    // A loss is reported at once if the listener is up, otherwise by the next renewal. The check uses what
    // reports it in either case.
    let _: () = fixture.redis().del_if_there(&fixture.state_key());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    drop(lost);
    assert_eq!(lock.hold_count(), 0);
    assert!(fixture.lock(&client).try_lock().unwrap().is_some(), "and may come in again");
}

fn what_redis_no_longer_knows_is_lost<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let client = fixture.brisk();
    let lock = fixture.lock(&client);
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let _: () = fixture.redis().del_if_there(&fixture.state_key());
    // The next renewal finds out.
    assert!(lost.wait_timeout(LONG));
    assert!(guard.is_lost() && guard.remaining().is_zero());
    assert_eq!(lock.hold_count(), 0);
    if fixture.reentry() != redis_concurrent::kinds::Reentrancy::Independent {
        let error = lock.try_lock_for(LONG).map(drop).unwrap_err();
        assert!(error.is_lease_lost(), "while its guard lives: {error}");
    }
    assert!(guard.renew_for(Duration::from_secs(5)).unwrap_err().is_lease_lost(), "lost is final");
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert!(fixture.lock(&client).try_lock().unwrap().is_some());
}

fn a_lost_hold_does_not_hurt_the_next_one<K: Kind, W: Kind>(fixture: &Fixture<'_, K, W>) {
    let (lock, other) = (fixture.fresh(), fixture.keeper());
    let brief = lock.with_lease(Duration::from_millis(150)).lock_owned().unwrap();
    wait_until(LONG, "it has ended", || brief.is_lost());
    let next = other.try_lock_for(LONG).unwrap().unwrap();
    let owner = other.holder().unwrap().map(|h| h.owner);
    assert!(brief.unlock().unwrap_err().is_lease_lost());
    assert!(!next.is_lost());
    assert_eq!(other.holder().unwrap().map(|h| h.owner), owner);
    next.unlock().unwrap();
}

/// Deletes a key from outside.
trait Outside {
    fn del_if_there(&mut self, key: &str);
}

impl Outside for redis::Connection {
    fn del_if_there(&mut self, key: &str) {
        let deleted: redis::RedisResult<i64> = redis::cmd("DEL").arg(key).query(self);
        assert!(deleted.is_ok(), "{deleted:?}");
    }
}
