//! A latch and a barrier at which 10,000 wait.

use crate::bounded::many::{Many, WAITERS, id, in_short};
use crate::rig::{Ask, USUAL, int};

const LATCH: &str = include_str!("../../../lua/latch.lua");
const BARRIER: &str = include_str!("../../../lua/barrier.lua");

fn at_a_latch() -> (Many, redis::Connection) {
    let mut it = Many::of("latch", LATCH);
    let inbox = it.hears("w");
    it.changes("set", "set:1", &["set", "1"]);
    it.many("wait", "w", WAITERS, "");
    (it, inbox)
}

#[test]
fn at_nothing_ten_thousand_pass_a_latch_in_pieces() {
    in_short(|| {
        let (mut it, _inbox) = at_a_latch();
        assert_eq!(it.changes("down", "down:1", &["down"]), ["0"]);
        // A waiter that asks has passed, whether its turn has come or not.
        assert_eq!(it.ask("try", "try", "t:1", "")[0], "1");
        it.until_nobody_waits("keep", "");
        it
    });
}

#[test]
fn a_latch_is_set_anew_and_deleted_for_ten_thousand_in_pieces() {
    for (says, what) in [("reset", &["reset", "1"][..]), ("delete", &["delete"])] {
        in_short(|| {
            let (mut it, _inbox) = at_a_latch();
            assert_eq!(it.changes(says, "c:1", what), ["1"]);
            // A caller that comes now stands behind them, and is none of them; or has no count to wait for.
            let new = it.ask("wait", "wait", "n:1", "");
            assert_eq!(new[0], if says == "reset" { "0" } else { "-1" }, "{new:?}");
            it.until("keep", |it, _| {
                let head: Vec<String> =
                    redis::cmd("ZRANGE").arg(&it.keys[1]).arg(0).arg(0).query(&mut it.con).unwrap();
                if head.is_empty() || head == ["n:1"] {
                    return true;
                }
                let answer = it.ask("keep", "keep", &head[0], "");
                assert_eq!(answer[0], "-1", "{answer:?}");
                false
            });
            it
        });
    }
}

/// So many parties, of which all but one wait.
fn at_a_barrier(args: &str) -> (Many, redis::Connection) {
    let mut it = Many::of("barrier", BARRIER);
    let inbox = it.hears("w");
    it.many("wait", "w", WAITERS - 1, args);
    (it, inbox)
}

/// Nobody waits, and each of them has an index of its own.
fn all_passed(it: &mut Many, last: i64) {
    let mut indices = vec![last / 2];
    for n in 0..WAITERS - 1 {
        let answer = it.acquire("keep", &id("w", n), Ask { args: PARTIES, ..USUAL }).unwrap();
        assert_eq!(answer[0], "1", "{n}: {answer:?}");
        indices.push(int(&answer[3]) / 2);
    }
    assert_eq!(indices[1], i64::try_from(WAITERS).unwrap() - 1, "the first one's");
    indices.sort_unstable();
    assert!(indices.into_iter().eq(0..i64::try_from(WAITERS).unwrap()));
}

const PARTIES: &str = "10000";

#[test]
fn ten_thousand_parties_are_let_in_in_pieces_and_newcomers_are_of_the_next_round() {
    in_short(|| {
        let (mut it, _inbox) = at_a_barrier(PARTIES);
        let answer = it.ask("last", "wait", "l:1", PARTIES);
        assert_eq!(answer[0], "1", "{answer:?}");
        assert!(it.waiting() > WAITERS / 2);
        // One of the next round that gives up breaks that, and not this.
        assert_eq!(it.ask("next", "wait", "n:1", PARTIES)[0], "0");
        assert_eq!(it.leaves("give up", "n:1"), "0");
        it.until_nobody_waits("keep", PARTIES);
        all_passed(&mut it, int(&answer[3]));
        assert_eq!(it.leaves("leave", "w:7"), "1");
        it
    });
}

#[test]
fn behind_an_action_ten_thousand_parties_are_let_in_in_pieces() {
    in_short(|| {
        let (mut it, _inbox) = at_a_barrier(PARTIES);
        let answer = it.ask("last", "wait", "l:1", "10000 then");
        assert_eq!((&*answer[0], &*answer[3]), ("1", "1"), "{answer:?}");
        assert_eq!(it.changes("open", "o:1", &["open", PARTIES, "l:1"]), ["1"]);
        it.until_nobody_waits("keep", PARTIES);
        all_passed(&mut it, 0);
        it
    });
}

#[test]
fn ten_thousand_waiters_hear_in_pieces_that_it_is_broken_or_reset() {
    for reset in [true, false] {
        in_short(|| {
            let (mut it, _inbox) = at_a_barrier(PARTIES);
            if reset {
                assert_eq!(it.changes("reset", "r:1", &["reset"]), ["1"]);
                // One that comes now waits for the next round.
                assert_eq!(it.ask("wait", "wait", "n:1", PARTIES)[0], "0");
            } else {
                assert_eq!(it.leaves("leave", "w:77"), "0");
                assert_eq!(it.ask("wait", "wait", "n:1", PARTIES), ["-1", "broken"]);
            }
            it.until("keep", |it, _| {
                let head: Vec<String> =
                    redis::cmd("ZRANGE").arg(&it.keys[1]).arg(0).arg(0).query(&mut it.con).unwrap();
                if head.is_empty() || head == ["n:1"] {
                    return true;
                }
                let answer = it.ask("keep", "keep", &head[0], PARTIES);
                assert_eq!(answer[0], "-1", "{answer:?}");
                false
            });
            assert_eq!(it.waiting(), usize::from(reset));
            it
        });
    }
}
