//! The schedule: which task is due when, and for which client. Data only: `renewer.rs` adds tasks,
//! `thread.rs` takes them out, `outcome.rs` applies their outcome.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::redis::connection::Connection;
use crate::engine::state::lock_state::PendingRelease;
use crate::sync::Condvar;

/// How many requests go out in one write.
pub(crate) const BATCH: usize = 64;
/// The divisor of its client's period by which a renewal may be early, to be sent with others of its server.
const EARLY: u32 = 256;
/// The most lines that are counted for this. If a client renews at many servers, the tasks due soon are
/// spread over their lines. A renewal may be early by one such part of the period for each line, so that each
/// line's write is as large as that of a single server would be.
const MOST_LINES: usize = 16;

#[derive(Default)]
pub(crate) struct State {
    /// The tasks, by due time, client and owner. An entry must not be dropped under the mutex.
    pub(crate) schedule: BTreeMap<Due, Planned>,
    /// The lines, by server, of clients that are not closed.
    pub(crate) lines: BTreeMap<u64, ServerLine>,
    /// The servers whose lines have a thread.
    pub(crate) served: BTreeSet<u64>,
    /// Whether the schedule has a thread.
    pub(crate) running: bool,
    pub(crate) wakes_at: Moment,
}

pub(crate) type Due = (Moment, u64, u64);

/// What one client has to send to a server, and the connection for it.
#[derive(Default)]
pub(crate) struct ServerLine {
    pub(crate) client: u64,
    /// The tasks to send, in this order.
    pub(crate) queue: VecDeque<Task>,
    /// Notified when a task is queued, or the client ends.
    pub(crate) work: Arc<Condvar>,
    /// The connection, while no thread uses it.
    pub(crate) connection: Option<Connection>,
    pub(crate) renew_every: Duration,
    /// How long it waits for a reply.
    pub(crate) renewal_timeout: Duration,
}

pub(crate) struct Task {
    pub(crate) entry: Arc<LockEntry>,
    pub(crate) owner: u64,
    pub(crate) what: TaskKind,
    /// Its time in the schedule; while a renewal is with a line, that of the look at the [end](TaskKind::End).
    pub(crate) at: Moment,
    /// When it was first due, from which its lag is counted.
    pub(crate) due: Moment,
    /// The lease that its renewal asks for.
    pub(crate) lease: Duration,
}

pub(crate) enum TaskKind {
    /// Look at the grant: renew it, or find that it is over.
    Grant,
    /// Find that the grant is over, while a renewal of it is with a line: so an expired lease is reported in time,
    /// whatever the line waits for.
    End,
    /// Repeat a leave until it is answered or its lease is over anyway. Boxed, as it is rare and there may be
    /// very many grants.
    Leave(Box<PendingRelease>),
}

/// A task as the schedule stores it. There may be very many, so what its key says is not stored again.
pub(crate) struct Planned {
    entry: Arc<LockEntry>,
    what: TaskKind,
    due: Moment,
}

impl Task {
    /// Creates a task for the time `at` in the schedule.
    pub(crate) fn new(entry: Arc<LockEntry>, owner: u64, what: TaskKind, at: Moment, due: Moment) -> Task {
        Task { entry, owner, what, at, due, lease: Duration::ZERO }
    }

    pub(super) fn key(&self) -> Due {
        (self.at, self.entry.shared.id, self.owner)
    }
}

impl State {
    /// Adds a task. Returns the one that was there before, whose entry must not be dropped under the mutex.
    pub(crate) fn insert(&mut self, task: Task) -> Option<Planned> {
        self.schedule.insert(task.key(), Planned { entry: task.entry, what: task.what, due: task.due })
    }

    /// Returns the line for this lock, which is created if there is none; `None` if its client is closed.
    pub(crate) fn line_of(&mut self, entry: &LockEntry) -> Option<&mut ServerLine> {
        let shared = &entry.shared;
        let line = || ServerLine {
            client: shared.id,
            renew_every: shared.config.renew_every,
            renewal_timeout: shared.config.renewal_timeout(),
            ..ServerLine::default()
        };
        (!shared.is_closed()).then(|| self.lines.entry(entry.server().id).or_insert_with(line))
    }

    /// Returns when the next task is due.
    pub(crate) fn next(&self) -> Option<Moment> {
        self.schedule.first_key_value().map(|((due, ..), _)| *due)
    }

    /// Removes and returns the tasks that are due, at most one batch per server.
    pub(crate) fn take_due(&mut self, now: Moment) -> Vec<Task> {
        let mut tasks = Vec::new();
        // By server: until when its tasks are taken, and how many are.
        let mut taken: BTreeMap<u64, (Moment, usize)> = BTreeMap::new();
        while let Some(entry) = self.schedule.first_entry() {
            let (due, client, owner) = *entry.key();
            if tasks.is_empty() && due > now {
                break;
            }
            let server = entry.get().entry.server().id;
            // Once a task is due, those due soon go with it: otherwise many locks, each with a due time of
            // its own, would need a write each instead of one per batch.
            let (until, mine) = taken.entry(server).or_insert_with(|| {
                let period = self.lines.get(&server).map_or(Duration::ZERO, |line| line.renew_every);
                let used =
                    |(id, line): &(&u64, &ServerLine)| line.client == client && self.served.contains(id);
                let lines = self.lines.iter().filter(used).count().clamp(1, MOST_LINES);
                (now.after(period / EARLY * lines as u32), 0)
            });
            let until = if let TaskKind::End = entry.get().what { now } else { *until };
            if due > until || *mine == BATCH {
                break;
            }
            *mine += 1;
            let Planned { entry, what, due: first_due } = entry.remove();
            tasks.push(Task::new(entry, owner, what, due, first_due));
        }
        tasks
    }

    /// Passes a task to the line of its server. Returns the task if its client is closed. The next look at a grant that is
    /// being renewed is at its end.
    pub(crate) fn hand_over(&mut self, task: Task) -> Option<Task> {
        let end = Task { what: TaskKind::End, entry: task.entry.clone(), ..task };
        let is_renewal = matches!(task.what, TaskKind::Grant);
        let Some(line) = self.line_of(&task.entry) else { return Some(task) };
        line.queue.push_back(task);
        // (No entry is dropped here, under the mutex: the task has it, too.)
        if is_renewal {
            self.insert(end);
        }
        None
    }

    /// Removes a client: its lines and its tasks. They must not be dropped under the mutex.
    pub(crate) fn remove(&mut self, client: u64) -> (BTreeMap<u64, ServerLine>, BTreeMap<Due, Planned>) {
        let lines = take(&mut self.lines, |_, line| line.client == client);
        for line in lines.values() {
            line.work.notify_all();
        }
        (lines, take(&mut self.schedule, |(_, of, _), _| *of == client))
    }
}

fn take<K: Ord, T>(all: &mut BTreeMap<K, T>, is_mine: impl Fn(&K, &T) -> bool) -> BTreeMap<K, T> {
    let (mine, others) = std::mem::take(all).into_iter().partition(|(key, it)| is_mine(key, it));
    *all = others;
    mine
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/renewal/schedule.rs"]
mod tests;
