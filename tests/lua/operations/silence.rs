//! Waiters that send no heartbeats, and a server that stood still meanwhile.

use redis::Connection;
use redis_concurrent_testkit::wait_until;

use super::{LONG, rigs};
use crate::rig::{Ask, LEASE, Rig, USUAL, WAITER_TIMEOUT, assert_busy, assert_in, messages, server};

#[test]
fn silent_heads_are_dropped_by_their_own_window() {
    for mut rig in rigs("silent") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let mut inboxes = ["b", "c"].map(|who| rig.inbox(server(), who));
        rig.try_(&a);
        rig.acquire("wait", &b, Ask { waiter_timeout: 60_000, ..USUAL }).unwrap();
        rig.wait(&c);
        // Within its own waiter timeout, though beyond the others'.
        rig.age_position(&b, 50_000);
        rig.leave(&a);
        assert_eq!(messages(&rig, &mut inboxes[0], "b").len(), 1, "{}", rig.kind);
        rig.leave(&b);
        assert_eq!(messages(&rig, &mut inboxes[1], "c").len(), 1, "{}", rig.kind);
        // Beyond it: the next one gets in, and nothing is said to the dead.
        rig.acquire("wait", &b, Ask { waiter_timeout: 60_000, ..USUAL }).unwrap();
        let d = rig.id("c", 2);
        rig.wait(&d);
        rig.age_position(&b, 61_000);
        rig.leave(&c);
        assert!(messages(&rig, &mut inboxes[0], "b").is_empty(), "{}", rig.kind);
        assert_eq!(messages(&rig, &mut inboxes[1], "c").len(), 1, "{}", rig.kind);
        assert!(rig.left(&d).is_some() && rig.left(&b).is_none(), "{}", rig.kind);
        assert!(!rig.exists(1) && !rig.exists(2), "{}: the queue is gone with its last", rig.kind);
    }
}

#[test]
fn a_silent_head_does_not_keep_a_try_out() {
    for mut rig in rigs("silent-try") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        rig.try_(&a);
        rig.wait(&b);
        rig.age_position(&b, WAITER_TIMEOUT + 1_000);
        rig.set_lease(&a, -1);
        assert_in(rig.kind, &rig.try_(&c), LEASE);
        assert!(rig.queue().is_empty(), "{}", rig.kind);
    }
}

/// One script looks at the first waiters alone, of very many.
#[test]
fn a_waiter_that_is_heard_passes_any_number_of_silent_ones() {
    for mut rig in rigs("crowd") {
        let (a, c) = (rig.a(), rig.c());
        rig.try_(&a);
        let silent: Vec<_> = (1..=200).map(|n| rig.id("b", n)).collect();
        for owner in &silent {
            rig.wait(owner);
        }
        rig.wait(&c);
        rig.stand_still(&silent.iter().map(|owner| &**owner).collect::<Vec<_>>(), WAITER_TIMEOUT + 1_000);
        rig.steady(&[&c], WAITER_TIMEOUT + 1_000);
        rig.set_lease(&a, -1);
        // A script removes some of them, so that it takes no time; each heartbeat goes on.
        let heartbeats = (0..50).take_while(|_| rig.wait(&c)[0] != "1").count();
        assert!(heartbeats < 20, "{}: {heartbeats}", rig.kind);
    }
}

/// `a` holds, and `b` and `c` wait and listen, when the server stands still for longer than they live: the owners, and
/// the inboxes of those that wait.
fn two_wait_while_it_stands_still(rig: &mut Rig) -> ([String; 3], [Connection; 2]) {
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let inboxes = ["b", "c"].map(|who| rig.inbox(server(), who));
    rig.try_(&a);
    for owner in [&b, &c] {
        rig.wait(owner);
    }
    rig.stand_still(&[&b, &c], 10_000);
    ([a, b, c], inboxes)
}

/// The silence of all waiters was the server's: nobody passes them, and nobody is let in before it was heard.
#[test]
fn a_waiter_kept_from_being_heard_keeps_its_position() {
    for first in ["leave", "wait", "try", "keep"] {
        for mut rig in rigs(&format!("stall-{first}")) {
            let ([a, b, c], _inboxes) = two_wait_while_it_stands_still(&mut rig);
            let (d, kind) = (rig.id("d", 1), rig.kind);
            match first {
                "leave" => assert_eq!(rig.leave(&a), ["1"]),
                "keep" => {
                    // The other one is heard first, while the lock is held.
                    assert_busy(kind, &rig.keep(&c));
                    assert_eq!(rig.leave(&a), ["1"]);
                }
                how => {
                    rig.set_lease(&a, -1);
                    wait_until(LONG, "it has lapsed", || rig.left(&a).is_none());
                    let (_, again, _) = assert_busy(kind, &rig.acquire(how, &d, USUAL).unwrap());
                    assert!(again > 500, "{kind} {first}: it does not ask at every turn: {again}");
                }
            }
            assert_eq!((rig.left(&b), rig.left(&c)), (None, None), "{kind} {first}: first it is to be heard");
            assert_eq!(rig.queue()[..2], [b.clone(), c.clone()], "{kind} {first}");
            assert_in(kind, &rig.keep(&b), LEASE);
            assert_busy(kind, &rig.keep(&c));
            assert_eq!(rig.leave(&b), ["1"]);
            assert!(rig.left(&c).is_some(), "{kind} {first}: the next one");
        }
    }
}

/// Who was heard gets in, and its release waits for the next one as the first did.
#[test]
fn a_release_after_that_waits_for_who_was_not_heard_yet() {
    for mut rig in rigs("stall-next") {
        let ([a, b, c], _inboxes) = two_wait_while_it_stands_still(&mut rig);
        let kind = rig.kind;
        assert_eq!(rig.leave(&a), ["1"]);
        assert_in(kind, &rig.keep(&b), LEASE);
        assert_eq!(rig.leave(&b), ["1"]);
        assert_eq!(rig.left(&c), None, "{kind}: first it is to be heard");
        assert_in(kind, &rig.keep(&c), LEASE);
    }
}

/// Waiters that are dead after that are dropped one waiter timeout later, all of them together.
#[test]
fn a_waiter_not_heard_in_its_second_window_either_is_dropped() {
    for mut rig in rigs("stall-dead") {
        let (a, b, c, d) = (rig.a(), rig.b(), rig.c(), rig.id("d", 1));
        rig.try_(&a);
        for owner in [&b, &c] {
            rig.wait(owner);
        }
        rig.stand_still(&[&b, &c], 10_000);
        rig.leave(&a);
        assert_busy(rig.kind, &rig.wait(&d));
        rig.age_position(&b, WAITER_TIMEOUT / 2);
        assert_busy(rig.kind, &rig.keep(&d));
        assert_eq!(rig.queue(), [b.clone(), c.clone(), d.clone()], "{}", rig.kind);
        for owner in [&b, &c] {
            rig.age_position(owner, WAITER_TIMEOUT + 1);
        }
        assert_in(rig.kind, &rig.keep(&d), LEASE);
        assert!(rig.queue().is_empty(), "{}", rig.kind);
    }
}

/// Where others were heard all the while, the silence is the waiter's own: it has no second waiter timeout.
#[test]
fn a_waiter_silent_while_others_are_heard_is_dropped_at_once() {
    for mut rig in rigs("stall-alone") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let _inbox = rig.inbox(server(), "c");
        rig.try_(&a);
        for owner in [&b, &c] {
            rig.wait(owner);
        }
        rig.stand_still(&[&b], WAITER_TIMEOUT + 1);
        rig.steady(&[&c], WAITER_TIMEOUT + 1);
        rig.leave(&a);
        assert!(rig.left(&c).is_some() && rig.queue().is_empty(), "{}", rig.kind);
    }
}
