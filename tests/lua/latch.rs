//! The operations of a latch straight against a server, below the client.

use redis::Commands;
use redis_concurrent::kinds::{Kind, Reentrant};

use crate::rig::{Ask, Rig, USUAL, int, messages, server, server_that_fills};

const RULE: &str = include_str!("../../lua/latch.lua");

fn rig(name: &str) -> Rig {
    Rig::of(server(), "latch", RULE, name)
}

fn update(rig: &mut Rig, n: u64, what: &[&str]) -> i64 {
    let id = rig.id("changes", n);
    int(&rig.update(&id, what).unwrap()[0])
}

fn count(rig: &mut Rig) -> i64 {
    int(&rig.inspect().unwrap()[3][0])
}

#[test]
fn at_nothing_all_waiters_are_told_in_order_and_nobody_is_inside() {
    let mut rig = rig("all");
    let mut inboxes = ["a", "b"].map(|who| rig.inbox(server(), who));
    assert_eq!(update(&mut rig, 1, &["set", "2"]), 1);
    let waiters = [rig.id("a", 1), rig.id("b", 1), rig.id("a", 2)];
    for owner in &waiters {
        assert_eq!(rig.wait(owner)[0], "0");
    }
    assert_eq!(update(&mut rig, 2, &["down"]), 1);
    assert_eq!(rig.queue(), waiters);
    assert_eq!(update(&mut rig, 3, &["down"]), 0);
    assert!(rig.queue().is_empty());
    let received = ["a", "b"].map(|who| messages(&rig, &mut inboxes[usize::from(who == "b")], who));
    assert_eq!(received.each_ref().map(Vec::len), [2, 1], "{received:?}");
    assert!(received[0][0].starts_with(&format!("{} in ", waiters[0])), "{received:?}");
    assert!(received[0][1].starts_with(&format!("{} in ", waiters[2])), "{received:?}");
    let [_, holders, positions, state] = &rig.inspect().unwrap()[..] else { panic!() };
    assert!(holders.is_empty() && positions.is_empty());
    assert_eq!(state[..], ["0"]);
    // One that missed its message asks again, and so does anybody else.
    for owner in [&waiters[0], &rig.id("c", 1)] {
        assert_eq!(rig.keep(owner)[..2], ["-1", "gone"]);
        assert_eq!(rig.wait(owner)[0], "1");
        assert_eq!(rig.try_(owner)[0], "1");
        assert_eq!(rig.leave(owner), ["0"]);
    }
}

#[test]
fn what_is_sent_twice_is_done_once_and_answered_alike() {
    let mut rig = rig("twice");
    // An id each; what comes in between is another's.
    for _ in 0..2 {
        assert_eq!(update(&mut rig, 1, &["set", "3"]), 1);
        assert_eq!(update(&mut rig, 2, &["set", "4"]), 0);
    }
    for _ in 0..2 {
        assert_eq!(update(&mut rig, 3, &["down"]), 2);
    }
    for _ in 0..2 {
        assert_eq!(update(&mut rig, 4, &["expire", "60000"]), 1);
        assert_eq!(update(&mut rig, 5, &["reset", "2"]), 1);
    }
    assert_eq!((count(&mut rig), rig.pttl(0)), (2, -1));
    for _ in 0..2 {
        assert_eq!(update(&mut rig, 6, &["delete"]), 1);
        assert_eq!(update(&mut rig, 7, &["delete"]), 0);
        assert_eq!(update(&mut rig, 8, &["down"]), -1);
    }
    assert_eq!(count(&mut rig), -1);
}

#[test]
fn a_waiter_that_did_not_hear_of_it_is_told_when_it_asks_again_and_newcomers_are_not_concerned() {
    let mut rig = rig("bound");
    // Nobody listens there.
    let (old, mut n) = (rig.a(), 1);
    update(&mut rig, 0, &["set", "1"]);
    let mut refuses = |rig: &mut Rig, changes: &[&[&str]], says: &str| {
        let arrival = rig.wait(&old)[3].clone();
        for what in changes {
            update(rig, n, what);
            n += 1;
        }
        assert!(rig.queue().is_empty());
        assert_eq!(rig.keep(&old), ["-1", "gone"]);
        assert_eq!(rig.acquire("wait", &old, Ask { arrival: &arrival, ..USUAL }).unwrap(), ["-1", says]);
        let new = rig.id("b", n);
        if says.ends_with("reset") {
            let arrival = rig.wait(&new)[3].clone();
            assert_eq!(rig.acquire("keep", &new, Ask { arrival: &arrival, ..USUAL }).unwrap()[0], "0");
            rig.leave(&new);
        } else {
            for how in ["wait", "try"] {
                let answer = rig.acquire(how, &new, USUAL).unwrap();
                assert_eq!(answer, ["-1", "this-latch-has-no-count:-try_set_count-comes-first"]);
            }
        }
    };
    refuses(&mut rig, &[&["reset", "1"]], "broken-it-was-reset");
    refuses(&mut rig, &[&["delete"], &["set", "1"]], "broken-it-was-reset");
    // With the clock set back, too.
    let (ahead, new) = (rig.now() + 60_000_000, rig.c());
    let _: () = rig.con.hset(&rig.keys[0], "bound", ahead).unwrap();
    let arrival = rig.wait(&new)[3].clone();
    assert_eq!(rig.acquire("keep", &new, Ask { arrival: &arrival, ..USUAL }).unwrap()[0], "0");
    rig.leave(&new);
    refuses(&mut rig, &[&["delete"]], "broken-its-count-was-deleted-or-expired");
}

/// When a count expires, each of its waiters learns it at its next heartbeat, and a caller that sets it anew
/// tells the others.
#[test]
fn a_waiter_for_a_count_that_has_ended_does_not_wait_for_the_next() {
    let mut rig = rig("ended");
    let mut inbox = rig.inbox(server(), "b");
    let (a, b) = (rig.a(), rig.b());
    update(&mut rig, 1, &["set", "1"]);
    let _ = [&a, &b].map(|owner| rig.wait(owner));
    let _: () = rig.con.del(&rig.keys[0]).unwrap();
    assert_eq!(update(&mut rig, 2, &["set", "1"]), 1);
    assert_eq!(messages(&rig, &mut inbox, "b"), [format!("{b} no:broken-it-was-reset 0 0")]);
    assert!(rig.queue().is_empty());
    let arrivals = [&a, &b].map(|owner| rig.wait(owner)[3].clone());
    let _: () = rig.con.del(&rig.keys[0]).unwrap();
    let says = "broken-its-count-was-deleted-or-expired";
    assert_eq!(rig.acquire("keep", &a, Ask { arrival: &arrivals[0], ..USUAL }).unwrap(), ["-1", says]);
    // The other one stood behind it.
    assert_eq!(messages(&rig, &mut inbox, "b"), [format!("{b} no:{says} 0 0")]);
    assert!(rig.queue().is_empty() && count(&mut rig) == -1);
}

#[test]
fn a_waiter_hears_why_it_waits_no_longer() {
    let mut rig = rig("told");
    let mut inbox = rig.inbox(server(), "a");
    let owner = rig.a();
    update(&mut rig, 1, &["set", "1"]);
    rig.wait(&owner);
    update(&mut rig, 2, &["delete"]);
    assert_eq!(messages(&rig, &mut inbox, "a"), [format!("{owner} no:broken-it-was-deleted 0 0")]);
}

#[test]
fn what_was_deleted_leaves_its_name_to_any_kind() {
    let mut rig = rig("name");
    let owner = rig.a();
    update(&mut rig, 1, &["set", "1"]);
    rig.wait(&owner);
    // Another kind on the same keys, which would find a queue of its own there.
    let mut other = Rig::of(server(), "reentrant lock", Reentrant::RULE, "unused");
    other.keys = rig.keys.clone();
    let error = other.acquire("wait", &rig.b(), USUAL).unwrap_err().to_string();
    assert!(error.contains("WRONGTYPE"), "{error}");
    assert_eq!(update(&mut rig, 2, &["delete"]), 1);
    assert_eq!(rig.our_keys(), [4], "the requests that were done, for a minute");
    assert!((1..=60_000).contains(&rig.pttl(4)));
    let b = rig.b();
    assert_eq!(other.wait(&b)[0], "1");
    // Sent once more, it says what the first copy did, and does nothing.
    assert_eq!(other.leave(&b), ["1"]);
    assert_eq!(update(&mut rig, 2, &["delete"]), 1);
    assert_eq!(update(&mut rig, 3, &["delete"]), 0);
}

#[test]
fn a_full_redis_takes_a_count_down_and_lets_in() {
    let server = server_that_fills();
    let mut rig = Rig::of(&server, "latch", RULE, "full");
    let _inbox = rig.inbox(&server, "a");
    update(&mut rig, 1, &["set", "2"]);
    let owner = rig.a();
    rig.wait(&owner);
    rig.full(true);
    assert_eq!(update(&mut rig, 2, &["down"]), 1);
    assert_eq!(rig.keep(&owner)[0], "0");
    assert_eq!(update(&mut rig, 3, &["down"]), 0);
    assert!(rig.queue().is_empty());
    assert_eq!(update(&mut rig, 4, &["delete"]), 1);
}
