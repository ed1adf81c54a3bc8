//! A lock is acquired, or the answer says when to ask again.

use redis_concurrent_testkit::eventually;

use super::{LONG, rigs};
use crate::rig::{LEASE, USUAL, WAITER_TIMEOUT, assert_busy, assert_in, int};

#[test]
fn a_free_lock_lets_in_by_try_and_by_wait() {
    for how in ["try", "wait"] {
        for mut rig in rigs(&format!("free-{how}")) {
            let (owner, before) = (rig.a(), rig.now());
            let answer = rig.acquire(how, &owner, USUAL).unwrap();
            let after = rig.now();
            let number = assert_in(rig.kind, &answer, LEASE);
            assert!(before <= number && number <= after, "{}: {before} {number} {after}", rig.kind);
            assert_eq!(rig.fence(), number);
            assert_eq!(rig.our_keys(), [0, 3], "{}: nothing but the state and the fence", rig.kind);
            let left = rig.left(&owner).unwrap();
            assert!(left > LEASE - 5_000 && left <= LEASE + 1, "{}: {left}", rig.kind);
        }
    }
}

#[test]
fn a_holder_is_answered_with_the_same_number_and_what_is_left() {
    for mut rig in rigs("inside") {
        let owner = rig.a();
        let number = assert_in(rig.kind, &rig.try_(&owner), LEASE);
        rig.set_lease(&owner, 9_000);
        for how in ["try", "wait", "keep"] {
            let answer = rig.acquire(how, &owner, USUAL).unwrap();
            assert_eq!(answer[..2], ["1".to_owned(), number.to_string()], "{} {how}", rig.kind);
            let left = int(&answer[2]);
            assert!(left <= 9_001 && left > 4_000, "{} {how}: {left}", rig.kind);
        }
        assert!(rig.left(&owner).unwrap() <= 9_001, "{}: asking does not extend", rig.kind);
        assert!(!rig.exists(1) && !rig.exists(2), "{}", rig.kind);
    }
}

#[test]
fn a_busy_try_tells_the_last_number_and_leaves_no_trace() {
    for mut rig in rigs("busy-try") {
        let (a, b) = (rig.a(), rig.b());
        let number = assert_in(rig.kind, &rig.try_(&a), LEASE);
        rig.set_lease(&a, 9_000);
        let before = rig.everything();
        let (floor, again, arrival) = assert_busy(rig.kind, &rig.try_(&b));
        assert_eq!((floor, arrival.as_str()), (number, ""), "{}", rig.kind);
        assert!((1..=1_000).contains(&again), "{}: not later than the own heartbeat: {again}", rig.kind);
        assert_eq!(rig.everything(), before, "{}", rig.kind);
        assert!(rig.left(&a).unwrap() <= 9_001, "{}: the holder's lease is not touched", rig.kind);
    }
}

#[test]
fn asking_again_makes_sense_when_the_holder_lapses() {
    for mut rig in rigs("lapse-soon") {
        let (a, b) = (rig.a(), rig.b());
        // Once more where the machine stood still, and it has lapsed meanwhile.
        let answer = eventually(LONG, || {
            rig.try_(&a);
            let began = rig.now();
            // Sooner than the next heartbeat, and not before the next request.
            rig.set_lease(&a, 900);
            let answer = rig.wait(&b);
            let in_time = rig.now() - began < 900_000;
            for owner in [&b, &a] {
                rig.leave(owner);
            }
            in_time.then_some(answer)
        });
        let (_, again, _) = assert_busy(rig.kind, &answer);
        assert!((1..=901).contains(&again), "{}: {again}", rig.kind);
    }
}

#[test]
fn asking_again_makes_sense_when_the_head_is_out_of_its_window() {
    for mut rig in rigs("waiter-timeout-soon") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        // Once more where the machine stood still, and its window is over.
        let answer = eventually(LONG, || {
            rig.try_(&a);
            let began = rig.now();
            rig.wait(&b);
            rig.age_position(&b, WAITER_TIMEOUT - 300);
            let answer = rig.wait(&c);
            let in_time = rig.now() - began < 300_000;
            for owner in [&c, &b, &a] {
                rig.leave(owner);
            }
            in_time.then_some(answer)
        });
        let (_, again, _) = assert_busy(rig.kind, &answer);
        // A full lock has to come free first, and that looks at its head.
        let most = if rig.kind == "bulkhead" { 300 } else { 1_000 };
        assert!((1..=most).contains(&again), "{}: {again}", rig.kind);
    }
}
