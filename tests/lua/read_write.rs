//! The rule of the read/write lock straight against a server, below the client.
//!
//! Time is played by editing what the scripts stored, never by sleeping.

use std::time::Duration;

use redis::{Commands, Connection, cmd};
use redis_concurrent::{Kind, Read};
use redis_concurrent_testkit::wait_until;

use crate::rig::{
    Ask, FIRST, LEASE, RECORD, Rig, USUAL, WINDOW, assert_busy, assert_in, int, messages, server,
    server_that_fills,
};

const WRITE: Ask<'_> = Ask { args: "write", ..USUAL };
const READ: Ask<'_> = Ask { args: "read", ..USUAL };
const IN_ORDER: Ask<'_> = Ask { args: "read-in-order", ..USUAL };

fn rig(name: &str) -> Rig {
    Rig::of(server(), "read-write", Read::RULE, name)
}

impl Rig {
    #[track_caller]
    fn writes(&mut self, owner: &str) -> i64 {
        let answer = self.acquire("try", owner, WRITE).unwrap();
        assert_in(self.kind, &answer, LEASE)
    }

    #[track_caller]
    fn reads(&mut self, owner: &str) -> i64 {
        reading(&self.acquire("try", owner, READ).unwrap()).0
    }

    /// Takes a place.
    #[track_caller]
    fn queues(&mut self, owner: &str, ask: Ask<'_>) {
        let answer = self.acquire("wait", owner, ask).unwrap();
        assert!(!assert_busy(self.kind, &answer).2.is_empty(), "{answer:?}");
    }

    fn share(&mut self, owner: &str) -> Vec<String> {
        self.acquire("share", owner, READ).unwrap()
    }

    /// Who is inside, by the state's fields.
    fn inside(&mut self) -> Vec<String> {
        let mut fields: Vec<String> = self.con.hkeys(&self.keys[0]).unwrap();
        fields.retain(|field| field.contains(':'));
        fields.sort();
        fields
    }

    fn writer(&mut self) -> Option<String> {
        self.con.hget(&self.keys[0], "writer").unwrap()
    }

    fn told(&self, inbox: &mut Connection, who: &str) -> Vec<String> {
        messages(self, inbox, who)
    }
}

/// A read lock: {1, number, remaining ms, the last write's number}.
#[track_caller]
fn reading(answer: &[String]) -> (i64, i64, i64) {
    assert_eq!((answer.len(), answer[0].as_str()), (4, "1"), "{answer:?}");
    (int(&answer[1]), int(&answer[2]), int(&answer[3]))
}

// ---- who comes in --------------------------------------------------------------------------

#[test]
fn readers_are_inside_together_and_a_writer_is_alone() {
    let mut rig = rig("admits");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    for how in ["try", "wait"] {
        for owner in [&a, &b] {
            reading(&rig.acquire(how, owner, READ).unwrap());
        }
        assert_eq!(rig.inside(), [a.clone(), b.clone()]);
        assert_busy("a writer", &rig.acquire("try", &c, WRITE).unwrap());
        rig.leave(&a);
        assert_busy("one reader is left", &rig.acquire("try", &c, WRITE).unwrap());
        rig.leave(&b);
        assert!(rig.our_keys().iter().all(|key| *key == 3), "{how}: nothing but the last write's number");
        assert_in("write", &rig.acquire(how, &c, WRITE).unwrap(), LEASE);
        for ask in [READ, IN_ORDER, WRITE] {
            assert_busy(ask.args, &rig.acquire("try", &a, ask).unwrap());
        }
        rig.leave(&c);
        assert_eq!(rig.our_keys(), [3], "{how}");
    }
}

#[test]
fn a_holder_is_answered_with_the_same_number_and_what_is_left() {
    let mut rig = rig("inside");
    let (a, b) = (rig.a(), rig.b());
    let writes = rig.writes(&a);
    rig.leave(&a);
    let number = rig.reads(&b);
    rig.set_lease(&b, 9_000);
    for how in ["try", "wait", "keep"] {
        let (same, left, value) = reading(&rig.acquire(how, &b, READ).unwrap());
        assert_eq!((same, value), (number, writes), "{how}");
        assert!(left <= 9_001 && left > 4_000, "{how}: {left}");
    }
    rig.leave(&b);
    let number = rig.writes(&a);
    for how in ["try", "wait", "keep"] {
        assert_eq!(assert_in(how, &rig.acquire(how, &a, WRITE).unwrap(), LEASE), number);
    }
    assert!(!rig.exists(1) && !rig.exists(2));
}

#[test]
fn readers_know_the_last_write_and_change_nothing_of_it() {
    let mut rig = rig("value");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let (first, _, value) = reading(&rig.acquire("try", &a, READ).unwrap());
    assert_eq!((value, rig.fence()), (0, 0), "never written");
    rig.leave(&a);
    let written = rig.writes(&b);
    assert!(written > first);
    rig.leave(&b);
    let mut last = written;
    for owner in [&a, &c] {
        let (number, _, value) = reading(&rig.acquire("try", owner, READ).unwrap());
        assert!(number > last, "each grant has a number of its own");
        assert_eq!((value, rig.fence()), (written, written));
        last = number;
    }
}

// ---- who waits for whom --------------------------------------------------------------------

#[test]
fn writers_queue_before_readers_and_readers_in_order_as_they_came() {
    let mut rig = rig("classes");
    let a = rig.a();
    rig.writes(&a);
    let ids: Vec<_> = (1..=6).map(|n| rig.id("w", n)).collect();
    for (id, ask) in ids.iter().zip([READ, IN_ORDER, WRITE, READ, WRITE, IN_ORDER]) {
        rig.queues(id, ask);
    }
    assert_eq!(rig.queue(), [1, 2, 4, 5, 0, 3].map(|i: usize| ids[i].clone()));
}

#[test]
fn nobody_reads_past_a_writer_that_waits_and_its_end_lets_all_readers_in() {
    let mut rig = rig("writer-first");
    let (a, b, c, d) = (rig.a(), rig.b(), rig.c(), rig.id("d", 1));
    let mut inboxes = ["b", "c", "d"].map(|who| rig.inbox(server(), who));
    rig.reads(&a);
    rig.queues(&b, WRITE);
    assert_busy("a try", &rig.acquire("try", &c, READ).unwrap());
    rig.queues(&c, READ);
    rig.queues(&d, READ);
    assert_eq!(rig.inside(), [a.as_str()]);
    rig.leave(&a);
    let written = rig.fence();
    assert_eq!(rig.told(&mut inboxes[0], "b"), [format!("{b} in {written} {FIRST}")]);
    assert_eq!((rig.inside(), rig.writer()), (vec![b.clone()], Some(b.clone())));
    rig.leave(&b);
    let mut numbers = Vec::new();
    for (i, (who, owner)) in [("c", &c), ("d", &d)].into_iter().enumerate() {
        let (number, _, _) = reading(&rig.acquire("keep", owner, READ).unwrap());
        let text = format!("{owner} in {number} {FIRST} {written}");
        assert_eq!(rig.told(&mut inboxes[i + 1], who), [text], "the last write's number is told too");
        numbers.push(number);
    }
    assert!(written < numbers[0] && numbers[0] <= numbers[1], "{written} {numbers:?}");
    assert_eq!(rig.our_keys(), [0, 3]);
}

#[test]
fn in_order_of_arrival_neighbours_come_in_together_up_to_the_next_writer() {
    let mut rig = rig("neighbours");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let (d, e) = (rig.id("b", 2), rig.id("c", 2));
    let _inboxes = ["b", "c"].map(|who| rig.inbox(server(), who));
    rig.writes(&a);
    for (owner, ask) in [(&b, IN_ORDER), (&c, IN_ORDER), (&d, WRITE), (&e, IN_ORDER)] {
        rig.queues(owner, ask);
    }
    rig.leave(&a);
    assert_eq!((rig.inside(), rig.queue()), (vec![b.clone(), c.clone()], vec![d.clone(), e.clone()]));
    rig.leave(&c);
    rig.leave(&b);
    assert_eq!((rig.inside(), rig.queue()), (vec![d.clone()], vec![e.clone()]));
    rig.leave(&d);
    assert_eq!(rig.inside(), [e]);
}

#[test]
fn a_writer_that_gives_up_or_falls_silent_lets_readers_in() {
    for silent in [false, true] {
        let mut rig = rig(&format!("gives-up-{silent}"));
        let (a, b, c) = (rig.a(), rig.b(), rig.c());
        let mut inbox = rig.inbox(server(), "c");
        rig.reads(&a);
        rig.queues(&b, WRITE);
        rig.queues(&c, READ);
        if silent {
            rig.age_place(&b, WINDOW + 1_000);
            reading(&rig.acquire("keep", &c, READ).unwrap());
        } else {
            assert_eq!(rig.leave(&b), ["0"]);
            assert_eq!(rig.told(&mut inbox, "c").len(), 1);
        }
        assert_eq!(rig.inside(), [a, c]);
        assert!(rig.queue().is_empty());
    }
}

#[test]
fn a_grant_that_nobody_hears_is_undone_and_goes_to_the_next() {
    let mut rig = rig("unheard");
    let (a, b, c, d) = (rig.a(), rig.b(), rig.c(), rig.id("d", 1));
    let _inboxes = ["c", "d"].map(|who| rig.inbox(server(), who));
    rig.writes(&a);
    for (owner, ask) in [(&b, WRITE), (&c, READ), (&d, READ)] {
        rig.queues(owner, ask);
    }
    rig.leave(&a);
    // The writer is gone, and so is not in the way of the readers behind it.
    assert_eq!((rig.inside(), rig.writer()), (vec![c.clone(), d.clone()], None));
    let e = rig.id("e", 1);
    rig.queues(&e, WRITE);
    rig.leave(&c);
    rig.leave(&d);
    assert_eq!(rig.our_keys(), [3], "nobody is inside, nobody waits");
}

#[test]
fn leaving_for_a_next_writer_lets_in_what_waited_before_it() {
    let mut rig = rig("leave-next");
    let (a, b, c) = (rig.a(), rig.b(), rig.id("a", 2));
    let mut inbox = rig.inbox(server(), "b");
    rig.writes(&a);
    assert_eq!(rig.leave_for(&a, false, &c, "write").unwrap()[..2], ["1", "1"], "nobody else waits");
    rig.queues(&b, WRITE);
    let d = rig.id("a", 3);
    let answer = rig.leave_for(&c, false, &d, "write").unwrap();
    assert_eq!(answer[0], "1");
    assert_busy("the next one", &answer[1..]);
    assert_eq!(rig.told(&mut inbox, "b").len(), 1);
    assert_eq!((rig.writer(), rig.queue()), (Some(b), vec![d]));
}

// ---- the share -----------------------------------------------------------------------------

#[test]
fn a_reader_may_take_others_in_while_nobody_waits() {
    let mut rig = rig("share");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let (number, _, value) = reading(&rig.acquire("try", &a, READ).unwrap());
    rig.reads(&b);
    rig.set_lease(&a, 9_000);
    let before = rig.everything();
    let (same, left, told) = reading(&rig.share(&a));
    assert_eq!((same, told), (number, value));
    assert!(left <= 9_001 && left > 4_000, "{left}");
    assert_eq!(rig.share(&c), ["-1", "gone"], "who is not inside has nothing to share");
    assert_eq!(rig.everything(), before, "asking changes nothing");
    rig.queues(&c, WRITE);
    let before = rig.everything();
    let (_, _, arrival) = assert_busy("a writer waits", &rig.share(&a));
    assert_eq!(arrival, "", "it has no place, and wants none");
    assert_eq!(rig.everything(), before);
    rig.leave(&c);
    reading(&rig.share(&a));
}

#[test]
fn a_reader_beside_its_writer_may_take_nobody_in() {
    let mut rig = rig("share-writer");
    let (a, r) = (rig.a(), rig.id("a", 2));
    rig.writes(&a);
    reading(&rig.acquire("wait", &r, Ask { from: &a, ..READ }).unwrap());
    assert_busy("its thread writes", &rig.share(&r));
    rig.leave(&a);
    reading(&rig.share(&r));
}

#[test]
fn a_share_that_lapsed_is_gone() {
    let mut rig = rig("share-lapsed");
    let (a, b) = (rig.a(), rig.b());
    rig.reads(&a);
    rig.reads(&b);
    rig.set_lease(&a, -1);
    assert_eq!(rig.share(&a), ["-1", "gone"]);
    assert_eq!(rig.inside(), [b]);
}

#[test]
fn an_arriving_writer_tells_all_readers_and_only_once() {
    let mut rig = rig("yield");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let mut inboxes = ["a", "b", "c"].map(|who| rig.inbox(server(), who));
    rig.reads(&a);
    rig.reads(&b);
    // Who takes no place tells nobody.
    assert_busy("a try", &rig.acquire("try", &c, WRITE).unwrap());
    rig.queues(&c, WRITE);
    // Nor do its resent requests and its beats.
    rig.queues(&c, WRITE);
    assert_busy("a beat", &rig.acquire("keep", &c, WRITE).unwrap());
    let told = |rig: &Rig, inbox: &mut Connection, who: &str| rig.told(inbox, who);
    assert_eq!(told(&rig, &mut inboxes[0], "a"), [format!("{a} yield 0 0")]);
    assert_eq!(told(&rig, &mut inboxes[1], "b"), [format!("{b} yield 0 0")]);
    assert!(told(&rig, &mut inboxes[2], "c").is_empty());
    // Another one does, and a reader that waits does not.
    let (d, e) = (rig.id("c", 2), rig.id("c", 3));
    rig.queues(&d, WRITE);
    rig.queues(&e, READ);
    for (i, who) in ["a", "b"].into_iter().enumerate() {
        assert_eq!(told(&rig, &mut inboxes[i], who).len(), 1, "{who}");
    }
}

#[test]
fn the_writer_is_not_told_of_the_waiters() {
    let mut rig = rig("yield-writer");
    let (a, b, r) = (rig.a(), rig.b(), rig.id("a", 2));
    let mut inbox = rig.inbox(server(), "a");
    rig.writes(&a);
    reading(&rig.acquire("wait", &r, Ask { from: &a, ..READ }).unwrap());
    rig.queues(&b, WRITE);
    assert!(rig.told(&mut inbox, "a").is_empty(), "its slice is its own, and its reader shares nothing");
}

#[test]
fn a_writer_that_comes_with_a_leave_tells_the_readers_too() {
    let mut rig = rig("yield-next");
    let (a, b, d) = (rig.a(), rig.b(), rig.id("b", 2));
    let mut inbox = rig.inbox(server(), "a");
    rig.reads(&a);
    // Its process gives one place up and takes another.
    rig.queues(&b, WRITE);
    assert_eq!(rig.told(&mut inbox, "a").len(), 1);
    let answer = rig.leave_for(&b, false, &d, "write").unwrap();
    assert_busy("the next one", &answer[1..]);
    assert_eq!(rig.told(&mut inbox, "a"), [format!("{a} yield 0 0")]);
}

// ---- beside a writer, and in its place -----------------------------------------------------

#[test]
fn a_writer_reads_beside_itself_past_all_waiters() {
    let mut rig = rig("from");
    let (a, b, c, r) = (rig.a(), rig.b(), rig.c(), rig.id("a", 2));
    let written = rig.writes(&a);
    rig.queues(&b, WRITE);
    for how in ["try", "wait"] {
        let (_, _, value) = reading(&rig.acquire(how, &r, Ask { from: &a, ..READ }).unwrap());
        assert_eq!(value, written);
        assert_eq!((rig.inside(), rig.writer()), (vec![a.clone(), r.clone()], Some(a.clone())));
        assert_eq!(rig.leave(&r), ["1"]);
    }
    // What somebody else says of itself counts for nothing.
    for from in [&b, &c, &rig.id("nobody", 1)] {
        assert_busy(from, &rig.acquire("try", &c, Ask { from, ..READ }).unwrap());
    }
    assert_busy("a writer", &rig.acquire("try", &c, Ask { from: &a, ..WRITE }).unwrap());
    assert_eq!((rig.inside(), rig.queue()), (vec![a], vec![b]));
}

#[test]
fn the_two_holds_of_a_writer_that_reads_end_one_by_one() {
    let mut rig = rig("one-by-one");
    let (a, b, r) = (rig.a(), rig.b(), rig.id("a", 2));
    let mut inbox = rig.inbox(server(), "b");
    for writer_first in [true, false] {
        rig.writes(&a);
        reading(&rig.acquire("wait", &r, Ask { from: &a, ..READ }).unwrap());
        rig.queues(&b, READ);
        let (first, second) = if writer_first { (&a, &r) } else { (&r, &a) };
        assert_eq!(rig.leave(first), ["1"]);
        // The reader alone lets others read; the writer alone does not.
        assert_eq!(rig.told(&mut inbox, "b").len(), usize::from(writer_first));
        assert_eq!(rig.leave(second), ["1"]);
        assert_eq!(rig.told(&mut inbox, "b").len(), usize::from(!writer_first));
        assert_eq!((rig.inside(), rig.writer()), (vec![b.clone()], None));
        rig.leave(&b);
    }
}

#[test]
fn in_place_of_a_writer_readers_come_in_with_it_unless_a_writer_waits() {
    for writer_waits in [false, true] {
        let mut rig = rig(&format!("instead-{writer_waits}"));
        let (a, b, c, r) = (rig.a(), rig.b(), rig.c(), rig.id("a", 2));
        let _inboxes = ["b", "c"].map(|who| rig.inbox(server(), who));
        let written = rig.writes(&a);
        if writer_waits {
            rig.queues(&c, WRITE);
        }
        rig.queues(&b, READ);
        let ask = Ask { from: &a, instead: true, ..READ };
        let (number, _, value) = reading(&rig.acquire("wait", &r, ask).unwrap());
        assert_eq!(value, written);
        let inside = if writer_waits { vec![r.clone()] } else { vec![r.clone(), b.clone()] };
        assert_eq!((rig.inside(), rig.writer()), (inside, None));
        // Sent twice, it is the same answer, and nothing more happens.
        let before = rig.everything();
        assert_eq!(reading(&rig.acquire("wait", &r, ask).unwrap()).0, number);
        assert_eq!(rig.everything(), before);
        assert_eq!(rig.leave(&a), ["0"], "it was ended by it");
    }
}

#[test]
fn a_writer_that_lapsed_has_no_place_to_give() {
    let mut rig = rig("instead-lapsed");
    let (a, b, r) = (rig.a(), rig.b(), rig.id("a", 2));
    let ask = Ask { from: &a, instead: true, ..READ };
    for how in ["try", "wait"] {
        rig.writes(&a);
        rig.set_lease(&a, -1);
        assert_eq!(
            rig.acquire(how, &r, ask).unwrap(),
            ["-1", "not-inside"],
            "nobody is inside, but somebody may have been"
        );
        assert_eq!(rig.our_keys(), [3], "{how}");
        assert_eq!(rig.acquire(how, &r, ask).unwrap(), ["-1", "not-inside"], "nor on a blank state");
        for others in [READ, WRITE] {
            rig.acquire("try", &b, others).unwrap();
            let before = rig.everything();
            assert_eq!(rig.acquire(how, &r, ask).unwrap(), ["-1", "not-inside"], "{how}, {}", others.args);
            assert_eq!(rig.everything(), before, "it took no place");
            assert_eq!(rig.leave(&b), ["1"]);
        }
    }
}

#[test]
fn in_place_of_a_writer_that_lapsed_nobody_comes_in_by_a_place_either() {
    let mut rig = rig("instead-lapsed-with-a-place");
    let (a, r) = (rig.a(), rig.id("a", 2));
    let mut inbox = rig.inbox(server(), "a");
    rig.writes(&a);
    rig.queues(&r, READ);
    rig.set_lease(&a, -1);
    let ask = Ask { from: &a, instead: true, ..READ };
    assert_eq!(rig.acquire("keep", &r, ask).unwrap(), ["-1", "not-inside"]);
    assert_eq!((rig.inside(), rig.queue()), (vec![], vec![]), "it was refused, and nobody will leave for it");
    assert!(rig.told(&mut inbox, "a").is_empty());
}

// ---- leases of their own -------------------------------------------------------------------

#[test]
fn each_holder_has_a_lease_of_its_own_and_the_key_the_longest() {
    let mut rig = rig("leases");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    for (owner, lease) in [(&a, 60_000), (&b, 10_000), (&c, 20_000)] {
        reading(&rig.acquire("try", owner, Ask { lease, ..READ }).unwrap());
    }
    let close = |left: i64, lease: i64| left <= lease + 1 && left > lease - 5_000;
    for (owner, lease) in [(&a, 60_000), (&b, 10_000), (&c, 20_000)] {
        let left = rig.left(owner).unwrap();
        assert!(close(left, lease), "{left} of {lease}");
    }
    assert!(close(rig.pttl(0), 60_000));
    // One is renewed, also for less, and the others are not.
    assert_eq!(rig.renew(&b, 90_000).unwrap(), ["90000"]);
    assert!(close(rig.pttl(0), 90_000));
    assert_eq!(rig.renew(&b, 5_000).unwrap(), ["5000"]);
    let left = [&a, &b, &c].map(|owner| rig.left(owner).unwrap());
    assert!(close(left[0], 60_000) && left[1] <= 5_001 && close(left[2], 20_000), "{left:?}");
    assert!(rig.pttl(0) > 55_000, "a short lease does not cut the others short");
}

#[test]
fn renewing_never_creates() {
    let mut rig = rig("renew");
    let (a, b) = (rig.a(), rig.b());
    assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-1"]);
    assert!(rig.our_keys().is_empty());
    rig.reads(&a);
    assert_eq!(rig.renew(&b, LEASE).unwrap(), ["-1"], "another one reads");
    rig.queues(&b, WRITE);
    assert_eq!(rig.renew(&b, LEASE).unwrap(), ["-1"], "a place is not renewed");
    rig.set_lease(&a, -1);
    assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-1"], "what lapsed stays so");
    assert_in("the writer", &rig.acquire("keep", &b, WRITE).unwrap(), LEASE);
    assert_eq!(rig.inside(), [b]);
}

#[test]
fn a_reader_that_lapses_is_no_more_and_the_others_stay() {
    let mut rig = rig("lapse");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let mut inbox = rig.inbox(server(), "c");
    rig.reads(&a);
    rig.reads(&b);
    rig.queues(&c, WRITE);
    rig.set_lease(&a, 400);
    let (_, again, _) = assert_busy("a lapses soon", &rig.acquire("keep", &c, WRITE).unwrap());
    assert!((1..=401).contains(&again), "{again}");
    rig.set_lease(&a, -1);
    assert_busy("b reads", &rig.acquire("keep", &c, WRITE).unwrap());
    assert_eq!(rig.inside(), [b.as_str()], "whoever looks clears away");
    assert_eq!(rig.leave(&a), ["0"]);
    rig.set_lease(&b, -1);
    // Anybody's request lets the writer in.
    assert_busy("nobody passes it", &rig.acquire("try", &a, READ).unwrap());
    assert_eq!(rig.told(&mut inbox, "c").len(), 1);
    assert_eq!((rig.inside(), rig.writer()), (vec![c.clone()], Some(c)));
}

#[test]
fn a_writer_that_lapses_leaves_its_reader_beside() {
    let mut rig = rig("lapse-writer");
    let (a, b, r) = (rig.a(), rig.b(), rig.id("a", 2));
    rig.writes(&a);
    reading(&rig.acquire("wait", &r, Ask { from: &a, ..READ }).unwrap());
    rig.queues(&b, READ);
    rig.set_lease(&a, -1);
    reading(&rig.acquire("keep", &b, READ).unwrap());
    assert_eq!((rig.inside(), rig.writer()), (vec![r.clone(), b.clone()], None));
    let c = rig.c();
    assert_busy("two read", &rig.acquire("try", &c, WRITE).unwrap());
}

#[test]
fn when_all_have_lapsed_the_state_is_blank() {
    let mut rig = rig("all-lapsed");
    let (a, b) = (rig.a(), rig.b());
    for ask in [READ, WRITE] {
        rig.acquire("try", &a, ask).unwrap();
        rig.set_lease(&a, -1);
        assert_eq!(rig.acquire("keep", &b, ask).unwrap(), ["-1", "gone"]);
        assert!(!rig.exists(0), "{}", ask.args);
    }
}

#[test]
fn every_key_has_a_time_to_live_at_every_step() {
    let mut rig = rig("ttl");
    let (a, b, c, r) = (rig.a(), rig.b(), rig.c(), rig.id("a", 2));
    let _inbox = rig.inbox(server(), "b");
    let check = |rig: &mut Rig, step: &str| {
        for i in rig.our_keys() {
            assert!(rig.pttl(i) > 0, "{} after {step}", rig.keys[i]);
        }
    };
    rig.writes(&a);
    check(&mut rig, "write");
    rig.queues(&b, WRITE);
    rig.queues(&c, READ);
    check(&mut rig, "wait");
    rig.acquire("wait", &r, Ask { from: &a, instead: true, ..READ }).unwrap();
    check(&mut rig, "downgrade");
    rig.renew(&r, LEASE).unwrap();
    check(&mut rig, "renew");
    rig.share(&r);
    check(&mut rig, "share");
    rig.leave_unsettled(&r).unwrap();
    check(&mut rig, "leave");
    assert_eq!(rig.our_keys(), [0, 1, 2, 3, 4], "all were there to be checked");
    assert_eq!(rig.writer(), Some(b));
}

// ---- sent twice, or late -------------------------------------------------------------------

#[test]
fn requests_that_come_twice_change_nothing() {
    let mut rig = rig("twice");
    let (a, b, c, d) = (rig.a(), rig.b(), rig.c(), rig.id("d", 1));
    rig.reads(&a);
    rig.reads(&b);
    rig.queues(&c, WRITE);
    rig.queues(&d, READ);
    let (inside, queue) = (rig.inside(), rig.queue());
    for (owner, ask) in [(&a, READ), (&b, READ), (&c, WRITE), (&d, READ)] {
        rig.acquire("wait", owner, ask).unwrap();
        assert_eq!((rig.inside(), rig.queue()), (inside.clone(), queue.clone()), "{owner}");
    }
    assert_eq!(rig.leave(&a), ["1"]);
    // A count would go down once more by this, and let the writer in.
    assert_eq!(rig.leave(&a), ["0"]);
    assert_eq!((rig.inside(), rig.queue()), (vec![b], queue));
}

#[test]
fn a_waiter_that_left_unsettled_does_not_come_in_by_a_late_copy() {
    let mut rig = rig("late");
    let (a, b, r) = (rig.a(), rig.b(), rig.id("a", 2));
    rig.reads(&a);
    rig.reads(&b);
    assert_eq!(rig.leave_unsettled(&a).unwrap(), ["1"]);
    for how in ["try", "wait", "keep", "share"] {
        assert_eq!(rig.acquire(how, &a, READ).unwrap(), ["-1", "over"], "{how}");
    }
    assert_eq!(rig.leave(&b), ["1"]);
    rig.writes(&b);
    assert_eq!(rig.leave_unsettled(&r).unwrap(), ["0"]);
    let late = Ask { from: &b, instead: true, ..READ };
    assert_eq!(rig.acquire("wait", &r, late).unwrap(), ["-1", "over"]);
    assert_eq!(rig.writer(), Some(b), "and the writer stays");
}

// ---- numbers -------------------------------------------------------------------------------

#[test]
fn a_busy_answer_tells_the_last_grant_of_anybody() {
    let mut rig = rig("last");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let written = rig.writes(&a);
    assert_eq!(assert_busy("a writes", &rig.acquire("try", &b, READ).unwrap()).0, written);
    rig.leave(&a);
    rig.reads(&a);
    let last = rig.reads(&b);
    rig.queues(&c, WRITE);
    let d = rig.id("d", 1);
    assert_eq!(assert_busy("c waits", &rig.acquire("try", &d, READ).unwrap()).0, last);
    // Also when that one has left.
    rig.leave(&b);
    assert_eq!(assert_busy("c waits", &rig.acquire("try", &d, READ).unwrap()).0, last);
}

#[test]
fn numbers_rise_while_the_clock_stands_behind_them() {
    let mut rig = rig("clock-back");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let mut inbox = rig.inbox(server(), "c");
    // The last write's number is a day ahead of the clock.
    let ahead = rig.now() + 86_400_000_000;
    let _: () = rig.con.set(&rig.keys[3], ahead).unwrap();
    assert_eq!([rig.reads(&a), rig.reads(&b)], [ahead + 1, ahead + 1], "none above the next write's");
    let (floor, _, _) = assert_busy("two read", &rig.acquire("wait", &c, WRITE).unwrap());
    rig.leave(&a);
    rig.leave(&b);
    let granted = rig.fence();
    assert_eq!(rig.told(&mut inbox, "c"), [format!("{c} in {granted} {FIRST}")]);
    assert!(granted > ahead && granted > floor, "{granted} would not be believed after {floor}");
}

#[test]
fn a_reader_that_is_renewed_for_less_lapses_then() {
    let mut rig = rig("renewed-for-less");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    rig.acquire("try", &a, READ).unwrap();
    rig.acquire("try", &b, READ).unwrap();
    assert_eq!(rig.renew(&a, 1).unwrap(), ["1"]);
    assert_eq!(rig.renew(&b, 1).unwrap(), ["1"]);
    wait_until(Duration::from_secs(10), "both have lapsed", || {
        rig.acquire("try", &c, WRITE).unwrap()[0] == "1"
    });
    assert_eq!(rig.renew(&a, LEASE).unwrap(), ["-1"]);
}

#[test]
fn a_late_leave_of_a_reader_takes_no_other_out() {
    let mut rig = rig("late-leave-of-a-reader");
    let (a, b) = (rig.a(), rig.b());
    rig.reads(&a);
    rig.reads(&b);
    assert_eq!(rig.leave(&a), ["1"]);
    let again = rig.leave(&a);
    assert_eq!(rig.renew(&b, LEASE).unwrap(), [LEASE.to_string()], "the other reads");
    assert_eq!(again, ["0"]);
}

#[test]
fn readers_wait_for_each_writer_that_waits() {
    let mut rig = rig("each-writer");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let reader = rig.id("c", 2);
    rig.reads(&a);
    rig.queues(&b, WRITE);
    rig.queues(&c, WRITE);
    assert_eq!(rig.leave(&b), ["0"]);
    rig.queues(&reader, READ);
    assert_eq!(rig.queue(), [c, reader], "the first to give up clears no mark of the other");
}

#[test]
fn a_reader_is_told_of_no_number_below_its_own_even_when_the_clock_stands() {
    let mut rig = rig("numbers-of-readers");
    let (writer, a, b) = (rig.a(), rig.b(), rig.c());
    let future = rig.now() + 3_600_000_000;
    let _: () = rig.con.set(&rig.keys[3], future).unwrap();
    rig.acquire("try", &writer, WRITE).unwrap();
    let mut inboxes = [rig.inbox(server(), "b"), rig.inbox(server(), "c")];
    for reader in [&a, &b] {
        rig.acquire("wait", reader, READ).unwrap();
    }
    rig.leave(&writer);
    let told = |(inbox, who): (&mut Connection, &str)| {
        let heard = messages(&rig, inbox, who);
        int(heard[0].split(' ').nth(2).unwrap())
    };
    let most = inboxes.iter_mut().zip(["b", "c"]).map(told).max().unwrap();
    assert!(most > future + 1);
    // Both lapse, and what they were told lies unread: only by this number they learn that it is old.
    let _: () = rig.con.del(&rig.keys[0]).unwrap();
    rig.acquire("try", &rig.id("a", 2), WRITE).unwrap();
    let (floor, ..) = assert_busy(rig.kind, &rig.acquire("wait", &b, READ).unwrap());
    assert!(floor >= most, "{floor}, and it was told {most}");
}

// ---- what is told, and what is refused -----------------------------------------------------

#[test]
fn each_half_is_told_its_own_holders_and_nothing_is_written() {
    let mut rig = rig("inspect");
    let (a, b, c, r) = (rig.a(), rig.b(), rig.c(), rig.id("a", 2));
    for half in ["read", "write", "read-in-order"] {
        assert_eq!(rig.inspect_as(half).unwrap(), [vec!["0".to_owned()], vec![], vec![], vec![]]);
    }
    let number = rig.writes(&a);
    reading(&rig.acquire("wait", &r, Ask { from: &a, ..READ }).unwrap());
    rig.queues(&b, WRITE);
    rig.queues(&c, READ);
    rig.age_place(&b, WINDOW + 1_000);
    let before = rig.everything();
    for (half, owner) in [("write", &a), ("read", &r), ("read-in-order", &r)] {
        let told = rig.inspect_as(half).unwrap();
        assert_eq!(told[0], [number.to_string()], "{half}");
        assert_eq!((told[1].len(), &told[1][0], told[1][2].as_str()), (3, owner, RECORD), "{half}");
        let left = int(&told[1][1]);
        assert!(left <= LEASE + 1 && left > LEASE - 5_000, "{half}: {left}");
        assert_eq!(told[2], [c.clone(), RECORD.to_owned()], "{half}: the silent one is not told");
    }
    assert_eq!(rig.everything(), before);
}

#[test]
fn a_strangers_key_is_refused_and_never_written() {
    let mut rig = rig("alien");
    let (a, b) = (rig.a(), rig.b());
    let makes: [(&str, &[&str]); 4] = [
        ("SET", &["x"]),
        ("RPUSH", &["x"]),
        ("HSET", &["kind", "reentrant lock"]),
        ("HSET", &["writer", "x"]),
    ];
    for (verb, rest) in makes {
        let _: () = cmd(verb).arg(&rig.keys[0]).arg(rest).query(&mut rig.con).unwrap();
        let before = rig.everything();
        let refused = |error: String| error.contains("WRONGTYPE");
        for how in ["try", "wait", "keep", "share"] {
            for ask in [READ, WRITE, Ask { from: &b, instead: true, ..READ }] {
                let error = rig.acquire(how, &a, ask).unwrap_err().to_string();
                assert!(refused(error), "{verb} {how} {}", ask.args);
            }
        }
        assert!(refused(rig.inspect_as("read").unwrap_err().to_string()), "{verb}");
        for error in [rig.leave_unsettled(&a).err(), rig.leave_for(&a, false, &b, "write").err()] {
            assert!(refused(error.map(|e| e.to_string()).unwrap_or_default()), "{verb}");
        }
        assert_eq!(rig.everything()[0], before[0], "{verb}: the stranger's key");
        let _: () = rig.con.del(&rig.keys).unwrap();
    }
}

// ---- a full Redis --------------------------------------------------------------------------

#[test]
fn a_full_redis_refuses_newcomers_and_nothing_else() {
    let server = server_that_fills();
    let mut rig = Rig::of(&server, "read-write", Read::RULE, "full");
    let (a, b, c, d, e) = (rig.a(), rig.b(), rig.c(), rig.id("d", 1), rig.id("c", 2));
    let _inboxes = ["b", "c"].map(|who| rig.inbox(&server, who));
    rig.full(true);
    for how in ["try", "wait"] {
        for ask in [READ, IN_ORDER, WRITE] {
            rig.has_no_room_for(how, &a, ask);
        }
    }
    rig.full(false);
    rig.reads(&a);
    rig.reads(&b);
    rig.queues(&c, WRITE);
    rig.queues(&e, READ);
    rig.full(true);
    let before = rig.everything();
    for ask in [READ, WRITE] {
        rig.acquire("wait", &d, ask).unwrap_err();
        assert_eq!(rig.everything(), before, "{}: a newcomer leaves no trace", ask.args);
    }
    // Who is there stays: holds, places, questions.
    for owner in [&a, &b] {
        assert_eq!(rig.renew(owner, LEASE).unwrap(), [LEASE.to_string()]);
    }
    assert_busy("its place", &rig.acquire("keep", &c, WRITE).unwrap());
    assert_busy("its share", &rig.share(&a));
    // Who leaves or lapses lets the next ones in.
    assert_eq!(rig.leave_unsettled(&a).unwrap(), ["1"]);
    rig.set_lease_in_full(&b);
    assert_in("the writer", &rig.acquire("keep", &c, WRITE).unwrap(), LEASE);
    assert_eq!(rig.leave_unsettled(&c).unwrap(), ["1"]);
    assert_eq!(rig.inside(), [e.as_str()]);
    assert_eq!(rig.leave_for(&e, true, &d, "write").unwrap()[..2], ["1", "1"]);
    assert_eq!(rig.writer(), Some(d.clone()));
    // A reader in place of the writer takes no more room than the writer did; beside it, it would.
    let (beside, r) = (Ask { from: &d, ..READ }, rig.id("d", 2));
    rig.acquire("wait", &r, beside).unwrap_err();
    reading(&rig.acquire("wait", &r, Ask { instead: true, ..beside }).unwrap());
    assert_eq!((rig.inside(), rig.writer()), (vec![r], None));
    rig.full(false);
}

impl Rig {
    /// Lets the owner's hold have ended, where only what cannot grow is written first.
    fn set_lease_in_full(&mut self, owner: &str) {
        self.full(false);
        self.set_lease(owner, -1);
        self.full(true);
    }
}
