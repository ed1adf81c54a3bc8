//! The thread that keeps all leases of all clients of a process alive.
//!
//! One thread works through the schedule of due times and ends of leases. It is woken only for something that
//! is due before it would wake anyway, so a lock that is held for less than a third of its lease does not
//! wake it. (It waits on a condition variable. The receiver of a channel yields several times before it
//! sleeps, and on a busy core each yield takes time from a client and its server.) The thread reports every
//! lease that expires by the clock, and never waits for a server. It passes requests to the server's
//! [line](crate::engine::renewal::line), whose thread connects, writes and reads, so one server that does not reply has no
//! effect on the leases at another. (A line needs a thread of its own, since a read of the `redis` crate that
//! is given up loses its reply, and cannot be interrupted and resumed.) No thread here waits for a pool.

use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::entries::entry::{Core, LockEntry};
use crate::engine::operations::effects::{carry_out, report};
use crate::engine::redis::failure::Failure;
use crate::engine::renewal::line::LineThread;
use crate::engine::renewal::outcome::tell_failure;
use crate::engine::renewal::renewer::Renewer;
use crate::engine::renewal::schedule::{Task, TaskKind};
use crate::engine::state::lock_state::Effects;
use crate::error::ErrorKind;
use crate::observe::{Observer, serves_holds};
use crate::sync::{Condvar, OfProcess, spawn};

impl Renewer {
    /// Returns the renewer of this process; a forked child has one of its own.
    pub(crate) fn current() -> Arc<Renewer> {
        static CURRENT: OfProcess<Renewer> = OfProcess::new();
        CURRENT.get()
    }

    pub(crate) fn run(self: Arc<Self>) {
        serves_holds();
        let mut idle_since: Option<Moment> = None;
        // When the first of the renewals that are with the lines will be due again, if all goes well: then the line
        // that plans it need not wake this thread.
        let mut returns = Moment::default();
        loop {
            let mut state = self.state.lock();
            let now = Moment::now();
            let next = state.next();
            if next.is_some() {
                idle_since = None;
            }
            if next.is_some_and(|next| next <= now) {
                let due = state.take_due(now);
                state.wakes_at = Moment::default();
                drop(state);
                returns = self.round(due, now);
                continue;
            }
            // The thread ends after one period without work, or at once if no client is left.
            let next = next.unwrap_or_else(|| {
                let period = state.lines.values().map(|l| l.renew_every).max().unwrap_or_default();
                idle_since.get_or_insert(now).after(period)
            });
            if next <= now {
                state.running = false;
                self.ended.notify_all();
                return;
            }
            let next = if returns > now { next.min(returns) } else { next };
            state.wakes_at = next;
            next.wait_on(&self.alarm, &mut state);
        }
    }

    /// Looks at all tasks that are due, and passes those that must be sent to the lines. Returns when the first of them
    /// will be due again.
    fn round(self: &Arc<Self>, due: Vec<Task>, now: Moment) -> Moment {
        let mut ready = Vec::new();
        for task in due {
            ready.extend(self.check(task, now));
        }
        // Tasks that cannot be sent are kept here, to be dropped outside the mutex.
        let (mut closed, mut unserved) = (Vec::new(), Vec::new());
        let (mut returns, mut asleep) = (Moment::NEVER, None::<Arc<Condvar>>);
        let mut state = self.state.lock();
        for task in ready {
            returns = returns.min(task.due.after(task.entry.shared.config.renew_every));
            // Looked up for each task, as its lock may have moved since it was scheduled.
            let server = task.entry.server().clone();
            closed.extend(state.hand_over(task));
            let served = state.served.contains(&server.id);
            let Some(line) = state.lines.get_mut(&server.id) else { continue };
            if served {
                if let Some(other) = asleep.replace(line.work.clone()) {
                    other.notify_one();
                }
                continue;
            }
            let on_line = LineThread::new(self.clone(), &server, line.renewal_timeout);
            match spawn("rc-renewal-line", || on_line.run()) {
                Ok(()) => drop(state.served.insert(server.id)),
                Err(error) => unserved.extend(line.queue.drain(..).map(|task| (task, error.clone()))),
            }
        }
        drop(state);
        // It would wait for the mutex.
        if let Some(line) = asleep {
            line.notify_one();
        }
        drop(closed);
        for (task, error) in unserved {
            self.finish(task, Moment::now(), Err(Failure::Unsent(error)));
        }
        returns
    }

    /// Returns the task with what it needs to be sent now. A task that needs no request is finished, or put
    /// back.
    fn check(self: &Arc<Self>, task: Task, now: Moment) -> Option<Task> {
        match &task.what {
            TaskKind::Leave(leaving) if leaving.valid_until <= now => {
                let entry = &task.entry;
                entry.core.lock().remove_leave(task.owner);
                let error = entry.error(ErrorKind::OutcomeUnknown.because("no reply to its release"));
                let lock = entry.clone();
                let what = move |o: &dyn Observer| o.release_abandoned(lock.observed(), &error);
                entry.shared.observers.tell_apart(1, what);
                None
            }
            TaskKind::Leave(_) => Some(task),
            TaskKind::End => {
                report(&task.entry, |state, now| state.expire(task.owner, now));
                None
            }
            TaskKind::Grant => self.look(task, now),
        }
    }

    /// Looks at a grant. Returns the task if the grant is to be renewed now.
    fn look(self: &Arc<Self>, task: Task, now: Moment) -> Option<Task> {
        let (entry, owner) = (task.entry.clone(), task.owner);
        let mut core = entry.core.lock();
        if task.at < task.due {
            entry.will_listen(|| core.needs_messages(owner));
            self.move_look(&mut core, &task, task.due, task.due);
            return None;
        }
        let mut then = core.lock_state.expire(owner, now);
        if then == Effects::default() {
            then = core.lock_state.kept_long_enough(owner, now);
        }
        let Some(grant) = core.lock_state.grant(owner).filter(|t| t.lost().is_none()) else {
            carry_out(&entry, core, then);
            return None;
        };
        let fixed = grant.terms.fixed && !grant.is_first();
        let (until, lease) = (grant.validity.until, grant.renewal(now));
        let forgotten = !fixed && is_forgotten(&entry, &mut core, owner, now);
        if fixed || forgotten {
            self.move_look(&mut core, &task, until, task.due);
            drop(core);
            if forgotten {
                let error = ErrorKind::InvalidInput.because("held for longer than max_hold");
                tell_failure(&entry, until.since(now), error);
            }
            return None;
        }
        entry.will_listen(|| core.needs_messages(owner));
        core.move_due(owner, task.at, until).then_some(Task { at: until, lease, ..task })
    }
}

/// Returns whether even the youngest of the grant's holds is too old to be renewed. Once the oldest is, no more threads may
/// join; those that have joined keep theirs until the youngest is, too.
fn is_forgotten(entry: &LockEntry, core: &mut Core, owner: u64, now: Moment) -> bool {
    let Some(longest) = entry.shared.config.max_hold else { return false };
    let (youngest, oldest) = core.lock_state.ages(owner, now);
    if longest <= oldest {
        core.lock_state.close_to_others(owner);
    }
    longest <= youngest
}
