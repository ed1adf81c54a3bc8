//! A semaphore with 20,000 permits out, each to another holder.

use redis_concurrent::kinds::{Kind, Permits};

use crate::bounded::many::{HOLDERS, LEASE, Many, WAITERS, id, in_short};
use crate::rig::int;

fn held() -> Many {
    let mut it = Many::of(Permits::NAME, Permits::RULE);
    it.changes("set", "set:1", &["set", &HOLDERS.to_string()]);
    it.many("try", "h", HOLDERS, "1");
    it
}

fn used(it: &mut Many) -> String {
    it.looks("inspect", "").2[1].clone()
}

#[test]
fn with_twenty_thousand_out_each_operation_is_short() {
    in_short(|| {
        let mut it = held();
        for n in 0..50 {
            assert_eq!(it.renews("renew", &id("h", n)), int(LEASE));
            assert_eq!(it.leaves("leave", &id("h", n)), "1");
            assert_eq!(it.ask("try", "try", &id("t", n), "1")[0], "1");
        }
        assert_eq!(it.looks("inspect", ""), {
            let state = it.looks("inspect", "").2;
            assert_eq!(state.len(), 2 + 3 * HOLDERS);
            (HOLDERS, 0, state)
        });
        for n in 0..50 {
            assert_eq!(it.ask("wait", "wait", &id("w", n), "1")[0], "0");
        }
        assert_eq!(it.changes("delete", "d:1", &["delete", "0"]), ["1"]);
        it.until_nobody_waits("keep", "1");
        it
    });
}

#[test]
fn all_that_lapsed_together_is_found_in_pieces_and_counts_as_out_until_then() {
    in_short(|| {
        let mut it = held();
        it.all_lapse();
        assert_eq!(it.renews("renew", &id("h", HOLDERS - 1)), -1, "what lapsed is over, found or not");
        // One that lapsed and asks anew has what it asks for, and no more.
        let again = id("h", HOLDERS - 2);
        assert_eq!(it.ask("try", "try", &again, "3")[3], "3");
        it.leaves("leave", &again);
        it.until("wait", |it, _| {
            let answer = it.ask("wait", "wait", "w:1", &HOLDERS.to_string());
            assert!(answer[0] == "1" || answer[2] == "1", "it asks again at once: {answer:?}");
            answer[0] == "1"
        });
        assert_eq!(used(&mut it), HOLDERS.to_string());
        it
    });
}

#[test]
fn a_look_sees_no_lapsed_hold() {
    in_short(|| {
        let mut it = held();
        it.all_lapse();
        let (holders, _, state) = it.looks("inspect", "");
        assert_eq!((holders, &*state[1], state.len()), (0, "0", 2));
        it
    });
}

#[test]
fn ten_thousand_waiters_are_let_in_and_refused_in_pieces() {
    in_short(|| {
        let mut it = Many::of(Permits::NAME, Permits::RULE);
        let _inbox = it.hears("w");
        it.changes("set", "set:1", &["set", "1"]);
        it.ask("try", "try", "h:1", "1");
        it.many("wait", "w", WAITERS, "1");
        it.changes("set", "set:2", &["set", "5001"]);
        it.until("keep", |it, _| {
            let all = it.waiting();
            let head = id("w", WAITERS - all);
            it.ask("keep", "keep", &head, "1");
            it.waiting() <= 5_000
        });
        assert_eq!((it.waiting(), used(&mut it)), (5_000, "5001".to_owned()));
        it.changes("delete", "d:1", &["delete", "0"]);
        it.until_nobody_waits("keep", "1");
        it
    });
}
