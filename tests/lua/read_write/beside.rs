//! Readers beside their writer, and in its place.

use super::{READ, WRITE, reading, rig};
use crate::rig::{Ask, assert_busy, server};

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
        assert_eq!(rig.received(&mut inbox, "b").len(), usize::from(writer_first));
        assert_eq!(rig.leave(second), ["1"]);
        assert_eq!(rig.received(&mut inbox, "b").len(), usize::from(!writer_first));
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
fn a_writer_that_lapsed_has_nothing_to_give() {
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
            assert_eq!(rig.everything(), before, "it took no queue position");
            assert_eq!(rig.leave(&b), ["1"]);
        }
    }
}

#[test]
fn in_place_of_a_writer_that_lapsed_nobody_comes_in_by_a_position_either() {
    let mut rig = rig("instead-lapsed-with-a-position");
    let (a, r) = (rig.a(), rig.id("a", 2));
    let mut inbox = rig.inbox(server(), "a");
    rig.writes(&a);
    rig.queues(&r, READ);
    rig.set_lease(&a, -1);
    let ask = Ask { from: &a, instead: true, ..READ };
    assert_eq!(rig.acquire("keep", &r, ask).unwrap(), ["-1", "not-inside"]);
    assert_eq!((rig.inside(), rig.queue()), (vec![], vec![]), "it was refused, and nobody will leave for it");
    assert!(rig.received(&mut inbox, "a").is_empty());
}
