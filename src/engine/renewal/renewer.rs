//! What the rest of the engine leaves to the background: leases to renew, and releases to repeat.
//!
//! A [thread](crate::engine::renewal::thread) processes what is due. It is started when there is something to do.

use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::entries::entry::{Core, LockEntry};
use crate::engine::renewal::schedule::{State, Task, TaskKind};
use crate::engine::servers::server::Server;
use crate::engine::state::lock_state::PendingRelease;
use crate::error::Error;
use crate::sync::{Condvar, Mutex, spawn};

/// The schedule, and the condvars that wake its threads.
#[derive(Default)]
pub(crate) struct Renewer {
    pub(crate) state: Mutex<State>,
    /// Notified when something is due earlier than the thread of the schedule would wake.
    pub(crate) alarm: Condvar,
    /// Notified when a thread has ended.
    pub(crate) ended: Condvar,
}

impl Renewer {
    /// Removes a client with all its tasks.
    pub(crate) fn remove(&self, client: u64) {
        // Entries and sockets are dropped after the mutex is released.
        let _removed;
        let mut state = self.state.lock();
        self.alarm.notify_one();
        _removed = state.remove(client);
    }

    /// Schedules a look at the grant for `due`, in place of what was planned before. If its client does not
    /// listen yet, there is one after a heartbeat, too: a longer hold should receive the message of a forced
    /// unlock.
    pub(crate) fn plan(
        self: &Arc<Self>,
        entry: &Arc<LockEntry>,
        core: &mut Core,
        owner: u64,
        now: Moment,
        due: Moment,
    ) -> Result<(), Error> {
        let at = match entry.holder_hears(|| core.needs_messages(owner)) {
            true => due,
            false => due.min(now.after(entry.shape.heartbeat)),
        };
        let before = core.set_due(owner, at);
        self.schedule(Task::new(entry.clone(), owner, TaskKind::Grant, at, due), before)
    }

    /// Cancels the task at `due` of a grant that is over, or has another look planned. The reply to a renewal finds that,
    /// too: the grant may have ended before the look at its [end](TaskKind::End) was in the schedule.
    pub(crate) fn forget(&self, entry: &LockEntry, owner: u64, due: Moment) {
        let planned = self.state.lock().schedule.remove(&(due, entry.shared.id, owner));
        drop(planned);
    }

    /// Makes an owner leave Redis, retrying until its lease is over. Meanwhile the leave is [recorded](Core::add_leave).
    pub(crate) fn leave(self: &Arc<Self>, entry: &Arc<LockEntry>, core: &mut Core, leaving: PendingRelease) {
        // A forked child must not release its parent's holds.
        if entry.shared.same_process().is_err() {
            return;
        }
        let now = Moment::now();
        let valid_until = leaving.valid_until.max(now.after(leaving.lease));
        let leaving = PendingRelease { valid_until, ..leaving };
        let owner = leaving.owner;
        core.remove_leave(owner);
        core.add_leave(&leaving);
        let task = Task::new(entry.clone(), owner, TaskKind::Leave(Box::new(leaving)), now, now);
        if let Err(error) = self.schedule(task, None) {
            // The caller may hold the entry's mutex, so no observer is called here.
            tracing::warn!(lock = entry.name(), error = %format_args!("{error:#}"), "left to its lease");
        }
    }

    /// Adds a task, in place of one of the same owner that was planned for `before`.
    fn schedule(self: &Arc<Self>, task: Task, before: Option<Moment>) -> Result<(), Error> {
        let key @ (at, client, owner) = task.key();
        // Dropped after the mutex is released, as is `task`: no entry may be dropped under it.
        let (_replaced, _same, _unserved);
        let mut state = self.state.lock();
        _replaced = before.map(|before| state.schedule.remove(&(before, client, owner)));
        if state.line_of(&task.entry).is_none() {
            return Ok(());
        }
        _same = state.insert(task);
        if !state.running {
            let renewer = self.clone();
            if let Err(error) = spawn("rc-renewal", move || renewer.run()) {
                _unserved = state.schedule.remove(&key);
                return Err(error);
            }
            state.running = true;
        } else if at < state.wakes_at {
            self.alarm.notify_one();
        }
        Ok(())
    }

    /// Waits until the lines of these servers have no thread, and the schedule has none either if it has no
    /// lines left. Blocks until `limit` at most. Returns whether the threads have ended.
    pub(crate) fn wait_for_end(&self, servers: &[Arc<Server>], limit: Moment) -> bool {
        let mut state = self.state.lock();
        loop {
            let serves = servers.iter().any(|server| state.served.contains(&server.id));
            let runs = serves || (state.running && state.lines.is_empty());
            if !runs || limit <= Moment::now() {
                return !runs;
            }
            limit.wait_on(&self.ended, &mut state);
        }
    }

    /// Schedules the same task again at `at`.
    pub(super) fn again(self: &Arc<Self>, task: Task, at: Moment) {
        if let TaskKind::Leave(_) = task.what {
            return self.put_back(Task { at, ..task }, None);
        }
        if !self.move_look(&mut task.entry.core.lock(), &task, at, task.due) {
            self.forget(&task.entry, task.owner, task.at);
        }
    }

    /// Schedules another look at a task's grant, for `at`, that was `due` first. Returns `false`, and does nothing, if the
    /// grant has ended, or another look was planned meanwhile: two would renew forever.
    pub(super) fn move_look(self: &Arc<Self>, core: &mut Core, task: &Task, at: Moment, due: Moment) -> bool {
        let is_current = core.move_due(task.owner, task.at, at);
        if is_current {
            let look = Task::new(task.entry.clone(), task.owner, TaskKind::Grant, at, due);
            self.put_back(look, Some(task.at));
        }
        is_current
    }

    fn put_back(self: &Arc<Self>, task: Task, before: Option<Moment>) {
        let entry = task.entry.clone();
        if let Err(error) = self.schedule(task, before) {
            tracing::error!(lock = entry.name(), error = %format_args!("{error:#}"), "a lease is not renewed");
        }
    }
}
