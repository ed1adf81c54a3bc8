//! *validity-from-before-send*: a hold is never believed valid for longer than Redis keeps it.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::Guard;
use redis_concurrent::guard::Ownership;
use redis_concurrent::kinds::Reentrant;
use redis_concurrent_testkit::*;

use crate::support::*;

/// What the hold believes may be less than what Redis has, never more.
#[track_caller]
fn believes_no_more_than_redis<O: Ownership>(hold: &Guard<Reentrant, O>, server: &RedisServer) {
    let at = Instant::now();
    let believed = hold.remaining();
    let left = Duration::from_millis(pttl(server, &format!("rc:{{{}}}", hold.name())).max(0) as u64);
    // Redis was asked later: by so much its answer is shorter.
    let left = left + at.elapsed() + ms(1);
    assert!(believed <= left, "{believed:?} are believed left, {left:?} are");
}

#[test]
fn validity_from_before_send_of_asks_and_renewals() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (lease, recorder) = (ms(3000), Recorder::default());
    let often = builder(&proxy.url()).lease(lease).renew_every(ms(300));
    let client = often.observer(recorder.clone()).connect().unwrap();
    // More than is taken off for clocks that differ.
    proxy.delay(ms(100));
    let fixed = client.reentrant_lock("fixed").with_lease(lease);
    let before = Instant::now();
    let guard = fixed.lock().unwrap();
    // This thread may be kept from running between the two.
    let (after, left) = (before.elapsed(), guard.remaining());
    assert!(left + after <= lease, "{left:?} after {after:?}");
    believes_no_more_than_redis(&guard, &server);
    let before = Instant::now();
    guard.renew_for(2 * lease).unwrap();
    let (after, left) = (before.elapsed(), guard.remaining());
    assert!(left > lease && left + after <= 2 * lease, "{left:?} after {after:?}");

    // Over several renewals.
    let renewed = client.reentrant_lock("renewed");
    let guard = renewed.lock().unwrap();
    let renewals = recorder.count(Event::Renewed);
    while recorder.count(Event::Renewed) < renewals + 5 {
        believes_no_more_than_redis(&guard, &server);
        assert!(!guard.is_lost());
        thread::sleep(ms(3));
    }
    assert!(proxy.struck() > 5);
}

/// Clocks that differ in rate differ by a part of the time that is counted, whatever the lease was.
#[test]
fn validity_from_before_send_of_a_short_renewal_of_a_long_lease() {
    let server = RedisServer::start().unwrap();
    let guard = connect(&server).reentrant_lock("x").with_lease(ms(3_600_000)).lock_owned().unwrap();
    guard.renew_for(ms(30_000)).unwrap();
    believes_no_more_than_redis(&guard, &server);
    assert!(!guard.is_lost() && guard.remaining() > ms(20_000), "{:?}", guard.remaining());
    guard.unlock().unwrap();
}

#[test]
fn validity_from_before_send_of_grants_by_message() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let holder = connect(&server).reentrant_lock("x");
    let waiter = connected(|| builder(&proxy.url()).lease(SOON)).reentrant_lock("x");
    for delay in [0, 90, 400] {
        proxy.delay(ms(delay));
        let held = holder.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| {
                let guard = waiter.try_lock_for(LONG).unwrap().unwrap();
                assert!(!guard.is_lost(), "an expired hold was returned");
                believes_no_more_than_redis(&guard, &server);
            });
            queued(&holder, 1);
            held.unlock().unwrap();
            waits.join().unwrap();
        });
    }
}

/// It is let in for its own lease, or its waiter timeout, which is also what it is told.
#[test]
fn validity_from_before_send_of_a_grant_by_a_holder_with_a_shorter_lease() {
    let server = RedisServer::start().unwrap();
    let holder = connect(&server).reentrant_lock("x").with_lease(SOON);
    let waiter = connected(|| builder(&server.url()).waiter_timeout(LONG)).reentrant_lock("x");
    let held = holder.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let guard = waiter.try_lock_for(LONG).unwrap().unwrap();
            assert!(guard.remaining() > SOON, "its own lease is longer: {:?}", guard.remaining());
            believes_no_more_than_redis(&guard, &server);
        });
        queued(&holder, 1);
        held.unlock().unwrap();
        waits.join().unwrap();
    });
}

#[test]
fn validity_from_before_send_makes_an_answer_older_than_its_lease_worthless() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).lease(ms(400)));
    let lock = client.reentrant_lock("x");
    proxy.delay(ms(600));
    // Never a hold: the time is up, perhaps in the middle of a request.
    let got = lock.try_lock_for(ms(2500));
    assert!(
        matches!(&got, Ok(None)) || got.as_ref().is_err_and(|e| e.is_unavailable()),
        "a hold whose every answer is too old: {got:?}"
    );
    proxy.delay(Duration::ZERO);
    // (Again where a machine that stood still let so short a lease end.)
    wait_until(LONG, "a hold that is valid", || {
        lock.try_lock_for(SOON).unwrap().is_some_and(|guard| !guard.is_lost())
    });
}

const SLEEPER: &str = "invariants::validity_from_before_send::role_sleeper";

#[test]
#[ignore = "a role, played by a child process"]
fn role_sleeper() {
    if !is_role(SLEEPER) {
        return;
    }
    let lock = connected(|| builder(&env("URL")).lease(ms(1500))).reentrant_lock("x");
    tell_parent("waits").unwrap();
    let guard = lock.lock().unwrap();
    assert!(!guard.is_lost(), "an expired hold was returned");
    tell_parent(&guard.token().to_string()).unwrap();
    guard.unlock().unwrap();
}

/// A process is granted the lock while it stands still, and wakes when the grant is over and
/// somebody else is in: it has to wait on.
#[test]
fn validity_from_before_send_of_a_grant_slept_through() {
    let server = RedisServer::start().unwrap();
    let lock = connect(&server).reentrant_lock("x");
    let held = lock.lock().unwrap();
    // The number of the last grant, which stays when that is over.
    let granted =
        || -> u64 { redis::cmd("GET").arg("rc:{x}:fence").query(&mut server.connection().unwrap()).unwrap() };
    let before = granted();
    let mut child = Child::spawn(SLEEPER, &[("URL", &server.url())]).unwrap();
    child.read_line_within(LONG).unwrap();
    queued(&lock, 1);
    child.stop().unwrap();
    held.unlock().unwrap();
    assert!(granted() > before, "it went to the sleeper");
    let guard = lock.try_lock_for(LONG).unwrap().expect("the sleeper's lease lapses");
    child.cont().unwrap();
    // It looks at its grant, finds it over, and queues.
    queued(&lock, 1);
    assert!(!guard.is_lost());
    let mine = guard.token();
    guard.unlock().unwrap();
    let its: u64 = child.read_line_within(LONG).unwrap().parse().unwrap();
    assert!(its > mine, "{its} is not above {mine}");
    assert!(child.wait_within(LONG).unwrap().success());
}
