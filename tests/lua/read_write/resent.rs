//! Requests that arrive twice, or late.

use super::{READ, WRITE, rig};
use crate::rig::Ask;

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
