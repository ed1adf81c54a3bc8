//! A semaphore with two permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::fixture::{self, Process, Threads, either, request};
use super::server::Server;
use crate::Error;
use crate::engine::call::acquire;
use crate::engine::call::end::{How, end};
use crate::engine::call::held::update;
use crate::engine::call::release::Stay;
use crate::engine::state::lock_state::Terms;
use crate::kinds::Permits;
use crate::sync::time;
use crate::wait::Wait;

const TOTAL: u64 = 2;

fn begin() -> (Arc<Server>, Process, Process) {
    let (server, a, b) = (fixture::begin(), Process::new(), Process::new());
    update(&a.entry::<Permits>(), &["set", &TOTAL.to_string()]).expect("no fault");
    (server, a, b)
}

/// How many permits are acquired.
#[derive(Default)]
struct Out {
    now: AtomicU64,
    turns: AtomicU64,
}

/// Acquires this many permits, if in time, and releases them.
fn turn(process: &Process, out: &Out, thread: u64, permits: u64, wait: &Wait<'_>) -> Result<bool, Error> {
    let entry = process.entry::<Permits>();
    let terms = Terms::new(process.shared.config.lease, &*permits.to_string());
    let Some(acquired) = acquire(&entry, None, &request(thread, terms, wait), wait)? else {
        return Ok(false);
    };
    let before = out.now.fetch_add(permits, Ordering::SeqCst);
    assert!(before + permits <= TOTAL, "{permits} more than {before} are out");
    fixture::step();
    out.now.fetch_sub(permits, Ordering::SeqCst);
    out.turns.fetch_add(1, Ordering::SeqCst);
    end(&entry, acquired.ticket, How::Released(Stay::Agreed)).map(|()| true)
}

fn visitor(threads: &Threads, process: &Process, out: &Arc<Out>, thread: u64, permits: u64) {
    let (process, out) = (process.clone(), out.clone());
    threads.play(&format!("visitor-{thread}"), move || {
        let done = turn(&process, &out, thread, permits, &Wait::forever()).expect("no fault");
        assert!(done, "no deadline");
    });
}

fn curtain(server: &Server, processes: &[Process]) {
    for process in processes {
        let entry = process.entry::<Permits>();
        let core = entry.core.lock();
        assert!(core.lock_state.is_idle(), "{:?}", core.lock_state);
    }
    fixture::curtain(server, processes);
}

/// Time stands still, so that a lost wake-up is a deadlock.
pub(super) fn one_and_both_permits_take_turns() {
    let (server, a, b) = begin();
    let (threads, out) = (Threads::default(), Arc::new(Out::default()));
    visitor(&threads, &a, &out, 1, 1);
    visitor(&threads, &a, &out, 2, 2);
    visitor(&threads, either(&a, &b), &out, 3, 1);
    visitor(&threads, &b, &out, 4, 2);
    visitor(&threads, &b, &out, 5, 1);
    threads.bow();
    assert_eq!(out.turns.load(Ordering::SeqCst), 5);
    curtain(&server, &[a, b]);
}

/// What was granted to a thread that gives up is not what the next one of its process requests.
pub(super) fn one_gives_up_before_another_that_asks_for_more() {
    let limit = Duration::from_millis(10);
    let (server, a, b) = begin();
    let (threads, out) = (Threads::default(), Arc::new(Out::default()));
    visitor(&threads, &a, &out, 1, 2);
    let (process, counter) = (b.clone(), out.clone());
    threads.play("impatient", move || {
        turn(&process, &counter, 2, 1, &Wait::timeout(limit)).expect("no fault");
    });
    visitor(&threads, &b, &out, 3, 2);
    visitor(&threads, either(&a, &b), &out, 4, 1);
    threads.play("clock", move || time::pass(limit));
    threads.bow();
    assert!(out.turns.load(Ordering::SeqCst) >= 3);
    curtain(&server, &[a, b]);
}
