//! Which callers are admitted together, and what they are told.

use super::{IN_ORDER, READ, WRITE, reading, rig};
use crate::rig::{LEASE, assert_busy, assert_in};

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
