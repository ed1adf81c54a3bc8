//! Queue positions: how they are taken, kept by heartbeats and ordered.

use redis::Commands;

use super::{READS, read_write, rigs};
use crate::rig::{Ask, FIRST, LEASE, RECORD, Rig, USUAL, assert_busy, int, messages, server};

#[test]
fn a_waiter_has_a_position_with_its_wishes_and_a_time_to_live() {
    for mut rig in rigs("position") {
        let (a, b) = (rig.a(), rig.b());
        rig.try_(&a);
        let before = rig.now();
        let wish = Ask { lease: 7_000, waiter_timeout: 2_500, ..USUAL };
        let answer = rig.acquire("wait", &b, wish).unwrap();
        let after = rig.now();
        let (_, _, arrival) = assert_busy(rig.kind, &answer);
        let arrival = int(&arrival);
        assert!(before <= arrival && arrival <= after, "{}: {arrival}", rig.kind);
        let score: f64 = rig.con.zscore(&rig.keys[1], &b).unwrap();
        assert_eq!(score as i64, arrival, "{}: class 0", rig.kind);
        let position = rig.position(&b);
        assert_eq!([&position[0], &position[2], &position[3], &position[4]], ["7000", "2500", "1", RECORD]);
        assert!((before..=after).contains(&int(&position[1])), "{}: {position:?}", rig.kind);
        // Longer than its waiter timeout: the server may stand still.
        for i in [1, 2] {
            assert!((12_500..=25_000).contains(&rig.pttl(i)), "{}: key {i}", rig.kind);
        }
    }
}

#[test]
fn every_key_has_a_time_to_live_at_every_step() {
    for mut rig in rigs("ttl") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let mut inbox = rig.inbox(server(), "b");
        let check = |rig: &mut Rig, step: &str| {
            for i in rig.our_keys() {
                assert!(rig.pttl(i) > 0, "{}: {} after {step}", rig.kind, rig.keys[i]);
            }
        };
        rig.try_(&a);
        check(&mut rig, "try");
        rig.wait(&b);
        rig.wait(&c);
        check(&mut rig, "wait");
        rig.keep(&c);
        check(&mut rig, "keep");
        rig.renew(&a, LEASE).unwrap();
        check(&mut rig, "renew");
        rig.leave_unsettled(&a).unwrap();
        check(&mut rig, "leave");
        assert_eq!(messages(&rig, &mut inbox, "b").len(), 1, "{}", rig.kind);
        assert_eq!(rig.our_keys(), [0, 1, 2, 3, 4], "{}: all were there to be checked", rig.kind);
    }
}

#[test]
fn the_longest_window_keeps_the_queue() {
    for mut rig in rigs("longest") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        rig.try_(&a);
        rig.acquire("wait", &b, Ask { waiter_timeout: 60_000, ..USUAL }).unwrap();
        rig.acquire("wait", &c, Ask { waiter_timeout: 500, ..USUAL }).unwrap();
        for i in [1, 2] {
            assert!(rig.pttl(i) > 30_000, "{}: a short waiter timeout does not shorten it", rig.kind);
        }
    }
}

#[test]
fn keep_beats_and_replaces_the_wishes_but_never_the_order() {
    for mut rig in rigs("keep") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        rig.try_(&a);
        let (_, _, arrival) = assert_busy(rig.kind, &rig.wait(&b));
        rig.wait(&c);
        rig.age_position(&b, 2_000);
        let aged = int(&rig.position(&b)[1]);
        let answer = rig.acquire("keep", &b, Ask { lease: 5_000, ..USUAL }).unwrap();
        let (_, _, same) = assert_busy(rig.kind, &answer);
        assert_eq!(same, arrival, "{}", rig.kind);
        let position = rig.position(&b);
        assert!(int(&position[1]) >= aged + 2_000_000, "{}: heard now", rig.kind);
        assert_eq!(position[0], "5000", "{}: the new lease", rig.kind);
        assert_eq!(rig.queue(), [b, c], "{}", rig.kind);
    }
}

#[test]
fn waiting_twice_is_one_position() {
    for mut rig in rigs("twice") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        rig.try_(&a);
        let first = assert_busy(rig.kind, &rig.wait(&b));
        rig.wait(&c);
        assert_eq!(assert_busy(rig.kind, &rig.wait(&b)).2, first.2, "{}", rig.kind);
        assert_eq!(rig.queue(), [b, c], "{}", rig.kind);
    }
}

#[test]
fn keep_never_creates() {
    for mut rig in rigs("keep-never") {
        let (a, b) = (rig.a(), rig.b());
        // Not even on a lock that is free.
        assert_eq!(rig.keep(&a), ["-1", "gone"], "{}", rig.kind);
        assert!(rig.our_keys().is_empty(), "{}", rig.kind);
        rig.try_(&a);
        assert_eq!(rig.keep(&b), ["-1", "gone"], "{}", rig.kind);
        assert_eq!(rig.our_keys(), [0, 3], "{}", rig.kind);
        // Half a queue position is none.
        rig.wait(&b);
        let _: () = rig.con.hdel(&rig.keys[2], &b).unwrap();
        assert_eq!(rig.keep(&b), ["-1", "gone"], "{}", rig.kind);
        assert!(!rig.con.hexists::<_, _, bool>(&rig.keys[2], &b).unwrap(), "{}", rig.kind);
    }
}

#[test]
fn share_never_creates() {
    let mut rigs = rigs("share-never");
    rigs.push(read_write("share-never"));
    for mut rig in rigs {
        // Overtaken by the leave of its hold, it would be a hold that nobody knows of.
        let a = rig.a();
        assert_eq!(rig.acquire("share", &a, READS).unwrap(), ["-1", "gone"], "{}", rig.kind);
        assert!(rig.our_keys().is_empty(), "{}", rig.kind);
    }
}

#[test]
fn a_lost_position_comes_back_where_it_was() {
    for mut rig in rigs("arrival") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        rig.try_(&a);
        let (_, _, arrival) = assert_busy(rig.kind, &rig.wait(&b));
        rig.wait(&c);
        // As after a message that nobody heard; then as after a loss of all data.
        for lost in [&[b.as_str()][..], &[b.as_str(), c.as_str()][..]] {
            for owner in lost {
                let _: () = rig.con.zrem(&rig.keys[1], *owner).unwrap();
                let _: () = rig.con.hdel(&rig.keys[2], *owner).unwrap();
            }
            assert_eq!(rig.keep(&b), ["-1", "gone"], "{}", rig.kind);
            rig.wait(&c);
            let back = rig.acquire("wait", &b, Ask { arrival: &arrival, ..USUAL }).unwrap();
            assert_eq!(assert_busy(rig.kind, &back).2, arrival, "{}", rig.kind);
            assert_eq!(rig.queue(), [b.clone(), c.clone()], "{}", rig.kind);
        }
    }
}

#[test]
fn newcomers_come_last_even_when_the_clock_stands() {
    for mut rig in rigs("order") {
        let owner = rig.a();
        rig.try_(&owner);
        // The last one came when the clock was ahead: one after the other all the same.
        let ahead = rig.now() + 3_600_000_000;
        let ids: Vec<_> = (1..=5).map(|n| rig.id("w", n)).collect();
        rig.wait(&ids[0]);
        let _: () = rig.con.zadd(&rig.keys[1], &ids[0], ahead).unwrap();
        let arrivals: Vec<_> = ids[1..].iter().map(|id| assert_busy(rig.kind, &rig.wait(id)).2).collect();
        let expected: Vec<_> = (1..=4).map(|i| (ahead + i).to_string()).collect();
        assert_eq!(arrivals, expected, "{}", rig.kind);
        assert_eq!(rig.queue(), ids, "{}", rig.kind);
    }
}

#[test]
fn a_try_does_not_overtake_a_waiter() {
    for mut rig in rigs("no-barge") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let mut inbox = rig.inbox(server(), "b");
        rig.try_(&a);
        rig.wait(&b);
        rig.set_lease(&a, -1);
        let (floor, _, _) = assert_busy(rig.kind, &rig.try_(&c));
        // Its try found the lock free, and let the head in.
        assert_eq!(messages(&rig, &mut inbox, "b"), [format!("{b} in {floor} {FIRST}")], "{}", rig.kind);
        assert!(rig.left(&b).is_some() && rig.left(&c).is_none(), "{}", rig.kind);
    }
}

/// How many wait before it is counted in the step that would give it a place; who has one keeps it.
#[test]
fn a_waiter_too_many_gets_no_place() {
    for mut rig in rigs("limited") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let at_most = |most: &'static str| Ask { most, ..USUAL };
        rig.try_(&a);
        assert_eq!(rig.acquire("wait", &b, at_most("0")).unwrap(), ["-1", "queue-full-0-threads-wait"]);
        assert!(rig.queue().is_empty() && !rig.exists(2), "{}: nothing is left of it", rig.kind);
        assert_busy(rig.kind, &rig.acquire("wait", &b, at_most("1")).unwrap()[..4]);
        assert_eq!(rig.acquire("wait", &c, at_most("1")).unwrap(), ["-1", "queue-full-1-threads-wait"]);
        let (_, _, arrival) = assert_busy(rig.kind, &rig.acquire("wait", &c, at_most("2")).unwrap()[..4]);
        assert_eq!(
            rig.acquire("try", &rig.id("d", 1), at_most("0")).unwrap()[0],
            "0",
            "a try takes no place"
        );
        for how in ["keep", "wait"] {
            let answer = rig.acquire(how, &c, at_most("0")).unwrap();
            assert_eq!((&*answer[0], &*answer[5]), ("0", "1"), "{}: {how}: {answer:?}", rig.kind);
        }
        // It lost its place, and takes it back.
        let _: () = rig.con.zrem(&rig.keys[1], &c).unwrap();
        let back = Ask { arrival: &arrival, ..at_most("0") };
        assert_busy(rig.kind, &rig.acquire("wait", &c, back).unwrap()[..4]);
        assert_eq!(rig.queue(), [b.clone(), c.clone()], "{}", rig.kind);
        // A silent waiter is not counted.
        rig.age_position(&b, crate::rig::WAITER_TIMEOUT + 1);
        assert_busy(rig.kind, &rig.acquire("wait", &rig.id("d", 1), at_most("2")).unwrap()[..4]);
    }
}

#[test]
fn the_more_urgent_come_first_and_each_step_counts_as_half_a_minute() {
    for mut rig in rigs("urgent") {
        let a = rig.a();
        rig.try_(&a);
        let waits = |rig: &mut Rig, who: &'static str, priority: &'static str, age: i64| {
            let arrival = if age == 0 { String::new() } else { (rig.now() - age * 1_000_000).to_string() };
            let id = rig.id(who, 1);
            rig.acquire("wait", &id, Ask { priority, arrival: &arrival, ..USUAL }).unwrap()
        };
        waits(&mut rig, "usual", "", 0);
        waits(&mut rig, "low", "-1", 0);
        waits(&mut rig, "urgent", "1", 0);
        waits(&mut rig, "second", "", 0);
        let answer = waits(&mut rig, "most", "3", 0);
        waits(&mut rig, "young", "", 85);
        waits(&mut rig, "old", "", 95);
        let order = ["old", "most", "young", "urgent", "usual", "second", "low"].map(|who| rig.id(who, 1));
        assert_eq!(rig.queue(), order, "{}", rig.kind);
        // A heartbeat moves nobody; who lost its place takes it back with its arrival.
        let low = rig.id("low", 1);
        rig.acquire("keep", &low, Ask { priority: "-1", ..USUAL }).unwrap();
        let most = rig.id("most", 1);
        let _: () = rig.con.zrem(&rig.keys[1], &most).unwrap();
        let back = Ask { priority: "3", arrival: &answer[3], ..USUAL };
        rig.acquire("wait", &most, back).unwrap();
        assert_eq!(rig.queue(), order, "{}", rig.kind);
        let kept = "return {cmsgpack.unpack(redis.call('HGET', KEYS[3], ARGV[1]))[9]}";
        assert_eq!(rig.eval(kept, &[&low]).unwrap(), ["-1"], "{}", rig.kind);
    }
}

/// Also when the process that releases asks for its next thread in the same step.
#[test]
fn the_next_of_a_process_comes_before_the_less_urgent() {
    for mut rig in rigs("urgent-next") {
        let (a, next, low) = (rig.a(), rig.id("a", 2), rig.id("low", 1));
        rig.try_(&a);
        rig.acquire("wait", &low, Ask { priority: "-1", ..USUAL }).unwrap();
        let answer = rig.leave_next(&a, false, &next).unwrap();
        assert_eq!((&*answer[0], &*answer[1]), ("1", "1"), "{}: {answer:?}", rig.kind);
        assert_eq!(rig.queue(), [low], "{}", rig.kind);
    }
}
