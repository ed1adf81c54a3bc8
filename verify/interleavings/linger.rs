//! A lock that its process keeps: it is used again while it is given back, wanted before its holder knows
//! that it has it, and does not outlive its client.

use std::sync::Arc;

use super::fixture::{self, LINGER, PAUSES, Process, Room, Threads};
use crate::sync::time;

/// Time stands still: if a keeper is not notified, or does not give the lock back, the others wait forever.
pub(super) fn a_kept_lock_is_wanted_and_used() {
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    a.listen();
    threads.lingering_visitor(&a, &room, 1, 3);
    threads.lingering_visitor(&a, &room, 2, 1);
    threads.visitor(&b, &room, 3, 2);
    threads.bow();
    assert_eq!(room.visits(), 6);
    a.close();
    fixture::curtain(&server, &[b]);
}

/// Each of two processes keeps it.
pub(super) fn two_keepers_take_it_in_turn() {
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    for (process, thread) in [(&a, 1), (&b, 2)] {
        process.listen();
        threads.lingering_visitor(process, &room, thread, 3);
    }
    threads.bow();
    assert_eq!(room.visits(), 6);
    a.close();
    b.close();
    server.is_left_empty();
}

/// The time for which it is kept ends, or its inbox breaks, while it is used again.
pub(super) fn its_time_is_up_as_it_is_used() {
    let server = fixture::begin();
    time::pass_when_quiet(LINGER + PAUSES);
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    a.listen();
    threads.lingering_visitor(&a, &room, 1, 3);
    threads.visitor(&b, &room, 2, 1);
    let cutting = server.clone();
    threads.play("scissors", move || cutting.cut_listeners());
    threads.play("clock", move || time::pass(LINGER));
    threads.bow();
    assert_eq!(room.visits(), 4);
    a.close();
    fixture::curtain(&server, &[b]);
}
