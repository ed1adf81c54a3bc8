//! A read/write lock: many readers, or one writer.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use super::fixture::{self, LINGER, Process, Threads, either, request};
use super::server::Server;
use crate::Error;
use crate::engine::call::acquire;
use crate::engine::call::end::{How, end};
use crate::engine::call::modes;
use crate::engine::call::release::Stay;
use crate::engine::state::lock_state::{Acquired, Terms};
use crate::kind::Kind;
use crate::kinds::{Read, Write};
use crate::sync::time;
use crate::wait::Wait;

/// What the lock protects: how many threads are reading, or -1 while one is writing.
#[derive(Default)]
struct Page {
    inside: AtomicI64,
    read: AtomicU64,
    written: AtomicU64,
}

impl Page {
    fn read(&self) {
        let before = self.inside.fetch_add(1, Ordering::SeqCst);
        assert!(before >= 0, "it reads while another writes");
        fixture::step();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        self.read.fetch_add(1, Ordering::SeqCst);
    }

    fn write(&self) {
        let before = self.inside.swap(-1, Ordering::SeqCst);
        assert_eq!(before, 0, "it writes while others are inside");
        fixture::step();
        self.inside.store(0, Ordering::SeqCst);
        self.written.fetch_add(1, Ordering::SeqCst);
    }
}

/// Acquires the lock of kind `K`, whose other mode is kind `O`.
fn take<K: Kind, O: Kind>(
    process: &Process,
    thread: u64,
    terms: Terms,
    wait: &Wait<'_>,
) -> Result<Option<Acquired>, Error> {
    let (entry, other_mode) = (process.entry::<K>(), process.entry::<O>());
    let mut request = request(thread, terms, wait);
    let readers = modes::consider(&entry, &other_mode, &mut request)?;
    acquire(&entry, readers, &request, wait)
}

fn terms(process: &Process, args: &str) -> Terms {
    Terms::new(process.shared.config.lease, args)
}

fn reads(process: &Process, page: &Page, thread: u64, wait: &Wait<'_>) -> Result<bool, Error> {
    let Some(acquired) = take::<Read, Write>(process, thread, terms(process, "read"), wait)? else {
        return Ok(false);
    };
    page.read();
    end(&process.entry::<Read>(), acquired.ticket, How::Released(Stay::Agreed)).map(|()| true)
}

fn writes(process: &Process, page: &Page, thread: u64, wait: &Wait<'_>) -> Result<bool, Error> {
    writes_on(process, page, thread, terms(process, "write"), wait)
}

fn writes_on(
    process: &Process,
    page: &Page,
    thread: u64,
    terms: Terms,
    wait: &Wait<'_>,
) -> Result<bool, Error> {
    let Some(acquired) = take::<Write, Read>(process, thread, terms, wait)? else { return Ok(false) };
    page.write();
    end(&process.entry::<Write>(), acquired.ticket, How::Released(Stay::Agreed)).map(|()| true)
}

fn reader(threads: &Threads, process: &Process, page: &Arc<Page>, thread: u64) {
    let (process, page) = (process.clone(), page.clone());
    threads.play(&format!("reader-{thread}"), move || {
        assert!(reads(&process, &page, thread, &Wait::forever()).expect("no fault"), "no deadline");
    });
}

fn writer(threads: &Threads, process: &Process, page: &Arc<Page>, thread: u64) {
    let (process, page) = (process.clone(), page.clone());
    threads.play(&format!("writer-{thread}"), move || {
        assert!(writes(&process, &page, thread, &Wait::forever()).expect("no fault"), "no deadline");
    });
}

/// Adds a writer whose process keeps the lock.
fn lingering_writer(threads: &Threads, process: &Process, page: &Arc<Page>, thread: u64, times: usize) {
    let (process, page) = (process.clone(), page.clone());
    threads.play(&format!("lingering-{thread}"), move || {
        for _ in 0..times {
            let terms = Terms { linger: LINGER.into(), ..terms(&process, "write") };
            let done = writes_on(&process, &page, thread, terms, &Wait::forever()).expect("no fault");
            assert!(done, "no deadline");
        }
    });
}

/// Checks that a lock of two modes is idle: both modes must be.
fn curtain(server: &Server, processes: &[Process]) {
    for process in processes {
        for entry in [process.entry::<Read>(), process.entry::<Write>()] {
            let core = entry.core.lock();
            assert!(core.lock_state.is_idle(), "{:?}", core.lock_state);
        }
    }
    fixture::curtain(server, processes);
}

/// Time stands still, so that a lost wake-up is a deadlock.
pub(super) fn readers_and_writers_take_turns() {
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, page) = (Threads::default(), Arc::new(Page::default()));
    reader(&threads, &a, &page, 1);
    reader(&threads, &a, &page, 2);
    writer(&threads, either(&a, &b), &page, 3);
    writer(&threads, &b, &page, 4);
    reader(&threads, &b, &page, 5);
    threads.bow();
    assert_eq!((page.read.load(Ordering::SeqCst), page.written.load(Ordering::SeqCst)), (3, 2));
    curtain(&server, &[a, b]);
}

/// Readers that stood behind a writer get in when it gives up, also in its own process.
pub(super) fn a_writer_gives_up_as_it_is_granted() {
    let limit = Duration::from_millis(10);
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, page) = (Threads::default(), Arc::new(Page::default()));
    reader(&threads, &a, &page, 1);
    let (process, paper) = (b.clone(), page.clone());
    threads.play("impatient", move || {
        writes(&process, &paper, 2, &Wait::timeout(limit)).expect("no fault");
    });
    reader(&threads, &b, &page, 3);
    writer(&threads, either(&a, &b), &page, 4);
    threads.play("clock", move || time::pass(limit));
    threads.bow();
    assert_eq!(page.read.load(Ordering::SeqCst), 2);
    assert!(page.written.load(Ordering::SeqCst) >= 1);
    curtain(&server, &[a, b]);
}

/// A writer's process keeps the lock. Time stands still: readers, there and elsewhere, wait forever unless
/// they make it give the lock back.
pub(super) fn readers_want_what_a_writer_keeps() {
    let server = fixture::begin();
    let (a, b) = (Process::new(), Process::new());
    let (threads, page) = (Threads::default(), Arc::new(Page::default()));
    a.listen();
    lingering_writer(&threads, &a, &page, 1, 3);
    reader(&threads, &a, &page, 2);
    reader(&threads, &b, &page, 3);
    threads.bow();
    assert_eq!((page.read.load(Ordering::SeqCst), page.written.load(Ordering::SeqCst)), (2, 3));
    a.close();
    curtain(&server, &[b]);
}

/// The listening connections break: readers that share a hold learn of the writer behind them nevertheless.
pub(super) fn a_word_to_readers_gets_lost() {
    let server = fixture::begin();
    time::pass_when_quiet(Duration::from_secs(25));
    let (a, b) = (Process::new(), Process::new());
    let (threads, page) = (Threads::default(), Arc::new(Page::default()));
    for thread in 1..=3 {
        reader(&threads, &a, &page, thread);
    }
    writer(&threads, &b, &page, 4);
    let cutting = server.clone();
    threads.play("scissors", move || cutting.cut_listeners());
    threads.bow();
    assert_eq!((page.read.load(Ordering::SeqCst), page.written.load(Ordering::SeqCst)), (3, 1));
    curtain(&server, &[a, b]);
}
