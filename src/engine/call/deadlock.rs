//! What a thread that waits for long does about deadlocks, at its heartbeats: it publishes what it holds, and looks
//! whether those who wait for that hold what it waits for. The rules are in `docs/design/deadlocks.md`.

use std::collections::HashSet;
use std::sync::{Arc, LazyLock};

use crate::clock::Moment;
use crate::deadlock::{Blocked, Claim, believed, circle, described, since_1970, unread, victim};
use crate::engine::entries::entry::LockEntry;
use crate::engine::redis::resp::{list, text};
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;
use crate::names::queue_of;
use crate::script::Script;
use crate::wait::Wait;

/// How many holds a thread publishes, how many threads are published together, and how many locks one heartbeat
/// looks at.
const MOST: usize = 16;

static BLOCKED: LazyLock<Script> =
    LazyLock::new(|| Script::plain(include_str!("../../../lua/deadlock/blocked.lua")));

/// What a waiter knows of the deadlock that it may be part of. Small until it looks: each call that acquires has one.
#[derive(Default)]
pub(super) struct Suspicion {
    thread: u64,
    entered: Moment,
    /// From when on it looks; `None`: not, as its thread holds nothing, or it is switched off.
    checks_at: Option<Moment>,
    known: Option<Box<Sighting>>,
}

#[derive(Default)]
struct Sighting {
    /// The locks that its thread held when it looked first: a thread that waits acquires no others.
    held: Vec<Arc<LockEntry>>,
    since: u64,
    times: u64,
    /// What it published last.
    published: Option<Arc<str>>,
    /// The circle that it has seen, as it saw it first.
    seen: Vec<Blocked>,
    /// Whether the observers know of one that chooses nobody.
    reported: bool,
    error: Option<Error>,
}

impl Suspicion {
    /// The suspicion of a thread that enters `entry` now.
    pub(super) fn begins(entry: &LockEntry, thread: u64, now: Moment) -> Self {
        // What another thread publishes of this one may be a heartbeat old.
        let after = entry.shared.config.deadlock_timeout.max(entry.shape.heartbeat);
        let checks_at = Some(now.after(after)).filter(|at| entry.condition.is_none() && *at < Moment::NEVER);
        Suspicion { thread, entered: now, checks_at, known: None }
    }

    pub(super) fn is_due(&self, now: Moment) -> bool {
        self.checks_at.is_some_and(|at| at <= now)
    }

    /// The error with which its wait ends.
    pub(super) fn error(&self) -> Option<&Error> {
        self.known.as_ref()?.error.as_ref()
    }

    /// What it published last.
    pub(super) fn published(&self) -> Option<&Arc<str>> {
        self.known.as_ref()?.published.as_ref()
    }

    /// What the record of a heartbeat says of this thread, and of those that wait behind it.
    pub(super) fn record(&mut self, entry: &LockEntry) -> String {
        let now = Moment::now();
        if self.is_due(now) {
            self.blocked(entry, now);
        }
        let behind = entry.core.lock().blocked();
        self.published().into_iter().chain(&behind).take(MOST).map(|it| &**it).collect::<Vec<_>>().join("\t")
    }

    /// This thread, and those of its process that wait, perhaps without Redis, for what it holds; none if it holds
    /// nothing.
    fn blocked(&mut self, entry: &LockEntry, now: Moment) -> Vec<Blocked> {
        let (shared, thread, known) = (&entry.shared, self.thread, self.known.get_or_insert_default());
        let claim = |it: &LockEntry, number| {
            let shared = it.shape.sharing != Sharing::Exclusive;
            Claim { stem: it.names.stem().to_owned(), number, shared }
        };
        let holds = |it: &LockEntry| {
            let core = it.core.lock();
            let grant =
                core.lock_state.held_by(thread, now).and_then(|owner| core.lock_state.grant(owner))?;
            Some((claim(it, grant.number), core.blocked()))
        };
        if known.times == 0 {
            let all = shared.entries().map_or_else(|_| Vec::new(), |entries| entries.all());
            known.held = all.into_iter().filter(|it| holds(it).is_some()).take(MOST).collect();
            known.since = since_1970().saturating_sub(Moment::now().since(self.entered).as_millis() as u64);
        }
        known.times += 1;
        let (holds, behind): (Vec<_>, Vec<_>) = known.held.iter().filter_map(|it| holds(it)).unzip();
        if holds.is_empty() {
            (self.checks_at, known.published) = (None, None);
            return Vec::new();
        }
        let current = std::thread::current();
        let mut all = vec![Blocked {
            thread: format!("{}:{thread}", shared.uuid),
            who: format!("{}\t{}", shared.identity, current.name().unwrap_or_default()),
            since: known.since,
            times: known.times,
            wants: claim(entry, 0),
            holds,
        }];
        all.extend(behind.iter().flatten().flat_map(|it| it.split('\t')).filter_map(Blocked::read));
        let mut threads = HashSet::new();
        all.retain(|it| threads.insert(it.thread.clone()) && threads.len() <= MOST);
        known.published = Some(all.iter().map(Blocked::text).collect::<Vec<_>>().join("\t").into());
        all
    }

    /// Checks whether this thread is in a circle of threads that wait for each other, and is the one that gives up.
    pub(super) fn check(&mut self, entry: &LockEntry, wait: &Wait<'_>, now: Moment) {
        let (shared, mut all, mut read) = (&entry.shared, self.blocked(entry, now), Vec::<String>::new());
        if all.is_empty() {
            return;
        }
        let heartbeat = entry.shape.heartbeat;
        self.checks_at = Some(now.after(heartbeat / 2));
        let limit = wait.limit(now, shared.config.command_timeout.min(heartbeat));
        while let Some(stem) = unread(&all, &read).filter(|_| read.len() < MOST).map(str::to_owned) {
            let (keys, args): (_, [&str; 0]) = (queue_of(&stem), []);
            let Ok(reply) = shared.eval(&BLOCKED, &keys, &args, limit, false) else { return };
            for record in list(&reply.value).iter().filter_map(|it| text(Some(it))) {
                all.extend(record.split('\t').skip(2).filter_map(Blocked::read));
            }
            read.push(stem);
        }
        let (took, timeout) = (Moment::now().since(now), shared.config.deadlock_timeout);
        if let Some(known) = &mut self.known
            && let Some(found) = believed(&mut known.seen, &all, took, timeout)
            && victim(found) == Some(&all[0].thread)
        {
            let (text, chosen) = (described(found), circle(found, true).is_some());
            if chosen || !known.reported {
                shared.observers.tell(|o| o.deadlock(entry.observed(), &text, chosen));
            }
            known.reported = true;
            let error = || entry.error(ErrorKind::Deadlock.because(text));
            known.error = chosen.then(error);
        }
    }
}
