//! The holders and the waiters of a lock in all processes, as Redis has them.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::Value;

use crate::clock::Moment;
use crate::deadlock::Blocked;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands;
use crate::engine::redis::resp::{list, number, text};
use crate::error::{Error, printable};
use crate::names::is_owner;
use crate::wait::Wait;

/// A holder of a lock, as Redis knows it. See [`RedisLock::holder`](crate::RedisLock::holder).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// The owner id, `<client uuid>:<n>`. For a [simple lock](crate::kinds::Simple) it may be the string of a
    /// foreign holder, in which bytes that are not UTF-8 are replaced.
    pub owner: String,
    /// The holder's process, if it left a record (a plain string key has none).
    pub process: Option<Process>,
    /// When the lock was granted to that process, by the server's clock. `None` if the owner is not one of this
    /// library's, for a shared hold of which it is not recorded (a read lock, a reservation), and for a simple
    /// lock that has been held for more than two hours. Permits have
    /// it, for a holder returned by [`Semaphore::holders`](crate::Semaphore::holders) or in an
    /// [`Inspection`](crate::admin::Inspection).
    pub since: Option<SystemTime>,
    /// The remaining lease if it is not renewed; `None` if it does not expire.
    pub remaining: Option<Duration>,
    /// The number of permits held, for a holder returned by [`Semaphore::holders`](crate::Semaphore::holders)
    /// or in an [`Inspection`](crate::admin::Inspection).
    pub permits: Option<u32>,
    /// In an [`Inspection`](crate::admin::Inspection): whether the hold was released and only stays for the rest of
    /// its [minimum hold time](crate::RedisLock::min_hold), or was [revoked](crate::RedisLock::force_unlock_if).
    /// Otherwise false.
    pub stays: bool,
    /// In an [`Inspection`](crate::admin::Inspection) of an exclusive lock: the first fencing token of the grant. Each
    /// local hand-off since has incremented it.
    pub token: Option<u64>,
}

/// Names the holder for a message or a log: `client name pid@host`, or the owner id if its process left no
/// record. Control characters are escaped.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&match &self.process {
            Some(process) if process.client_name.is_empty() => format!("{}@{}", process.pid, process.host),
            Some(process) => format!("{} {}@{}", process.client_name, process.pid, process.host),
            None => self.owner.clone(),
        }))
    }
}

/// A holder, and what Redis has of it besides.
pub(crate) struct HeldRow {
    /// Without what its grant tells.
    pub(crate) holder: Holder,
    /// The owner id, byte for byte: what a foreign holder stored need not be text.
    pub(super) raw: Vec<u8>,
    /// Whether it is a process of this library. (A holder of another library that has owner ids like ours
    /// says so in its record.)
    pub(super) is_ours: bool,
    /// The number of the lock's last grant.
    pub(crate) last: u64,
}

impl HeldRow {
    /// `number` is the grant number of this hold, which encodes the time of the grant; 0 if it is not known.
    pub(super) fn granted(self, number: u64) -> Holder {
        Holder { since: (self.is_ours && number > 0).then(|| granted_at(number)), ..self.holder }
    }
}

/// The process behind a hold.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Process {
    /// Its process id on its host.
    pub pid: u32,
    /// Its host's name.
    pub host: String,
    /// Its [client name](crate::ClientBuilder::client_name).
    pub client_name: String,
    /// The name of the thread that asked Redis, cut off at 64 characters; `None` if it has no name. For a
    /// holder it is the thread that was granted the lock; its process may have handed the lock on to another
    /// thread since. For a waiter it is the first of its waiting threads, as of its last heartbeat.
    pub thread: Option<String>,
}

impl Process {
    /// Parses a record: `<threads> <pid> <host> <client_name>`, followed by a tab and the thread's name if it
    /// has one.
    pub(crate) fn read(record: &str) -> Option<Process> {
        // After another tab comes what its threads hold.
        let mut parts = record.split('\t');
        let mut words = parts.next()?.splitn(4, ' ').skip(1);
        let pid = words.next()?.parse().ok()?;
        let host = words.next()?.to_owned();
        let client_name = words.next().unwrap_or_default().to_owned();
        let thread = parts.next().filter(|it| !it.is_empty()).map(str::to_owned);
        Some(Process { pid, host, client_name, thread })
    }
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
    /// What its threads publish of what they hold.
    pub(crate) blocked: Vec<Blocked>,
}

/// 2020-01-01, the origin of grant numbers.
const EPOCH: Duration = Duration::from_secs(1_577_836_800);

/// Returns the time of a grant, by the server's clock.
pub(crate) fn granted_at(number: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + EPOCH + Duration::from_micros(number)
}

/// The reply to `inspect`: a page, or all of them.
#[derive(Default)]
pub(crate) struct Rows {
    pub(crate) holders: Vec<HeldRow>,
    /// The waiting processes.
    pub(crate) waiting: Vec<Waiter>,
    /// If asked for in detail: the waiters for signals, each with its condition.
    pub(crate) signals: Vec<(String, Waiter)>,
    /// What the rule says about its state.
    pub(crate) state: Vec<Value>,
    /// The argument that asks for the next page.
    pub(crate) next: Option<String>,
}

/// Asks Redis for a lock's holders and waiters; on a lock with several modes, for those of `mode`. If there
/// are many, they come page by page. Each page shows the lock at its own moment: a holder that stays
/// throughout is on one of them. Blocks for the command timeout at most, per page.
pub(crate) fn inspect(entry: &Arc<LockEntry>, mode: &str) -> Result<Rows, Error> {
    let mut all = Rows::default();
    let (mut holders, mut waiting) = (HashSet::new(), HashSet::new());
    let mut next = Some(String::new());
    while let Some(page) = next {
        let page = inspect_page(entry, mode, &page, &Wait::forever())?;
        // A holder that is renewed, or moves, between two pages may be on both.
        all.holders.extend(page.holders.into_iter().filter(|held| holders.insert(held.raw.clone())));
        all.waiting.extend(page.waiting.into_iter().filter(|it| waiting.insert(it.owner.clone())));
        all.state.extend(page.state);
        next = page.next;
    }
    Ok(all)
}

/// Returns what the rule replies to this question, from the first page alone: for kinds that say everything
/// there. Blocks for the command timeout at most, and no longer than `wait` allows.
pub(crate) fn state_of(entry: &Arc<LockEntry>, question: &str, wait: &Wait<'_>) -> Result<Vec<Value>, Error> {
    loop {
        let page = inspect_page(entry, question, "", wait)?;
        if page.next.as_deref() != Some("") {
            return Ok(page.state);
        }
    }
}

fn inspect_page(entry: &Arc<LockEntry>, mode: &str, page: &str, wait: &Wait<'_>) -> Result<Rows, Error> {
    let shared = &entry.shared;
    shared.usable().map_err(|e| entry.error(e))?;
    let limit = wait.limit(Moment::now(), shared.config.command_timeout);
    let reply = entry.ask(&[commands::inspect(entry, page, mode)], limit);
    reply.map(|reply| read(&reply.value)).map_err(|failure| entry.error(failure.error()))
}

/// Reads a page of the reply to `inspect`, in detail or not.
pub(crate) fn read(answer: &Value) -> Rows {
    let items = list(answer);
    let texts = |i: usize| items.get(i).map(list).unwrap_or_default();
    let (stays, last) = (texts(5), number(items.first()).and_then(|n| n.try_into().ok()).unwrap_or(0));
    let held = |(i, chunk): (usize, &[Value])| {
        let owner = text(chunk.first())?;
        let record = text(chunk.get(2))?;
        let is_ours = is_owner(&owner) && record != "?";
        let raw = match chunk.first() {
            Some(Value::BulkString(bytes)) => bytes.clone(),
            _ => owner.clone().into(),
        };
        let holder = Holder {
            owner,
            process: Process::read(&record),
            since: None,
            remaining: number(chunk.get(1)).and_then(|ms| ms.try_into().ok()).map(Duration::from_millis),
            permits: None,
            stays: number(stays.get(i)) == Some(1),
            token: None,
        };
        Some(HeldRow { holder, raw, is_ours, last })
    };
    let times = texts(6);
    let in_queue = |(i, chunk): (usize, &[Value])| {
        waiting(chunk.first(), chunk.get(1), times.get(2 * i), times.get(2 * i + 1))
    };
    let signals = texts(7).chunks(5);
    let signals =
        signals.filter_map(|c| Some((text(c.first())?, waiting(c.get(1), c.get(2), c.get(3), c.get(4))?)));
    // A script that found more expired holds than it removes only says where to ask again, which may be at
    // the beginning. In detail, the last page has an empty `next`.
    let is_last = |next: &String| next.is_empty() && items.len() > 5;
    Rows {
        holders: texts(1).chunks(3).enumerate().filter_map(held).collect(),
        state: texts(3).to_vec(),
        waiting: texts(2).chunks(2).enumerate().filter_map(in_queue).collect(),
        signals: signals.collect(),
        next: text(items.get(4)).filter(|next| !is_last(next)),
    }
}

fn waiting(
    owner: Option<&Value>,
    record: Option<&Value>,
    since: Option<&Value>,
    silent: Option<&Value>,
) -> Option<Waiter> {
    let us = |value| number(value).and_then(|us| us.try_into().ok()).unwrap_or(0);
    let (owner, record) = (text(owner)?, text(record)?);
    let threads = record.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(1);
    let (process, since) = (Process::read(&record), granted_at(us(since)));
    let blocked = record.split('\t').skip(2).filter_map(Blocked::read).collect();
    Some(Waiter {
        owner,
        process,
        threads,
        since,
        last_heartbeat: Duration::from_micros(us(silent)),
        blocked,
    })
}
