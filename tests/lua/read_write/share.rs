//! How long a reader may let in other readers of its process.

use redis::Connection;

use super::{READ, WRITE, reading, rig};
use crate::rig::{Ask, Rig, assert_busy, server};

#[test]
fn a_reader_may_take_others_in_while_nobody_waits() {
    let mut rig = rig("share");
    let (a, b, c) = (rig.a(), rig.b(), rig.c());
    let (number, _, value) = reading(&rig.acquire("try", &a, READ).unwrap());
    rig.reads(&b);
    rig.set_lease(&a, 9_000);
    let before = rig.everything();
    let (same, left, received) = reading(&rig.share(&a));
    assert_eq!((same, received), (number, value));
    assert!(left <= 9_001 && left > 4_000, "{left}");
    assert_eq!(rig.share(&c), ["-1", "gone"], "without a hold there is nothing to share");
    assert_eq!(rig.everything(), before, "asking changes nothing");
    rig.queues(&c, WRITE);
    let before = rig.everything();
    let (_, _, arrival) = assert_busy("a writer waits", &rig.share(&a));
    assert_eq!(arrival, "", "it has no queue position, and wants none");
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
    // A caller that takes no position notifies nobody.
    assert_busy("a try", &rig.acquire("try", &c, WRITE).unwrap());
    rig.queues(&c, WRITE);
    // Nor do its resent requests and its heartbeats.
    rig.queues(&c, WRITE);
    assert_busy("a heartbeat", &rig.acquire("keep", &c, WRITE).unwrap());
    let received = |rig: &Rig, inbox: &mut Connection, who: &str| rig.received(inbox, who);
    assert_eq!(received(&rig, &mut inboxes[0], "a"), [format!("{a} yield 0 0")]);
    assert_eq!(received(&rig, &mut inboxes[1], "b"), [format!("{b} yield 0 0")]);
    assert!(received(&rig, &mut inboxes[2], "c").is_empty());
    // Another one does, and a reader that waits does not.
    let (d, e) = (rig.id("c", 2), rig.id("c", 3));
    rig.queues(&d, WRITE);
    rig.queues(&e, READ);
    for (i, who) in ["a", "b"].into_iter().enumerate() {
        assert_eq!(received(&rig, &mut inboxes[i], who).len(), 1, "{who}");
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
    assert!(
        rig.received(&mut inbox, "a").is_empty(),
        "its hand-off period is its own, and its reader shares nothing"
    );
}

#[test]
fn a_writer_that_comes_with_a_leave_tells_the_readers_too() {
    let mut rig = rig("yield-next");
    let (a, b, d) = (rig.a(), rig.b(), rig.id("b", 2));
    let mut inbox = rig.inbox(server(), "a");
    rig.reads(&a);
    // Its process gives one queue position up and takes another.
    rig.queues(&b, WRITE);
    assert_eq!(rig.received(&mut inbox, "a").len(), 1);
    let answer = rig.leave_for(&b, false, &d, "write").unwrap();
    assert_busy("the next one", &answer[1..]);
    assert_eq!(rig.received(&mut inbox, "a"), [format!("{a} yield 0 0")]);
}
