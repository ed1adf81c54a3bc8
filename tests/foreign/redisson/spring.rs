//! Spring Integration's `RedisLockRegistry` in its `PUB_SUB_LOCK` mode: its commands, and the real one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use redis::cmd;
use redis_concurrent::admin::HeldBy;
use redis_concurrent::interop::SpringLock;
use redis_concurrent_testkit::wait_until;

use crate::redisson::fixture::Fixture;
use crate::redisson::jvm::Jvm;
use crate::support::{LONG, SetOnDrop, comes_in, ms, patient};

const KEY: &str = "orders:43";
const CHANNEL: &str = "orders-channel";
const THEIRS: &str = "5cc9a2f6-1f8a-4b0c-9d5e-2f4f0a5f6a11";

/// For how long Spring waits: a Java program is slow to begin to listen on a machine that has more to do.
const WHILE: Duration = LONG.saturating_mul(6);

fn lock(fixture: &Fixture) -> SpringLock {
    patient(&fixture.server).spring_lock("orders", "43")
}

/// What a registry does to lock, without waiting.
fn takes(fixture: &Fixture) -> bool {
    fixture.ask::<Option<String>>(&["SET", KEY, THEIRS, "NX", "PX", "60000"]).is_some()
}

/// And to unlock: it tells all registries of this name which key is free.
fn frees(fixture: &Fixture) {
    assert_eq!(fixture.ask::<usize>(&["DEL", KEY]), 1);
    fixture.ask::<usize>(&["PUBLISH", CHANNEL, KEY]);
}

#[test]
fn a_hold_looks_like_springs_and_its_release_is_announced() {
    let fixture = Fixture::new();
    let lock = lock(&fixture);
    let mut connection = fixture.server.connection().unwrap();
    let mut pubsub = connection.as_pubsub();
    pubsub.subscribe(CHANNEL).unwrap();
    let guard = lock.lock().unwrap();
    let again = lock.lock().unwrap();
    assert!(!takes(&fixture));
    assert!(fixture.ask::<i64>(&["PTTL", KEY]) > 0);
    assert!(fixture.ask::<String>(&["GET", KEY]).ends_with(" orders-channel"));
    let holder = lock.holder().unwrap().unwrap();
    assert!(
        holder.since.is_some() && holder.owner.contains(':') && !holder.owner.contains(' '),
        "{holder:?}"
    );
    assert!(fixture.client().simple_lock_at(KEY).try_lock().unwrap().is_none());
    again.unlock().unwrap();
    guard.renew().unwrap();
    let released = Instant::now();
    guard.unlock().unwrap();
    pubsub.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(pubsub.get_message().unwrap().get_payload::<String>().unwrap(), KEY);
    // A client that listens has the first moment.
    comes_in(&lock);
    assert!(released.elapsed() >= ms(25), "{:?}", released.elapsed());
}

#[test]
fn springs_release_wakes_a_waiter_and_its_holder_may_be_forced() {
    let fixture = Fixture::new();
    let lock = lock(&fixture);
    assert!(takes(&fixture));
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(lock.holder().unwrap().unwrap().owner, THEIRS);
    thread::scope(|scope| {
        let waits = scope.spawn(|| comes_in(&lock));
        wait_until(LONG, "it listens", || {
            fixture.ask::<(String, usize)>(&["PUBSUB", "NUMSUB", CHANNEL]).1 == 1
        });
        // Of another key of the registry's: it looks, and waits on.
        fixture.ask::<usize>(&["PUBLISH", CHANNEL, "orders:44"]);
        frees(&fixture);
        waits.join().unwrap();
    });
    assert!(takes(&fixture));
    let forced = lock.force_unlock_if(&HeldBy::Owner(THEIRS.to_owned()), "", false).unwrap();
    assert_eq!((forced.holders, forced.notified), (1, 0));
    comes_in(&lock);
}

#[test]
fn a_release_leaves_it_to_spring_once_in_a_while_only() {
    let fixture = Fixture::new();
    let lock = lock(&fixture);
    let mut connection = fixture.server.connection().unwrap();
    let mut pubsub = connection.as_pubsub();
    pubsub.subscribe(CHANNEL).unwrap();
    let mut turns = Vec::new();
    let mut outside = fixture.server.connection().unwrap();
    for _ in 0..20 {
        lock.lock().unwrap().unlock().unwrap();
        // (It is forgotten soon: on a busy machine before it is looked at.)
        let turn: Option<f64> =
            cmd("ZSCORE").arg(&["rc:{orders:43}:at:tombstones", "turn"]).query(&mut outside).unwrap();
        turns.extend(turn.map(|it| it as u64));
    }
    turns.dedup();
    // The next one begins a hundred milliseconds after the last one has ended.
    assert!(turns.windows(2).all(|two| two[1] - two[0] >= 100), "{turns:?}");
}

#[test]
fn the_real_spring_and_ours_wake_each_other_up() {
    let fixture = Fixture::new();
    let (port, test) = (fixture.server.port().to_string(), "the_real_spring_and_ours_wake_each_other_up");
    let args = [&*port, "prod", "orders", "42", "43"];
    let Some(mut java) = Jvm::start("Others", &args, test) else { return };
    let lock = lock(&fixture);
    for _ in 0..5 {
        let guard = lock.lock().unwrap();
        // Neither side looks by itself within its time.
        java.say(0, &format!("hear {}", Duration::as_millis(&WHILE)));
        wait_until(WHILE, "Spring listens", || {
            fixture.ask::<(String, usize)>(&["PUBSUB", "NUMSUB", CHANNEL]).1 >= 1
        });
        guard.unlock().unwrap();
        assert_eq!(java.receives(0), "in");
        assert!(lock.try_lock().unwrap().is_none());
        thread::scope(|scope| {
            let waits = scope.spawn(|| comes_in(&lock));
            wait_until(LONG, "it listens", || {
                fixture.ask::<(String, usize)>(&["PUBSUB", "NUMSUB", CHANNEL]).1 >= 2
            });
            assert_eq!(java.does(0, "free"), "out");
            waits.join().unwrap();
        });
    }
    // While ours never rest, Spring has its turns.
    let rest = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let lock = fixture.client().spring_lock("orders", "43");
                while !rest.load(Ordering::SeqCst) {
                    let guard = lock.lock().unwrap();
                    thread::park_timeout(ms(1));
                    guard.unlock().unwrap();
                }
            });
        }
        let _rest = SetOnDrop(&rest);
        java.say(0, "turns 10");
        assert_eq!(java.receives(0), "out");
    });
}
