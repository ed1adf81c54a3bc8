//! The renewal thread: it lives while there is work for it, and ends when there is none.

use std::sync::Arc;
use std::time::Duration;

use super::fixture::{self, Process, RENEW_EVERY, Room, Threads};
use super::server::Faults;
use crate::engine::renewal::renewer::Renewer;
use crate::observe::{LockInfo, Observer, Observers};
use crate::sync::{Condvar, Mutex, time};
use crate::wait::Wait;

/// Waits for a renewal, on behalf of the lock's holder.
#[derive(Clone, Default)]
struct Renewals(Arc<(Mutex<u64>, Condvar)>);

impl Observer for Renewals {
    fn renewed(&self, _lock: LockInfo<'_>, _lag: Duration, _left: Duration) {
        *self.0.0.lock() += 1;
        self.0.1.notify_all();
    }
}

impl Renewals {
    fn observers(&self) -> Observers {
        let observers = Observers::default();
        observers.add(self.clone());
        observers
    }

    fn wait_for_another(&self) {
        let mut renewals = self.0.0.lock();
        let before = *renewals;
        while *renewals == before {
            self.0.1.wait(&mut renewals);
        }
    }
}

/// Acquires the lock, and keeps it until it was renewed.
fn keep(threads: &Threads, process: &Process, renewals: &Renewals, thread: u64) {
    let (process, renewals) = (process.clone(), renewals.clone());
    threads.play(&format!("keeper-{thread}"), move || {
        let acquired = process.lock(thread, &Wait::forever()).expect("no fault").expect("no deadline");
        renewals.wait_for_another();
        process.unlock(acquired).expect("it was renewed");
    });
}

/// The thread is about to end for lack of work when some arrives.
pub(super) fn it_ends_only_when_nothing_is_left() {
    let server = fixture::begin();
    server.knows_scripts();
    time::pass_when_quiet(Duration::from_secs(25));
    let renewals = Renewals::default();
    let process = Process::with(Arc::default(), renewals.observers());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    threads.visitor(&process, &room, 1, 1);
    threads.play("clock", || time::pass(RENEW_EVERY));
    keep(&threads, &process, &renewals, 2);
    threads.bow();
    fixture::curtain(&server, &[process]);
}

/// Two clients of one process share the thread: closing one does not end it for the other.
pub(super) fn clients_come_and_go() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(25));
    let (renewer, renewals) = (Arc::<Renewer>::default(), Renewals::default());
    let goes = Process::with(renewer.clone(), Observers::default());
    let comes = Process::with(renewer, renewals.observers());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    threads.play("goes", move || {
        let acquired = goes.lock(1, &Wait::forever()).expect("no fault").expect("no deadline");
        room.visit(acquired);
        goes.unlock(acquired).expect("no fault");
        goes.close();
    });
    keep(&threads, &comes, &renewals, 2);
    threads.bow();
    fixture::curtain(&server, &[comes]);
}

/// What is planned for a hold ends with it, and not with its lease, also if it ends while it is being looked at.
pub(super) fn nothing_is_planned_for_a_hold_that_has_ended() {
    let server = fixture::begin();
    server.knows_scripts();
    time::pass_when_quiet(Duration::from_secs(25));
    let (process, threads) = (Process::new(), Threads::default());
    let holder = process.clone();
    threads.play("holder", move || {
        let acquired = holder.lock(1, &Wait::forever()).expect("no fault").expect("no deadline");
        time::pass(RENEW_EVERY);
        holder.unlock(acquired).expect("no fault");
    });
    threads.bow();
    let renewer = &process.shared.renewer;
    let mut state = renewer.state.lock();
    // So all replies have been read.
    while !state.served.is_empty() {
        renewer.ended.wait(&mut state);
    }
    assert!(state.schedule.is_empty(), "it is kept until its lease would have expired");
    drop(state);
    fixture::curtain(&server, &[process]);
}

/// The releasing thread does not wait for the repetition, and the next one does not wait for the lease.
pub(super) fn a_release_that_got_lost_is_repeated() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(25));
    let (a, b) = (Process::new(), Process::new());
    let (threads, room) = (Threads::default(), Arc::new(Room::default()));
    let (process, inside, losing) = (a.clone(), room.clone(), server.clone());
    threads.play("loses", move || {
        let acquired = process.lock(1, &Wait::forever()).expect("no fault yet").expect("no deadline");
        inside.visit(acquired);
        losing.go_wrong(Faults { lost: 3, ..Faults::default() });
        process.unlock_some_time(acquired);
    });
    threads.hardy_visitor(&b, &room, 2);
    threads.bow();
    assert_eq!(room.visits(), 2);
    fixture::make_good(&server, &[a.clone(), b.clone()]);
    fixture::curtain(&server, &[a, b]);
}
