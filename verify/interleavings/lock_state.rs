//! The lock state: waiting, granting, handing on, giving up.

use std::sync::Arc;
use std::time::Duration;

use super::fixture::{self, Limit, Process, Room, Threads, either};
use super::server::Faults;
use crate::CancellationToken;
use crate::engine::call::receipt;
use crate::engine::state::grant::Grant;
use crate::sync::time;
use crate::wait::Wait;

/// Time stands still, so that a lost wake-up is a deadlock.
pub(super) fn threads_of_two_processes_take_turns() {
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    threads.visitor(&a, &room, 1, 2);
    threads.visitor(&a, &room, 2, 1);
    threads.visitor(&b, &room, 3, 2);
    let (process, inside) = (b.clone(), room.clone());
    threads.play("once", move || {
        if let Some(acquired) = process.lock(4, &Wait::once()).expect("no fault") {
            inside.visit(acquired);
            process.unlock(acquired).expect("no fault");
        }
    });
    threads.bow();
    assert!(room.visits() >= 5);
    fixture::curtain(&server, &[a, b]);
}

/// Their releases are overtaken by no request of their own process, which goes behind or waits; and none is forgotten.
pub(super) fn dropped_holds_do_not_wait_for_their_replies() {
    let server = fixture::begin();
    let (a, b) = (Process::that_drops(either(1, 2)), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    // On the connections of a client that has been in use.
    let first = a.lock(1, &Wait::forever()).expect("no fault").expect("no deadline");
    a.drops(first);
    let again = a.lock(1, &Wait::forever()).expect("no fault").expect("no deadline");
    a.drops(again);
    assert!(a.owes_replies(), "it waited for its reply");
    for thread in 1..3 {
        let (process, room) = (a.clone(), room.clone());
        threads.play(&format!("drops-{thread}"), move || {
            for _ in 0..2 {
                let acquired =
                    process.lock(thread, &Wait::forever()).expect("no fault").expect("no deadline");
                room.visit(acquired);
                process.drops(acquired);
            }
        });
    }
    threads.visitor(&b, &room, 3, 1);
    threads.bow();
    assert!(room.visits() == 5);
    while a.owes_replies() {}
    fixture::curtain(&server, &[a, b]);
}

/// One thread gives up while another process may grant it the lock, or another thread may hand it on: the
/// threads behind it still get the lock.
fn one_gives_up(limit: Limit, clock: impl FnOnce() + Send + 'static) {
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    threads.visitor(&a, &room, 1, 1);
    threads.visitor(either(&a, &b), &room, 2, 1);
    threads.impatient(&b, &room, 3, limit);
    threads.visitor(&b, &room, 4, 1);
    threads.play("clock", clock);
    threads.bow();
    assert!(room.visits() >= 3);
    fixture::curtain(&server, &[a, b]);
}

pub(super) fn one_times_out_as_it_is_granted() {
    let limit = Duration::from_millis(10);
    one_gives_up(Limit::Time(limit), move || time::pass(limit));
}

pub(super) fn one_is_cancelled_as_it_is_granted() {
    let token = CancellationToken::new();
    one_gives_up(Limit::Token(token.clone()), move || token.cancel());
}

/// The holder releases only when the waiter has given up: by its deadline, or by its token.
pub(super) fn a_wait_ends_while_the_lock_is_held() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_millis(900));
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    let acquired = a.lock(1, &Wait::forever()).expect("no fault").expect("no deadline");
    let token = CancellationToken::new();
    let limit = either(Limit::Time(Duration::from_millis(10)), Limit::Token(token.clone()));
    threads.impatient(either(&a, &b), &room, 2, limit);
    threads.play("cancel", move || token.cancel());
    threads.bow();
    room.visit(acquired);
    assert_eq!(room.visits(), 1);
    a.unlock(acquired).expect("no fault");
    fixture::curtain(&server, &[a, b]);
}

/// A thread without a deadline gives up because Redis does not answer the thread ahead of it; that one gets
/// its reply and passes the lock on nevertheless.
pub(super) fn one_gives_redis_up_as_it_is_handed_the_lock() {
    let pause = Duration::from_millis(20);
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(25));
    let (a, b) = (Process::hasty(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    // The first request and its copy.
    server.go_wrong(Faults { lost: 2, surely: true, ..Faults::default() });
    for (thread, wait) in [(1, Wait::timeout(Duration::from_secs(20))), (2, Wait::forever())] {
        let (process, room) = (a.clone(), room.clone());
        threads.play(&format!("hasty-{thread}"), move || match process.lock(thread, &wait) {
            Ok(acquired) => {
                let acquired = acquired.expect("there is time");
                room.visit(acquired);
                process.unlock_some_time(acquired);
            }
            Err(e) => assert!(e.is_unavailable() && thread == 2, "{e}"),
        });
    }
    threads.play("clock", move || {
        for _ in 0..3 {
            time::pass(pause);
        }
    });
    threads.bow();
    threads.hardy_visitor(&b, &room, 3);
    threads.bow();
    assert!(room.visits() >= 2);
    fixture::make_good(&server, &[a.clone(), b.clone()]);
    fixture::curtain(&server, &[a, b]);
}

/// A lease that is not renewed expires at any time, noticed first by its thread, by the next one, by the
/// renewal thread, or by Redis. A waiter behind it may have to find out with its own heartbeat.
pub(super) fn a_lease_ends_as_it_is_released() {
    let lease = Duration::from_secs(5);
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(15));
    let (a, b) = (Process::new(), Process::new());
    server.knows_scripts();
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    let process = a.clone();
    threads.play("loses", move || {
        let acquired = process.lock_for(1, lease).expect("no fault").expect("no deadline");
        fixture::step();
        let done = process.unlock(acquired);
        assert!(done.as_ref().err().is_none_or(crate::Error::is_lease_lost), "{done:?}");
    });
    threads.visitor(&a, &room, 2, 1);
    threads.visitor(&b, &room, 3, 1);
    threads.play("clock", move || time::pass(lease));
    threads.bow();
    assert_eq!(room.visits(), 2);
    fixture::make_good(&server, &[a.clone(), b.clone()]);
    fixture::curtain(&server, &[a, b]);
}

/// So much time passes that a grant that lies unread must be renewed before it is used, or given back by the
/// thread for which it came too late; and that a waiter counts as dead: it takes a new position with its next
/// heartbeat, for which time must pass.
pub(super) fn a_grant_grows_old() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(20));
    let (a, b) = (Process::new(), Process::new());
    server.knows_scripts();
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    threads.visitor(&a, &room, 1, 2);
    threads.visitor(&b, &room, 2, 1);
    threads.visitor(&b, &room, 3, 1);
    let c = Process::new();
    let age = Duration::from_secs(16);
    threads.impatient(&c, &room, 4, Limit::Time(age));
    threads.play("clock", move || time::pass(age));
    threads.bow();
    assert!(room.visits() >= 4);
    fixture::curtain(&server, &[a, b, c]);
}

/// Every waiter and holder of that client learns of it, and what they had goes to the other process.
pub(super) fn a_client_closes_while_its_threads_wait_and_hold() {
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    for thread in 1..=2 {
        let process = a.clone();
        threads.play(&format!("closed-{thread}"), move || {
            let done = process.lock(thread, &Wait::forever()).and_then(|acquired| {
                fixture::step();
                process.unlock(acquired.expect("no deadline"))
            });
            assert!(done.as_ref().err().is_none_or(|e| e.kind() == crate::ErrorKind::Closed), "{done:?}");
        });
    }
    threads.visitor(&b, &room, 3, 2);
    let process = a.clone();
    threads.play("close", move || process.close());
    threads.bow();
    assert_eq!(room.visits(), 2);
    fixture::curtain(&server, &[a, b]);
}

/// A client closes while it adopts a hold: that is still the receipt's, or leaves with the client.
pub(super) fn a_client_closes_while_it_adopts() {
    let server = fixture::begin();
    let (a, b, c) = (Process::new(), Process::new(), Process::new());
    let threads = Threads::default();
    let acquired = a.lock(1, &Wait::forever()).expect("no fault").expect("no deadline");
    let grant = receipt::detach(&a.entry, acquired.ticket).expect("it is held");
    let (from, grant) = (a.entry.owner_id(grant.owner), Grant::new(0, 0, grant.terms));
    let (process, it) = (b.clone(), (from.clone(), grant.clone()));
    threads.play("adopts", move || {
        if let Ok(acquired) = receipt::adopt(&process.entry, &it.0, it.1) {
            let _ = process.unlock(acquired);
        }
    });
    let process = b.clone();
    threads.play("close", move || process.close());
    threads.bow();
    let acquired = match receipt::adopt(&c.entry, &from, grant) {
        Err(e) if e.kind() == crate::ErrorKind::NotOwner => {
            c.lock(2, &Wait::once()).expect("no fault").expect("nothing is left behind")
        }
        adopted => adopted.expect("no fault"),
    };
    c.unlock(acquired).expect("no fault");
    fixture::curtain(&server, &[a, b, c]);
}

/// Requests or their replies get lost: there is still one owner, and nobody needs a lease to expire in order
/// to get in.
pub(super) fn requests_get_lost() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(25));
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    server.go_wrong(Faults { lost: 4, ..Faults::default() });
    for (thread, process) in [(1, &a), (2, &b), (3, &b)] {
        threads.hardy_visitor(process, &room, thread);
    }
    threads.bow();
    assert_eq!(room.visits(), 3);
    fixture::make_good(&server, &[a.clone(), b.clone()]);
    fixture::curtain(&server, &[a, b]);
}
