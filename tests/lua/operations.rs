//! Each Lua operation straight against a server, below the client.
//!
//! Time is played by editing what the scripts stored, never by sleeping.

use std::time::Duration;

use redis::{Commands, cmd};
use redis_concurrent::{Kind, Reentrant, Simple};
use redis_concurrent_testkit::{RedisServer, expires_at, wait_until};

use crate::rig::{
    Ask, EPOCH, FIRST, LEASE, PREFIX, RECORD, Rig, USUAL, WINDOW, assert_busy, assert_in, heard, int,
    is_deaf, messages, server, server_that_fills,
};

const LONG: Duration = Duration::from_secs(20);
const BULKHEAD: &str = include_str!("../../examples/own_kind.lua");

/// The three kinds that come along, each as a rig for `name`.
fn rigs(name: &str) -> Vec<Rig> {
    rigs_on(server(), name)
}

/// As a reader asks.
const READS: Ask<'_> = Ask { args: "read", ..USUAL };

fn read_write(name: &str) -> Rig {
    Rig::of(server(), "read-write lock", include_str!("../../lua/read_write.lua"), name)
}

fn rigs_on(server: &RedisServer, name: &str) -> Vec<Rig> {
    [("simple", Simple::RULE), ("reentrant", Reentrant::RULE), ("bulkhead", BULKHEAD)]
        .map(|(kind, rule)| Rig::of(server, kind, rule, name))
        .into()
}

// ---- acquire -------------------------------------------------------------------------------

#[test]
fn a_free_lock_lets_in_by_try_and_by_wait() {
    for how in ["try", "wait"] {
        for mut rig in rigs(&format!("free-{how}")) {
            let (owner, before) = (rig.a(), rig.now());
            let answer = rig.acquire(how, &owner, USUAL).unwrap();
            let after = rig.now();
            let number = assert_in(rig.kind, &answer, LEASE);
            assert!(before <= number && number <= after, "{}: {before} {number} {after}", rig.kind);
            assert_eq!(rig.fence(), number);
            assert_eq!(rig.our_keys(), [0, 3], "{}: nothing but the state and the fence", rig.kind);
            let left = rig.left(&owner).unwrap();
            assert!(left > LEASE - 5_000 && left <= LEASE + 1, "{}: {left}", rig.kind);
        }
    }
}

#[test]
fn a_holder_is_answered_with_the_same_number_and_what_is_left() {
    for mut rig in rigs("inside") {
        let owner = rig.a();
        let number = assert_in(rig.kind, &rig.try_(&owner), LEASE);
        rig.set_lease(&owner, 9_000);
        for how in ["try", "wait", "keep"] {
            let answer = rig.acquire(how, &owner, USUAL).unwrap();
            assert_eq!(answer[..2], ["1".to_owned(), number.to_string()], "{} {how}", rig.kind);
            let left = int(&answer[2]);
            assert!(left <= 9_001 && left > 4_000, "{} {how}: {left}", rig.kind);
        }
        assert!(rig.left(&owner).unwrap() <= 9_001, "{}: asking does not extend", rig.kind);
        assert!(!rig.exists(1) && !rig.exists(2), "{}", rig.kind);
    }
}

#[test]
fn a_busy_try_tells_the_last_number_and_leaves_no_trace() {
    for mut rig in rigs("busy-try") {
        let (a, b) = (rig.a(), rig.b());
        let number = assert_in(rig.kind, &rig.try_(&a), LEASE);
        rig.set_lease(&a, 9_000);
        let before = rig.everything();
        let (floor, again, arrival) = assert_busy(rig.kind, &rig.try_(&b));
        assert_eq!((floor, arrival.as_str()), (number, ""), "{}", rig.kind);
        assert!((1..=1_000).contains(&again), "{}: not later than the own beat: {again}", rig.kind);
        assert_eq!(rig.everything(), before, "{}", rig.kind);
        assert!(rig.left(&a).unwrap() <= 9_001, "{}: the holder's lease is not touched", rig.kind);
    }
}

#[test]
fn asking_again_makes_sense_when_the_holder_lapses() {
    for mut rig in rigs("lapse-soon") {
        let (a, b) = (rig.a(), rig.b());
        rig.try_(&a);
        rig.set_lease(&a, 400);
        let (_, again, _) = assert_busy(rig.kind, &rig.wait(&b));
        assert!((1..=401).contains(&again), "{}: {again}", rig.kind);
    }
}

#[test]
fn asking_again_makes_sense_when_the_head_is_out_of_its_window() {
    for mut rig in rigs("window-soon") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        rig.try_(&a);
        rig.wait(&b);
        rig.age_place(&b, WINDOW - 300);
        let (_, again, _) = assert_busy(rig.kind, &rig.wait(&c));
        // A full lock has to come free first, and that looks at its head.
        let most = if rig.kind == "bulkhead" { 300 } else { 1_000 };
        assert!((1..=most).contains(&again), "{}: {again}", rig.kind);
    }
}

#[test]
fn a_waiter_has_a_place_with_its_wishes_and_a_time_to_live() {
    for mut rig in rigs("place") {
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
        let place = rig.place(&b);
        assert_eq!([&place[0], &place[2], &place[3], &place[4]], ["7000", "2500", "1", RECORD]);
        assert!((before..=after).contains(&int(&place[1])), "{}: {place:?}", rig.kind);
        // Longer than its window: the server may stand still.
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
            assert!(rig.pttl(i) > 30_000, "{}: a short window does not shorten it", rig.kind);
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
        rig.age_place(&b, 2_000);
        let aged = int(&rig.place(&b)[1]);
        let answer = rig.acquire("keep", &b, Ask { lease: 5_000, ..USUAL }).unwrap();
        let (_, _, same) = assert_busy(rig.kind, &answer);
        assert_eq!(same, arrival, "{}", rig.kind);
        let place = rig.place(&b);
        assert!(int(&place[1]) >= aged + 2_000_000, "{}: heard now", rig.kind);
        assert_eq!(place[0], "5000", "{}: the new lease", rig.kind);
        assert_eq!(rig.queue(), [b, c], "{}", rig.kind);
    }
}

#[test]
fn waiting_twice_is_one_place() {
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
        // Half a place is none.
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
fn a_lost_place_comes_back_where_it_was() {
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

// ---- the loop that lets in -----------------------------------------------------------------

#[test]
fn leaving_lets_the_first_in_and_tells_it_in_so_many_words() {
    for mut rig in rigs("grant") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let mut inboxes = ["b", "c"].map(|who| rig.inbox(server(), who));
        let first = assert_in(rig.kind, &rig.try_(&a), LEASE);
        rig.acquire("wait", &b, Ask { lease: 12_345, waiter_timeout: 60_000, ..USUAL }).unwrap();
        rig.wait(&c);
        assert_eq!(rig.leave(&a), ["1"], "{}", rig.kind);
        let number = rig.fence();
        assert!(number > first, "{}", rig.kind);
        // The lease of its place, not that of whoever left.
        assert_eq!(messages(&rig, &mut inboxes[0], "b"), [format!("{b} in {number} 12345")]);
        assert!(messages(&rig, &mut inboxes[1], "c").is_empty(), "{}", rig.kind);
        let left = rig.left(&b).unwrap();
        assert!(left <= 12_346 && left > 7_000, "{}: {left}", rig.kind);
        assert_eq!(rig.queue(), [c], "{}", rig.kind);
        // What the message said is what asking says.
        assert_eq!(rig.keep(&b)[..2], ["1".to_owned(), number.to_string()], "{}", rig.kind);
    }
}

/// It may be dead: then it costs no more than a silent place.
#[test]
fn whom_a_message_tells_is_let_in_for_a_window() {
    for mut rig in rigs("first lease") {
        let (a, b) = (rig.a(), rig.b());
        let mut inbox = rig.inbox(server(), "b");
        for (lease, waiter_timeout, first) in
            [(LEASE, 3_000, 3_000), (2_500, 3_000, 2_500), (LEASE, 200, 1_000)]
        {
            rig.try_(&a);
            rig.acquire("wait", &b, Ask { lease, waiter_timeout, ..USUAL }).unwrap();
            rig.leave(&a);
            let number = rig.fence();
            assert_eq!(messages(&rig, &mut inbox, "b"), [format!("{b} in {number} {first}")]);
            let left = rig.left(&b).unwrap();
            assert!(left <= first + 1 && left > first / 2, "{}: {left}", rig.kind);
            // Its own next ask and its renewal are answered: they know that it lives.
            assert_eq!(rig.renew(&b, lease).unwrap(), [lease.to_string()], "{}", rig.kind);
            rig.leave(&b);
        }
        rig.try_(&a);
        rig.wait(&b);
        let answer = rig.leave_next(&a, false, &b).unwrap();
        assert_eq!(answer[3], LEASE.to_string(), "{}: by an answer for all of it", rig.kind);
    }
}

#[test]
fn silent_heads_are_dropped_by_their_own_window() {
    for mut rig in rigs("silent") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let mut inboxes = ["b", "c"].map(|who| rig.inbox(server(), who));
        rig.try_(&a);
        rig.acquire("wait", &b, Ask { waiter_timeout: 60_000, ..USUAL }).unwrap();
        rig.wait(&c);
        // Within its own window, though beyond the others'.
        rig.age_place(&b, 50_000);
        rig.leave(&a);
        assert_eq!(messages(&rig, &mut inboxes[0], "b").len(), 1, "{}", rig.kind);
        rig.leave(&b);
        assert_eq!(messages(&rig, &mut inboxes[1], "c").len(), 1, "{}", rig.kind);
        // Beyond it: the next one gets in, and nothing is said to the dead.
        rig.acquire("wait", &b, Ask { waiter_timeout: 60_000, ..USUAL }).unwrap();
        let d = rig.id("c", 2);
        rig.wait(&d);
        rig.age_place(&b, 61_000);
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
        rig.age_place(&b, WINDOW + 1_000);
        rig.set_lease(&a, -1);
        assert_in(rig.kind, &rig.try_(&c), LEASE);
        assert!(rig.queue().is_empty(), "{}", rig.kind);
    }
}

#[test]
fn a_grant_that_nobody_hears_is_undone_and_goes_to_the_next() {
    for mut rig in rigs("unheard") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let mut inbox = rig.inbox(server(), "c");
        let first = assert_in(rig.kind, &rig.try_(&a), LEASE);
        let (_, _, arrival) = assert_busy(rig.kind, &rig.wait(&b));
        rig.wait(&c);
        rig.leave(&a);
        let number = rig.fence();
        assert!(number >= first + 2, "{}: the grant that was undone has used a number", rig.kind);
        assert_eq!(messages(&rig, &mut inbox, "c"), [format!("{c} in {number} {FIRST}")], "{}", rig.kind);
        assert!(rig.left(&b).is_none() && rig.left(&c).is_some(), "{}", rig.kind);
        // Its place is lost, and it may have it back.
        assert_eq!(rig.keep(&b), ["-1", "gone"], "{}", rig.kind);
        let d = rig.id("d", 1);
        rig.wait(&d);
        rig.acquire("wait", &b, Ask { arrival: &arrival, ..USUAL }).unwrap();
        assert_eq!(rig.queue(), [b, d], "{}", rig.kind);
    }
}

/// Another server may have its messages, with those who listen there: as a pattern has them here, which does not
/// count as listening either.
#[test]
fn what_is_taken_back_was_told_to_nobody() {
    for mut rig in rigs("untold") {
        let (a, b) = (rig.a(), rig.b());
        let mut elsewhere = server().connection().unwrap();
        let pattern = cmd("PSUBSCRIBE").arg(format!("{PREFIX}{}*", rig.name)).get_packed_command();
        elsewhere.send_packed_command(&pattern).unwrap();
        elsewhere.recv_response().unwrap();
        rig.try_(&a);
        rig.wait(&b);
        rig.leave(&a);
        assert_eq!(rig.our_keys(), [3], "{}: nothing is left but the fence", rig.kind);
        let mark: i64 = rig.con.publish(format!("{PREFIX}{}-mark", rig.name), "mark").unwrap();
        let message = format!("{:?}", elsewhere.recv_response().unwrap());
        assert_eq!((mark, message.contains("mark")), (1, true), "{}: {message}", rig.kind);
    }
}

#[test]
fn a_waiter_is_told_that_nobody_listens_for_it() {
    for mut rig in rigs("told-deaf") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let ask = |rig: &mut Rig, how: &str, owner: &str| {
            let source = rig.scripts.acquire.clone();
            let mut answer = rig.eval(&source, &[owner, "30000", PREFIX, "3000", how, "1", RECORD]).unwrap();
            let deaf = is_deaf(&mut answer, 0);
            assert_busy(rig.kind, &answer);
            deaf
        };
        rig.try_(&a);
        assert!(ask(&mut rig, "wait", &b) && ask(&mut rig, "keep", &b), "{}", rig.kind);
        assert!(!ask(&mut rig, "try", &c), "{}: it has no place in which to hear anything", rig.kind);
        let inbox = rig.inbox(server(), "b");
        assert!(!ask(&mut rig, "wait", &b) && !ask(&mut rig, "keep", &b), "{}", rig.kind);
        drop(inbox);
        wait_until(Duration::from_secs(5), "it has gone", || ask(&mut rig, "keep", &b));
    }
}

/// Then nobody can be asked about, and everybody is believed to listen.
#[test]
fn without_the_right_to_ask_who_listens_a_grant_stands() {
    for mut rig in rigs("no-numsub") {
        let (a, b) = (rig.a(), rig.b());
        let user = format!("{}-user", rig.name);
        let rights = ["on", "nopass", "~*", "&*", "+@all", "-pubsub"];
        cmd("ACL").arg("SETUSER").arg(&user).arg(&rights).exec(&mut rig.con).unwrap();
        cmd("AUTH").arg(&user).arg("x").exec(&mut rig.con).unwrap();
        rig.try_(&a);
        assert_busy(rig.kind, &rig.wait(&b));
        rig.leave(&a);
        assert_eq!(rig.keep(&b)[0], "1", "{}: it finds itself inside", rig.kind);
        server().connection().and_then(|mut c| cmd("ACL").arg("DELUSER").arg(&user).exec(&mut c)).unwrap();
    }
}

#[test]
fn with_nobody_to_hear_the_lock_is_free() {
    for mut rig in rigs("deaf") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        rig.try_(&a);
        rig.wait(&b);
        rig.wait(&c);
        assert_eq!(rig.leave(&a), ["1"], "{}", rig.kind);
        assert_eq!(rig.our_keys(), [3], "{}: nothing is left but the fence", rig.kind);
    }
}

#[test]
fn a_head_that_gives_up_does_not_leave_others_asleep() {
    for mut rig in rigs("gives-up") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let mut inbox = rig.inbox(server(), "c");
        rig.try_(&a);
        rig.wait(&b);
        rig.wait(&c);
        rig.set_lease(&a, -1);
        assert_eq!(rig.leave(&b), ["0"], "{}: it was not inside", rig.kind);
        assert_eq!(messages(&rig, &mut inbox, "c").len(), 1, "{}", rig.kind);
        assert!(rig.left(&c).is_some(), "{}", rig.kind);
    }
}

#[test]
fn the_next_beat_of_anybody_finds_a_lapsed_holder() {
    for mut rig in rigs("beat-lapse") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let mut inbox = rig.inbox(server(), "b");
        rig.try_(&a);
        rig.wait(&b);
        rig.wait(&c);
        rig.set_lease(&a, -1);
        assert_busy(rig.kind, &rig.keep(&c));
        assert_eq!(messages(&rig, &mut inbox, "b").len(), 1, "{}", rig.kind);
        rig.set_lease(&b, -1);
        // And its own, without a message.
        assert_in(rig.kind, &rig.keep(&c), LEASE);
        assert!(!rig.exists(1) && !rig.exists(2), "{}", rig.kind);
    }
}

// ---- leave ---------------------------------------------------------------------------------

#[test]
fn leaving_is_idempotent_and_leaves_only_the_fence() {
    for mut rig in rigs("leave") {
        let a = rig.a();
        rig.try_(&a);
        assert_eq!(rig.leave(&a), ["1"], "{}", rig.kind);
        assert_eq!(rig.leave(&a), ["0"], "{}", rig.kind);
        assert_eq!(rig.our_keys(), [3], "{}", rig.kind);
    }
}

#[test]
fn a_late_leave_does_not_hit_the_next_hold() {
    for mut rig in rigs("late-leave") {
        let (a, b) = (rig.a(), rig.b());
        rig.try_(&a);
        rig.leave(&a);
        rig.try_(&b);
        assert_eq!(rig.leave(&a), ["0"], "{}", rig.kind);
        assert!(rig.left(&b).is_some(), "{}", rig.kind);
    }
}

#[test]
fn leave_takes_out_of_the_queue_as_well() {
    for mut rig in rigs("leave-queue") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        rig.try_(&a);
        rig.wait(&b);
        rig.wait(&c);
        assert_eq!(rig.leave(&b), ["0"], "{}", rig.kind);
        assert_eq!(rig.queue(), [c], "{}", rig.kind);
        assert!(rig.left(&a).is_some(), "{}: the holder is not touched", rig.kind);
    }
}

#[test]
fn leave_for_the_next_one_asks_in_the_same_trip() {
    for mut rig in rigs("leave-next") {
        let (a, b) = (rig.a(), rig.b());
        let mut inbox = rig.inbox(server(), "b");
        rig.try_(&a);
        // Nobody else waits: in at once.
        let second = rig.id("a", 2);
        let answer = rig.leave_next(&a, false, &second).unwrap();
        assert_eq!(answer[0], "1", "{}", rig.kind);
        assert_in(rig.kind, &answer[1..], LEASE);
        assert!(rig.left(&second).is_some(), "{}", rig.kind);
        // Somebody does: behind it.
        rig.wait(&b);
        let third = rig.id("a", 3);
        let answer = rig.leave_next(&second, false, &third).unwrap();
        assert_eq!(answer[0], "1", "{}", rig.kind);
        let (floor, _, arrival) = assert_busy(rig.kind, &answer[1..]);
        assert_eq!(messages(&rig, &mut inbox, "b"), [format!("{b} in {floor} {FIRST}")], "{}", rig.kind);
        assert!(!arrival.is_empty(), "{}", rig.kind);
        assert_eq!(rig.queue(), [third], "{}", rig.kind);
    }
}

#[test]
fn the_next_one_is_asked_for_even_if_the_owner_was_not_inside() {
    for mut rig in rigs("outside-next") {
        let (a, b) = (rig.a(), rig.b());
        let next = rig.id("a", 2);
        let answer = rig.leave_next(&a, false, &next).unwrap();
        assert_eq!(answer[0], "0", "{}", rig.kind);
        assert_in(rig.kind, &answer[1..], LEASE);
        let answer = rig.leave_next(&a, true, &b).unwrap();
        assert_eq!(answer[0], "0", "{}", rig.kind);
        assert_busy(rig.kind, &answer[1..]);
        // A second copy of the same request changes nothing.
        let again = rig.leave_next(&a, true, &b).unwrap();
        assert_eq!(again[4], answer[4], "{}: the same place", rig.kind);
        assert_eq!(rig.queue(), [b], "{}", rig.kind);
    }
}

#[test]
fn tombstones_refuse_their_owner_alone_for_a_minute() {
    for mut rig in rigs("gone") {
        let (a, b) = (rig.a(), rig.b());
        rig.try_(&a);
        let before = rig.now() / 1000;
        assert_eq!(rig.leave_unsettled(&a).unwrap(), ["1"], "{}", rig.kind);
        let after = rig.now() / 1000 + 1;
        let ends: i64 = rig.con.zscore(&rig.keys[4], &a).unwrap();
        assert!((before + 60_000..=after + 60_000).contains(&ends), "{}: {ends}", rig.kind);
        let ttl = rig.pttl(4);
        assert!(ttl > 55_000 && ttl <= 60_000, "{}: {ttl}", rig.kind);
        let state = rig.everything();
        for how in ["try", "wait", "keep"] {
            assert_eq!(rig.acquire(how, &a, USUAL).unwrap(), ["-1", "over"], "{} {how}", rig.kind);
        }
        assert_eq!(rig.leave_next(&b, false, &a).unwrap(), ["0", "-1", "over"], "{}", rig.kind);
        assert_eq!(rig.everything(), state, "{}: a late copy leaves no trace", rig.kind);
        assert_in(rig.kind, &rig.try_(&b), LEASE);
    }
}

#[test]
fn a_tombstone_is_written_for_an_owner_that_was_never_inside() {
    for mut rig in rigs("gone-outside") {
        let (a, b) = (rig.a(), rig.b());
        // Its ask is still on its way when it leaves.
        assert_eq!(rig.leave_unsettled(&a).unwrap(), ["0"], "{}", rig.kind);
        assert_eq!(rig.wait(&a), ["-1", "over"], "{}", rig.kind);
        assert!(!rig.exists(0), "{}", rig.kind);
        // And for one that waits.
        rig.try_(&b);
        let c = rig.c();
        rig.wait(&c);
        assert_eq!(rig.leave_unsettled(&c).unwrap(), ["0"], "{}", rig.kind);
        assert_eq!(rig.keep(&c), ["-1", "over"], "{}", rig.kind);
        assert!(rig.queue().is_empty(), "{}", rig.kind);
    }
}

#[test]
fn old_tombstones_go_when_a_new_one_comes() {
    for mut rig in rigs("gone-old") {
        let (a, b) = (rig.a(), rig.b());
        rig.leave_unsettled(&a).unwrap();
        let past = rig.now() / 1000 - 1;
        let _: () = rig.con.zadd(&rig.keys[4], &a, past).unwrap();
        rig.leave_unsettled(&b).unwrap();
        let there: Vec<String> = rig.con.zrange(&rig.keys[4], 0, -1).unwrap();
        assert_eq!(there, [b], "{}", rig.kind);
    }
}

// ---- renew and inspect ---------------------------------------------------------------------

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
        assert_eq!(rig.renew(&b, LEASE).unwrap(), ["-1"], "{}: a place is not renewed", rig.kind);
        rig.set_lease(&a, -1);
        assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-1"], "{}: what lapsed stays so", rig.kind);
        assert!(rig.left(&a).is_none(), "{}", rig.kind);
    }
}

#[test]
fn inspecting_tells_holders_and_live_places_and_writes_nothing() {
    for mut rig in rigs("inspect") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        assert_eq!(rig.inspect().unwrap(), [vec!["0".to_owned()], vec![], vec![], vec![]], "{}", rig.kind);
        assert!(rig.our_keys().is_empty(), "{}", rig.kind);
        let number = assert_in(rig.kind, &rig.try_(&a), LEASE);
        rig.wait(&b);
        rig.wait(&c);
        rig.age_place(&b, WINDOW + 1_000);
        let before = rig.everything();
        let told = rig.inspect().unwrap();
        assert_eq!(rig.everything(), before, "{}", rig.kind);
        assert_eq!(told[0], [number.to_string()], "{}", rig.kind);
        let record = if rig.kind == "reentrant" { RECORD } else { "" };
        assert_eq!((told[1][0].as_str(), told[1][2].as_str()), (a.as_str(), record), "{}", rig.kind);
        let left = int(&told[1][1]);
        assert!(left <= LEASE + 1 && left > LEASE - 5_000, "{}: {left}", rig.kind);
        assert_eq!(told[2], [c, RECORD.to_owned()], "{}: the silent one is not told", rig.kind);
    }
}

#[test]
fn a_bare_key_of_somebody_else_is_a_simple_lock_that_is_held() {
    let mut rig = Rig::of(server(), "simple", Simple::RULE, "bare");
    let _: () = rig.con.set(&rig.keys[0], "another client's text").unwrap();
    let a = rig.a();
    let (floor, again, _) = assert_busy("simple", &rig.try_(&a));
    assert_eq!(floor, 0);
    assert!(again <= 1_000, "{again}");
    let told = rig.inspect().unwrap();
    assert_eq!(told[1], ["another client's text", "-1", ""], "no end, no record");
    assert_eq!(rig.leave(&a), ["0"]);
    assert!(rig.exists(0));
}

// ---- another kind's key --------------------------------------------------------------------

/// It names the key, and says what that is.
fn refuses(error: &str, key: &str) -> bool {
    error.contains(&format!("WRONGTYPE key \"{key}\" is a"))
}

#[test]
fn a_strangers_key_is_refused_and_never_written() {
    for mut rig in rigs("alien") {
        let makes: Vec<(&str, &[&str])> = match rig.kind {
            "simple" => vec![("HSET", &["kind", "reentrant lock"]), ("RPUSH", &["x"])],
            "reentrant" => vec![("SET", &["x"]), ("HSET", &["kind", "another"]), ("HSET", &["field", "x"])],
            _ => vec![("SET", &["x"]), ("HSET", &["kind", "x"])],
        };
        for (verb, rest) in makes {
            let (a, b) = (rig.a(), rig.b());
            let _: () = cmd(verb).arg(&rig.keys[0]).arg(rest).query(&mut rig.con).unwrap();
            let before = rig.everything();
            for how in ["try", "wait", "keep"] {
                let error = rig.acquire(how, &a, USUAL).unwrap_err();
                assert!(refuses(&error.to_string(), &rig.keys[0]), "{} {how}: {error}", rig.kind);
            }
            let error = rig.inspect().unwrap_err();
            assert!(refuses(&error.to_string(), &rig.keys[0]), "{}: {error}", rig.kind);
            assert_eq!(rig.everything(), before, "{} {verb}: nothing was written", rig.kind);
            // What leaves or renews finds that it is not inside.
            match rig.renew(&a, LEASE) {
                Ok(answer) => assert_eq!(answer, ["-1"], "{}", rig.kind),
                Err(error) => assert!(error.to_string().contains("WRONGTYPE"), "{}: {error}", rig.kind),
            }
            for error in [rig.leave_unsettled(&a).err(), rig.leave_next(&a, false, &b).err()] {
                let error = error.map(|e| e.to_string()).unwrap_or_default();
                assert!(error.contains("WRONGTYPE"), "{}: {error}", rig.kind);
            }
            assert_eq!(rig.everything()[0], before[0], "{} {verb}: the stranger's key", rig.kind);
            let _: () = rig.con.del(&rig.keys).unwrap();
        }
    }
}

// ---- numbers -------------------------------------------------------------------------------

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

// ---- what a rule may define besides --------------------------------------------------------

/// A simple lock with classes, refusals and a note of who went without a grant.
const EXTRAS: &str = "
function kind.class(w)
  return tonumber(w.args) or 0
end
function kind.reject(w)
  if w.args == 'never' or redis.call('EXISTS', K[1] .. ':shut') == 1 then return 'shut' end
end
function kind.can_barge(w)
  return w.args == 'pass'
end
function kind.on_leave(w, why)
  redis.call('RPUSH', K[1] .. ':left', w.owner .. ' ' .. why)
end
";

#[test]
fn classes_order_before_arrivals() {
    let mut rig = Rig::of(server(), "simple", &format!("{}\n{EXTRAS}", Simple::RULE), "class");
    let owner = rig.a();
    rig.try_(&owner);
    let ids: Vec<_> = (1..=4).map(|n| rig.id("w", n)).collect();
    for (id, args) in ids.iter().zip(["1", "0", "1", "0"]) {
        let answer = rig.acquire("wait", id, Ask { args, ..USUAL }).unwrap();
        let (_, _, arrival) = assert_busy("class", &answer);
        assert!(int(&arrival) < 1 << 50, "the arrival is told without its class");
    }
    assert_eq!(rig.queue(), [1, 3, 0, 2].map(|i: usize| ids[i].clone()));
}

#[test]
fn a_refusal_comes_before_queueing_and_at_the_head() {
    let mut rig = Rig::of(server(), "simple", &format!("{}\n{EXTRAS}", Simple::RULE), "refuse");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    for how in ["try", "wait"] {
        let never = Ask { args: "never", ..USUAL };
        assert_eq!(rig.acquire(how, &b, never).unwrap(), ["-1", "shut"], "{how} on a free lock");
    }
    assert!(rig.our_keys().is_empty());
    rig.try_(&a);
    for how in ["try", "wait"] {
        let never = Ask { args: "never", ..USUAL };
        let answer = rig.acquire(how, &b, never).unwrap();
        // A try on a lock that is held is simply busy.
        assert!(answer == ["-1", "shut"] || (how == "try" && answer[0] == "0"), "{how}: {answer:?}");
        assert!(rig.queue().is_empty(), "{how}");
    }
    // It waits, and then nobody may come in any more.
    let mut inbox = rig.inbox(server(), "b");
    rig.wait(&b);
    let shut = format!("{}:shut", rig.keys[0]);
    let _: () = rig.con.set(&shut, 1).unwrap();
    rig.leave(&a);
    let told = messages(&rig, &mut inbox, "b");
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].starts_with(&format!("{b} no:shut 0 ")), "{told:?}");
    assert!(!rig.exists(0) && !rig.exists(1) && !rig.exists(2));
    assert_eq!(rig.wait(&c), ["-1", "shut"]);
    let _: () = rig.con.del(shut).unwrap();
}

#[test]
fn a_caller_that_may_pass_does_not_queue_and_one_that_goes_without_is_told_to_the_rule() {
    let mut rig = Rig::of(server(), "simple", &format!("{}\n{EXTRAS}", Simple::RULE), "passes");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    rig.try_(&a);
    rig.wait(&b);
    let d = rig.id("d", 1);
    rig.wait(&d);
    rig.set_lease(&a, -1);
    // `b` waits alive: one that may pass goes first all the same.
    assert_in("passes", &rig.acquire("wait", &c, Ask { args: "pass", ..USUAL }).unwrap(), LEASE);
    rig.leave(&b);
    rig.age_place(&d, WINDOW + 1_000);
    rig.leave(&c);
    let left: Vec<String> = rig.con.lrange(format!("{}:left", rig.keys[0]), 0, -1).unwrap();
    assert_eq!(left, [format!("{b} left"), format!("{d} silent")]);
}

// ---- a full Redis --------------------------------------------------------------------------

#[test]
fn a_full_redis_refuses_newcomers_and_nothing_else() {
    let server = server_that_fills();
    for mut rig in rigs_on(&server, "full") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let (e, f) = (rig.id("e", 1), rig.id("f", 1));
        let _inbox = rig.inbox(&server, "b");
        rig.full(true);
        for how in ["try", "wait"] {
            rig.has_no_room_for(how, &a, USUAL);
        }
        rig.full(false);
        rig.try_(&a);
        rig.wait(&b);
        rig.full(true);
        let before = rig.everything();
        // A rule that prunes its own state first has written something that cannot grow: it passes.
        if rig.kind != "bulkhead" {
            rig.acquire("wait", &c, USUAL).unwrap_err();
            assert_eq!(rig.everything(), before, "{}: a newcomer leaves no trace", rig.kind);
        }
        // Who is there stays: its hold, its place.
        assert!(int(&rig.renew(&a, LEASE).unwrap()[0]) > 0, "{}", rig.kind);
        assert_busy(rig.kind, &rig.acquire("keep", &b, USUAL).unwrap());
        // Who leaves lets the next one in, with its number, its message and the tombstone.
        assert_eq!(rig.leave_unsettled(&a).unwrap(), ["1"], "{}", rig.kind);
        assert!(rig.left(&b).is_some(), "{}", rig.kind);
        assert_eq!(rig.wait(&a), ["-1", "over"], "{}", rig.kind);
        // Also one that was not inside, and with an ask for the next of its process.
        assert_eq!(rig.leave_unsettled(&e).unwrap(), ["0"], "{}", rig.kind);
        assert_eq!(rig.leave_next(&b, true, &f).unwrap()[..2], ["1", "1"], "{}", rig.kind);
        assert!(rig.left(&f).is_some(), "{}", rig.kind);
        rig.full(false);
    }
}

// ---- rights --------------------------------------------------------------------------------

#[test]
fn without_the_right_to_publish_a_grant_counts_as_heard() {
    let server = RedisServer::start().unwrap();
    for mut rig in rigs_on(&server, "acl") {
        let (a, b) = (rig.a(), rig.b());
        let mut admin = server.connection().unwrap();
        let rules = ["on", "nopass", "~rc:*", "resetchannels", "+@all"];
        let _: () = cmd("ACL").arg("SETUSER").arg("mute").arg(&rules).query(&mut admin).unwrap();
        let mut inbox = rig.inbox(&server, "b");
        let _: () = cmd("AUTH").arg("mute").arg("x").query(&mut rig.con).unwrap();
        rig.try_(&a);
        rig.wait(&b);
        assert_eq!(rig.leave(&a), ["1"], "{}", rig.kind);
        // It has the lock, and its own next beat tells it.
        assert_in(rig.kind, &rig.keep(&b), FIRST);
        let channel = format!("{PREFIX}{}-b", rig.name);
        assert!(heard(&server, &mut inbox, &channel).is_empty(), "{}", rig.kind);
    }
}

// ---- a server that stood still ---------------------------------------------------------------

/// The silence of all who wait was the server's: nobody passes them, and nobody is let in before it was heard.
#[test]
fn a_waiter_kept_from_being_heard_keeps_its_place() {
    for first in ["leave", "wait", "try", "keep"] {
        for mut rig in rigs(&format!("stall-{first}")) {
            let (a, b, c, d) = (rig.a(), rig.b(), rig.c(), rig.id("d", 1));
            let _inboxes = ["b", "c"].map(|who| rig.inbox(server(), who));
            rig.try_(&a);
            for owner in [&b, &c] {
                rig.wait(owner);
            }
            rig.stand_still(&[&b, &c], 10_000);
            let kind = rig.kind;
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

/// Whoever is dead after that is so a window later, and all of them together.
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
        rig.age_place(&b, WINDOW / 2);
        assert_busy(rig.kind, &rig.keep(&d));
        assert_eq!(rig.queue(), [b.clone(), c.clone(), d.clone()], "{}", rig.kind);
        for owner in [&b, &c] {
            rig.age_place(owner, WINDOW + 1);
        }
        assert_in(rig.kind, &rig.keep(&d), LEASE);
        assert!(rig.queue().is_empty(), "{}", rig.kind);
    }
}

/// Where others were heard all the while, the silence is the waiter's own: it has no second window.
#[test]
fn a_waiter_silent_while_others_are_heard_is_dropped_at_once() {
    for mut rig in rigs("stall-alone") {
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let _inbox = rig.inbox(server(), "c");
        rig.try_(&a);
        for owner in [&b, &c] {
            rig.wait(owner);
        }
        rig.stand_still(&[&b], WINDOW + 1);
        rig.steady(&[&c], WINDOW + 1);
        rig.leave(&a);
        assert!(rig.left(&c).is_some() && rig.queue().is_empty(), "{}", rig.kind);
    }
}
