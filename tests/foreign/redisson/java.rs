//! Redisson itself and ours, at one lock.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::Client;
use redis_concurrent::interop::RedissonLock;
use redis_concurrent_testkit::{Child, hear_parent, is_role, tell_parent, wait_until};
use rustix::process::Signal;

use crate::conformance::fixture::in_vain;
use crate::redisson::fixture::{Fixture, KEY};
use crate::redisson::jvm::Jvm;
use crate::support::{LONG, builder, connected, ms};

/// Until a holder that died is waited for, on both sides.
const SHORT: Duration = ms(3_000);

/// How long a waiter may wait for a holder that died: its lease, and what a loaded machine adds.
const OVER: Duration = SHORT.saturating_add(LONG);

#[test]
fn redisson_and_ours_are_one_lock() {
    let fixture = Fixture::new();
    let Some(mut java) = Jvm::redisson(&fixture, SHORT, "redisson_and_ours_are_one_lock") else { return };
    they_take_turns_and_wake_each_other_up(&fixture, &mut java);
    re_entry_is_counted_on_its_own_side(&fixture, &mut java);
    each_may_take_it_from_the_other(&fixture, &mut java);
    both_renew_and_see_the_other_renew(&fixture, &mut java);
    one_of_ours_is_killed(&fixture, &mut java);
    java_is_stopped(&fixture, &mut java);
    connections_break(&fixture, &mut java);
    tokens_order_the_holds_of_both(&fixture, &mut java);
    java_is_killed(&fixture, java);
}

/// Neither side would look again by itself within a minute.
fn they_take_turns_and_wake_each_other_up(fixture: &Fixture, java: &mut Jvm) {
    const ROUNDS: usize = 30;
    let lock = fixture.patient();
    let (mut to_ours, mut to_java) = (Vec::new(), Vec::new());
    assert_eq!(java.does(1, "lock"), "in");
    for _ in 0..ROUNDS {
        assert!(lock.try_lock().unwrap().is_none());
        thread::scope(|scope| {
            let waits = scope.spawn(|| lock.lock_owned_with(LONG).unwrap().map(|it| (it, Instant::now())));
            fixture.await_queued(1);
            let freed = Instant::now();
            assert_eq!(java.does(1, "unlock"), "out");
            let (guard, came) = waits.join().unwrap().expect("in time");
            to_ours.push(came - freed);
            assert_eq!(java.does(1, "try 0"), "busy");
            java.say(1, "lock");
            fixture.await_listeners(2);
            let freed = Instant::now();
            guard.unlock().unwrap();
            assert_eq!(java.receives(1), "in");
            to_java.push(freed.elapsed());
        });
    }
    assert_eq!(java.does(1, "unlock"), "out");
    for (whose, times) in [("ours", &mut to_ours), ("Java", &mut to_java)] {
        times.sort_unstable();
        eprintln!("to {whose}: median {:?}, longest {:?}", times[ROUNDS / 2], times[ROUNDS - 1]);
        assert!(times[ROUNDS / 2] < ms(1_000), "{whose} were not woken up: {times:?}");
    }
}

fn re_entry_is_counted_on_its_own_side(fixture: &Fixture, java: &mut Jvm) {
    let lock = fixture.lock();
    assert_eq!((java.does(1, "lock"), java.does(1, "lock")), ("in".into(), "in".into()));
    assert_eq!(java.does(1, "look"), "true true 2");
    assert_eq!(java.does(2, "try 0"), "busy");
    assert_eq!(java.does(1, "unlock"), "out");
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(java.does(1, "unlock"), "out");
    let (first, again) = (lock.lock().unwrap(), lock.lock().unwrap());
    assert_eq!(java.does(1, "look"), "true false 0");
    again.unlock().unwrap();
    assert_eq!(java.does(1, "try 0"), "busy");
    first.unlock().unwrap();
    assert_eq!(java.does(1, "look"), "false false 0");
}

fn each_may_take_it_from_the_other(fixture: &Fixture, java: &mut Jvm) {
    let lock = fixture.lock();
    assert_eq!(java.does(1, "lock"), "in");
    assert!(lock.force_unlock().unwrap().holders > 0);
    assert_eq!(java.does(1, "unlock"), "failed: IllegalMonitorStateException");
    let brisk = connected(|| builder(&fixture.server.url()).lease(ms(6_000))).redisson_lock(KEY);
    let guard = brisk.lock().unwrap();
    assert_eq!(java.does(1, "force"), "forced");
    wait_until(LONG, "the loss", || guard.is_lost());
    assert!(guard.unlock().unwrap_err().is_lease_lost());
}

fn both_renew_and_see_the_other_renew(fixture: &Fixture, java: &mut Jvm) {
    // Renewed so often that a machine that stands still for a while does not end it.
    let client = connected(|| builder(&fixture.server.url()).lease(ms(4_000)).renew_every(ms(300)));
    let lock = client.redisson_lock(KEY);
    let guard = lock.lock().unwrap();
    assert_eq!(java.does(1, "try 4500"), "busy");
    guard.unlock().unwrap();
    assert_eq!(java.does(1, "lock"), "in");
    let whole = SHORT + SHORT / 4;
    // Beyond its watchdog timeout.
    in_vain(whole, |limit| lock.try_lock_for(limit));
    assert_eq!(java.does(1, "unlock"), "out");
}

fn one_of_ours_is_killed(fixture: &Fixture, java: &mut Jvm) {
    let mut child = Child::spawn(HOLDER, &[("URL", &fixture.server.url())]).unwrap();
    assert_eq!(child.read_line_within(LONG).unwrap(), "in");
    java.say(1, "lock");
    fixture.await_listeners(1);
    child.kill9().unwrap();
    let began = Instant::now();
    assert_eq!(java.receives(1), "in");
    assert!(began.elapsed() < OVER, "{:?}", began.elapsed());
    assert_eq!(java.does(1, "unlock"), "out");
}

/// It misses its watchdog, and finds out when it runs again.
fn java_is_stopped(fixture: &Fixture, java: &mut Jvm) {
    let lock = fixture.lock();
    assert_eq!(java.does(1, "lock"), "in");
    java.signal(Signal::STOP);
    let guard = lock.try_lock_for(OVER).unwrap().expect("when its lease has ended");
    java.signal(Signal::CONT);
    assert_eq!(java.does(1, "unlock"), "failed: IllegalMonitorStateException");
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
}

fn connections_break(fixture: &Fixture, java: &mut Jvm) {
    // (Redisson may miss a message while it reconnects; then it looks when our lease ends.)
    let lock = connected(|| builder(&fixture.server.url()).lease(SHORT)).redisson_lock(KEY);
    for _ in 0..3 {
        assert_eq!(java.does(1, "lock"), "in");
        thread::scope(|scope| {
            let waits = scope.spawn(|| lock.lock_owned_with(LONG).unwrap().expect("in time"));
            fixture.await_listeners(1);
            let () = fixture.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            let () = fixture.ask(&["SCRIPT", "FLUSH"]);
            assert_eq!(java.does(1, "unlock"), "out");
            let guard = waits.join().unwrap();
            java.say(1, "lock");
            wait_until(LONG, "Java waits", || fixture.listeners() > 0);
            let () = fixture.ask(&["CLIENT", "KILL", "TYPE", "pubsub"]);
            guard.unlock().unwrap();
            assert_eq!(java.receives(1), "in");
            assert_eq!(java.does(1, "unlock"), "out");
        });
    }
}

fn tokens_order_the_holds_of_both(fixture: &Fixture, java: &mut Jvm) {
    let lock = fixture.client().redisson_fenced_lock(KEY);
    let mut last = 0;
    for _ in 0..3 {
        let theirs: u64 = java.does(1, "fenced").parse().unwrap();
        assert!(lock.try_lock().unwrap().is_none());
        assert_eq!(java.does(1, "unfence"), "out");
        let guard = lock.lock().unwrap();
        assert_eq!((theirs, guard.token()), (last + 1, last + 2));
        assert_eq!(java.does(1, "try 0"), "busy");
        guard.unlock().unwrap();
        last += 2;
    }
}

fn java_is_killed(fixture: &Fixture, mut java: Jvm) {
    let lock = fixture.lock();
    assert_eq!(java.does(1, "lock"), "in");
    drop(java);
    let began = Instant::now();
    lock.try_lock_for(OVER).unwrap().expect("when its lease has ended").unlock().unwrap();
    eprintln!("in {:?} after Java was killed", began.elapsed());
}

const HOLDER: &str = "redisson::java::role_holder";

#[test]
#[ignore = "a role, played by a child process"]
fn role_holder() {
    if !is_role(HOLDER) {
        return;
    }
    let url = std::env::var("URL").unwrap();
    let lock = connected(|| builder(&url).lease(SHORT)).redisson_lock(KEY);
    let _guard = lock.lock().unwrap();
    tell_parent("in").unwrap();
    let _ = hear_parent();
}

/// How long each part of the storm lasts. In full, for twenty minutes:
/// `SECONDS=600 cargo test --test faults redisson::java::both_never_rest -- --nocapture`
fn seconds() -> u64 {
    std::env::var("SECONDS").ok().and_then(|it| it.parse().ok()).unwrap_or(4)
}

#[test]
fn both_never_rest_and_neither_starves() {
    let fixture = Fixture::new();
    let name = "both_never_rest_and_neither_starves";
    let Some(mut java) = Jvm::redisson(&fixture, SHORT, name) else { return };
    // (Once more, and once more again, on a machine that has kept one side from running.)
    let fair = (0..3).any(|_| both_storm(&fixture, &mut java, |_| ()) == Shares::Alike);
    assert!(fair, "one side had it much more often than the other");
    // A message that Redisson missed while it reconnected costs it its wait until our lease ends.
    let harm = |round| match round % 3 {
        0 => fixture.ask(&["SCRIPT", "FLUSH"]),
        1 => drop(fixture.ask::<i64>(&["CLIENT", "KILL", "TYPE", "pubsub"])),
        _ => fixture.ask(&["CLIENT", "PAUSE", "100"]),
    };
    let got_in = (0..3).any(|_| both_storm(&fixture, &mut java, harm) != Shares::OneSide);
    assert!(got_in, "one side starved");
}

#[derive(PartialEq)]
enum Shares {
    /// About the same, and Redisson never had to wait until it looked by itself.
    Alike,
    Unlike,
    /// One side hardly ever got in.
    OneSide,
}

/// Both sides take the lock again and again, two threads each, while something is done to the server every half a
/// second. None is ever inside with another. Returns how often each side had it.
fn both_storm(fixture: &Fixture, java: &mut Jvm, harm: impl Fn(u64)) -> Shares {
    let seconds = seconds();
    let end = Instant::now() + Duration::from_secs(seconds);
    java.say(1, &format!("storm 2 {}", seconds * 1_000));
    let ours: Vec<Side> = thread::scope(|scope| {
        let sides = [(); 2].map(|()| {
            let client = connected(|| builder(&fixture.server.url()).lease(SHORT));
            scope.spawn(|| storm(fixture, client, end))
        });
        for round in 0.. {
            thread::sleep(ms(500));
            if Instant::now() >= end {
                break;
            }
            harm(round);
        }
        sides.map(|side| side.join().unwrap()).into()
    });
    let theirs: Vec<u64> = java.receives(1).split(' ').map(|n| n.parse().unwrap()).collect();
    let [holds, longest, violations, failed] = theirs[..] else { panic!("{theirs:?}") };
    let mine: u64 = ours.iter().map(|side| side.holds).sum();
    let jain = ((mine + holds) as f64).powi(2) / (2.0 * ((mine as f64).powi(2) + (holds as f64).powi(2)));
    let longest_of_ours = ours.iter().map(|side| side.longest).max().unwrap_or_default();
    eprintln!(
        "{seconds} s: ours {mine}, longest wait {longest_of_ours:?}; Java {holds}, longest wait {longest} ms, \
         {failed} failed; Jain {jain:.2}"
    );
    assert_eq!((violations, ours.iter().map(|side| side.violations).sum::<u64>()), (0, 0));
    match jain >= 0.8 && ms(longest) < SHORT {
        true => Shares::Alike,
        false if holds > 3 && mine > 3 => Shares::Unlike,
        false => Shares::OneSide,
    }
}

#[derive(Default)]
struct Side {
    holds: u64,
    violations: u64,
    longest: Duration,
}

fn storm(fixture: &Fixture, client: Client, end: Instant) -> Side {
    let lock: RedissonLock = client.redisson_lock(KEY);
    let me = format!("ours {:?}", thread::current().id());
    let mut redis = fixture.server.connection().unwrap();
    let mut side = Side::default();
    while Instant::now() < end {
        let began = Instant::now();
        let guard = lock.lock().unwrap();
        side.longest = side.longest.max(began.elapsed());
        let before: Option<String> =
            redis::cmd("SET").arg("inside").arg(&me).arg("GET").query(&mut redis).unwrap();
        side.violations += u64::from(before.is_some_and(|it| !it.is_empty()));
        let () = redis::cmd("SET").arg("inside").arg("").query(&mut redis).unwrap();
        side.holds += 1;
        guard.unlock().unwrap();
    }
    side
}
