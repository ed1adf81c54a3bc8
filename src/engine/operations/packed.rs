//! Operations as bytes, to be written on a connection together with others.

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::arguments::{Acquire, Caller, Leave, Renew};
use crate::engine::redis::resp::call;
use crate::engine::state::lock_state::{Asking, PendingRelease};
use crate::script::Script;
use std::time::Duration;

/// Adds an acquire to what is sent to several servers at once.
pub(crate) fn pack_acquire(out: &mut Vec<u8>, entry: &LockEntry, asking: &Asking, eval: bool) {
    pack(out, entry, &entry.scripts.acquire, &Acquire::new(entry, asking).in_order(), eval);
}

/// Adds a renewal to what the renewer sends.
pub(crate) fn pack_renew(out: &mut Vec<u8>, entry: &LockEntry, owner: u64, lease: Duration, eval: bool) {
    let renew = Renew { caller: Caller::new(entry, owner, lease), tombstone: false };
    pack(out, entry, &entry.scripts.renew, &renew.in_order(), eval);
}

/// Adds a leave to what the renewer or `close` sends; or, for a hold that stays for a while, the renewal that
/// lets it expire.
pub(crate) fn pack_leave(out: &mut Vec<u8>, entry: &LockEntry, leaving: &PendingRelease, eval: bool) {
    match leaving.rest(Moment::now) {
        Some(rest) => {
            let renew = Renew { caller: Caller::new(entry, leaving.owner, rest), tombstone: true };
            pack(out, entry, &entry.scripts.renew, &renew.in_order(), eval);
        }
        None => pack_leave_for(out, entry, leaving, None, eval),
    }
}

/// Adds a leave, with the request of its next head, to what is sent to several servers at once.
pub(crate) fn pack_leave_for(
    out: &mut Vec<u8>,
    entry: &LockEntry,
    leaving: &PendingRelease,
    next: Option<&Asking>,
    eval: bool,
) {
    pack(out, entry, &entry.scripts.leave, &Leave::new(entry, leaving, next).in_order(), eval);
}

/// Adds an update of the kind's state to what is sent together with a WAIT.
pub(in crate::engine) fn pack_change(
    out: &mut Vec<u8>,
    entry: &LockEntry,
    owner: u64,
    what: &[&str],
    eval: bool,
) {
    if let Some(script) = &entry.scripts.change {
        pack(out, entry, script, &Caller::new(entry, owner, Duration::ZERO).with(what), eval);
    }
}

/// Adds the question who holds the lock to what is sent to several servers at once.
pub(crate) fn pack_inspect(out: &mut Vec<u8>, entry: &LockEntry, eval: bool) {
    let shared = &entry.shared;
    let args = ["", "0", &entry.inbox_prefix(), &shared.waiter_timeout, "", ""];
    pack(out, entry, &entry.scripts.inspect, &args, eval);
}

/// Adds a call of the script, by its SHA1, or in full (`eval`) if Redis does not know it.
fn pack(out: &mut Vec<u8>, entry: &LockEntry, script: &Script, args: &[&str], eval: bool) {
    let (verb, text) = if eval { ("EVAL", &script.source) } else { ("EVALSHA", &script.sha) };
    call(out, verb, text, &entry.names.keys(), args);
}
