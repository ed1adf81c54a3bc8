//! The operations as commands, each a call of one of the lock's scripts.

use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::arguments::{Acquire, Caller, Leave, Renew};
use crate::engine::redis::exchange::Command;
use crate::engine::state::lock_state::{Asking, PendingRelease};
use crate::script::Script;

pub(crate) fn acquire<'a>(entry: &'a LockEntry, asking: &Asking) -> Command<'a> {
    over(entry, &entry.scripts.acquire, &Acquire::new(entry, asking).in_order())
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
    let renew = Renew { caller: Caller::new(entry, owner, lease), tombstone };
    over(entry, &entry.scripts.renew, &renew.in_order())
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
    over(entry, &entry.scripts.leave, &Leave::new(entry, leaving, next).in_order())
}

/// An update of the kind's state, if its rule has any.
pub(crate) fn change<'a>(entry: &'a LockEntry, owner: u64, what: &[&str]) -> Option<Command<'a>> {
    let caller = Caller::new(entry, owner, Duration::ZERO);
    entry.scripts.change.as_ref().map(|script| over(entry, script, &caller.with(what)))
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
