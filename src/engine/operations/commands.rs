//! The operations as commands, each a call of one of the lock's scripts; and their arguments, which the scripts know
//! as ARGV (see `lua/README.md`).

use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::redis::exchange::Command;
use crate::engine::state::lock_state::{AcquireMode, Asking, PendingRelease};
use crate::script::Script;

pub(crate) fn acquire<'a>(entry: &'a LockEntry, asking: &Asking) -> Command<'a> {
    over(entry, &entry.scripts.acquire, &acquire_args(entry, asking))
}

/// Sets the lease of a hold.
pub(crate) fn renew(entry: &LockEntry, owner: u64, lease: Duration) -> Command<'_> {
    renewal(entry, owner, lease, false)
}

/// The last renewal of an owner, whose hold then expires.
pub(crate) fn last_renew(entry: &LockEntry, owner: u64, lease: Duration) -> Command<'_> {
    renewal(entry, owner, lease, true)
}

fn renewal(entry: &LockEntry, owner: u64, lease: Duration, tombstone: bool) -> Command<'_> {
    let mut args = caller(entry, owner, lease);
    args.extend(tombstone.then(|| "1".to_owned()));
    over(entry, &entry.scripts.renew, &args)
}

/// A leave by which no other request goes; or, for a hold that stays for a while, the renewal that lets it
/// expire.
pub(crate) fn leave_alone<'a>(entry: &'a LockEntry, leaving: &PendingRelease) -> Command<'a> {
    match leaving.rest(Moment::now) {
        Some(rest) => last_renew(entry, leaving.owner, rest),
        None => leave(entry, leaving, None),
    }
}

/// A leave, with the request of the next head.
pub(crate) fn leave<'a>(
    entry: &'a LockEntry,
    leaving: &PendingRelease,
    next: Option<&Asking>,
) -> Command<'a> {
    over(entry, &entry.scripts.leave, &leave_args(entry, leaving, next))
}

/// An update of the kind's state, if its rule has any.
pub(crate) fn change<'a>(entry: &'a LockEntry, owner: u64, what: &[&str]) -> Option<Command<'a>> {
    let script = entry.scripts.change.as_ref()?;
    let mut args = caller(entry, owner, Duration::ZERO);
    args.extend(what.iter().map(|it| (*it).to_owned()));
    Some(over(entry, script, &args))
}

/// The question for a page of the lock's state; on a lock with several modes, of that of `mode`.
pub(crate) fn inspect<'a>(entry: &'a LockEntry, page: &str, mode: &str) -> Command<'a> {
    let shared = &entry.shared;
    let args = ["", "0", &entry.inbox_prefix(), &shared.waiter_timeout, page, mode];
    over(entry, &entry.scripts.inspect, &args)
}

/// A call of a script over the lock's keys.
pub(in crate::engine) fn over<'a, A: AsRef<[u8]>>(
    entry: &LockEntry,
    script: &'a Script,
    args: &[A],
) -> Command<'a> {
    Command::script(script, &entry.names.keys(), args)
}

/// The arguments that every operation begins with: the owner, its lease, where its process receives grants, and the
/// waiter timeout.
pub(in crate::engine) fn caller(entry: &LockEntry, owner: u64, lease: Duration) -> Vec<String> {
    /// The most arguments that any operation takes.
    const MOST: usize = 10;
    let ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
    let lease = itoa::Buffer::new().format(ms).to_owned();
    let mut args = Vec::with_capacity(MOST);
    args.extend([entry.owner_id(owner), lease]);
    args.extend([entry.inbox_prefix().into_owned(), entry.shared.waiter_timeout.clone()]);
    args
}

/// The arguments of `acquire`; and of `await`, a wait for a condition.
pub(in crate::engine) fn acquire_args(entry: &LockEntry, asking: &Asking) -> Vec<String> {
    let how = match asking.how {
        AcquireMode::Try => "try",
        AcquireMode::Wait => "wait",
        AcquireMode::Keep => "keep",
        AcquireMode::Share => "share",
        AcquireMode::Back => "back",
    };
    let mut record = match &asking.thread {
        Some(name) => record(entry, asking.threads, Some(name)),
        None => own_record(entry, asking.threads),
    };
    if !asking.blocked.is_empty() {
        record.push_str(if record.contains('\t') { "\t" } else { "\t\t" });
        record.push_str(&asking.blocked);
    }
    // The hold beside which, or instead of which, it is to be admitted.
    let from = asking.from.map(|from| entry.owner_id(from)).unwrap_or_default();
    // For a wait, the script knows that it is admitted instead of the hold that it gives up.
    let last = entry.condition.as_ref().map_or(flag(asking.instead), |awaited| awaited.name.clone());
    let mut args = caller(entry, asking.owner, asking.terms.lease);
    args.extend([how.to_owned(), asking.terms.args.to_string(), record, from, asking.arrival.clone(), last]);
    trimmed(args)
}

/// The arguments of `leave`; and of `quit`, the end of a wait for a condition. With a request of the `next` head, the
/// lease is that of this request, as a leave needs none.
pub(in crate::engine) fn leave_args(
    entry: &LockEntry,
    leaving: &PendingRelease,
    next: Option<&Asking>,
) -> Vec<String> {
    let mut args = caller(entry, leaving.owner, next.map_or(leaving.lease, |next| next.terms.lease));
    // A request of this owner may still be on its way: it gets a tombstone.
    args.push(flag(leaving.maybe_in_flight));
    match (&entry.condition, next) {
        (Some(awaited), _) => args.push(awaited.name.clone()),
        (None, Some(next)) => {
            let record = record(entry, next.threads, next.thread.as_deref());
            args.extend([next.terms.args.to_string(), record, entry.owner_id(next.owner)]);
            // The arrival that it had before its position gave way to a better class.
            args.extend([next.arrival.clone(), flag(next.terms.class.is_some())]);
        }
        (None, None) => {}
    }
    trimmed(args)
}

fn flag(it: bool) -> String {
    if it { "1".to_owned() } else { String::new() }
}

/// Leaves out the empty arguments at the end.
fn trimmed(mut args: Vec<String>) -> Vec<String> {
    let used = args.iter().rposition(|arg| !arg.is_empty()).map_or(0, |last| last + 1);
    args.truncate(used);
    args
}

/// How much of a thread's name is sent, in characters.
const LONGEST_NAME: usize = 64;

/// Describes a queue position or a hold: number of waiting threads, pid, host, client name and, after a tab,
/// the name of the thread that asks, if it has one.
fn record(entry: &LockEntry, threads: usize, thread: Option<&str>) -> String {
    let mut digits = itoa::Buffer::new();
    let (threads, identity) = (digits.format(threads), &entry.shared.identity);
    let name = thread.unwrap_or_default();
    let mut record = String::with_capacity(threads.len() + identity.len() + 2 + name.len());
    record.push_str(threads);
    record.push(' ');
    record.push_str(identity);
    if thread.is_some() {
        record.push('\t');
        if name.len() <= LONGEST_NAME && name.bytes().all(|b| matches!(b, b' '..=b'~')) {
            record.push_str(name);
        } else {
            record.extend(name.chars().take(LONGEST_NAME).map(|c| if c.is_control() { ' ' } else { c }));
        }
    }
    record
}

/// The record of the calling thread.
pub(in crate::engine) fn own_record(entry: &LockEntry, threads: usize) -> String {
    record(entry, threads, std::thread::current().name())
}
