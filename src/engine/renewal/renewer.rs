//! What the rest of the engine leaves to the background: leases to renew, and releases to repeat.
//!
//! A [thread](crate::engine::renewal::thread) processes what is due. It is started when there is something to do.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entries::entry::{Core, LockEntry};
use crate::engine::renewal::schedule::{ServerLine, State, Task, TaskKind};
use crate::engine::servers::server::Server;
use crate::engine::state::lock_state::PendingRelease;
use crate::error::{Error, ErrorKind};
use crate::sync::{Condvar, Mutex, thread};

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
    /// Adds a server of a client.
    pub(crate) fn add(&self, client: u64, server: &Server, renew_every: Duration, renewal_timeout: Duration) {
        let line = ServerLine { client, renew_every, renewal_timeout, ..ServerLine::default() };
        self.state.lock().lines.insert(server.id, line);
    }

    /// Removes a client with all its tasks.
    pub(crate) fn remove(&self, client: u64) {
        let mut state = self.state.lock();
        self.alarm.notify_one();
        let removed = state.remove(client);
        // Entries and sockets are dropped outside the mutex.
        drop(state);
        drop(removed);
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
        if let Some(before) = core.set_due(owner, at) {
            self.forget(entry, owner, before);
        }
        self.schedule(Task::new(entry.clone(), owner, TaskKind::Grant, at, due))
    }

    /// Cancels the task at `due` of a grant that is over.
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
        let until = leaving.valid_until.max(now.after(leaving.lease));
        let owner = leaving.owner;
        core.remove_leave(owner);
        core.add_leave(&leaving);
        let task = Task::new(entry.clone(), owner, TaskKind::Leave(Box::new((leaving, until))), now, now);
        if let Err(error) = self.schedule(task) {
            // The caller may hold the entry's mutex, so no observer is called here.
            tracing::warn!(lock = entry.name(), error = %format_args!("{error:#}"), "left to its lease");
        }
    }

    fn schedule(self: &Arc<Self>, task: Task) -> Result<(), Error> {
        let (at, key) = (task.at, task.key());
        let mut state = self.state.lock();
        state.settle(&task);
        if !state.lines.contains_key(&task.entry.server().id) {
            // The client was closed meanwhile. The task's entry must not be dropped under our mutex.
            drop(state);
            drop(task);
            return Ok(());
        }
        let replaced = state.insert(task);
        if !state.running {
            let renewer = self.clone();
            let thread = thread::Builder::new().name("rc-renewal".to_owned()).spawn(move || renewer.run());
            if let Err(e) = thread {
                let planned = state.schedule.remove(&key);
                drop(state);
                drop((planned, replaced));
                return Err(ErrorKind::Unavailable
                    .because("the renewal thread could not be started")
                    .caused_by(e));
            }
            state.running = true;
        } else if at < state.wakes_at {
            self.alarm.notify_one();
        }
        drop(state);
        drop(replaced);
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

    /// Schedules the same task again at `at`, unless it is a look at a grant that has ended, or one that a
    /// `renew_for` has replaced meanwhile: two would renew forever.
    pub(crate) fn again(self: &Arc<Self>, task: Task, at: Moment) {
        if let TaskKind::Grant = task.what
            && !task.entry.core.lock().move_due(task.owner, task.at, at)
        {
            return self.state.lock().settle(&task);
        }
        self.put_back(task, at);
    }

    pub(crate) fn put_back(self: &Arc<Self>, task: Task, at: Moment) {
        let entry = task.entry.clone();
        if let Err(error) = self.schedule(Task { at, ..task }) {
            tracing::error!(lock = entry.name(), error = %format_args!("{error:#}"), "a lease is not renewed");
        }
    }
}
