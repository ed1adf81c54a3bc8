//! Conditions and their signals.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::fixture::{self, Process, Threads, either};
use crate::Error;
use crate::engine::call::condition;
use crate::engine::state::lock_state::Acquired;
use crate::sync::time;
use crate::wait::Wait;

/// Goods that the lock protects, and for which a thread waits.
#[derive(Default)]
struct Goods(AtomicU64);

/// The condition.
const GOODS: &str = "goods";

fn enter(process: &Process, thread: u64) -> Acquired {
    process.lock(thread, &Wait::forever()).expect("no fault").expect("no deadline")
}

/// Adds a thread that waits until there are goods, and takes one.
fn consumer(threads: &Threads, process: &Process, goods: &Arc<Goods>, thread: u64) {
    let (process, goods) = (process.clone(), goods.clone());
    threads.play(&format!("consumer-{thread}"), move || {
        let acquired = enter(&process, thread);
        while goods.0.load(Ordering::SeqCst) == 0 {
            condition::wait(&process.entry, GOODS, acquired.ticket, thread, &Wait::forever())
                .expect("no fault");
        }
        fixture::step();
        let before = goods.0.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "another took it meanwhile");
        process.unlock(acquired).expect("no fault");
    });
}

/// Adds a thread that brings some, and signals `what`.
fn producer(
    threads: &Threads,
    process: &Process,
    goods: &Arc<Goods>,
    thread: u64,
    n: u64,
    what: &'static str,
) {
    let (process, goods) = (process.clone(), goods.clone());
    threads.play(&format!("producer-{thread}"), move || {
        let acquired = enter(&process, thread);
        goods.0.fetch_add(n, Ordering::SeqCst);
        condition::signal(&process.entry, GOODS, acquired.ticket, what).expect("no fault");
        process.unlock(acquired).expect("no fault");
    });
}

/// Time stands still, so that a lost signal is a deadlock.
pub(super) fn each_signal_wakes_one() {
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, goods) = (Threads::default(), Arc::new(Goods::default()));
    consumer(&threads, &a, &goods, 1);
    consumer(&threads, either(&a, &b), &goods, 2);
    producer(&threads, &b, &goods, 3, 1, "one");
    producer(&threads, either(&a, &b), &goods, 4, 1, "one");
    threads.bow();
    assert_eq!(goods.0.load(Ordering::SeqCst), 0);
    fixture::curtain(&server, &[a, b]);
}

pub(super) fn all_are_signalled() {
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, goods) = (Threads::default(), Arc::new(Goods::default()));
    consumer(&threads, &a, &goods, 1);
    consumer(&threads, &a, &goods, 2);
    consumer(&threads, &b, &goods, 3);
    producer(&threads, &b, &goods, 4, 3, "all");
    threads.bow();
    assert_eq!(goods.0.load(Ordering::SeqCst), 0);
    fixture::curtain(&server, &[a, b]);
}

/// A wait that reports that it was not signalled has left its signal to another waiter.
pub(super) fn a_wait_times_out_as_it_is_signalled() {
    let limit = Duration::from_millis(10);
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(1));
    let (a, b) = (Process::new(), Process::new());
    let (threads, goods) = (Threads::default(), Arc::new(Goods::default()));
    consumer(&threads, &a, &goods, 1);
    let process = either(&a, &b).clone();
    let shop = goods.clone();
    threads.play("impatient", move || {
        let acquired = enter(&process, 2);
        let done: Result<bool, Error> =
            condition::wait(&process.entry, GOODS, acquired.ticket, 2, &Wait::timeout(limit));
        // The signal is its own, so it signals the next one.
        if done.expect("no fault") && shop.0.load(Ordering::SeqCst) > 0 {
            condition::signal(&process.entry, GOODS, acquired.ticket, "one").expect("no fault");
        }
        process.unlock(acquired).expect("no fault");
    });
    producer(&threads, &b, &goods, 3, 1, "one");
    threads.play("clock", move || time::pass(limit));
    threads.bow();
    assert_eq!(goods.0.load(Ordering::SeqCst), 0);
    fixture::curtain(&server, &[a, b]);
}

/// The listening connections break, with the signals that lie unread in them.
pub(super) fn a_gap_as_they_are_signalled() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(60));
    let (a, b) = (Process::new(), Process::new());
    let (threads, goods) = (Threads::default(), Arc::new(Goods::default()));
    consumer(&threads, &a, &goods, 1);
    producer(&threads, &b, &goods, 2, 1, "all");
    let cutting = server.clone();
    threads.play("scissors", move || cutting.cut_listeners());
    threads.bow();
    assert_eq!(goods.0.load(Ordering::SeqCst), 0);
    fixture::curtain(&server, &[a, b]);
}
