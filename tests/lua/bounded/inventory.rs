//! An inventory with 2,000 reservations of 100 SKUs, and with 10,000 waiters for its lock.

use redis_concurrent::inventory::Units;
use redis_concurrent::kinds::Kind;

use crate::bounded::many::{LEASE, Many, WAITERS, asks, id, in_short, owned};
use crate::rig::int;

const RESERVATIONS: usize = 2_000;
const SKUS: usize = 100;

/// A unit of each SKU, by an id and for a customer.
fn order(n: usize) -> String {
    let units: Vec<_> = (0..SKUS).map(|sku| format!("1|sku-{sku}")).collect();
    format!("take|order-{n}|60000|customer-{}|{}|{}", n % 50, 1_000, units.join("|"))
}

fn stocked(n: usize) -> Many {
    let mut it = Many::of(Units::NAME, Units::RULE);
    for sku in 0..SKUS {
        it.changes("add_stock", &id("s", sku), &["add_stock", &n.to_string(), &format!("sku-{sku}")]);
    }
    it
}

fn reserved() -> Many {
    let mut it = stocked(RESERVATIONS);
    let source = it.scripts.acquire.clone();
    it.fill((0..RESERVATIONS).map(|n| (source.clone(), owned(&asks("try", &id("h", n), &order(n))))));
    it
}

/// {stocked, available, reserved, sold}
fn counts(it: &mut Many, sku: &str) -> Vec<String> {
    it.looks("inspect", &format!("sku|{sku}")).2
}

#[test]
fn of_a_hundred_skus_each_operation_is_short() {
    in_short(|| {
        let mut it = reserved();
        assert_eq!(counts(&mut it, "sku-7"), ["2000", "0", "2000", "0"]);
        for n in 0..20 {
            assert_eq!(it.renews("renew", &id("h", n)), int(LEASE));
            assert_eq!(it.leaves("leave", &id("h", n)), "1");
            assert_eq!(it.ask("try", "try", &id("t", n), &order(n))[0], "1");
            assert_eq!(it.ask("refused", "try", &id("r", n), &order(n))[0], "-1");
            assert_eq!(it.changes("commit", &id("t", n), &["commit"]), ["1"]);
        }
        assert_eq!(counts(&mut it, "sku-99"), ["2000", "0", "1980", "20"]);
        assert_eq!(it.looks("inspect", "take").0, 1_980);
        assert_eq!(it.changes("delete", "d:1", &["delete"]), ["1"]);
        it
    });
}

#[test]
fn what_lapsed_together_comes_back_in_pieces_and_is_sold_to_nobody_meanwhile() {
    in_short(|| {
        let mut it = reserved();
        it.all_lapse();
        let last = id("h", RESERVATIONS - 1);
        assert_eq!(it.renews("renew", &last), -1);
        assert_eq!(it.changes("commit", &last, &["commit"]), ["0"], "what lapsed is not sold");
        // It asks anew, under its own id and under another: nobody has it any more.
        for owner in [&id("h", RESERVATIONS - 2), "t:1"] {
            let args = order(RESERVATIONS - 2);
            let mut answer = it.ask("again", "try", owner, &args);
            it.until("again", |it, _| {
                let done = answer[0] == "1";
                assert!(done || answer.len() == 5, "it asks again at once: {answer:?}");
                if !done {
                    answer = it.ask("again", "try", owner, &args);
                }
                done
            });
            it.leaves("leave", owner);
        }
        let all = RESERVATIONS.to_string();
        assert_eq!(counts(&mut it, "sku-0"), [&*all, &*all, "0", "0"]);
        assert_eq!(it.looks("inspect", "take").0, 0);
        it
    });
}

#[test]
fn a_waiter_for_what_lapsed_holds_is_not_told_that_it_is_sold_out() {
    in_short(|| {
        let mut it = reserved();
        it.all_lapse();
        it.until("lock", |it, _| {
            let answer = it.ask("lock", "wait", "w:1", &format!("lock|{RESERVATIONS}|sku-1"));
            assert!(answer[0] == "1" || answer[0] == "0" && answer[2] == "1", "{answer:?}");
            answer[0] == "1"
        });
        it
    });
}

#[test]
fn ten_thousand_waiters_for_the_lock_hear_in_pieces_that_it_is_sold_out() {
    in_short(|| {
        let mut it = stocked(1);
        let _inbox = it.hears("w");
        assert_eq!(it.ask("try", "try", "h:1", "lock|1|sku-0")[0], "1");
        it.many("wait", "w", WAITERS, "lock|1|sku-0");
        assert_eq!(it.ask("take", "try", "t:1", "take||60000||9|1|sku-0")[0], "1");
        assert!(it.waiting() < WAITERS, "the first ones at once");
        let answer = it.ask("keep", "keep", &id("w", WAITERS - 1), "lock|1|sku-0");
        assert_eq!(answer[0], "-1", "each at its next heartbeat");
        it.leaves("leave", "h:1");
        it.until_nobody_waits("keep", "lock|1|sku-0");
        it
    });
}
