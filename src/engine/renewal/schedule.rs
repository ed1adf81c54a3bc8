//! The schedule: which task is due when, and for which client. Data only: `renewer.rs` puts tasks in, `thread.rs` takes
//! them out, `outcome.rs` says what becomes of them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entry::LockEntry;
use crate::engine::redis::connection::Connection;
use crate::engine::state::lock_state::PendingRelease;
use crate::sync::Condvar;

/// How many requests go out in one write.
pub(super) const BATCH: usize = 64;
/// By what part of its period a renewal may come early, to go out with others of its server.
const EARLY: u32 = 256;
/// Where a client renews at many servers, what is due soon is spread over their lines: by so many such parts it may
/// come early, so that each line's write is as large as one server's would be.
const MOST_LINES: usize = 16;

#[derive(Default)]
pub(super) struct State {
    /// When, whose, for which owner.
    schedule: BTreeMap<Due, Planned>,
    /// When a grant ends whose renewals are in their lines' hands, and how many are: another server is asked beside one
    /// that is still waited for. Reported in time, whatever the lines wait for.
    ends: BTreeMap<Due, (Arc<LockEntry>, u32)>,
    /// Those of the servers of clients that are not closed.
    pub(super) lines: HashMap<u64, Line>,
    /// The leaves that are in a line's hands, by client and owner: in no schedule, and not yet done.
    leaving: BTreeMap<(u64, u64), (Arc<LockEntry>, PendingRelease)>,
    /// The servers whose lines have a thread.
    pub(super) served: BTreeSet<u64>,
    /// The schedule has a thread.
    pub(super) running: bool,
    pub(super) wakes_at: Moment,
}

pub(super) type Due = (Moment, u64, u64);

/// The way to a server, of one client.
pub(super) struct Line {
    client: u64,
    /// What must be sent, in this order.
    pub(super) queue: VecDeque<Task>,
    /// A task came into the queue, or the client ends.
    pub(super) work: Arc<Condvar>,
    /// While no thread has it.
    pub(super) connection: Option<Connection>,
    pub(super) renew_every: Duration,
    /// How long it waits for a reply.
    pub(super) renewal_timeout: Duration,
}

pub(super) struct Task {
    pub(super) entry: Arc<LockEntry>,
    pub(super) owner: u64,
    pub(super) what: What,
    /// Where it stands in the schedule.
    pub(super) at: Moment,
    /// When it was first due: what its lag is counted from.
    pub(super) due: Moment,
    /// When its grant ends, if the task fails.
    pub(super) until: Moment,
    /// What its renewal asks for.
    pub(super) lease: Duration,
    /// Redis does not know the script: send all of it.
    pub(super) eval: bool,
}

pub(super) enum What {
    /// Look at the grant: renew it, or find that it is over.
    Grant,
    /// Repeat a leave until it is answered or its lease is over anyway. In a box, as it is rare and there may
    /// be very many grants.
    Leave(Box<(PendingRelease, Moment)>),
}

/// What the schedule keeps of a task: there may be very many, and what its place implies is not stored twice.
pub(super) struct Planned {
    entry: Arc<LockEntry>,
    /// If it is anything else than a look at a grant that is first due at its place.
    apart: Option<Box<Apart>>,
}

struct Apart {
    what: What,
    due: Moment,
    eval: bool,
}

impl Line {
    pub(super) fn new(client: u64, renew_every: Duration, renewal_timeout: Duration) -> Line {
        Line {
            client,
            queue: VecDeque::new(),
            work: Arc::default(),
            connection: None,
            renew_every,
            renewal_timeout,
        }
    }
}

impl Task {
    /// What is due at `at`, unless it is moved.
    pub(super) fn new(entry: Arc<LockEntry>, owner: u64, what: What, at: Moment, due: Moment) -> Task {
        let (until, lease) = (Moment::default(), Duration::ZERO);
        Task { entry, owner, what, at, due, until, lease, eval: false }
    }

    fn key(&self) -> Due {
        (self.at, self.entry.shared.id, self.owner)
    }
}

impl Planned {
    fn of(task: Task) -> Planned {
        let Task { entry, what, at, due, eval, .. } = task;
        let apart = match what {
            What::Grant if due == at && !eval => None,
            what => Some(Box::new(Apart { what, due, eval })),
        };
        Planned { entry, apart }
    }

    fn into_task(self, (at, _, owner): Due) -> Task {
        match self.apart {
            None => Task::new(self.entry, owner, What::Grant, at, at),
            Some(apart) => {
                let Apart { what, due, eval } = *apart;
                Task { eval, ..Task::new(self.entry, owner, what, at, due) }
            }
        }
    }

    fn into_leave(self) -> Option<(Arc<LockEntry>, PendingRelease)> {
        match self.apart?.what {
            What::Leave(leave) => Some((self.entry, leave.0)),
            What::Grant => None,
        }
    }
}

impl State {
    /// Returns what was there before, whose entry must not be dropped under the mutex.
    pub(super) fn insert(&mut self, task: Task) -> Option<Planned> {
        self.schedule.insert(task.key(), Planned::of(task))
    }

    /// Takes what is planned there out; its entry must not be dropped under the mutex.
    pub(super) fn cancel(&mut self, key: &Due) -> Option<Planned> {
        self.schedule.remove(key)
    }

    /// When the next task is due.
    pub(super) fn next(&self) -> Option<Moment> {
        let due = self.schedule.first_key_value().map(|((due, ..), _)| *due);
        let end = self.ends.first_key_value().map(|((end, ..), _)| *end);
        due.into_iter().chain(end).min()
    }

    /// What is due, at most one batch per server.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut taken: HashMap<u64, usize> = HashMap::new();
        // Once a task is due, those due soon go with it: otherwise many locks, each with a due time of its
        // own, would need a write each instead of one for a batch.
        let mut until = now;
        while let Some(entry) = self.schedule.first_entry() {
            let key @ (due, client, owner) = *entry.key();
            let server = entry.get().entry.server().id;
            let mine = taken.entry(server).or_insert(0);
            if tasks.is_empty() && due <= now {
                let period = self.lines.get(&server).map_or(Duration::ZERO, |line| line.renew_every);
                let used = |(id, line): &(&u64, &Line)| line.client == client && self.served.contains(id);
                let lines = self.lines.iter().filter(used).count().clamp(1, MOST_LINES);
                until = now.after(period / EARLY * lines as u32);
            }
            if due > until || *mine == BATCH {
                break;
            }
            *mine += 1;
            let task = entry.remove().into_task(key);
            if let What::Leave(leave) = &task.what {
                self.leaving.insert((client, owner), (task.entry.clone(), leave.0.clone()));
            }
            tasks.push(task);
        }
        tasks
    }

    /// The grants, by owner, that end while their renewals are in flight.
    pub(super) fn take_ended(&mut self, now: Moment) -> Vec<(u64, Arc<LockEntry>)> {
        let mut ended = Vec::new();
        while let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= now) {
            let (_, _, owner) = *entry.key();
            ended.push((owner, entry.remove().0));
        }
        ended
    }

    /// A task goes into the hands of this server's line; it comes back where the client is gone.
    pub(super) fn hand_over(&mut self, task: Task, server: u64) -> Option<Task> {
        let (_, client, owner) = task.key();
        let Some(line) = self.lines.get_mut(&server) else { return Some(task) };
        if let What::Grant = task.what {
            let end = self.ends.entry((task.until, client, owner));
            end.or_insert_with(|| (task.entry.clone(), 0)).1 += 1;
        }
        line.queue.push_back(task);
        None
    }

    /// A task is no longer in its line's hands. It still has its entry, so that is not dropped here, under
    /// the mutex.
    pub(super) fn settle(&mut self, task: &Task) {
        let (_, client, owner) = task.key();
        match task.what {
            What::Grant => {
                if let Entry::Occupied(mut end) = self.ends.entry((task.until, client, owner)) {
                    end.get_mut().1 -= 1;
                    if end.get().1 == 0 {
                        end.remove();
                    }
                }
            }
            What::Leave(..) => drop(self.leaving.remove(&(client, owner))),
        }
    }

    /// A client goes. What it had must not end under the lock.
    pub(super) fn remove(&mut self, client: u64) -> Removed {
        let (lines, others) =
            std::mem::take(&mut self.lines).into_iter().partition(|(_, l)| l.client == client);
        self.lines = others;
        let (leaving, others) =
            std::mem::take(&mut self.leaving).into_iter().partition(|((of, _), _)| *of == client);
        self.leaving = others;
        let removed = Removed {
            lines,
            leaving,
            planned: take_of(client, &mut self.schedule),
            _ends: take_of(client, &mut self.ends),
        };
        for line in removed.lines.values() {
            line.work.notify_all();
        }
        removed
    }
}

/// What a client had here.
pub(super) struct Removed {
    lines: HashMap<u64, Line>,
    leaving: BTreeMap<(u64, u64), (Arc<LockEntry>, PendingRelease)>,
    planned: BTreeMap<Due, Planned>,
    _ends: BTreeMap<Due, (Arc<LockEntry>, u32)>,
}

impl Removed {
    /// The leaves that Redis has not answered.
    pub(super) fn into_leaving(self) -> Vec<(Arc<LockEntry>, PendingRelease)> {
        let planned = self.planned.into_values().filter_map(Planned::into_leave);
        planned.chain(self.leaving.into_values()).collect()
    }
}

fn take_of<T>(client: u64, all: &mut BTreeMap<Due, T>) -> BTreeMap<Due, T> {
    let (mine, others) = std::mem::take(all).into_iter().partition(|((_, of, _), _)| *of == client);
    *all = others;
    mine
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/renewal/schedule.rs"]
mod tests;
