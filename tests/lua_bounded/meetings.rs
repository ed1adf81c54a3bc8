//! A latch and a barrier at which 10,000 wait.

use crate::many::{Many, WAITERS, in_short};

const LATCH: &str = include_str!("../../lua/latch.lua");

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
        // Whoever asks has passed, whether its turn has come or not.
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
            // Who comes now stands behind them, and is none of them.
            assert_eq!(it.ask("wait", "wait", "n:1", "")[0], "0");
            it.until("keep", |it, _| {
                let head: Vec<String> =
                    redis::cmd("ZRANGE").arg(&it.keys[1]).arg(0).arg(0).query(&mut it.con).unwrap();
                if head == ["n:1"] {
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
