//! Leases are renewed, and a lock is looked at.

use super::rigs;
use crate::rig::{LEASE, PREFIX, RECORD, Rig, WAITER_TIMEOUT, assert_in, int};

#[test]
fn renewing_sets_the_lease_and_never_creates() {
    for mut rig in rigs("renew") {
        let (a, b) = (rig.a(), rig.b());
        assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-1"], "{}", rig.kind);
        assert!(rig.our_keys().is_empty(), "{}", rig.kind);
        rig.try_(&a);
        for lease in [60_000, 5_000] {
            let answer = rig.renew(&a, lease).unwrap();
            assert_eq!(answer, [lease.to_string()], "{}", rig.kind);
            let left = rig.left(&a).unwrap();
            assert!(left <= lease + 1 && left > lease - 3_000, "{}: {left} of {lease}", rig.kind);
        }
        rig.wait(&b);
        assert_eq!(rig.renew(&b, LEASE).unwrap(), ["-1"], "{}: a queue position is not renewed", rig.kind);
        rig.set_lease(&a, -1);
        assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-1"], "{}: what lapsed stays so", rig.kind);
        assert!(rig.left(&a).is_none(), "{}", rig.kind);
    }
}

#[test]
fn what_has_a_tombstone_is_told_so_and_what_stays_is_not_renewed() {
    for mut rig in rigs("tombstone") {
        let (a, b) = (rig.a(), rig.b());
        rig.leave_unsettled(&b).unwrap();
        assert_eq!(rig.renew(&b, LEASE).unwrap(), ["-2"], "{}: not inside", rig.kind);
        rig.try_(&a);
        let stays = rig.scripts.renew.clone();
        assert_eq!(rig.eval(&stays, &[&a, "5000", PREFIX, "3000", "1"]).unwrap(), ["5000"], "{}", rig.kind);
        assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-2"], "{}", rig.kind);
        let left = rig.left(&a).unwrap();
        assert!(left <= 5_001, "{}: {left}", rig.kind);
    }
}

/// Its process may not have been told, and asks that late.
#[test]
fn what_stays_has_a_tombstone_for_as_long() {
    const LONG: i64 = 300_000;
    for mut rig in rigs("stays") {
        let (a, b) = (rig.a(), rig.b());
        let stays = rig.scripts.renew.clone();
        let lasts = |rig: &mut Rig| {
            rig.eval("return {redis.call('PTTL', KEYS[5])}", &[]).unwrap()[0].parse::<i64>().unwrap()
        };
        rig.eval(&stays, &[&b, "0", PREFIX, "3000", "2"]).unwrap();
        let left = lasts(&mut rig);
        assert!(left > 50_000 && left <= 60_000, "{}: {left} of one that was not inside", rig.kind);
        rig.try_(&a);
        rig.renew(&a, LONG).unwrap();
        // What is left of it is not made less, nor more.
        let answer = rig.eval(&stays, &[&a, "1000", PREFIX, "3000", "2"]).unwrap();
        let (left, tombstone) = (rig.left(&a).unwrap(), lasts(&mut rig));
        for left in [int(&answer[0]), left, tombstone] {
            assert!(left > LONG - 5_000 && left <= LONG + 1, "{}: {left}", rig.kind);
        }
        assert_eq!(
            rig.eval(&stays, &[&a, "400000", PREFIX, "3000", "1"]).unwrap(),
            ["400000"],
            "{}",
            rig.kind
        );
        assert!(lasts(&mut rig) > 390_000, "{}", rig.kind);
        assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-2"], "{}", rig.kind);
    }
}

#[test]
fn inspecting_tells_holders_and_live_positions_and_writes_nothing() {
    for mut rig in rigs("inspect") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        assert_eq!(rig.inspect().unwrap(), [vec!["0".to_owned()], vec![], vec![], vec![]], "{}", rig.kind);
        assert!(rig.our_keys().is_empty(), "{}", rig.kind);
        let number = assert_in(rig.kind, &rig.try_(&a), LEASE);
        rig.wait(&b);
        rig.wait(&c);
        rig.age_position(&b, WAITER_TIMEOUT + 1_000);
        let before = rig.everything();
        let inspected = rig.inspect().unwrap();
        assert_eq!(rig.everything(), before, "{}", rig.kind);
        assert_eq!(inspected[0], [number.to_string()], "{}", rig.kind);
        let record = if rig.kind == "reentrant" { RECORD } else { "" };
        assert_eq!(
            (inspected[1][0].as_str(), inspected[1][2].as_str()),
            (a.as_str(), record),
            "{}",
            rig.kind
        );
        let left = int(&inspected[1][1]);
        assert!(left <= LEASE + 1 && left > LEASE - 5_000, "{}: {left}", rig.kind);
        assert_eq!(inspected[2], [c, RECORD.to_owned()], "{}: the silent one is not told", rig.kind);
    }
}
