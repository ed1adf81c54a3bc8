//! The arguments of the operations, by name; the scripts know them as ARGV (see `lua/README.md`).

use std::borrow::Cow;
use std::ops::Deref;
use std::time::Duration;

use crate::engine::entries::entry::LockEntry;
use crate::engine::state::lock_state::{AcquireMode, Asking, PendingRelease};

/// The most arguments that any operation takes.
const MOST: usize = 10;

/// Arguments in the order in which their script takes them.
pub(in crate::engine) struct Ordered<'a> {
    all: [&'a str; MOST],
    used: usize,
}

impl<'a> Ordered<'a> {
    /// Takes the given arguments, without the empty ones at the end.
    fn of<const N: usize>(given: [&'a str; N]) -> Self {
        const { assert!(N <= MOST, "more arguments than any operation takes") }
        let mut all = [""; MOST];
        all[..N].copy_from_slice(&given);
        let used = given.iter().rposition(|arg| !arg.is_empty()).map_or(0, |last| last + 1);
        Ordered { all, used }
    }
}

impl<'a> Deref for Ordered<'a> {
    type Target = [&'a str];

    fn deref(&self) -> &[&'a str] {
        &self.all[..self.used]
    }
}

/// The arguments that every operation begins with.
pub(in crate::engine) struct Caller<'a> {
    owner: String,
    lease: String,
    /// Where its process receives grants.
    inbox: Cow<'a, str>,
    waiter_timeout: &'a str,
}

impl<'a> Caller<'a> {
    pub(in crate::engine) fn new(entry: &'a LockEntry, owner: u64, lease: Duration) -> Self {
        let ms = u64::try_from(lease.as_millis()).unwrap_or(u64::MAX);
        let (owner, lease) = (entry.owner_id(owner), itoa::Buffer::new().format(ms).to_owned());
        Caller { owner, lease, inbox: entry.inbox_prefix(), waiter_timeout: &entry.shared.waiter_timeout }
    }

    /// Returns these arguments, followed by all of `what`, even if some are empty.
    pub(in crate::engine) fn with(&'a self, what: &[&'a str]) -> Vec<&'a str> {
        [&[&*self.owner, &*self.lease, &*self.inbox, self.waiter_timeout], what].concat()
    }
}

/// The arguments of `acquire`; and of `await`, a wait for a condition.
pub(in crate::engine) struct Acquire<'a> {
    caller: Caller<'a>,
    how: &'static str,
    /// The arguments for the kind's rule.
    args: &'a str,
    record: String,
    /// The hold beside which, or instead of which, it is to be admitted.
    from: String,
    arrival: &'a str,
    /// Whether that hold ends when this one is admitted.
    instead: bool,
    /// For a wait: the condition.
    condition: Option<&'a str>,
}

impl<'a> Acquire<'a> {
    pub(in crate::engine) fn new(entry: &'a LockEntry, asking: &'a Asking) -> Self {
        Acquire {
            caller: Caller::new(entry, asking.owner, asking.terms.lease),
            how: match asking.how {
                AcquireMode::Try => "try",
                AcquireMode::Wait => "wait",
                AcquireMode::Keep => "keep",
                AcquireMode::Share => "share",
                AcquireMode::Back => "back",
            },
            args: &asking.terms.args,
            record: match &asking.thread {
                Some(name) => record(entry, asking.threads, Some(name)),
                None => own_record(entry, asking.threads),
            },
            from: asking.from.map(|from| entry.owner_id(from)).unwrap_or_default(),
            arrival: &asking.arrival,
            instead: asking.instead,
            condition: entry.condition.as_ref().map(|awaited| &*awaited.name),
        }
    }

    pub(in crate::engine) fn in_order(&self) -> Ordered<'_> {
        let Caller { owner, lease, inbox, waiter_timeout } = &self.caller;
        // For a wait, the script knows that it is admitted instead of the hold that it gives up.
        let last = self.condition.unwrap_or(if self.instead { "1" } else { "" });
        let Acquire { how, args, record, from, arrival, .. } = self;
        Ordered::of([owner, lease, inbox, waiter_timeout, how, args, record, from, arrival, last])
    }
}

/// The arguments of `leave`; and of `quit`, the end of a wait for a condition.
pub(in crate::engine) struct Leave<'a> {
    caller: Caller<'a>,
    /// A request of this owner may still be on its way: it gets a tombstone.
    unsettled: bool,
    /// The request that goes in the same round trip. The lease is that of this request, as a leave needs
    /// none.
    next: Option<Next<'a>>,
    /// For a wait: the condition.
    condition: Option<&'a str>,
}

struct Next<'a> {
    args: &'a str,
    record: String,
    owner: String,
    /// The arrival that it had before its position gave way to a better class.
    arrival: &'a str,
    by_priority: bool,
}

impl<'a> Leave<'a> {
    pub(in crate::engine) fn new(
        entry: &'a LockEntry,
        leaving: &PendingRelease,
        next: Option<&'a Asking>,
    ) -> Self {
        Leave {
            caller: Caller::new(entry, leaving.owner, next.map_or(leaving.lease, |n| n.terms.lease)),
            unsettled: leaving.unsettled,
            next: next.map(|next| Next {
                args: &next.terms.args,
                record: record(entry, next.threads, next.thread.as_deref()),
                owner: entry.owner_id(next.owner),
                arrival: &next.arrival,
                by_priority: next.terms.class.is_some(),
            }),
            condition: entry.condition.as_ref().map(|awaited| &*awaited.name),
        }
    }

    pub(in crate::engine) fn in_order(&self) -> Ordered<'_> {
        let Caller { owner, lease, inbox, waiter_timeout } = &self.caller;
        let unsettled = if self.unsettled { "1" } else { "" };
        match (&self.next, self.condition) {
            (_, Some(condition)) => Ordered::of([owner, lease, inbox, waiter_timeout, unsettled, condition]),
            (Some(next), None) => {
                let Next { args, record, owner: id, arrival, by_priority } = next;
                let last = if *by_priority { "1" } else { "" };
                Ordered::of([owner, lease, inbox, waiter_timeout, unsettled, args, record, id, arrival, last])
            }
            (None, None) => Ordered::of([owner, lease, inbox, waiter_timeout, unsettled]),
        }
    }
}

/// The arguments of `renew`.
pub(in crate::engine) struct Renew<'a> {
    pub(in crate::engine) caller: Caller<'a>,
    /// Whether this is the owner's last renewal.
    pub(in crate::engine) tombstone: bool,
}

impl Renew<'_> {
    pub(in crate::engine) fn in_order(&self) -> Ordered<'_> {
        let Caller { owner, lease, inbox, waiter_timeout } = &self.caller;
        Ordered::of([owner, lease, inbox, waiter_timeout, if self.tombstone { "1" } else { "" }])
    }
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
