//! Grant numbers.

use redis::{Commands, Connection};
use redis_concurrent_testkit::wait_until;

use super::{READ, WRITE, rig};
use crate::rig::{FIRST, LEASE, assert_busy, int, messages, server};
use crate::support::LONG;

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
    assert_eq!(rig.received(&mut inbox, "c"), [format!("{c} in {granted} {FIRST}")]);
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
    wait_until(LONG, "both have lapsed", || rig.acquire("try", &c, WRITE).unwrap()[0] == "1");
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
    let received = |(inbox, who): (&mut Connection, &str)| {
        let heard = messages(&rig, inbox, who);
        int(heard[0].split(' ').nth(2).unwrap())
    };
    let most = inboxes.iter_mut().zip(["b", "c"]).map(received).max().unwrap();
    assert!(most > future + 1);
    // Both lapse, and what they were told lies unread: only by this number they learn that it is old.
    let _: () = rig.con.del(&rig.keys[0]).unwrap();
    rig.acquire("try", &rig.id("a", 2), WRITE).unwrap();
    let (floor, ..) = assert_busy(rig.kind, &rig.acquire("wait", &b, READ).unwrap());
    assert!(floor >= most, "{floor}, and it was told {most}");
}
