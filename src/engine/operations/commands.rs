//! The operations as commands, each a call of one of the lock's scripts; and their arguments, which the scripts know
//! as ARGV (see `lua/README.md`).

use std::borrow::Cow;
use std::cell::Cell;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::entries::runtime::Shared;
use crate::engine::redis::exchange::Command;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::resp::PackedCall;
use crate::engine::servers::route::Route;
use crate::engine::state::lock_state::{AcquireMode, Asking, PendingRelease, Terms};
use crate::error::{Error, ErrorKind};
use crate::names::{Names, inbox_prefix};
use crate::script::Script;

pub(crate) fn acquire<'a>(entry: &'a LockEntry, asking: &Asking) -> Command<'a> {
    let script = &entry.scripts.acquire;
    Command::script(script, acquire_args(over(entry, script), entry, asking))
}

/// Sets the lease of a hold; for the last time, if the hold then expires: `last`.
pub(crate) fn renew(entry: &LockEntry, owner: u64, lease: Duration, last: bool) -> Command<'_> {
    let script = &entry.scripts.renew;
    let mut call = caller(over(entry, script), entry, owner, lease);
    call.add_if_any(flag(last));
    Command::script(script, call)
}

/// A leave by which no other request goes; or, for a hold that stays for a while, the renewal that lets it
/// expire.
pub(crate) fn leave_alone<'a>(entry: &'a LockEntry, leaving: &PendingRelease) -> Command<'a> {
    match leaving.rest(Moment::now) {
        Some(rest) => renew(entry, leaving.owner, rest, true),
        None => leave(entry, leaving, None),
    }
}

/// A leave, with the request of the next head.
pub(crate) fn leave<'a>(
    entry: &'a LockEntry,
    leaving: &PendingRelease,
    next: Option<&Asking>,
) -> Command<'a> {
    let script = &entry.scripts.leave;
    Command::script(script, leave_args(over(entry, script), entry, leaving, next))
}

/// An update of the kind's state. Its rule may have none.
pub(crate) fn update<'a>(entry: &'a LockEntry, owner: u64, what: &[&str]) -> Result<Command<'a>, Failure> {
    let none = || Failure::Never(ErrorKind::InvalidInput.because("the rule of this kind has no kind.update"));
    let script = entry.scripts.update.as_ref().ok_or_else(none)?;
    Ok(Command::script(script, caller(over(entry, script), entry, owner, Duration::ZERO).with(what)))
}

/// Makes the hold of `from` that of `owner`. Its rule may not allow that.
pub(crate) fn adopt<'a>(
    entry: &'a LockEntry,
    owner: u64,
    from: &str,
    lease: Duration,
) -> Result<Command<'a>, Failure> {
    let script = entry.scripts.adopt.as_ref().ok_or_else(|| Failure::Unsent(no_rule()))?;
    let mut call = caller(over(entry, script), entry, owner, lease).with(&[from, ""]);
    add_record(&mut call, entry, 0, std::thread::current().name(), "");
    Ok(Command::script(script, call))
}

pub(crate) fn no_rule() -> Error {
    ErrorKind::InvalidInput.because("the rule of this kind has no kind.transfer")
}

/// The question for a page of the lock's state; on a lock with several modes, of that of `mode`.
pub(crate) fn inspect<'a>(entry: &'a LockEntry, page: &str, mode: &str) -> Command<'a> {
    let script = &entry.scripts.inspect;
    let mut call = over(entry, script).with(&["", "0"]);
    add_receiver(&mut call, &entry.shared, &entry.names);
    Command::script(script, call.with(&[page, mode]))
}

thread_local! {
    /// The lock that this thread last sent a request about, by the prefix of its keys, and these: the next is mostly about
    /// the same.
    static LAST: Cell<(String, PackedCall)> = Cell::default();
}

/// A call of a script over the lock's keys.
pub(crate) fn over(entry: &LockEntry, script: &Script) -> PackedCall {
    let mut last = LAST.try_with(Cell::take).unwrap_or_default();
    if last.0 != entry.names.stem() {
        entry.names.stem().clone_into(&mut last.0);
        last.1 = PackedCall::keys(&entry.names.keys());
    }
    let call = PackedCall::over(&script.by_sha, &last.1);
    // (A thread that ends has no place for them.)
    let _ = LAST.try_with(|of| of.set(last));
    call
}

/// Adds the arguments that every operation begins with: the owner, its lease, where its process receives grants, and the
/// waiter timeout.
pub(crate) fn caller(mut args: PackedCall, entry: &LockEntry, owner: u64, lease: Duration) -> PackedCall {
    args.add(entry.owner_id_parts(owner, &mut itoa::Buffer::new()));
    args.add([itoa::Buffer::new().format(u64::try_from(lease.as_millis()).unwrap_or(u64::MAX))]);
    add_receiver(&mut args, &entry.shared, &entry.names);
    args
}

/// Adds where the process receives grants of the lock of these names, and the waiter timeout.
pub(crate) fn add_receiver(args: &mut PackedCall, shared: &Shared, names: &Names) {
    match shared.route {
        Route::One(_) => args.add_packed(&shared.receiver),
        Route::Cluster(_) => {
            args.add([&inbox_prefix(names.stem())]);
            args.add([itoa::Buffer::new().format(shared.config.waiter_timeout.as_millis())]);
        }
    }
}

/// Adds the arguments of `acquire`; and of `await`, a wait for a condition.
pub(crate) fn acquire_args(call: PackedCall, entry: &LockEntry, asking: &Asking) -> PackedCall {
    let how = match asking.how {
        AcquireMode::Try => "try",
        AcquireMode::Wait => "wait",
        AcquireMode::Keep => "keep",
        AcquireMode::Share => "share",
        AcquireMode::Back => "back",
    };
    let mut args = caller(call, entry, asking.owner, asking.terms.lease);
    args.add([how]);
    args.add([&*asking.terms.args]);
    let this = std::thread::current();
    let name = asking.thread.as_deref().or(this.name());
    add_record(&mut args, entry, asking.threads, name, &asking.blocked);
    // The hold beside which, or instead of which, it is to be admitted.
    args.add_if_any(&asking.from.map(|from| entry.owner_id(from)).unwrap_or_default());
    args.add_if_any(&asking.arrival);
    // For a wait, the script knows that it is admitted instead of the hold that it gives up.
    args.add_if_any(entry.condition.as_ref().map_or(flag(asking.instead), |awaited| &awaited.name));
    args.add_if_any(&priority(&asking.terms));
    args.add_if_any(&asking.most.map(|most| most.to_string()).unwrap_or_default());
    args
}

/// Adds the arguments of `leave`; and of `quit`, the end of a wait for a condition. With a request of the `next` head, the
/// lease is that of this request, as a leave needs none.
pub(crate) fn leave_args(
    call: PackedCall,
    entry: &LockEntry,
    leaving: &PendingRelease,
    next: Option<&Asking>,
) -> PackedCall {
    let lease = next.map_or(leaving.lease, |next| next.terms.lease);
    let mut args = caller(call, entry, leaving.owner, lease);
    // A request of this owner may still be on its way: it gets a tombstone.
    args.add_if_any(flag(leaving.maybe_in_flight));
    match (&entry.condition, next) {
        (Some(awaited), _) => args.add([&awaited.name]),
        (None, Some(next)) => {
            args.add([&*next.terms.args]);
            add_record(&mut args, entry, next.threads, next.thread.as_deref(), "");
            args.add(entry.owner_id_parts(next.owner, &mut itoa::Buffer::new()));
            // The arrival that it had before its position gave way to a better class.
            args.add_if_any(&next.arrival);
            let first = next.terms.class.is_some() || next.terms.priority > 0 || !next.arrival.is_empty();
            args.add_if_any(flag(first));
            args.add_if_any(&priority(&next.terms));
        }
        (None, None) => {}
    }
    args
}

fn priority(terms: &Terms) -> String {
    if terms.priority == 0 { String::new() } else { terms.priority.to_string() }
}

fn flag(it: bool) -> &'static str {
    if it { "1" } else { "" }
}

/// How much of a thread's name is sent, in characters.
const LONGEST_NAME: usize = 64;

/// Describes a queue position or a hold: number of waiting threads, pid, host, client name and, after a tab each,
/// the name of the thread that asks, if it has one, and whom it `blocked`.
pub(crate) fn add_record(
    args: &mut PackedCall,
    entry: &LockEntry,
    threads: usize,
    thread: Option<&str>,
    blocked: &str,
) {
    let plain = |name: &str| name.len() <= LONGEST_NAME && name.bytes().all(|b| matches!(b, b' '..=b'~'));
    let name = match thread {
        Some(name) if !plain(name) => {
            let chars = name.chars().take(LONGEST_NAME);
            Cow::Owned(chars.map(|c| if c.is_control() { ' ' } else { c }).collect())
        }
        name => Cow::Borrowed(name.unwrap_or_default()),
    };
    let tab = |it: bool| if it { "\t" } else { "" };
    let (first, second) = (tab(thread.is_some() || !blocked.is_empty()), tab(!blocked.is_empty()));
    let (mut digits, identity) = (itoa::Buffer::new(), &*entry.shared.identity);
    args.add([digits.format(threads), " ", identity, first, &name, second, blocked]);
}
