//! 20,000 readers, and as many waiters as there may be.

use redis_concurrent::kinds::{Kind, Read};

use crate::bounded::many::{HOLDERS, LEASE, Many, WAITERS, id, in_short};
use crate::rig::int;

fn read() -> Many {
    let mut it = Many::of("read-write", Read::RULE);
    it.many("try", "h", HOLDERS, "read");
    it
}

#[test]
fn with_twenty_thousand_reading_each_operation_is_short() {
    in_short(|| {
        let mut it = read();
        let _inbox = it.hears("h");
        for n in 0..50 {
            assert_eq!(it.renews("renew", &id("h", n)), int(LEASE));
            assert_eq!(it.leaves("leave", &id("h", n)), "1");
            assert_eq!(it.ask("try", "try", &id("t", n), "read")[0], "1");
        }
        assert_eq!(it.looks("inspect", "read").0, HOLDERS);
        // The readers are told that a writer waits.
        for n in 0..10 {
            assert_eq!(it.ask("write", "wait", &id("w", n), "write")[0], "0");
        }
        assert_eq!(it.looks("inspect", "write").0, 0);
        it
    });
}

#[test]
fn readers_that_lapsed_together_are_found_in_pieces_by_a_waiting_writer() {
    in_short(|| {
        let mut it = read();
        it.all_lapse();
        assert_eq!(it.renews("renew", &id("h", 1)), -1);
        assert_eq!(it.looks("inspect", "read").0, 0);
        it.until("write", |it, _| {
            let answer = it.ask("write", "wait", "w:1", "write");
            assert!(answer[0] == "1" || answer[2] == "1", "it asks again at once: {answer:?}");
            answer[0] == "1"
        });
        it
    });
}

#[test]
fn those_whose_leases_were_moved_on_are_looked_at_in_pieces() {
    in_short(|| {
        let mut it = read();
        // As if the first of them had ended: all were renewed since.
        let () = redis::cmd("HSET").arg(&it.keys[0]).arg("soon").arg(1_000).query(&mut it.con).unwrap();
        it.until("look", |it, n| {
            assert_eq!(it.ask("look", "try", &id("t", n), "read")[0], "1");
            let soon: String = redis::cmd("HGET").arg(&it.keys[0]).arg("soon").query(&mut it.con).unwrap();
            // Not one that is looked for yet.
            soon.parse::<u64>().is_ok_and(|soon| soon > 1_000)
        });
        it
    });
}

#[test]
fn ten_thousand_readers_come_in_behind_a_writer_in_pieces() {
    in_short(|| {
        let mut it = Many::of("read-write", Read::RULE);
        let _inbox = it.hears("r");
        assert_eq!(it.ask("write", "try", "w:1", "write")[0], "1");
        it.many("wait", "r", WAITERS, "read");
        assert_eq!(it.leaves("leave", "w:1"), "1");
        it.until_nobody_waits("keep", "read");
        assert_eq!(it.looks("inspect", "read").0, WAITERS);
        it
    });
}
