//! Where a run takes place: the servers, the way to them, the logs.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use redis_concurrent_testkit::{Proxy, RedisServer};
use tempfile::TempDir;

use crate::history::checker::Shadow;
use crate::history::log::{Event, Line, read_all};
use crate::history::plan::{COMMAND, LEASE, WAITER_TIMEOUT};
use crate::history::times::Span;
use crate::support::{clock, ms};

/// How long everything takes to be as usual again when all are alive and reach the server: a request
/// may have gone out just before the end of a fault and be waited for in vain, and after that the
/// longest pause is half a second.
pub const RECOVERY: Duration = ms(COMMAND.as_millis() as u64 + 500);

/// How long after its end a fault may have an effect that has cost a process its life, or a lock its
/// release: a dead holder is waited for for a lease, a dead waiter for a waiter timeout.
pub const AFTERMATH: Duration =
    ms((LEASE.as_millis() + WAITER_TIMEOUT.as_millis() + RECOVERY.as_millis()) as u64);

/// How late answers come that have a long way: later than a lease may end early for the clocks' sake.
const FAR: Duration = ms(30);

pub struct Fixture {
    /// The locks. Each write is on the disk before it is answered: a restart loses nothing.
    pub locks: RedisServer,
    /// The counters, which have no faults.
    pub counters: RedisServer,
    /// A way to the locks that breaks.
    pub proxy: Proxy,
    /// A longer one, by the first: all answers are late.
    far: Proxy,
    folder: Option<TempDir>,
    shadows: Mutex<Vec<Shadow>>,
    /// Whether some processes need no proxy.
    pub direct: bool,
}

impl Fixture {
    pub fn set() -> io::Result<Self> {
        let locks = RedisServer::builder().appendonly(true).start()?;
        let proxy = Proxy::start(locks.port())?;
        let far = Proxy::start(proxy.port())?;
        far.delay(FAR);
        let folder = tempfile::Builder::new().prefix("history-").tempdir()?;
        let counters = RedisServer::start()?;
        Ok(Fixture {
            locks,
            counters,
            proxy,
            far,
            folder: Some(folder),
            shadows: Mutex::default(),
            direct: true,
        })
    }

    /// Where the locks are to the process in this slot: to the first directly.
    pub fn url(&self, slot: usize) -> String {
        match slot {
            0 if self.direct => self.locks.url(),
            0 | 1 => self.proxy.url(),
            _ => self.far.url(),
        }
    }

    /// Where the processes write their logs.
    pub fn logs(&self) -> &Path {
        self.folder.as_ref().unwrap().path()
    }

    /// What the processes have written down. That they stood still counts as a fault.
    pub fn lines(&self) -> Vec<Line> {
        let lines = read_all(self.logs());
        for line in &lines {
            if let Event::Stalled { from } = line.event {
                self.stall((from, line.at), "slow process");
            }
        }
        lines
    }

    /// Lets something happen, and notes for how long it may have an effect.
    pub fn during(&self, what: String, after: Duration, act: impl FnOnce()) {
        let from = clock();
        act();
        self.shadow((from, clock() + after.as_micros() as u64), what);
    }

    fn shadow(&self, span: Span, what: String) {
        self.shadows.lock().push(Shadow { span, what });
    }

    /// Something stood still for this time, and a thread that waited for it may have given up.
    pub fn stall(&self, (from, until): Span, what: &str) {
        self.shadow((from, until + RECOVERY.as_micros() as u64), what.into());
    }

    pub fn shadows(&self) -> Vec<Shadow> {
        let mut shadows = self.shadows.lock().clone();
        shadows.sort_by_key(|shadow| shadow.span);
        shadows
    }

    /// Keeps the logs, with what else there is to read, and says where.
    fn keep(&mut self) -> Option<PathBuf> {
        let folder = self.folder.take()?.keep();
        let faults: String = self.shadows().iter().map(|it| format!("{:?} {}\n", it.span, it.what)).collect();
        // Nothing more can be done for a run that has failed already.
        let _ = std::fs::write(folder.join("faults.txt"), faults);
        let _ = std::fs::copy(self.locks.folder().join("redis.log"), folder.join("redis.log"));
        Some(folder)
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        if std::thread::panicking()
            && let Some(folder) = self.keep()
        {
            eprintln!("the logs of the run are kept in {}", folder.display());
        }
    }
}
