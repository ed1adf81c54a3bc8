//! A lock that its process keeps: it is used again while it is given back, wanted before its holder knows
//! that it has it, and does not outlive its client.

use std::sync::Arc;

use super::stage::{self, Cast, LINGER, Process, Room};
use crate::sync::time;

/// Time stands still: if a keeper is not notified, or does not give the lock back, the others wait forever.
pub(super) fn a_kept_lock_is_wanted_and_used() {
    let server = stage::begin();
    let (a, b) = (Process::new(), Process::new());
    let (cast, room) = (Cast::default(), Arc::new(Room::default()));
    a.listen();
    cast.lingering_visitor(&a, &room, 1, 3);
    cast.lingering_visitor(&a, &room, 2, 1);
    cast.visitor(&b, &room, 3, 2);
    cast.bow();
    assert_eq!(room.visits(), 6);
    a.close();
    stage::curtain(&server, &[b]);
}

/// Each of two processes keeps it.
pub(super) fn two_keepers_take_it_in_turn() {
    let server = stage::begin();
    let (a, b) = (Process::new(), Process::new());
    let (cast, room) = (Cast::default(), Arc::new(Room::default()));
    for (process, thread) in [(&a, 1), (&b, 2)] {
        process.listen();
        cast.lingering_visitor(process, &room, thread, 3);
    }
    cast.bow();
    assert_eq!(room.visits(), 6);
    a.close();
    b.close();
    assert!(server.is_empty(), "something is left in Redis");
}

/// The time for which it is kept ends, or its inbox breaks, while it is used again.
pub(super) fn its_time_is_up_as_it_is_used() {
    let server = stage::begin();
    let (a, b) = (Process::new(), Process::new());
    let (cast, room) = (Cast::default(), Arc::new(Room::default()));
    a.listen();
    cast.lingering_visitor(&a, &room, 1, 3);
    cast.visitor(&b, &room, 2, 1);
    let cutting = server.clone();
    cast.play("scissors", move || cutting.cut_listeners());
    cast.play("clock", move || time::pass(LINGER));
    cast.bow();
    assert_eq!(room.visits(), 4);
    a.close();
    stage::curtain(&server, &[b]);
}
