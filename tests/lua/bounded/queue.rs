//! 10,000 waiters for a lock with one holder.

use redis::cmd;
use redis_concurrent::kinds::{Kind, Reentrant};

use crate::bounded::many::{HOLDERS, LEASE, Many, WAITERS, id, in_short};
use crate::rig::int;

#[test]
fn with_ten_thousand_waiting_each_operation_is_short() {
    in_short(|| {
        let mut it = Many::of("reentrant", Reentrant::RULE);
        let _inbox = it.hears("w");
        it.ask("try", "try", "h:1", "");
        it.many("wait", "w", WAITERS, "");
        assert_eq!(it.renews("renew", "h:1"), int(LEASE));
        assert_eq!(it.ask("try", "try", "t:1", "")[0], "0");
        assert_eq!(it.ask("keep", "keep", &id("w", 5_000), "")[0], "0");
        assert_eq!(it.leaves("give up", &id("w", 7_000)), "0");
        let (holders, positions, _) = it.looks("inspect", "");
        assert_eq!((holders, positions), (1, WAITERS - 1));
        for n in ["h:1", "w:0", "w:1"] {
            assert_eq!(it.leaves("leave", n), "1");
        }
        it
    });
}

#[test]
fn the_silent_and_the_unheard_are_dropped_in_pieces() {
    for silent in [true, false] {
        in_short(|| {
            let mut it = Many::of("reentrant", Reentrant::RULE);
            it.ask("try", "try", "h:1", "");
            it.many("wait", "w", WAITERS, "");
            it.all_are_silent(silent);
            let _inbox = it.hears("l");
            assert_eq!(it.ask("wait", "wait", "l:1", "")[0], "0");
            assert_eq!(it.leaves("leave", "h:1"), "1");
            // It waits behind all of them, and its next asks are what carries it on.
            it.until("keep", |it, _| it.ask("keep", "keep", "l:1", "")[0] == "1");
            it
        });
    }
}

#[test]
fn twenty_thousand_bars_that_ended_together_are_forgotten_in_pieces() {
    in_short(|| {
        let mut it = Many::of("reentrant", Reentrant::RULE);
        let tombstones: Vec<_> = (0..HOLDERS).flat_map(|n| [n.to_string(), id("b", n)]).collect();
        let () = cmd("ZADD").arg(&it.keys[4]).arg(tombstones).query(&mut it.con).unwrap();
        it.leaves("leave", "h:1");
        assert_eq!(it.ask("try", "try", "h:1", ""), ["-1", "over"]);
        it.until("leave", |it, n| {
            it.leaves("leave", &id("l", n));
            let left: usize = cmd("ZCARD").arg(&it.keys[4]).query(&mut it.con).unwrap();
            left == n + 2
        });
        it
    });
}
