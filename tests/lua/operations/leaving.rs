//! A hold is released, a waiter leaves the queue, and tombstones refuse what comes late.

use redis::Commands;

use super::rigs;
use crate::rig::{FIRST, LEASE, USUAL, assert_busy, assert_in, messages, server};

#[test]
fn leaving_is_idempotent_and_leaves_only_the_fence() {
    for mut rig in rigs("leave") {
        let a = rig.a();
        rig.try_(&a);
        assert_eq!(rig.leave(&a), ["1"], "{}", rig.kind);
        assert_eq!(rig.leave(&a), ["0"], "{}", rig.kind);
        assert_eq!(rig.our_keys(), [3], "{}", rig.kind);
    }
}

#[test]
fn a_late_leave_does_not_hit_the_next_hold() {
    for mut rig in rigs("late-leave") {
        let (a, b) = (rig.a(), rig.b());
        rig.try_(&a);
        rig.leave(&a);
        rig.try_(&b);
        assert_eq!(rig.leave(&a), ["0"], "{}", rig.kind);
        assert!(rig.left(&b).is_some(), "{}", rig.kind);
    }
}

#[test]
fn leave_takes_out_of_the_queue_as_well() {
    for mut rig in rigs("leave-queue") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        rig.try_(&a);
        rig.wait(&b);
        rig.wait(&c);
        assert_eq!(rig.leave(&b), ["0"], "{}", rig.kind);
        assert_eq!(rig.queue(), [c], "{}", rig.kind);
        assert!(rig.left(&a).is_some(), "{}: the holder is not touched", rig.kind);
    }
}

#[test]
fn leave_for_the_next_one_asks_in_the_same_trip() {
    for mut rig in rigs("leave-next") {
        let (a, b) = (rig.a(), rig.b());
        let mut inbox = rig.inbox(server(), "b");
        rig.try_(&a);
        // Nobody else waits: in at once.
        let second = rig.id("a", 2);
        let answer = rig.leave_next(&a, false, &second).unwrap();
        assert_eq!(answer[0], "1", "{}", rig.kind);
        assert_in(rig.kind, &answer[1..], LEASE);
        assert!(rig.left(&second).is_some(), "{}", rig.kind);
        // Somebody does: behind it.
        rig.wait(&b);
        let third = rig.id("a", 3);
        let answer = rig.leave_next(&second, false, &third).unwrap();
        assert_eq!(answer[0], "1", "{}", rig.kind);
        let (floor, _, arrival) = assert_busy(rig.kind, &answer[1..]);
        assert_eq!(messages(&rig, &mut inbox, "b"), [format!("{b} in {floor} {FIRST}")], "{}", rig.kind);
        assert!(!arrival.is_empty(), "{}", rig.kind);
        assert_eq!(rig.queue(), [third], "{}", rig.kind);
    }
}

#[test]
fn the_next_one_is_asked_for_even_if_the_owner_was_not_inside() {
    for mut rig in rigs("outside-next") {
        let (a, b) = (rig.a(), rig.b());
        let next = rig.id("a", 2);
        let answer = rig.leave_next(&a, false, &next).unwrap();
        assert_eq!(answer[0], "0", "{}", rig.kind);
        assert_in(rig.kind, &answer[1..], LEASE);
        let answer = rig.leave_next(&a, true, &b).unwrap();
        assert_eq!(answer[0], "0", "{}", rig.kind);
        assert_busy(rig.kind, &answer[1..]);
        // A second copy of the same request changes nothing.
        let again = rig.leave_next(&a, true, &b).unwrap();
        assert_eq!(again[4], answer[4], "{}: the same queue position", rig.kind);
        assert_eq!(rig.queue(), [b], "{}", rig.kind);
    }
}

#[test]
fn tombstones_refuse_their_owner_alone_for_a_minute() {
    for mut rig in rigs("gone") {
        let (a, b) = (rig.a(), rig.b());
        rig.try_(&a);
        let before = rig.now() / 1000;
        assert_eq!(rig.leave_unsettled(&a).unwrap(), ["1"], "{}", rig.kind);
        let after = rig.now() / 1000 + 1;
        let ends: i64 = rig.con.zscore(&rig.keys[4], &a).unwrap();
        assert!((before + 60_000..=after + 60_000).contains(&ends), "{}: {ends}", rig.kind);
        let ttl = rig.pttl(4);
        assert!(ttl > 55_000 && ttl <= 60_000, "{}: {ttl}", rig.kind);
        let state = rig.everything();
        for how in ["try", "wait", "keep"] {
            assert_eq!(rig.acquire(how, &a, USUAL).unwrap(), ["-1", "over"], "{} {how}", rig.kind);
        }
        assert_eq!(rig.leave_next(&b, false, &a).unwrap(), ["0", "-1", "over"], "{}", rig.kind);
        assert_eq!(rig.everything(), state, "{}: a late copy leaves no trace", rig.kind);
        assert_in(rig.kind, &rig.try_(&b), LEASE);
    }
}

#[test]
fn a_tombstone_is_written_for_an_owner_that_was_never_inside() {
    for mut rig in rigs("gone-outside") {
        let (a, b) = (rig.a(), rig.b());
        // Its ask is still on its way when it leaves.
        assert_eq!(rig.leave_unsettled(&a).unwrap(), ["0"], "{}", rig.kind);
        assert_eq!(rig.wait(&a), ["-1", "over"], "{}", rig.kind);
        assert!(!rig.exists(0), "{}", rig.kind);
        // And for one that waits.
        rig.try_(&b);
        let c = rig.c();
        rig.wait(&c);
        assert_eq!(rig.leave_unsettled(&c).unwrap(), ["0"], "{}", rig.kind);
        assert_eq!(rig.keep(&c), ["-1", "over"], "{}", rig.kind);
        assert!(rig.queue().is_empty(), "{}", rig.kind);
    }
}

#[test]
fn old_tombstones_go_when_a_new_one_comes() {
    for mut rig in rigs("gone-old") {
        let (a, b) = (rig.a(), rig.b());
        rig.leave_unsettled(&a).unwrap();
        let past = rig.now() / 1000 - 1;
        let _: () = rig.con.zadd(&rig.keys[4], &a, past).unwrap();
        rig.leave_unsettled(&b).unwrap();
        let there: Vec<String> = rig.con.zrange(&rig.keys[4], 0, -1).unwrap();
        assert_eq!(there, [b], "{}", rig.kind);
    }
}
