//! The holders of a lock: the first question at three in the morning.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::engine::entry::LockEntry;
use crate::engine::redis::inspect::{Held, Inspection, inspect};
use crate::engine::several::Part;
use crate::engine::state::grant::number_of;
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;

/// The holder of a lock, as Redis has it. See [`RedisLock::holder`](crate::RedisLock::holder).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Holder {
    /// Its owner id, `<client uuid>:<n>`. For a [simple lock](crate::Simple) it may be a foreign holder's
    /// text, in which bytes that are not UTF-8 are replaced.
    pub owner: String,
    /// The process, if it left a record (a plain string key has none).
    pub process: Option<Process>,
    /// Time of acquisition, by the server's clock: when the lock was granted to that process. `None` if the
    /// owner is not one of this library's, or holds a read lock or a reservation, of which that is not kept.
    pub since: Option<SystemTime>,
    /// Remaining lease if it is not renewed; `None`: it does not expire.
    pub remaining: Option<Duration>,
    /// The number of permits it has, for a holder returned by
    /// [`Semaphore::holders`](crate::Semaphore::holders) or in a [`Look`](crate::Look).
    pub permits: Option<u32>,
    /// In a [`Look`](crate::Look): it was released, and only stays for the rest of its
    /// [minimum hold time](crate::RedisLock::min_hold), or was [revoked](crate::RedisLock::revoke_if). Else false.
    pub stays: bool,
    /// In a [`Look`](crate::Look) at an exclusive lock: the first fencing token of the grant. Its process may have
    /// handed it on since, which counts the token up.
    pub token: Option<u64>,
}

/// The result of a [`force_unlock`](crate::RedisLock::force_unlock).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ForcedUnlock {
    /// The number of holds that were taken away: at most one, for an exclusive lock.
    pub holders: usize,
    /// How many of their holders are known to have been notified: their processes were listening at the time.
    pub told: usize,
    /// How many holders were left alone, as the precondition does not name them.
    pub others: usize,
    /// For how long the holds that were [revoked](crate::RedisLock::revoke_if) may still keep others out, at most: what
    /// is left of their leases. Zero after a forced unlock.
    pub stays: Duration,
}

/// Whose hold a [forced unlock](crate::RedisLock::force_unlock_if) takes away.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HeldBy {
    /// Any: all of its holders.
    Anyone,
    /// Only the one with this [owner id](Holder::owner): this process, by this grant.
    Owner(String),
    /// Only the grant with this fencing [token](crate::Guard::token), or with one that it had before a local hand-off.
    /// Of an exclusive lock: others have no tokens.
    Token(u64),
}

impl HeldBy {
    /// Whether it names this owner, whose grant has this number (0: none).
    pub(crate) fn is(&self, owner: &str, number: u64) -> bool {
        match self {
            HeldBy::Anyone => true,
            HeldBy::Owner(named) => named == owner,
            HeldBy::Token(token) => number > 0 && number_of(*token) == number,
        }
    }
}

/// The longest reason of a forced unlock, in bytes.
const LONGEST_REASON: usize = 1024;

/// A reason as a holder is told it: in one line.
pub(crate) fn told(reason: &str) -> Result<String, String> {
    match reason.len() {
        0..=LONGEST_REASON => Ok(reason.replace(char::is_control, " ").trim().to_owned()),
        n => Err(format!("a reason must have at most {LONGEST_REASON} bytes, got {n}")),
    }
}

impl ForcedUnlock {
    /// Whether the lock was held.
    pub fn was_held(&self) -> bool {
        self.holders > 0
    }

    /// Whether every holder whose hold was taken away is known to have been notified; also true if there was
    /// none. If not, a holder may work on until its next renewal, or, with a fixed lease, until its release.
    pub fn all_told(&self) -> bool {
        self.told == self.holders
    }
}

/// Those that may be in the way of a caller: of a half of a read/write lock the holders of the other half, too.
pub(crate) fn holders_of_either_half(part: &Part) -> Result<Vec<Holder>, Error> {
    let args = &part.terms.args;
    let mut holders = holders_in(&part.entry, args, part.sharing)?;
    if let Some(other_mode) = &part.other_mode {
        let (mode, sharing) = match args.starts_with("read") {
            true => ("write", Sharing::Exclusive),
            false => ("read", Sharing::Shared),
        };
        holders.extend(holders_in(other_mode, mode, sharing)?);
    }
    Ok(holders)
}

/// Its holders, as [`RedisLock::holders`](crate::RedisLock::holders) describes them.
pub(super) fn holders_in(entry: &Arc<LockEntry>, mode: &str, sharing: Sharing) -> Result<Vec<Holder>, Error> {
    let Inspection { holders, number, .. } = inspect(entry, mode)?;
    // For a shared kind the last number belongs to some grant, but perhaps not to this holder's.
    let number = if sharing == Sharing::Exclusive { number } else { 0 };
    Ok(holders.into_iter().map(|held| Holder::new(held, number)).collect())
}

/// The error of a caller that did not get the lock in time, with what was said about its holders.
pub(crate) fn busy(name: &str, by: Result<String, Error>) -> Error {
    let error = Error::new(ErrorKind::Timeout, name);
    match by {
        Ok(by) => error.because(by),
        Err(why) => error.because("its holder is not known").caused_by(why),
    }
}

/// Who holds a lock, in a few words.
pub(crate) fn held_by(holders: &[Holder]) -> String {
    /// More than these would not be read.
    const NAMED: usize = 3;
    let each = holders.iter().take(NAMED).map(|holder| {
        let permits = match holder.permits {
            Some(1) => " (1 permit)".to_owned(),
            Some(n) => format!(" ({n} permits)"),
            None => String::new(),
        };
        // The server's clock may be ahead of ours.
        let held = holder.since.map(|since| SystemTime::now().duration_since(since).unwrap_or_default());
        let held = held.map(|held| format!(" for {:.1} s", held.as_secs_f64())).unwrap_or_default();
        format!("{holder}{permits}{held}")
    });
    let named = each.collect::<Vec<_>>().join("; ");
    match holders.len() {
        0 => "it was held, and is free by now".to_owned(),
        n if n > NAMED => format!("held by {named}; and {} more", n - NAMED),
        _ => format!("held by {named}"),
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
    /// The name of its thread that asked Redis, cut off at 64 characters; `None` if that has no name. Of a holder it is
    /// the thread that was granted the lock, which its process may have handed on to another of its threads since; of
    /// a waiter the first of its waiting threads, as of its last heartbeat.
    pub thread: Option<String>,
}

/// 2020-01-01, where grant numbers begin.
const EPOCH: Duration = Duration::from_secs(1_577_836_800);

/// When this grant number was given, by the server's clock.
pub(crate) fn granted_at(number: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + EPOCH + Duration::from_micros(number)
}

/// Who it is, for a message or a log: `client name pid@host`; of a process that left no record its owner id.
impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some(process) if process.client_name.is_empty() => write!(f, "{}@{}", process.pid, process.host),
            Some(process) => write!(f, "{} {}@{}", process.client_name, process.pid, process.host),
            None => f.write_str(&self.owner),
        }
    }
}

impl Holder {
    /// `number`: the lock's last grant number, which is its holder's and encodes a time.
    pub(crate) fn new(held: Held, number: u64) -> Self {
        let since = (held.is_ours() && number > 0).then(|| granted_at(number));
        let process = Process::read(&held.record);
        let Held { owner, remaining, stays, .. } = held;
        Holder { process, owner, since, remaining, permits: None, stays, token: None }
    }
}

impl Process {
    /// A record: `<threads> <pid> <host> <client_name>`, and behind a tab the thread's name, if it has one.
    pub(crate) fn read(record: &str) -> Option<Process> {
        let (record, thread) = match record.split_once('\t') {
            Some((record, thread)) => (record, Some(thread.to_owned())),
            None => (record, None),
        };
        let mut words = record.splitn(4, ' ').skip(1);
        let pid = words.next()?.parse().ok()?;
        let host = words.next()?.to_owned();
        Some(Process { pid, host, client_name: words.next().unwrap_or_default().to_owned(), thread })
    }
}
