//! The results of a look.

use std::time::{Duration, SystemTime};

use crate::engine::operations::inspect::WaitingRow;
use crate::lock::holder::{Holder, Process, granted_at};
use crate::recipes::inventory::Stock;

/// What is stored under a name: its kind, its holders, its waiters. See [`Client::look`](crate::Client::look)
/// and [`Client::list`](crate::Client::list).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Look {
    /// The name.
    pub name: String,
    /// The kind, for instance `"reentrant lock"`, `"read-write lock"` or `"semaphore"`. A kind that another
    /// program defines appears by its name, and nothing else is known of it here.
    pub kind: String,
    /// The holders; for a semaphore the holders of permits, for an inventory those of reservations.
    pub holders: Vec<Holder>,
    /// The waiting processes, in the order of the queue.
    pub waiters: Vec<Waiter>,
    /// The waiters for a condition's signal, one for each waiting thread: the first hundred.
    pub condition_waiters: Vec<ConditionWaiter>,
    /// Numbers specific to the kind: `permits` and `used` of a semaphore, `count` of a latch, `broken` (1) of
    /// a barrier, `used` of a rate limiter as of the last request that it granted.
    pub counts: Vec<(&'static str, i64)>,
    /// The stock of an inventory, by SKU; the counts of each SKU are from the same moment. Only from
    /// [`Client::look`](crate::Client::look).
    pub stock: Vec<(String, Stock)>,
    /// The highest token of the [fenced resource](crate::Fenced) of this name, if there is one. Only from
    /// [`Client::look`](crate::Client::look).
    pub fenced: Option<u64>,
    /// The keys in Redis. Only from [`Client::look`](crate::Client::look).
    pub keys: Vec<KeyInfo>,
    /// Whether there are more holders or waiters than a [listing](crate::Client::list) shows.
    pub more: bool,
}

/// A process that waits for a lock, as Redis knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiter {
    /// The owner id, `<client uuid>:<n>`.
    pub owner: String,
    /// The process.
    pub process: Option<Process>,
    /// The number of its waiting threads, as of its last heartbeat.
    pub threads: usize,
    /// When it got its queue position, by the server's clock.
    pub since: SystemTime,
    /// The time since its last heartbeat. Heartbeats are due every third of its waiter timeout; a process
    /// that missed them for longer than the whole timeout is not shown.
    pub last_heartbeat: Duration,
}

/// A thread that waits for a condition's signal.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConditionWaiter {
    /// The condition's name.
    pub condition: String,
    /// The waiting thread's process.
    pub waiter: Waiter,
}

/// One of a lock's keys in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyInfo {
    /// The key.
    pub key: String,
    /// The time until it expires; `None` if it does not.
    pub ttl: Option<Duration>,
    /// Its memory usage in bytes, if the server reports it.
    pub bytes: Option<u64>,
}

impl Waiter {
    pub(super) fn new(waiting: WaitingRow) -> Waiter {
        let WaitingRow { owner, record, since, silent } = waiting;
        let threads = record.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(1);
        let (process, since) = (Process::read(&record), granted_at(since));
        Waiter { owner, process, threads, since, last_heartbeat: silent }
    }
}

impl Look {
    pub(super) fn of(name: &str, kind: String) -> Look {
        Look {
            name: name.to_owned(),
            kind,
            holders: Vec::new(),
            waiters: Vec::new(),
            condition_waiters: Vec::new(),
            counts: Vec::new(),
            stock: Vec::new(),
            fenced: None,
            keys: Vec::new(),
            more: false,
        }
    }

    /// Returns the number of waiting threads, in all processes, as of their last heartbeats.
    pub fn waiting(&self) -> usize {
        self.waiters.iter().map(|waiter| waiter.threads).sum()
    }
}
