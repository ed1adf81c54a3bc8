//! The results of an inspection, and how each kind of this library is examined: by which rule, in which modes.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::{ServerError, Value};

use crate::client::Client;
use crate::deadlock::{Blocked, circles, described, links};
use crate::engine::entries::entry::{LockEntries, LockEntry};
use crate::engine::entries::runtime::Shared;
use crate::engine::operations::commands::add_receiver;
use crate::engine::redis::exchange::Command;
use crate::engine::redis::refusal::refused;
use crate::engine::redis::resp::{PackedCall, number, text};
use crate::engine::servers::server::Server;
use crate::error::{Error, ErrorKind};
use crate::kind::{Kind, Sharing};
use crate::kinds::barrier::Barrier;
use crate::kinds::latch::Latch;
use crate::kinds::{Permits, Redisson, Reentrant, Simple, Write};
use crate::lock::holder::{holders_of, token_of};
use crate::lock::inspect::{Holder, Process, Rows, Waiter, read};
use crate::names::{Names, unescape};
use crate::recipes::election::Candidate;
use crate::recipes::inventory::{Stock, Units};
use crate::recipes::once::Attempts;
use crate::script::Scripts;

/// How a kind is examined.
pub(super) struct View {
    /// The tag that the kind's rule writes into its state.
    pub(super) tag: &'static str,
    /// The modes in which its rule is asked, and for each whether the last grant number belongs to the holder
    /// of that mode.
    pub(super) modes: &'static [(&'static str, bool)],
    pub(super) scripts: fn(&Shared) -> Result<Arc<Scripts>, Error>,
    /// The lock of this name, in whichever of its modes.
    pub(super) entry: fn(&Arc<Shared>, &str) -> Result<Arc<LockEntry>, Error>,
    /// The names of the first numbers of `kind.inspect`.
    counts: &'static [&'static str],
}

/// How a kind is examined whose tag is its name, and which has one mode.
const fn view<K: Kind>(counts: &'static [&'static str]) -> View {
    let modes = const { &[("", matches!(K::SHARING, Sharing::Exclusive))] };
    let scripts = |shared: &Shared| Ok(shared.kind::<K>()?.0);
    let entry = |shared: &Arc<Shared>, name: &str| LockEntries::get::<K>(shared, name, false);
    View { tag: K::NAME, modes, scripts, entry, counts }
}

/// A lock that is shared with Redisson, at its key.
pub(super) static REDISSON: View = view::<Redisson>(&[]);

static VIEWS: [View; 9] = [
    view::<Simple>(&[]),
    view::<Reentrant>(&[]),
    View { tag: "read-write lock", modes: &[("write", true), ("read", false)], ..view::<Write>(&[]) },
    view::<Permits>(&["permits", "used"]),
    View { modes: &[("take", false), ("lock", true)], ..view::<Units>(&[]) },
    view::<Candidate>(&[]),
    view::<Attempts>(&[]),
    view::<Latch>(&["count"]),
    view::<Barrier>(&["broken"]),
];

/// The mode in which an inventory's rule is asked for its stock; not by a listing.
const STOCK: &str = "stock";

/// Returns the view for a key of this type whose hash has this tag, and the name of the kind.
pub(super) fn of(type_of: &str, tag: Option<String>) -> (Option<&'static View>, String) {
    let kind = match (type_of, tag) {
        ("string", _) => Simple::NAME.to_owned(),
        ("none" | "", _) => "not in use".to_owned(),
        (_, Some(tag)) => tag,
        (other, None) => format!("a {other}"),
    };
    (named(&kind), kind)
}

/// How this kind of lock is examined.
pub(super) fn named(kind: &str) -> Option<&'static View> {
    // A name that is not in use may still have a queue, whose positions any rule can read.
    let tag = if kind == "not in use" { Simple::NAME } else { kind };
    VIEWS.iter().find(|view| view.tag == tag)
}

impl View {
    /// What is asked about the lock of these names, for the inspection with this index: once in each mode, and for `all`
    /// pages also for the stock.
    pub(super) fn lookups<'a>(&'static self, of: usize, names: &'a Names, all: bool) -> Vec<Lookup<'a>> {
        let stock = (all && self.tag == Units::NAME).then_some(&(STOCK, false));
        let modes = self.modes.iter().chain(stock);
        let lookup = |(mode, ordered): &(&'static str, bool)| {
            let (mode, ordered, page) = (*mode, *ordered, String::new());
            Lookup { of, view: self, names, mode, ordered, all, page }
        };
        modes.map(lookup).collect()
    }

    /// Adds what a page says; the queue is the same in all modes.
    fn add(&self, found: &mut Inspection, rows: Rows, mode: &str, ordered: bool) {
        let shares = if self.tag == Permits::NAME { &rows.state[..] } else { &[] };
        let is_first = !self.counts.is_empty() && found.counts.is_empty();
        if is_first {
            let counts = self.counts.iter().zip(&rows.state);
            found.counts.extend(counts.filter_map(|(name, value)| Some((*name, number(Some(value))?))));
        }
        // Only the first page begins with {permits, used}.
        let shares = shares.get(if is_first { 2 } else { 0 }..).unwrap_or_default();
        // (The tokens of Redisson's fenced locks come from another counter.)
        let is_counted = self.tag == Redisson::NAME && !rows.state.is_empty();
        let last = rows.holders.first().map_or(0, |held| held.last);
        for mut holder in holders_of(rows.holders, ordered, shares) {
            holder.token = (ordered && holder.since.is_some() && !is_counted).then(|| token_of(last));
            if !found.holders.iter().any(|other| other.owner == holder.owner) {
                found.holders.push(holder);
            }
        }
        if mode == self.modes[0].0 {
            found.waiters.extend(rows.waiting);
            let signals = rows.signals.into_iter();
            found.condition_waiters.extend(signals.map(|(condition, waiter)| ConditionWaiter {
                condition: unescape(&condition).unwrap_or(condition),
                waiter,
            }));
        }
    }
}

pub(super) fn command(words: &[&str]) -> Command<'static> {
    Command::plain(redis::Cmd::new().arg(words))
}

/// Turns an error reply into an error, except for the reply to a command for a key of another type.
pub(super) fn answered(answer: &Value) -> Result<(), Error> {
    let Value::ServerError(e) = answer else { return Ok(()) };
    let error = refused(e.clone().into()).error();
    if error.kind() == ErrorKind::WrongType { Ok(()) } else { Err(error) }
}

/// A request about one mode of a lock.
pub(super) struct Lookup<'a> {
    /// The index of the inspection that it belongs to.
    of: usize,
    view: &'static View,
    names: &'a Names,
    mode: &'static str,
    ordered: bool,
    /// Whether all pages are read, or those up to the first that has anything on it.
    all: bool,
    page: String,
}

impl<'a> Lookup<'a> {
    /// Asks these questions, page by page. Returns the error replies, each with the index of its inspection.
    pub(super) fn ask_all(
        client: &Client,
        server: &Server,
        mut lookups: Vec<Lookup<'a>>,
        inspections: &mut [Inspection],
    ) -> Result<Vec<(usize, ServerError)>, Error> {
        let mut failed = Vec::new();
        while !lookups.is_empty() {
            let shared = client.shared();
            let scripts =
                lookups.iter().map(|it| (it.view.scripts)(shared)).collect::<Result<Vec<_>, _>>()?;
            let commands = lookups.iter().zip(&scripts).map(|(it, scripts)| it.question(scripts, shared));
            let answers = client.exchange(server, &commands.collect::<Vec<_>>())?;
            let mut next = Vec::new();
            for (lookup, answer) in lookups.into_iter().zip(answers) {
                match answer {
                    Value::ServerError(e) => failed.push((lookup.of, e)),
                    answer => next.extend(lookup.reads(inspections, read(&answer))),
                }
            }
            lookups = next;
        }
        Ok(failed)
    }

    fn question<'s>(&self, Scripts { inspect, .. }: &'s Scripts, shared: &Shared) -> Command<'s> {
        let call = PackedCall::over(&inspect.by_sha, &PackedCall::keys(&self.names.keys()));
        let mut call = call.with(&["", "0"]);
        add_receiver(&mut call, shared, self.names);
        Command::script(inspect, call.with(&[&*self.page, self.mode, "1"]))
    }

    /// Adds a page to its inspection. Returns the next question.
    fn reads(self, inspections: &mut [Inspection], mut page: Rows) -> Option<Lookup<'a>> {
        let (found, next) = (inspections.get_mut(self.of)?, page.next.take());
        // Happens right after many leases expired: the holders are only returned once those are removed.
        let is_empty = page.holders.is_empty() && page.waiting.is_empty();
        match self.mode {
            STOCK => found.add_stock(&page.state),
            mode => self.view.add(found, page, mode, self.ordered),
        }
        let next = next.filter(|_| {
            found.more |= !(self.all || is_empty);
            self.all || is_empty
        });
        next.map(|page| Lookup { page, ..self })
    }
}

/// What is stored under a name: its kind, its holders, its waiters. See [`Client::inspect`](crate::Client::inspect)
/// and [`Client::list`](crate::Client::list).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Inspection {
    /// The name.
    pub name: String,
    /// The kind, for instance `"reentrant lock"`, `"read-write lock"` or `"semaphore"`. A kind that another
    /// program defines appears by its name, and nothing else is known of it here.
    pub kind: String,
    /// The holders; for a semaphore the holders of permits, for an inventory those of reservations.
    pub holders: Vec<Holder>,
    /// The waiting processes, in the order of the queue: those before one's own have as many threads as are ahead
    /// of it ("three ahead of you").
    pub waiters: Vec<Waiter>,
    /// The waiters for a condition's signal, one for each waiting thread: the first hundred.
    pub condition_waiters: Vec<ConditionWaiter>,
    /// Numbers specific to the kind: `permits` and `used` of a semaphore, `count` of a latch, `broken` (1) of
    /// a barrier, `used` of a rate limiter as of the last request that it granted.
    pub counts: Vec<(&'static str, i64)>,
    /// The stock of an inventory, by SKU; the counts of each SKU are from the same moment. Only from
    /// [`Client::inspect`](crate::Client::inspect).
    pub stock: Vec<(String, Stock)>,
    /// The highest token of the [fenced resource](crate::Fenced) of this name, if there is one. Only from
    /// [`Client::inspect`](crate::Client::inspect).
    pub fenced: Option<u64>,
    /// The keys in Redis. Only from [`Client::inspect`](crate::Client::inspect).
    pub keys: Vec<KeyInfo>,
    /// Whether there are more holders or waiters than a [listing](crate::Client::list) shows.
    pub more: bool,
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

/// A circle of threads that wait for each other's locks: see [`Client::deadlocks`](crate::Client::deadlocks).
/// Displays as the error of the one that gives up does.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Deadlock {
    /// Each waits for what the next one holds, and the last one for what the first one holds.
    pub threads: Vec<BlockedThread>,
    text: String,
}

/// A thread that waits for a lock while it holds another one that is waited for.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedThread {
    /// Its process, with its own name.
    pub process: Process,
    /// The name of the lock that it holds.
    pub holds: String,
    /// The name of the lock that it waits for.
    pub waits_for: String,
    /// Since when it waits, by its own clock.
    pub since: SystemTime,
}

/// Returns the circles among these waiters, those of all locks in a [listing](crate::Client::list): for a program
/// that lists them anyway. Otherwise see [`Client::deadlocks`](crate::Client::deadlocks).
pub fn deadlocks<'a>(waiters: impl IntoIterator<Item = &'a Waiter>) -> Vec<Deadlock> {
    let thread = |(it, [holds, waits_for]): (&Blocked, [String; 2])| {
        let process = Process::read(&format!("1 {}", it.who))?;
        let since = SystemTime::UNIX_EPOCH + Duration::from_millis(it.since);
        Some(BlockedThread { process, holds, waits_for, since })
    };
    let circles = circles(waiters.into_iter().flat_map(|it| it.blocked.clone()).collect());
    let deadlock =
        |it: &Vec<_>| Deadlock { threads: links(it).filter_map(thread).collect(), text: described(it) };
    circles.iter().map(deadlock).collect()
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
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

impl Inspection {
    pub(super) fn of(name: &str, kind: String) -> Inspection {
        Inspection { name: name.to_owned(), kind, ..Inspection::default() }
    }

    fn add_stock(&mut self, state: &[Value]) {
        for sku in state.chunks(5) {
            let name = text(sku.first()).unwrap_or_default();
            let name = unescape(&name).unwrap_or(name);
            let counts: Vec<u64> =
                sku.iter().skip(1).filter_map(|n| number(Some(n))?.try_into().ok()).collect();
            // A field may be on two pages of a scan.
            if let [stocked, available, reserved, sold] = counts[..]
                && let Err(at) = self.stock.binary_search_by(|(other, _)| other.cmp(&name))
            {
                self.stock.insert(at, (name, Stock { stocked, available, reserved, sold }));
            }
        }
    }
}
