//! What every worker of a history is: a process whose threads do one round after the other and write down what came of
//! it, until its parent ends it.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use redis_concurrent::observe::{LockInfo, LossReason, Observer};
use redis_concurrent_testkit::{Child, hear_parent, tell_parent};

use crate::history::log::{Event, Journal, Who};
use crate::history::pulse;
use crate::support::{SetOnDrop, clock, env};

/// Starts a worker that plays this role and writes its log into this folder.
pub fn spawn(role: &str, process: u64, folder: &Path, more: &[(&str, &str)]) -> std::io::Result<Child> {
    let log = folder.join(format!("{process}.holds"));
    let process = process.to_string();
    let mut orders = vec![("PROCESS", &*process), ("LOG", log.to_str().unwrap())];
    orders.extend(more);
    Child::spawn(role, &orders)
}

/// Writes down what was lost.
pub struct Losses(Arc<Journal>, u64);

impl Observer for Losses {
    fn lost(&self, lock: LockInfo<'_>, why: LossReason) {
        let who = Who { process: self.1, thread: 0, round: 0 };
        self.0.note(clock(), who, Event::Lost { lock: lock.name.into(), why: format!("{why:?}") });
    }
}

/// The process, as it is told by its parent.
pub struct Role {
    pub process: u64,
    pub journal: Arc<Journal>,
}

impl Role {
    pub fn new() -> Role {
        let journal = Arc::new(Journal::open(env("LOG")).unwrap());
        Role { process: env("PROCESS").parse().unwrap(), journal }
    }

    pub fn losses(&self) -> Losses {
        Losses(self.journal.clone(), self.process)
    }

    /// Works with so many threads until the parent says so, or is gone: calls `worker` for each, and what that
    /// returns again and again.
    pub fn play<W: FnMut() + Send>(&self, threads: u64, mut worker: impl FnMut(Who) -> W) {
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            for thread in 1..=threads {
                let mut round = worker(Who { process: self.process, thread, round: 0 });
                let stop = &stop;
                let work = move || {
                    while !stop.load(Ordering::Relaxed) {
                        round();
                    }
                };
                thread::Builder::new().name(format!("worker {thread}")).spawn_scoped(scope, work).unwrap();
            }
            let pulse = || {
                let who = Who { process: self.process, thread: 0, round: 0 };
                pulse::of_process(&stop, |(from, until)| {
                    self.journal.note(until, who, Event::Stalled { from });
                });
            };
            thread::Builder::new().name("pulse".into()).spawn_scoped(scope, pulse).unwrap();
            let _stop = SetOnDrop(&stop);
            tell_parent("ready").unwrap();
            let _ = hear_parent();
        });
    }
}
