//! Grant numbers, and how long they are kept.

use std::time::Duration;

use redis::Commands;
use redis_concurrent_testkit::expires_at;

use super::rigs;
use crate::rig::{EPOCH, LEASE, assert_in};

#[test]
fn numbers_rise_and_are_not_below_the_time() {
    for mut rig in rigs("numbers") {
        let mut last = 0;
        for n in 1..=20 {
            let owner = rig.id("n", n);
            let before = rig.now();
            let number = assert_in(rig.kind, &rig.try_(&owner), LEASE);
            assert!(number > last && number >= before, "{}: {number} after {last}", rig.kind);
            last = number;
            rig.leave(&owner);
        }
        // Redis has lost it: the time alone makes it grow.
        let _: () = rig.con.del(&rig.keys[3]).unwrap();
        let owner = rig.a();
        assert!(assert_in(rig.kind, &rig.try_(&owner), LEASE) > last, "{}", rig.kind);
    }
}

#[test]
fn a_clock_that_was_set_back_does_not_set_the_numbers_back() {
    for mut rig in rigs("clock-back") {
        // The last number is a day ahead of the clock.
        let ahead = rig.now() + 86_400_000_000;
        let _: () = rig.con.set(&rig.keys[3], ahead).unwrap();
        for n in 1..=3 {
            let owner = rig.id("n", n);
            let number = assert_in(rig.kind, &rig.try_(&owner), LEASE);
            assert_eq!(number, ahead + n as i64, "{}: one after the other", rig.kind);
            let ends =
                expires_at(&mut rig.con, &rig.keys[3]).unwrap().expect("it has an end").as_millis() as i64;
            let own_time = (number + EPOCH) / 1000 + 7_200_000;
            assert!((own_time - 1..=own_time + 1).contains(&ends), "{}: {ends} {own_time}", rig.kind);
            rig.leave(&owner);
        }
    }
}

#[test]
fn a_number_is_kept_for_two_hours() {
    for mut rig in rigs("kept") {
        let a = rig.a();
        rig.try_(&a);
        let ttl = Duration::from_millis(rig.pttl(3) as u64);
        let hour = Duration::from_secs(3_600);
        assert!(ttl > hour * 2 - Duration::from_secs(10) && ttl <= hour * 2, "{}: {ttl:?}", rig.kind);
    }
}
