//! Which waiter waits for which.

use super::{IN_ORDER, READ, WRITE, reading, rig};
use crate::rig::{FIRST, OVERDUE, WAITER_TIMEOUT, assert_busy, server};

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
    assert_eq!(rig.received(&mut inboxes[0], "b"), [format!("{b} in {written} {FIRST}")]);
    assert_eq!((rig.inside(), rig.writer()), (vec![b.clone()], Some(b.clone())));
    rig.leave(&b);
    let mut numbers = Vec::new();
    for (i, (who, owner)) in [("c", &c), ("d", &d)].into_iter().enumerate() {
        let (number, _, _) = reading(&rig.acquire("keep", owner, READ).unwrap());
        let text = format!("{owner} in {number} {FIRST} {written}");
        assert_eq!(rig.received(&mut inboxes[i + 1], who), [text], "the last write's number is told too");
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
            rig.age_position(&b, WAITER_TIMEOUT + 1_000);
            reading(&rig.acquire("keep", &c, READ).unwrap());
        } else {
            assert_eq!(rig.leave(&b), ["0"]);
            assert_eq!(rig.received(&mut inbox, "c").len(), 1);
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
    rig.age_position(&b, OVERDUE);
    rig.leave(&a);
    // The writer is gone, and so is not in the way of the readers behind it.
    assert_eq!((rig.inside(), rig.writer()), (vec![c.clone(), d.clone()], None));
    let e = rig.id("e", 1);
    rig.queues(&e, WRITE);
    rig.age_position(&e, OVERDUE);
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
    assert_eq!(rig.received(&mut inbox, "b").len(), 1);
    assert_eq!((rig.writer(), rig.queue()), (Some(b), vec![d]));
}
