//! The operations of a barrier straight against a server, below the client.

use redis::Commands;
use redis_concurrent::kinds::{Kind, Reentrant};

use crate::rig::{Ask, Rig, USUAL, int, messages, server, server_that_fills};

const RULE: &str = include_str!("../../lua/barrier.lua");
/// What an entry and a queue position of these tests live.
const ASK: Ask<'_> = Ask { lease: 3_000, args: "3", ..USUAL };
/// With an action.
const ACTS: Ask<'_> = Ask { args: "3 then", ..ASK };

fn rig(name: &str) -> Rig {
    Rig::of(server(), "barrier", RULE, name)
}

fn arrive(rig: &mut Rig, owner: &str, ask: Ask<'_>) -> Vec<String> {
    rig.acquire("wait", owner, ask).unwrap()
}

/// a and b wait; returns their arrivals.
fn two_wait(rig: &mut Rig) -> [String; 2] {
    [rig.a(), rig.b()].map(|owner| {
        let answer = arrive(rig, &owner, ASK);
        assert_eq!(answer[0], "0", "{answer:?}");
        answer[3].clone()
    })
}

fn again(rig: &mut Rig, how: &str, owner: &str, arrival: &str) -> Vec<String> {
    rig.acquire(how, owner, Ask { arrival, ..ASK }).unwrap()
}

fn broken(rig: &mut Rig) -> bool {
    rig.inspect().unwrap()[3] == ["1"]
}

fn open(rig: &mut Rig, n: u64, owner: &str) -> Vec<String> {
    let id = rig.id("changes", n);
    rig.update(&id, &["open", "3", owner]).unwrap()
}

fn reset(rig: &mut Rig) {
    let id = rig.id("changes", 99);
    rig.update(&id, &["reset"]).unwrap();
}

/// Makes the entry of one that was let in end so much earlier.
fn age_entry(rig: &mut Rig, owner: &str, ms: i64) {
    let source = "local e = cmsgpack.unpack(redis.call('HGET', KEYS[1], ARGV[1]))
        e[1] = e[1] - ARGV[2] * 1000
        redis.call('HSET', KEYS[1], ARGV[1], cmsgpack.pack(e))
        return {}";
    rig.eval(source, &[owner, &ms.to_string()]).unwrap();
}

#[test]
fn the_last_one_lets_in_all_waiters_in_order() {
    let mut rig = rig("order");
    let mut inboxes = ["a", "b"].map(|who| rig.inbox(server(), who));
    two_wait(&mut rig);
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    assert_eq!(rig.queue(), [a.clone(), b.clone()]);
    let answer = arrive(&mut rig, &c, ASK);
    assert_eq!((&*answer[0], &*answer[2], &*answer[3]), ("1", "3000", "0"));
    let number = int(&answer[1]);
    // Twice the index, as nobody has an action to run.
    let received = [&a, &b].map(|owner| {
        let who = if owner == &a { "a" } else { "b" };
        messages(&rig, &mut inboxes[usize::from(owner == &b)], who)
    });
    assert_eq!(received[0], [format!("{a} in {} 3000 4", number + 1)]);
    assert_eq!(received[1], [format!("{b} in {} 3000 2", number + 2)]);
    assert!(rig.queue().is_empty());
    let mut all = vec![a.clone(), b.clone(), c.clone(), "bound".into(), "kind".into()];
    all.sort();
    assert_eq!(rig.fields(), all);
    for owner in [&a, &b, &c] {
        assert_eq!(rig.leave(owner), ["1"]);
        assert_eq!(rig.leave(owner), ["0"]);
    }
    assert_eq!(rig.fields(), ["bound", "kind"]);
    let there: Vec<_> = (0..6).filter(|i| rig.exists(*i)).collect();
    assert!(there.iter().all(|i| rig.pttl(*i) > 0), "{there:?}");
    assert!(!broken(&mut rig));
}

#[test]
fn a_party_that_was_not_told_finds_itself_inside_and_gets_its_index() {
    let mut rig = rig("unheard");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let arrivals = two_wait(&mut rig);
    // Nobody listens.
    arrive(&mut rig, &c, ASK);
    for (owner, arrival, value) in [(&a, &arrivals[0], "4"), (&b, &arrivals[1], "2")] {
        for _ in 0..2 {
            let answer = again(&mut rig, "keep", owner, arrival);
            assert_eq!((&*answer[0], &*answer[3]), ("1", value), "{answer:?}");
        }
        assert_eq!(rig.leave(owner), ["1"]);
    }
    assert!(!broken(&mut rig));
}

#[test]
fn a_party_without_an_answer_to_its_arrival_passes_for_a_minute() {
    let mut rig = rig("unanswered");
    let (a, c) = (rig.a(), rig.c());
    two_wait(&mut rig);
    arrive(&mut rig, &c, ASK);
    // Far longer than its lease, and without an arrival to show: its only answer was lost.
    age_entry(&mut rig, &a, 55_000);
    for _ in 0..2 {
        let answer = again(&mut rig, "wait", &a, "");
        assert_eq!((&*answer[0], &*answer[2], &*answer[3]), ("1", "3000", "4"), "{answer:?}");
    }
    // A renewal does not make it end sooner.
    assert_eq!(rig.renew(&a, 100).unwrap(), ["100"]);
    assert!(rig.queue().is_empty() && rig.pttl(0) > 55_000);
    let answer = again(&mut rig, "wait", &a, "");
    assert!(int(&answer[2]) > 2_000, "{answer:?}");
    assert_eq!(rig.leave(&a), ["1"]);
}

#[test]
fn a_party_that_comes_back_too_late_is_no_member_of_another_round() {
    let mut rig = rig("late");
    let (a, c) = (rig.a(), rig.c());
    let arrivals = two_wait(&mut rig);
    arrive(&mut rig, &c, ASK);
    age_entry(&mut rig, &a, 61_000);
    assert_eq!(again(&mut rig, "keep", &a, &arrivals[0]), ["-1", "gone"]);
    assert_eq!(again(&mut rig, "wait", &a, &arrivals[0]), ["-1", "broken-its-round-is-over"]);
    assert!(rig.queue().is_empty() && !broken(&mut rig));
    // What it did not fetch goes with the next round.
    let next = ["d", "e", "f"].map(|who| rig.id(who, 1));
    for owner in &next {
        arrive(&mut rig, owner, ASK);
    }
    assert!(!rig.fields().contains(&a));
}

#[test]
fn an_action_keeps_the_others_out_until_it_is_over() {
    let mut rig = rig("action");
    let _inboxes = ["a", "b"].map(|who| rig.inbox(server(), who));
    let (a, c) = (rig.a(), rig.c());
    let arrivals = two_wait(&mut rig);
    let answer = arrive(&mut rig, &c, ACTS);
    assert_eq!((&*answer[0], &*answer[3]), ("1", "1"), "{answer:?}");
    assert_eq!(arrive(&mut rig, &c, ACTS)[3], "1");
    assert_eq!(rig.queue().len(), 2);
    assert_eq!(again(&mut rig, "keep", &a, &arrivals[0])[0], "0");
    assert_eq!(rig.renew(&c, 3_000).unwrap(), ["3000"]);
    // Sent twice, by two ids too: it is open.
    for n in [1, 1, 2] {
        assert_eq!(open(&mut rig, n, &c), ["1"]);
    }
    assert!(rig.queue().is_empty());
    assert_eq!(again(&mut rig, "keep", &a, &arrivals[0])[3], "4");
    assert_eq!(rig.leave(&c), ["1"]);
    assert!(!broken(&mut rig));
}

#[test]
fn an_action_that_does_not_end_well_breaks_it() {
    for how in ["left", "lapsed", "member"] {
        let mut rig = rig(&format!("badly-{how}"));
        let mut inbox = rig.inbox(server(), "b");
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let arrivals = two_wait(&mut rig);
        arrive(&mut rig, &c, ACTS);
        match how {
            "left" => assert_eq!(rig.leave(&c), ["1"]),
            "member" => assert_eq!(rig.leave(&a), ["0"]),
            _ => {
                age_entry(&mut rig, &c, 4_000);
                // The next heartbeat of anybody finds it.
                assert_eq!(again(&mut rig, "keep", &a, &arrivals[0]), ["-1", "broken"]);
            }
        }
        assert!(broken(&mut rig), "{how}");
        assert_eq!(messages(&rig, &mut inbox, "b"), [format!("{b} no:broken 0 0")], "{how}");
        assert!(rig.queue().is_empty());
        assert_eq!(open(&mut rig, 1, &c), ["0"], "{how}");
        assert_eq!(rig.renew(&c, 3_000).unwrap(), ["-1"], "{how}");
        assert_eq!(rig.pttl(0), -1, "{how}: until it is reset");
        for ask in ["try", "wait"] {
            let late = rig.id("d", 1);
            assert_eq!(rig.acquire(ask, &late, ASK).unwrap(), ["-1", "broken"], "{how}");
        }
    }
}

#[test]
fn a_dead_waiter_is_found_by_the_one_behind_it() {
    for dead in 0..3 {
        let mut rig = rig(&format!("ring-{dead}"));
        let mut asks = Vec::new();
        for who in ["a", "b", "c"] {
            let owner = rig.id(who, 1);
            let answer = arrive(&mut rig, &owner, Ask { args: "4", ..ASK });
            asks.push((owner, answer[3].clone()));
        }
        rig.age_position(&asks[dead].0.clone(), 4_000);
        for after in [2, 1] {
            let (owner, arrival) = asks[(dead + after) % 3].clone();
            let answer = rig.acquire("keep", &owner, Ask { args: "4", arrival: &arrival, ..ASK }).unwrap();
            // A party before the dead one does not notice it, unless that is the head, which everybody checks.
            let expected = if after == 1 { "-1" } else { "0" };
            assert_eq!(answer[0], expected, "{dead} {after}: {answer:?}");
        }
        assert!(broken(&mut rig));
        assert!(rig.queue().is_empty());
    }
}

#[test]
fn the_last_one_does_not_go_on_with_the_dead() {
    let mut rig = rig("dead");
    let (a, c) = (rig.a(), rig.c());
    two_wait(&mut rig);
    rig.age_position(&a, 4_000);
    assert_eq!(arrive(&mut rig, &c, ASK), ["-1", "broken"]);
    assert!(broken(&mut rig) && rig.queue().is_empty());
}

#[test]
fn a_round_that_came_together_behind_an_action_goes_on_by_itself() {
    let mut rig = rig("next");
    let _inboxes = ["a", "b", "d", "e", "f"].map(|who| rig.inbox(server(), who));
    let c = rig.c();
    two_wait(&mut rig);
    arrive(&mut rig, &c, ACTS);
    let next = ["d", "e", "f"].map(|who| rig.id(who, 1));
    for owner in &next {
        assert_eq!(arrive(&mut rig, owner, ASK)[0], "0");
    }
    assert_eq!(open(&mut rig, 1, &c), ["1"]);
    assert!(rig.queue().is_empty());
    let values = next.map(|owner| rig.keep(&owner)[3].clone());
    assert_eq!(values, ["4", "2", "0"]);
}

/// It would have an action to run, and not hear of it.
#[test]
fn a_first_party_that_nobody_can_tell_trips_the_barrier_at_its_next_heartbeat() {
    let mut rig = rig("unheard-action");
    let _inboxes = ["a", "b", "e", "f"].map(|who| rig.inbox(server(), who));
    let (c, late) = (rig.c(), rig.id("g", 1));
    two_wait(&mut rig);
    arrive(&mut rig, &c, ACTS);
    let next = ["d", "e", "f"].map(|who| rig.id(who, 1));
    let arrivals = next.clone().map(|owner| arrive(&mut rig, &owner, ACTS)[3].clone());
    assert_eq!(open(&mut rig, 1, &c), ["1"]);
    assert!(!broken(&mut rig));
    let keep = |rig: &mut Rig, i: usize| {
        rig.acquire("keep", &next[i], Ask { arrival: &arrivals[i], ..ACTS }).unwrap()
    };
    // Until then nobody else does: neither those behind it, nor one that comes later.
    assert_eq!((&*keep(&mut rig, 1)[0], &*keep(&mut rig, 2)[0]), ("0", "0"));
    assert_eq!(arrive(&mut rig, &late, ACTS)[0], "0");
    let waiting = rig.queue();
    assert_eq!((&waiting[..3], &waiting[3..]), (&next[..], std::slice::from_ref(&late)));
    let answer = keep(&mut rig, 0);
    assert_eq!((&*answer[0], &*answer[3]), ("1", "5"), "{answer:?}");
    assert_eq!(open(&mut rig, 2, &next[0]), ["1"]);
    assert_eq!((&*keep(&mut rig, 1)[3], &*keep(&mut rig, 2)[3]), ("2", "0"));
    assert_eq!(rig.queue(), [late]);
    assert!(!broken(&mut rig));
}

#[test]
fn a_party_that_gives_up_behind_an_action_breaks_the_next_round_alone() {
    let mut rig = rig("extra");
    let _inboxes = ["a", "b"].map(|who| rig.inbox(server(), who));
    let (a, b, c, d) = (rig.a(), rig.b(), rig.c(), rig.id("d", 1));
    let arrivals = two_wait(&mut rig);
    arrive(&mut rig, &c, ACTS);
    arrive(&mut rig, &d, ASK);
    rig.leave(&d);
    assert!(broken(&mut rig));
    assert_eq!(arrive(&mut rig, &d, ASK), ["-1", "broken"]);
    for (owner, arrival) in [(&a, &arrivals[0]), (&b, &arrivals[1])] {
        assert_eq!(again(&mut rig, "keep", owner, arrival)[0], "0");
    }
    assert_eq!(open(&mut rig, 1, &c), ["1"]);
    for (owner, arrival, value) in [(&a, &arrivals[0], "4"), (&b, &arrivals[1], "2")] {
        assert_eq!(again(&mut rig, "keep", owner, arrival)[3], value);
    }
    assert_eq!((broken(&mut rig), rig.pttl(0)), (true, -1));
}

#[test]
fn a_reset_reaches_the_parties_that_did_not_hear_of_it_and_nobody_else() {
    let mut rig = rig("reset");
    let mut inbox = rig.inbox(server(), "b");
    let (a, b) = (rig.a(), rig.b());
    let arrivals = two_wait(&mut rig);
    reset(&mut rig);
    assert_eq!(messages(&rig, &mut inbox, "b"), [format!("{b} no:broken-it-was-reset 0 0")]);
    assert!(rig.queue().is_empty() && !broken(&mut rig));
    assert!((1..=60_000).contains(&rig.pttl(0)));
    assert_eq!(again(&mut rig, "keep", &a, &arrivals[0]), ["-1", "gone"]);
    assert_eq!(again(&mut rig, "wait", &a, &arrivals[0]), ["-1", "broken-its-round-is-over"]);
    // With the clock set back, too, a newcomer is behind all of them.
    let ahead = rig.now() + 60_000_000;
    let _: () = rig.con.hset(&rig.keys[0], "bound", ahead).unwrap();
    for who in ["d", "e"] {
        let owner = rig.id(who, 1);
        let arrival = arrive(&mut rig, &owner, ASK)[3].clone();
        assert!(int(&arrival) > ahead, "{arrival}");
        assert_eq!(again(&mut rig, "keep", &owner, &arrival)[0], "0");
    }
    let last = rig.id("f", 1);
    assert_eq!(arrive(&mut rig, &last, ASK)[3], "0");
}

#[test]
fn the_parties_that_passed_pass_also_when_it_is_reset_before_they_know() {
    let mut rig = rig("passed");
    let (a, c) = (rig.a(), rig.c());
    let arrivals = two_wait(&mut rig);
    arrive(&mut rig, &c, ASK);
    reset(&mut rig);
    assert_eq!(again(&mut rig, "keep", &a, &arrivals[0])[3], "4");
    assert_eq!(rig.leave(&c), ["1"]);
}

#[test]
fn another_number_of_parties_is_refused_and_changes_nothing() {
    let mut rig = rig("parties");
    two_wait(&mut rig);
    let before = rig.everything();
    for args in ["1", "2", "4 then"] {
        for how in ["try", "wait"] {
            let c = rig.c();
            let answer = rig.acquire(how, &c, Ask { args, ..ASK }).unwrap();
            assert_eq!(answer, ["-1", "the-waiting-parties-expect-3-parties"], "{args} {how}");
        }
    }
    assert_eq!(rig.everything(), before);
}

#[test]
fn the_name_is_a_barriers_while_somebody_waits() {
    let mut rig = rig("name");
    let a = rig.a();
    let arrivals = two_wait(&mut rig);
    let _: bool = rig.con.pexpire(&rig.keys[0], 5_000).unwrap();
    again(&mut rig, "keep", &a, &arrivals[0]);
    assert!((50_000..=60_000).contains(&rig.pttl(0)));
    let mut other = Rig::of(server(), "reentrant lock", Reentrant::RULE, "unused");
    other.keys = rig.keys.clone();
    let error = other.acquire("wait", &rig.c(), USUAL).unwrap_err().to_string();
    assert!(error.contains("WRONGTYPE"), "{error}");
}

#[test]
fn a_full_redis_opens_it_and_breaks_it() {
    let server = server_that_fills();
    for breaks in [false, true] {
        let mut rig = Rig::of(&server, "barrier", RULE, &format!("full-{breaks}"));
        let _inboxes = ["a", "b"].map(|who| rig.inbox(&server, who));
        let (a, c) = (rig.a(), rig.c());
        let arrivals = two_wait(&mut rig);
        arrive(&mut rig, &c, ACTS);
        rig.full(true);
        assert_eq!(again(&mut rig, "keep", &a, &arrivals[0])[0], "0");
        assert_eq!(rig.renew(&c, 3_000).unwrap(), ["3000"]);
        if !breaks {
            assert_eq!(open(&mut rig, 1, &c), ["1"]);
            assert_eq!(again(&mut rig, "keep", &a, &arrivals[0])[3], "4");
        }
        assert_eq!(rig.leave(&c), ["1"]);
        assert_eq!(broken(&mut rig), breaks);
        rig.full(false);
    }
}

/// All are silent, as the server stood still: the round is neither broken nor complete before all are heard.
#[test]
fn a_server_that_stood_still_breaks_nothing() {
    for dead in [false, true] {
        let mut rig = rig(&format!("stall-{dead}"));
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let arrivals = two_wait(&mut rig);
        rig.stand_still(&[&a, &b], 10_000);
        assert_eq!(arrive(&mut rig, &c, ASK)[0], "0", "{dead}: first they are to be heard");
        assert_eq!(again(&mut rig, "keep", &b, &arrivals[1])[0], "0", "{dead}");
        assert!(!broken(&mut rig), "{dead}");
        if dead {
            rig.age_position(&a, 4_000);
            assert_eq!(again(&mut rig, "keep", &b, &arrivals[1]), ["-1", "broken"]);
        } else {
            // The party that arrived first completes it.
            assert_eq!(again(&mut rig, "keep", &a, &arrivals[0])[0], "1");
            assert!(rig.queue().is_empty());
        }
        assert_eq!(broken(&mut rig), dead);
    }
}

#[test]
fn a_server_that_stood_still_breaks_no_round_whose_first_party_has_an_action() {
    let mut rig = rig("stall-action");
    let owners = [rig.a(), rig.b(), rig.c()];
    let arrivals = [0, 1].map(|i| arrive(&mut rig, &owners[i], ACTS)[3].clone());
    rig.stand_still(&[&owners[0], &owners[1]], 10_000);
    assert_eq!(arrive(&mut rig, &owners[2], ACTS)[0], "0", "first they are to be heard");
    // The second one completes the round, and nobody listens for the first one.
    for (i, value) in [(0, None), (1, None), (0, Some("5"))] {
        let answer = rig.acquire("keep", &owners[i], Ask { arrival: &arrivals[i], ..ACTS }).unwrap();
        assert_eq!((&*answer[0] == "1").then(|| &*answer[3]), value, "{answer:?}");
        assert!(!broken(&mut rig));
    }
    assert_eq!(open(&mut rig, 1, &owners[0]), ["1"]);
    assert!(rig.queue().is_empty() && !broken(&mut rig));
}
