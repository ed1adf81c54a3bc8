//! The loop that admits waiters, and tells them.

use redis::{Commands, cmd};
use redis_concurrent_testkit::{eventually, wait_until};

use super::rigs;
use crate::rig::{
    Ask, FIRST, LEASE, OVERDUE, PREFIX, RECORD, Rig, USUAL, WAITER_TIMEOUT, assert_busy, assert_in, is_deaf,
    messages, server,
};
use crate::support::LONG;

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
        // The lease that it asked for, not that of the former holder.
        assert_eq!(messages(&rig, &mut inboxes[0], "b"), [format!("{b} in {number} 12345")]);
        assert!(messages(&rig, &mut inboxes[1], "c").is_empty(), "{}", rig.kind);
        let left = rig.left(&b).unwrap();
        assert!(left <= 12_346 && left > 7_000, "{}: {left}", rig.kind);
        assert_eq!(rig.queue(), [c], "{}", rig.kind);
        // What the message said is what asking says.
        assert_eq!(rig.keep(&b)[..2], ["1".to_owned(), number.to_string()], "{}", rig.kind);
    }
}

/// It may be dead: then it costs no more than a silent queue position.
#[test]
fn whom_a_message_tells_is_let_in_for_a_window() {
    for mut rig in rigs("first lease") {
        let (a, b) = (rig.a(), rig.b());
        let mut inbox = rig.inbox(server(), "b");
        for (lease, waiter_timeout, first) in
            [(LEASE, 3_000, 3_000), (2_500, 3_000, 2_500), (LEASE, 500, 1_000)]
        {
            // Once more where the machine stood still, and all was over meanwhile.
            let (number, received, left, renewed) = eventually(LONG, || {
                rig.try_(&a);
                let began = rig.now();
                rig.acquire("wait", &b, Ask { lease, waiter_timeout, ..USUAL }).unwrap();
                rig.leave(&a);
                let (number, received) = (rig.fence(), messages(&rig, &mut inbox, "b"));
                let left = rig.left(&b);
                // Its own next ask and its renewal are answered: they know that it lives.
                let renewed = rig.renew(&b, lease).unwrap();
                let took = (rig.now() - began) / 1000;
                rig.leave(&b);
                (took < waiter_timeout.min(first / 2)).then_some((number, received, left, renewed))
            });
            assert_eq!(received, [format!("{b} in {number} {first}")]);
            let left = left.unwrap();
            assert!(left <= first + 1 && left > first / 2, "{}: {left}", rig.kind);
            assert_eq!(renewed, [lease.to_string()], "{}", rig.kind);
        }
        rig.try_(&a);
        rig.wait(&b);
        let answer = rig.leave_next(&a, false, &b).unwrap();
        assert_eq!(answer[3], LEASE.to_string(), "{}: by an answer for all of it", rig.kind);
    }
}

/// Its inbox broke a moment ago: nobody passes it, whoever listens, until a heartbeat of it is overdue.
#[test]
fn a_waiter_that_does_not_listen_is_waited_for_until_its_heartbeat_is_overdue() {
    for comes_back in [true, false] {
        for mut rig in rigs(&format!("broke-{comes_back}")) {
            let (a, b, c, d) = (rig.a(), rig.b(), rig.c(), rig.id("d", 1));
            let _inbox = rig.inbox(server(), "c");
            rig.try_(&a);
            rig.wait(&b);
            rig.wait(&c);
            rig.leave(&a);
            assert_busy(rig.kind, &rig.try_(&d));
            let (_, again, _) = assert_busy(rig.kind, &rig.keep(&c));
            assert!(again <= WAITER_TIMEOUT / 2, "{}: {again}", rig.kind);
            assert_eq!(rig.queue(), [b.clone(), c.clone()], "{}", rig.kind);
            if comes_back {
                assert_in(rig.kind, &rig.keep(&b), LEASE);
            } else {
                rig.age_position(&b, OVERDUE);
                assert_in(rig.kind, &rig.keep(&c), LEASE);
            }
        }
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
        rig.age_position(&b, OVERDUE);
        rig.leave(&a);
        let number = rig.fence();
        assert!(number >= first + 2, "{}: the grant that was undone has used a number", rig.kind);
        assert_eq!(messages(&rig, &mut inbox, "c"), [format!("{c} in {number} {FIRST}")], "{}", rig.kind);
        assert!(rig.left(&b).is_none() && rig.left(&c).is_some(), "{}", rig.kind);
        // Its queue position is lost, and it may have it back.
        assert_eq!(rig.keep(&b), ["-1", "gone"], "{}", rig.kind);
        let d = rig.id("d", 1);
        rig.wait(&d);
        rig.acquire("wait", &b, Ask { arrival: &arrival, ..USUAL }).unwrap();
        assert_eq!(rig.queue(), [b, d], "{}", rig.kind);
    }
}

/// Another server may have its messages, with subscribers there: as a pattern has them here, which does not
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
        rig.age_position(&b, OVERDUE);
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
        assert!(
            !ask(&mut rig, "try", &c),
            "{}: it has no queue position in which to hear anything",
            rig.kind
        );
        let inbox = rig.inbox(server(), "b");
        assert!(!ask(&mut rig, "wait", &b) && !ask(&mut rig, "keep", &b), "{}", rig.kind);
        drop(inbox);
        wait_until(LONG, "it has gone", || ask(&mut rig, "keep", &b));
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
        for waiter in [&b, &c] {
            rig.wait(waiter);
            rig.age_position(waiter, OVERDUE);
        }
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
fn the_next_heartbeat_of_anybody_finds_a_lapsed_holder() {
    for mut rig in rigs("heartbeat-lapse") {
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
