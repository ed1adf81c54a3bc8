//! Fewer connections than threads: requests are sent together.

use std::sync::Arc;
use std::time::Duration;

use super::fixture::{self, Process, Room, Threads, either};
use super::server::Faults;
use crate::sync::time;
use crate::wait::Wait;

/// Three threads of one process with few connections, each with a lock that nobody else wants.
fn with_a_lock_each(process: &Process, threads: &Threads, visit: impl Fn(&Process, u64)) -> Vec<Process> {
    let processes: Vec<_> = ["one", "two", "three"].map(|name| process.at(name)).into();
    for (thread, process) in (1..).zip(&processes) {
        visit(process, thread);
    }
    threads.bow();
    processes
}

/// Time stands still: a request that nobody sends is a deadlock.
pub(super) fn threads_share_a_connection() {
    let server = fixture::begin();
    let process = Process::with_connections(either(1, 2));
    let (threads, rooms) = (Threads::default(), [(); 3].map(|()| Arc::new(Room::default())));
    let all = with_a_lock_each(&process, &threads, |process, thread| {
        threads.visitor(process, &rooms[thread as usize - 1], thread, 2);
    });
    assert!(rooms.iter().all(|room| room.visits() == 2));
    assert!(all.iter().all(Process::is_idle));
    fixture::curtain(&server, &[process]);
}

/// What the leader's connection loses is requested again by each thread.
pub(super) fn requests_that_go_together_get_lost() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(25));
    let process = Process::with_connections(1);
    let (threads, rooms) = (Threads::default(), [(); 3].map(|()| Arc::new(Room::default())));
    server.go_wrong(Faults { lost: 3, ..Faults::default() });
    let all = with_a_lock_each(&process, &threads, |process, thread| {
        threads.hardy_visitor(process, &rooms[thread as usize - 1], thread);
    });
    assert!(rooms.iter().all(|room| room.visits() == 1));
    fixture::make_good(&server, &[process.clone()]);
    assert!(all.iter().all(Process::is_idle));
    fixture::curtain(&server, &[process]);
}

/// A thread that waits for the connection, as the leader or behind it, gives up: the others get it.
pub(super) fn one_gives_up_in_the_queue_for_a_connection() {
    let limit = Duration::from_millis(10);
    let server = fixture::begin();
    let process = Process::with_connections(1);
    let (threads, rooms) = (Threads::default(), [(); 3].map(|()| Arc::new(Room::default())));
    threads.play("clock", move || time::pass(limit));
    let all = with_a_lock_each(&process, &threads, |process, thread| {
        let room = rooms[thread as usize - 1].clone();
        if thread < 3 {
            return threads.visitor(process, &room, thread, 1);
        }
        let process = process.clone();
        threads.play("hasty", move || match process.lock(thread, &Wait::timeout(limit)) {
            Ok(Some(acquired)) => {
                room.visit(acquired);
                process.unlock(acquired).expect("no fault");
            }
            Ok(None) => {}
            Err(e) => assert!(e.is_unavailable(), "{e}"),
        });
    });
    assert!(rooms[..2].iter().all(|room| room.visits() == 1));
    time::pass_when_quiet(Duration::from_secs(25));
    server.wait_until_empty();
    assert!(all.iter().all(Process::is_idle));
    fixture::curtain(&server, &[process]);
}
