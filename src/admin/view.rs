//! The results of a look, and how each kind of this library is examined: by which rule, in which modes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use redis::Value;

use crate::client::Client;
use crate::clock::Moment;
use crate::deadlock::Blocked;
use crate::engine::entries::entry::LockEntry;
use crate::engine::entries::runtime::Shared;
use crate::engine::redis::connection::Connection;
use crate::engine::redis::exchange::Command;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::refusal::{refused, refused_script};
use crate::engine::redis::resp::{number, text};
use crate::engine::servers::server::Server;
use crate::error::{Error, ErrorKind};
use crate::kind::Kind;
use crate::kinds::barrier::Barrier;
use crate::kinds::latch::Latch;
use crate::kinds::{Permits, Redisson, Reentrant, Simple, Write};
use crate::lock::holder::{ForcedUnlock, HeldBy, Holder, Process, granted_at, take_away, token_of};
use crate::lock::inspect::{Page, WaitingRow, read};
use crate::lock::named;
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
    modes: &'static [(&'static str, bool)],
    pub(super) scripts: fn(&Shared) -> Result<Arc<Scripts>, Error>,
    /// The lock of this name, in whichever of its modes.
    entry: fn(&Arc<Shared>, &str) -> Result<Arc<LockEntry>, Error>,
    /// The names of the first numbers of `kind.describe`.
    counts: &'static [&'static str],
}

const fn view<K: Kind>(
    tag: &'static str,
    modes: &'static [(&'static str, bool)],
    counts: &'static [&'static str],
) -> View {
    let scripts = |shared: &Shared| Ok(shared.kind::<K>()?.0);
    let entry = |shared: &Arc<Shared>, name: &str| named::<K>(shared, name);
    View { tag, modes, scripts, entry, counts }
}

const EXCLUSIVE: &[(&str, bool)] = &[("", true)];
const SHARED: &[(&str, bool)] = &[("", false)];

/// A lock that is shared with Redisson, at its key.
pub(super) static REDISSON: View = view::<Redisson>(Redisson::NAME, EXCLUSIVE, &[]);

static VIEWS: [View; 9] = [
    view::<Simple>("simple lock", EXCLUSIVE, &[]),
    view::<Reentrant>("reentrant lock", EXCLUSIVE, &[]),
    view::<Write>("read-write lock", &[("write", true), ("read", false)], &[]),
    view::<Permits>("semaphore", SHARED, &["permits", "used"]),
    view::<Units>(INVENTORY, &[("take", false), ("lock", true)], &[]),
    view::<Candidate>("election", EXCLUSIVE, &[]),
    view::<Attempts>("idempotency key", EXCLUSIVE, &[]),
    view::<Latch>("count-down latch", SHARED, &["count"]),
    view::<Barrier>("cyclic barrier", SHARED, &["broken"]),
];

/// The only kind with a stock, for which its rule is asked in a mode of its own; not by a listing.
const INVENTORY: &str = "inventory";

/// Returns the view for a key of this type whose hash has this tag, and the name of the kind.
pub(super) fn of(type_of: &str, tag: Option<String>) -> (Option<&'static View>, String) {
    let kind = match (type_of, tag) {
        ("string", _) => "simple lock".to_owned(),
        ("none" | "", _) => "not in use".to_owned(),
        (_, Some(tag)) => tag,
        (other, None) => format!("a {other}"),
    };
    // A name that is not in use may still have a queue, whose positions any rule can read.
    let tag = if kind == "not in use" { "simple lock" } else { &kind };
    (VIEWS.iter().find(|view| view.tag == tag), kind)
}

impl View {
    /// Adds everything that the rule reports, page by page.
    pub(super) fn look(
        &self,
        shared: &Shared,
        server: &Server,
        connection: &mut Connection,
        names: &Names,
        look: &mut Look,
    ) -> Result<(), Error> {
        for (i, (mode, ordered)) in self.modes.iter().enumerate() {
            let mut page = Some(String::new());
            while let Some(at) = page {
                let read = self.page(shared, server, connection, names, mode, &at)?;
                page = self.add(look, read, *ordered, i == 0);
            }
        }
        let mut page = (self.tag == INVENTORY).then(String::new);
        while let Some(at) = page {
            let Page { inspection, next } = self.page(shared, server, connection, names, "stock", &at)?;
            for sku in inspection.state.chunks(5) {
                let name = text(sku.first()).unwrap_or_default();
                let name = unescape(&name).unwrap_or(name);
                // A field may be on two pages of a scan.
                let counts: Vec<u64> =
                    sku.iter().skip(1).filter_map(|n| counted(n)?.try_into().ok()).collect();
                if let [stocked, available, reserved, sold] = counts[..]
                    && !look.stock.iter().any(|(other, _)| *other == name)
                {
                    look.stock.push((name, Stock { stocked, available, reserved, sold }));
                }
            }
            page = next;
        }
        look.stock.sort_by(|one, other| one.0.cmp(&other.0));
        Ok(())
    }

    /// Reads one page of what the rule reports in this mode.
    fn page(
        &self,
        shared: &Shared,
        server: &Server,
        connection: &mut Connection,
        names: &Names,
        mode: &str,
        at: &str,
    ) -> Result<Page, Error> {
        let scripts = (self.scripts)(shared)?;
        let commands = [View::question(&scripts, shared, names, mode, at)];
        let limit = Moment::now().after(shared.config.command_timeout);
        let answers = server.backend.exchange_on(connection, &commands, limit).map_err(Failure::error)?;
        match answers.into_iter().next() {
            Some(Value::ServerError(e)) => Err(refused_script(Some(&scripts.inspect), e.into()).error()),
            answer => Ok(read(&answer.unwrap_or(Value::Nil))),
        }
    }

    /// The modes: each lock is asked once for each of them.
    pub(super) fn modes(&self) -> impl Iterator<Item = (&'static str, bool)> {
        self.modes.iter().copied()
    }

    /// The request for a page.
    pub(super) fn question<'a>(
        scripts: &'a Scripts,
        shared: &Shared,
        names: &Names,
        mode: &str,
        page: &str,
    ) -> Command<'a> {
        let args = ["", "0", &shared.inbox_prefix, &shared.waiter_timeout, page, mode, "1"];
        Command::script(&scripts.inspect, &names.keys(), &args)
    }

    /// Adds a page; returns the argument for the next one. The queue is the same in all modes.
    pub(super) fn add(&self, look: &mut Look, page: Page, ordered: bool, first_mode: bool) -> Option<String> {
        let Page { inspection, next } = page;
        let shares = if self.tag == "semaphore" { &inspection.state[..] } else { &[] };
        let is_first = !self.counts.is_empty() && look.counts.is_empty();
        if is_first {
            let counts = self.counts.iter().zip(&inspection.state);
            look.counts.extend(counts.filter_map(|(name, value)| Some((*name, counted(value)?))));
        }
        // Only the first page begins with {permits, used}.
        let shares = shares.get(if is_first { 2 } else { 0 }..).unwrap_or_default();
        for held in inspection.holders {
            let share = shares.chunks(3).find(|it| text(it.first()).as_deref() == Some(&held.owner));
            let own = share.and_then(|it| counted(it.get(2)?)).and_then(|n| n.try_into().ok()).unwrap_or(0);
            let mut holder = Holder::new(held, if ordered { inspection.number } else { own });
            holder.permits = share.and_then(|it| counted(it.get(1)?)).and_then(|n| n.try_into().ok());
            // (The tokens of Redisson's fenced locks come from another counter.)
            let is_counted = self.tag == Redisson::NAME && !inspection.state.is_empty();
            holder.token =
                (ordered && holder.since.is_some() && !is_counted).then(|| token_of(inspection.number));
            if !look.holders.iter().any(|other| other.owner == holder.owner) {
                look.holders.push(holder);
            }
        }
        if first_mode {
            look.waiters.extend(inspection.waiting.into_iter().map(Waiter::new));
            let signals = inspection.signals.into_iter();
            look.condition_waiters.extend(signals.map(|(condition, waiting)| ConditionWaiter {
                condition: unescape(&condition).unwrap_or(condition),
                waiter: Waiter::new(waiting),
            }));
        }
        next
    }

    pub(super) fn take_away(
        &self,
        client: &Client,
        name: &str,
        held_by: &HeldBy,
        reason: &str,
        gently: bool,
    ) -> Result<ForcedUnlock, Error> {
        let entry = (self.entry)(client.shared(), name)?;
        let mut all = ForcedUnlock::default();
        for (mode, ordered) in self.modes() {
            let one = take_away(&entry, mode, ordered, held_by, reason, gently)?;
            all.holders += one.holders;
            all.notified += one.notified;
            all.skipped += one.skipped;
            all.remaining = all.remaining.max(one.remaining);
        }
        Ok(all)
    }
}

/// Turns an error reply into an error, except for the reply to a command for a key of another type.
pub(super) fn answered(answer: &Value) -> Result<(), Error> {
    let Value::ServerError(e) = answer else { return Ok(()) };
    let error = refused(e.clone().into()).error();
    if error.kind() == ErrorKind::WrongType { Ok(()) } else { Err(error) }
}

/// A number, or a text that is one.
fn counted(value: &Value) -> Option<i64> {
    number(Some(value)).or_else(|| text(Some(value))?.parse().ok())
}

/// What is stored under a name: its kind, its holders, its waiters. See [`Client::look`](crate::Client::look)
/// and [`Client::list`](crate::Client::list).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
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
    /// What its threads tell of what they hold.
    pub(super) blocked: Vec<Blocked>,
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
    fn new(waiting: WaitingRow) -> Waiter {
        let WaitingRow { owner, record, since, silent } = waiting;
        let threads = record.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(1);
        let (process, since) = (Process::read(&record), granted_at(since));
        let blocked = record.split('\t').skip(2).filter_map(Blocked::read).collect();
        Waiter { owner, process, threads, since, last_heartbeat: silent, blocked }
    }
}

impl Look {
    pub(super) fn of(name: &str, kind: String) -> Look {
        Look { name: name.to_owned(), kind, ..Look::default() }
    }
}
