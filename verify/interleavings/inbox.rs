//! The inbox: whatever it may have missed is asked about, and none of its threads outlives its client.

use std::sync::Arc;
use std::time::Duration;

use super::fixture::{self, PAUSES, Process, Room, Threads};
use super::server::Faults;
use crate::sync::time;
use crate::wait::Wait;

/// The listening connections break, with what lies unread in them. No time passes but their pauses: a waiter must be
/// made to ask.
pub(super) fn a_gap_is_asked_about() {
    let server = fixture::begin();
    time::pass_when_quiet(PAUSES);
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    threads.visitor(&a, &room, 1, 2);
    threads.visitor(&b, &room, 2, 1);
    threads.visitor(&b, &room, 3, 1);
    let cutting = server.clone();
    threads.play("scissors", move || {
        for _ in 0..2 {
            cutting.cut_listeners();
        }
    });
    threads.bow();
    assert_eq!(room.visits(), 4);
    fixture::curtain(&server, &[a, b]);
}

/// The same with nothing else happening: one request, one release, one gap.
pub(super) fn a_gap_just_as_the_lock_is_granted() {
    let server = fixture::begin();
    time::pass_when_quiet(PAUSES);
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    let acquired = a.lock(1, &Wait::forever()).expect("no fault").expect("no deadline");
    b.listen();
    threads.visitor(&b, &room, 2, 1);
    let cutting = server.clone();
    threads.play("scissors", move || cutting.cut_listeners());
    a.unlock(acquired).expect("no fault");
    threads.bow();
    assert_eq!(room.visits(), 1);
    fixture::curtain(&server, &[a, b]);
}

/// No thread takes a position while nobody would hear of its grant (the server checks that), and a thread
/// that had to wait for the listener continues once it is up.
pub(super) fn the_listener_cannot_connect_at_first() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(3));
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    server.go_wrong(Faults { refused: 3, ..Faults::default() });
    for (thread, process) in [(1, &a), (2, &b), (3, &b)] {
        threads.hardy_visitor(process, &room, thread);
    }
    threads.bow();
    assert_eq!(room.visits(), 3);
    fixture::make_good(&server, &[a.clone(), b.clone()]);
    fixture::curtain(&server, &[a, b]);
}

/// The listener sleeps between two attempts. Time stands still: it must be woken.
pub(super) fn a_client_closes_while_its_listener_cannot_connect() {
    let server = fixture::begin();
    let process = Process::new();
    server.go_wrong(Faults { refused: u32::MAX, surely: true, ..Faults::default() });
    process.starts_to_listen();
    process.close();
}

/// Without a `close`, whatever its listener is doing.
pub(super) fn a_client_is_dropped_while_its_listener_starts() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(25));
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    for (thread, process) in [(1, a), (2, b)] {
        let room = room.clone();
        threads.play(&format!("visitor-{thread}"), move || {
            let acquired = process.lock(thread, &Wait::forever()).expect("no fault").expect("no deadline");
            room.visit(acquired);
            process.unlock(acquired).expect("no fault");
        });
    }
    threads.bow();
    time::wait_for_others();
    server.is_left_empty();
}
