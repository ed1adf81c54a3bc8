//! The schedule: which task is due when, and for which client. Data only: `renewer.rs` adds tasks,
//! `thread.rs` takes them out, `outcome.rs` applies their outcome.

use std::collections::btree_map::Entry;
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
    /// The grants whose renewals are with the lines, by when they end, and how many renewals that are:
    /// another server may be asked while the reply of one is awaited. So an expired lease is reported in
    /// time, whatever the lines wait for.
    ends: Ends,
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
    /// Its time in the schedule.
    pub(crate) at: Moment,
    /// When it was first due, from which its lag is counted.
    pub(crate) due: Moment,
    /// When its grant ends, if the task fails.
    pub(crate) until: Moment,
    /// The lease that its renewal asks for.
    pub(crate) lease: Duration,
}

pub(crate) enum TaskKind {
    /// Look at the grant: renew it, or find that it is over.
    Grant,
    /// Repeat a leave until it is answered or its lease is over anyway. Boxed, as it is rare and there may be
    /// very many grants.
    Leave(Box<(PendingRelease, Moment)>),
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
        let (until, lease) = (Moment::default(), Duration::ZERO);
        Task { entry, owner, what, at, due, until, lease }
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

    /// Returns when the next task is due or the next grant ends.
    pub(crate) fn next(&self) -> Option<Moment> {
        let due = self.schedule.first_key_value().map(|((due, ..), _)| *due);
        let end = self.ends.first_key_value().map(|((end, ..), _)| *end);
        due.into_iter().chain(end).min()
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
            if due > *until || *mine == BATCH {
                break;
            }
            *mine += 1;
            let Planned { entry, what, due: first_due } = entry.remove();
            tasks.push(Task::new(entry, owner, what, due, first_due));
        }
        tasks
    }

    /// Removes and returns the grants, by owner, that have ended while their renewals are with the lines.
    pub(crate) fn take_ended(&mut self, now: Moment) -> Vec<(u64, Arc<LockEntry>)> {
        let mut ended = Vec::new();
        while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= now) {
            let (_, _, owner) = *entry.key();
            ended.push((owner, entry.remove().0));
        }
        ended
    }

    /// Passes a task to this server's line. Returns the task if the client is gone.
    pub(crate) fn hand_over(&mut self, task: Task, server: u64) -> Option<Task> {
        let (_, client, owner) = task.key();
        let Some(line) = self.lines.get_mut(&server) else { return Some(task) };
        if let TaskKind::Grant = task.what {
            let end = self.ends.entry((task.until, client, owner));
            end.or_insert_with(|| (task.entry.clone(), 0)).1 += 1;
        }
        line.queue.push_back(task);
        None
    }

    /// Records that a renewal is no longer with its line. The caller still has the task, so that its entry is
    /// not dropped here, under the mutex.
    pub(crate) fn settle(&mut self, task: &Task) {
        let (_, client, owner) = task.key();
        if let TaskKind::Grant = task.what
            && let Entry::Occupied(mut end) = self.ends.entry((task.until, client, owner))
        {
            end.get_mut().1 -= 1;
            if end.get().1 == 0 {
                end.remove();
            }
        }
    }

    /// Removes a client: its lines, its tasks and the ends of its grants. They must not be dropped under the mutex.
    pub(crate) fn remove(&mut self, client: u64) -> Removed {
        let lines = take(&mut self.lines, |_, line| line.client == client);
        for line in lines.values() {
            line.work.notify_all();
        }
        let schedule = take(&mut self.schedule, |(_, of, _), _| *of == client);
        (lines, schedule, take(&mut self.ends, |(_, of, _), _| *of == client))
    }
}

type Ends = BTreeMap<Due, (Arc<LockEntry>, u32)>;

/// What a client had here.
pub(crate) type Removed = (BTreeMap<u64, ServerLine>, BTreeMap<Due, Planned>, Ends);

fn take<K: Ord, T>(all: &mut BTreeMap<K, T>, is_mine: impl Fn(&K, &T) -> bool) -> BTreeMap<K, T> {
    let (mine, others) = std::mem::take(all).into_iter().partition(|(key, it)| is_mine(key, it));
    *all = others;
    mine
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/renewal/schedule.rs"]
mod tests;
