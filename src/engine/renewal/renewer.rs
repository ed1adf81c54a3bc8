//! Keeps all leases of all clients of a process alive.
//!
//! One thread has the schedule of due times and the ends of leases. A channel is its alarm clock: it is woken
//! only for something that is due before it would wake anyway, so a lock that is held for less than a third
//! of its lease wakes no thread. It reports every loss that is found by the clock, and never waits for a
//! server. What must be sent it hands to the client's [`line`], whose thread connects, writes and reads: so
//! one server's silence does not affect another's leases. (The line has a thread of its own, as a read of the
//! `redis` crate that is given up takes its reply with it: it could not be interrupted and resumed.) No
//! thread here waits for a pool.

use std::sync::Arc;
use std::time::Duration;

use redis::{ServerErrorKind, Value};

use super::line::Server;
use super::schedule::{Line, State, Task, What};
use crate::clock::Moment;
use crate::engine::carry_out;
use crate::engine::entry::{Core, LockEntry};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::refusal::refused;
use crate::engine::redis::requests;
use crate::engine::state::lock_state::{PendingRelease, Renewal};
use crate::error::{Error, ErrorKind};
use crate::sync::{Condvar, Mutex, Receiver, Sender, bounded, thread};

/// The longest pause before a release is tried again.
pub(super) const RELEASE_AGAIN: Duration = Duration::from_millis(250);
/// The shortest pause before a failed request is tried again.
const SOON: Duration = Duration::from_millis(5);

/// The renewal thread and its schedule.
pub(crate) struct Renewer {
    pid: u32,
    pub(super) state: Mutex<State>,
    alarm: (Sender<()>, Receiver<()>),
    /// A thread has ended.
    pub(super) ended: Condvar,
}

impl Renewer {
    /// The one of this process; a forked child has one of its own.
    pub(crate) fn current() -> Arc<Renewer> {
        static CURRENT: Mutex<Option<Arc<Renewer>>> = Mutex::new(None);
        let pid = std::process::id();
        let mut current = CURRENT.lock();
        match &*current {
            Some(renewer) if renewer.pid == pid => renewer.clone(),
            _ => {
                let renewer = Arc::new(Renewer::new());
                // A parent's is left as it is: its mutex may be held by a thread that does not exist here.
                std::mem::forget(current.replace(renewer.clone()));
                renewer
            }
        }
    }

    pub(crate) fn new() -> Renewer {
        Renewer { pid: std::process::id(), state: Mutex::default(), alarm: bounded(1), ended: Condvar::new() }
    }

    /// A client is created.
    pub(crate) fn add(&self, client: u64, renew_every: Duration, renewal_timeout: Duration) {
        self.state.lock().lines.insert(client, Line::new(renew_every, renewal_timeout));
    }

    /// A client ends, with all its tasks. Returns the leaves that Redis has not answered.
    pub(crate) fn remove(&self, client: u64) -> Vec<(Arc<LockEntry>, PendingRelease)> {
        // Entries and sockets are dropped outside the mutex: they come back here.
        let (line, tasks, _cells) = {
            let mut state = self.state.lock();
            self.wake();
            state.remove(client)
        };
        let due = tasks.into_iter().filter_map(|task| match task.what {
            What::Leave(leave) => Some((task.entry, leave.0)),
            What::Grant => None,
        });
        due.chain(line.map(Line::into_leaving).unwrap_or_default()).collect()
    }

    /// Looks at the grant at `due`, whatever was planned before. If its client does not listen yet, also
    /// after a heartbeat: a longer hold should be able to hear of a forced unlock.
    pub(crate) fn watch(
        self: &Arc<Self>,
        entry: &Arc<LockEntry>,
        core: &mut Core,
        owner: u64,
        due: Moment,
    ) -> Result<(), Error> {
        let at = match entry.shared.inbox.is_up() {
            true => due,
            false => due.min(Moment::now().after(core.lock_state.shape().beat)),
        };
        if let Some(before) = core.set_due(owner, at) {
            self.unwatch(entry, owner, before);
        }
        self.schedule(Task::new(entry.clone(), owner, What::Grant, at, due))
    }

    /// The grant is over: its task at `due` is cancelled.
    pub(crate) fn unwatch(&self, entry: &LockEntry, owner: u64, due: Moment) {
        let planned = self.state.lock().cancel(&(due, entry.shared.id, owner));
        drop(planned);
    }

    /// Makes an owner leave Redis, however long it takes, until its lease is over.
    pub(crate) fn leave(self: &Arc<Self>, entry: &Arc<LockEntry>, leaving: PendingRelease) {
        // A forked child releases nothing that its parent holds.
        if entry.shared.same_process().is_err() {
            return;
        }
        let now = Moment::now();
        let until = leaving.valid_until.max(now.after(leaving.lease));
        let owner = leaving.owner;
        let task = Task::new(entry.clone(), owner, What::Leave(Box::new((leaving, until))), now, now);
        if let Err(error) = self.schedule(task) {
            // Our caller may have the entry locked: no observer is called here.
            tracing::warn!(lock = &*entry.name, error = %format_args!("{error:#}"), "left to its lease");
        }
    }

    fn schedule(self: &Arc<Self>, task: Task) -> Result<(), Error> {
        let (at, key) = (task.at, (task.at, task.entry.shared.id, task.owner));
        let mut state = self.state.lock();
        state.settle(&task);
        if !state.lines.contains_key(&key.1) {
            // Closed meanwhile. The task's entry must not be dropped under our mutex.
            drop(state);
            drop(task);
            return Ok(());
        }
        let replaced = state.insert(task);
        if !state.running {
            let renewer = self.clone();
            let thread = thread::Builder::new().name("rc-renewal".to_owned()).spawn(move || renewer.run());
            if let Err(e) = thread {
                let planned = state.cancel(&key);
                drop(state);
                drop((planned, replaced));
                let error = Error::new(ErrorKind::Unavailable, "");
                return Err(error.because("the renewal thread could not be started").caused_by(e));
            }
            state.running = true;
        } else if at < state.wakes_at {
            self.wake();
        }
        drop(state);
        drop(replaced);
        Ok(())
    }

    fn wake(&self) {
        // Full is as good: it will wake.
        let _ = self.alarm.0.try_send(());
    }

    /// Waits for the threads to end that have no task any more without `client`, until `limit` at most.
    pub(crate) fn wait_for_end(&self, client: u64, limit: Moment) -> bool {
        let mut state = self.state.lock();
        loop {
            let runs = state.served.contains(&client) || (state.running && state.lines.is_empty());
            if !runs || limit <= Moment::now() {
                return !runs;
            }
            let Some(instant) = limit.instant() else { return false };
            self.ended.wait_until(&mut state, instant);
        }
    }

    // ---- the thread ------------------------------------------------------------------------

    fn run(self: Arc<Self>) {
        let mut idle_since: Option<Moment> = None;
        loop {
            let mut state = self.state.lock();
            let now = Moment::now();
            let (ended, due) = (state.take_ended(now), state.take_due(now));
            if !(ended.is_empty() && due.is_empty()) {
                idle_since = None;
                state.wakes_at = Moment::default();
                drop(state);
                for (owner, entry) in ended {
                    let mut core = entry.core.lock();
                    let then = core.lock_state.expire(owner, Moment::now());
                    carry_out(&entry, core, then);
                }
                self.round(due);
                continue;
            }
            // One period without work, or no client left that could have some: the end.
            let next = match state.next() {
                Some(next) => {
                    idle_since = None;
                    next
                }
                None => {
                    let period = state.lines.values().map(|l| l.renew_every).max().unwrap_or_default();
                    idle_since.get_or_insert(now).after(period)
                }
            };
            if next <= now {
                state.running = false;
                self.ended.notify_all();
                return;
            }
            state.wakes_at = next;
            drop(state);
            let _ = match next.instant() {
                Some(instant) => self.alarm.1.recv_deadline(instant).ok(),
                None => self.alarm.1.recv().ok(),
            };
        }
    }

    /// Looks at all that is due, and hands what must be sent to the lines.
    fn round(self: &Arc<Self>, due: Vec<Task>) {
        let ready: Vec<_> = due.into_iter().filter_map(|task| self.look(task)).collect();
        // Tasks without a result are dropped outside the mutex.
        let (mut closed, mut unserved) = (Vec::new(), Vec::new());
        let mut state = self.state.lock();
        let mut clients = Vec::new();
        for task in ready {
            let shared = &task.entry.shared;
            if !clients.iter().any(|(client, _)| *client == shared.id) {
                clients.push((shared.id, shared.manager.clone()));
            }
            closed.extend(state.hand_over(task));
        }
        for (client, manager) in clients {
            let served = state.served.contains(&client);
            let Some(line) = state.lines.get_mut(&client) else { continue };
            if served {
                line.work.notify_one();
                continue;
            }
            let server = Server::new(self.clone(), client, manager, line.renewal_timeout);
            let thread = thread::Builder::new().name("rc-renewal-line".to_owned()).spawn(|| server.run());
            match thread {
                Ok(_) => drop(state.served.insert(client)),
                Err(e) => {
                    let error = Error::new(ErrorKind::Unavailable, "");
                    let error = error.because("the thread for renewals could not be started").caused_by(e);
                    unserved.extend(line.queue.drain(..).map(|task| (task, error.clone())));
                }
            }
        }
        drop(state);
        drop(closed);
        for (task, error) in unserved {
            self.finish(task, Moment::now(), Err(Missing::Unsent(error)));
        }
    }

    /// What a task needs to be sent now. A task that needs no request is finished, or put back.
    fn look(self: &Arc<Self>, mut task: Task) -> Option<Task> {
        let now = Moment::now();
        match &task.what {
            What::Leave(leave) if leave.1 <= now => {
                self.state.lock().settle(&task);
                let entry = &task.entry;
                let error = entry
                    .error(Error::new(ErrorKind::OutcomeUnknown, "").because("no answer to its release"));
                entry.shared.watch.tell(|o| o.release_abandoned(entry.observed(), &error));
                return None;
            }
            What::Leave(..) => {}
            What::Grant if task.at < task.due => {
                task.entry.shared.listen();
                let due = task.due;
                self.again(task, due);
                return None;
            }
            What::Grant => {
                let mut core = task.entry.core.lock();
                let then = core.lock_state.expire(task.owner, now);
                let Some(grant) = core.lock_state.look(task.owner).filter(|t| t.lost.is_none()) else {
                    carry_out(&task.entry, core, then);
                    return None;
                };
                let fixed = grant.terms.fixed && !grant.is_first();
                let (until, lease) = (grant.valid_until, grant.renewal(now));
                let entry = task.entry.clone();
                let is_old = |longest| longest <= core.lock_state.oldest(task.owner, now);
                let forgotten = !fixed && entry.shared.config.max_hold.is_some_and(is_old);
                if forgotten {
                    // A hold that ends admits no thread.
                    core.lock_state.shut(task.owner);
                }
                drop(core);
                if fixed || forgotten {
                    self.again(task, until);
                    if forgotten {
                        let error =
                            Error::new(ErrorKind::InvalidInput, "").because("held for longer than max_hold");
                        tell_failure(&entry, until.since(now), Some(Failure::Never(error)));
                    }
                    return None;
                }
                (task.lease, task.until) = (lease, until);
                entry.shared.listen();
            }
        }
        Some(task)
    }

    /// Applies one reply, and puts the task back if there is more to do.
    pub(super) fn finish(self: &Arc<Self>, task: Task, sent: Moment, answer: Result<Value, Missing>) {
        let now = Moment::now();
        if matches!(&answer, Ok(Value::ServerError(e)) if e.kind() == Some(ServerErrorKind::NoScript)) {
            return self.again(Task { eval: true, ..task }, now);
        }
        let config = &task.entry.shared.config;
        // An error reply is not a broken connection: a new one may be rejected as well.
        let soon = matches!(answer, Err(Missing::Unanswered));
        let pause = |lease: Duration| if soon { SOON } else { SOON.max(lease / 12) };
        let answer = match answer {
            // It was never sent: no reason to doubt anything.
            Err(Missing::Unsent(error)) => Err(Some(Failure::Unsent(error))),
            Err(Missing::Unanswered) => Err(None),
            Ok(Value::ServerError(e)) => Err(Some(refused(e.into()))),
            Ok(value) => Ok(value),
        };
        // A key that is no longer of this kind is not our hold either.
        let alien = matches!(&answer, Err(Some(failure)) if failure.is_wrong_kind());
        match &task.what {
            What::Leave(..) if answer.is_ok() || alien => self.state.lock().settle(&task),
            What::Leave(leave) => {
                // Others wait for it, whatever its lease is.
                let due = now.after(pause(leave.0.lease.min(config.lease)).min(RELEASE_AGAIN));
                self.again(task, due);
            }
            What::Grant => {
                let renewal = match &answer {
                    Ok(value) => requests::renewed(value).unwrap_or(Renewal::Failed),
                    Err(None) => Renewal::Unanswered,
                    Err(Some(_)) if alien => Renewal::NotInside,
                    Err(Some(_)) => Renewal::Failed,
                };
                let mut core = task.entry.core.lock();
                // By the clock, under the mutex: no thread has seen it lost before.
                let now = Moment::now();
                let left =
                    core.lock_state.look(task.owner).map(|t| t.valid_until.since(now)).unwrap_or_default();
                let then = core.lock_state.renewed(task.owner, sent, renewal, now);
                if renewal == Renewal::Unanswered {
                    core.lock_state.doubt(task.owner, sent, task.lease);
                }
                let done = matches!(renewal, Renewal::Left(_));
                let grant = core.lock_state.look(task.owner).filter(|t| t.lost.is_none());
                let next = grant.map(|grant| {
                    let (until, lease) = (grant.valid_until, grant.terms.lease);
                    // A first lease is shorter.
                    let pause = || pause(lease).min(SOON.max(until.since(now) / 4));
                    let due =
                        if done { grant.due(now, config.renew_every) } else { now.after(pause()).min(until) };
                    (until, due)
                });
                let next = next.filter(|(_, at)| core.move_due(task.owner, task.at, *at));
                carry_out(&task.entry, core, then);
                let Some((until, at)) = next else { return self.state.lock().settle(&task) };
                if done {
                    let lag = sent.since(task.due);
                    task.entry.shared.watch.tell(|o| o.renewed(task.entry.observed(), lag, left));
                    self.put_back(Task { due: at, eval: false, ..task }, at);
                } else {
                    tell_failure(&task.entry, until.since(now), answer.err().flatten());
                    self.put_back(task, at);
                }
            }
        }
    }

    /// The same task once more, at `at`; unless it is a look at a grant that has ended, or one that a
    /// `renew_for` has replaced meanwhile: two would renew forever.
    fn again(self: &Arc<Self>, task: Task, at: Moment) {
        if let What::Grant = task.what
            && !task.entry.core.lock().move_due(task.owner, task.at, at)
        {
            return self.state.lock().settle(&task);
        }
        self.put_back(task, at);
    }

    fn put_back(self: &Arc<Self>, task: Task, at: Moment) {
        let entry = task.entry.clone();
        if let Err(error) = self.schedule(Task { at, ..task }) {
            tracing::error!(lock = &*entry.name, error = %format_args!("{error:#}"), "a lease is not renewed");
        }
    }
}

/// Why there is no reply to a request.
pub(super) enum Missing {
    /// It may have run, or may do so yet.
    Unanswered,
    /// It was never sent.
    Unsent(Error),
}

fn tell_failure(entry: &LockEntry, left: Duration, failure: Option<Failure>) {
    let unanswered = || Error::new(ErrorKind::OutcomeUnknown, "").because("no usable answer to a renewal");
    let error = entry.error(failure.map_or_else(unanswered, Failure::error));
    entry.shared.watch.tell(|o| o.renewal_failed(entry.observed(), left, &error));
}
