//! What is to be done when, and for whom.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::batch::Batch;
use crate::clock::Moment;
use crate::engine::cell::Cell;
use crate::engine::gate::Leaving;
use crate::engine::wire::Connection;

/// How many requests go out in one write: more would hold up other clients of the server.
const BATCH: usize = 64;
/// By which part of its period a renewal may come early, to go out with others.
const EARLY: u32 = 256;

#[derive(Default)]
pub(super) struct State {
    /// When, whose, for which owner.
    pub(super) schedule: BTreeMap<Due, Task>,
    /// One for each client that is not closed.
    pub(super) lines: HashMap<u64, Line>,
    pub(super) running: bool,
    pub(super) wakes_at: Moment,
}

pub(super) type Due = (Moment, u64, u64);

/// A client's own connection for renewals.
pub(super) struct Line {
    pub(super) connection: Option<Connection>,
    pub(super) connecting: bool,
    /// The last attempt to connect was in vain.
    pub(super) failed: bool,
    /// The leaves of the round that is under way: in no schedule, and not yet done.
    pub(super) leaving: Vec<(u64, Arc<Cell>)>,
    pub(super) renew_every: Duration,
    /// How long it waits for an answer.
    pub(super) patience: Duration,
    /// How much of the schedule is for it.
    pub(super) tasks: usize,
}

pub(super) struct Task {
    pub(super) cell: Arc<Cell>,
    pub(super) owner: u64,
    pub(super) what: What,
    /// Where it stands in the schedule.
    pub(super) at: Moment,
    /// When it was due at first: what its lag is counted from.
    pub(super) due: Moment,
    /// What its renewal asks for.
    pub(super) lease: Duration,
    /// Redis does not know the script: send all of it.
    pub(super) eval: bool,
}

pub(super) enum What {
    /// Look at the tenure: renew it, or see that it is over.
    Tenure,
    /// Repeat a leave until it is answered or its lease is over anyway. In a box, as it is rare and
    /// there may be very many tenures.
    Leave(Box<Leaving>, Moment),
}

impl State {
    /// A leave is done, or in the schedule again. The task has its cell still, so it does not end
    /// here, under the lock.
    pub(super) fn not_under_way(&mut self, task: &Task) {
        if let (What::Leave(..), Some(line)) = (&task.what, self.lines.get_mut(&task.cell.shared.id)) {
            line.leaving.retain(|(owner, _)| *owner != task.owner);
        }
    }

    pub(super) fn insert(&mut self, key: Due, task: Task) -> Option<Task> {
        self.not_under_way(&task);
        let replaced = self.schedule.insert(key, task);
        if let Some(line) = self.lines.get_mut(&key.1).filter(|_| replaced.is_none()) {
            line.tasks += 1;
        }
        replaced
    }

    pub(super) fn remove(&mut self, key: &Due) -> Option<Task> {
        let task = self.schedule.remove(key);
        if let Some(line) = self.lines.get_mut(&key.1).filter(|_| task.is_some()) {
            line.tasks = line.tasks.saturating_sub(1);
        }
        task
    }

    /// How long a round may wait for this client's server: its own limit, and never so long that
    /// another client that has leases to be kept would miss its turn.
    pub(super) fn patience(&self, client: u64, round: &BTreeMap<u64, Batch>) -> Duration {
        let own = self.lines.get(&client).map_or(Duration::ZERO, |line| line.patience);
        let others = self
            .lines
            .iter()
            .filter(|(id, line)| **id != client && (line.tasks > 0 || round.contains_key(id)));
        // Twice their own patience: a third of their lease, when they were to be renewed.
        others.map(|(_, line)| line.patience * 2).fold(own, Duration::min)
    }

    /// What is due, at most one batch a client.
    pub(super) fn take_due(&mut self, now: Moment) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut taken: HashMap<u64, usize> = HashMap::new();
        // Once something is due, what is due soon goes with it: else many locks, each with a due
        // time of its own, would have a round each instead of one for a batch.
        let mut until = now;
        while let Some(entry) = self.schedule.first_entry() {
            let (due, client, _) = *entry.key();
            let mine = taken.entry(client).or_insert(0);
            if tasks.is_empty() && due <= now {
                until = now.after(self.lines.get(&client).map_or(Duration::ZERO, |l| l.renew_every / EARLY));
            }
            if due > until || *mine == BATCH {
                break;
            }
            *mine += 1;
            let task = entry.remove();
            if let (What::Leave(..), Some(line)) = (&task.what, self.lines.get_mut(&client)) {
                line.leaving.push((task.owner, task.cell.clone()));
            }
            tasks.push(task);
            if let Some(line) = self.lines.get_mut(&client) {
                line.tasks = line.tasks.saturating_sub(1);
            }
        }
        tasks
    }
}
