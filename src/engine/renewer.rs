//! One thread a process keeps all leases of all its clients alive.
//!
//! A schedule of due times is its work, a channel its alarm clock: it is woken only for something
//! that is due before it would wake anyway, so a lock that is held for less than a third of its
//! lease wakes nobody. What is due goes out in pipelines of 64, to every server that has some
//! before an answer of any is read; and none is waited for longer than the leases of the others
//! allow. Nothing here waits for a pool, and connecting is done by a thread of its own, so that one
//! server's silence costs another's leases nothing.

mod batch;
mod schedule;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use redis::{ServerErrorKind, Value};

use self::batch::Batch;
use self::schedule::{Line, State, Task, What};
use super::backend::Failure;
use super::cell::Cell;
use super::gate::{Leaving, Renewal};
use super::refusal::refused;
use super::wire::Connection;
use super::{carry_out, requests};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::sync::{Condvar, Mutex, Receiver, Sender, bounded, thread};

/// The longest pause before a release is tried again.
const RELEASE_AGAIN: Duration = Duration::from_millis(250);
/// The shortest pause before something that failed is tried again.
const SOON: Duration = Duration::from_millis(5);

/// The renewal thread and its schedule.
pub(crate) struct Renewer {
    pid: u32,
    state: Mutex<State>,
    alarm: (Sender<()>, Receiver<()>),
    /// The thread has ended.
    ended: Condvar,
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
                // A parent's is left as it is: its mutex may be held by a thread that is not here.
                std::mem::forget(current.replace(renewer.clone()));
                renewer
            }
        }
    }

    pub(crate) fn new() -> Renewer {
        Renewer { pid: std::process::id(), state: Mutex::default(), alarm: bounded(1), ended: Condvar::new() }
    }

    /// A client comes.
    pub(crate) fn add(&self, client: u64, renew_every: Duration, patience: Duration) {
        let line = Line {
            connection: None,
            connecting: false,
            failed: false,
            leaving: Vec::new(),
            renew_every,
            patience,
            tasks: 0,
        };
        self.state.lock().lines.insert(client, line);
    }

    /// A client goes, with all that was to be done for it. Returns what had not left Redis.
    pub(crate) fn remove(&self, client: u64) -> Vec<Arc<Cell>> {
        let mut state = self.state.lock();
        let line = state.lines.remove(&client);
        let (mine, others): (BTreeMap<_, _>, _) =
            std::mem::take(&mut state.schedule).into_iter().partition(|((_, c, _), _)| *c == client);
        state.schedule = others;
        self.wake();
        drop(state);
        // Cells and sockets end outside the lock: they come back here.
        let under_way = line.map(|l| l.leaving).unwrap_or_default().into_iter().map(|(_, cell)| cell);
        let due = mine.into_values().filter(|t| matches!(t.what, What::Leave(..))).map(|t| t.cell);
        due.chain(under_way).collect()
    }

    /// Looks at the tenure at `due`.
    pub(crate) fn watch(self: &Arc<Self>, cell: &Arc<Cell>, owner: u64, due: Moment) -> Result<(), Error> {
        self.schedule(Task {
            cell: cell.clone(),
            owner,
            what: What::Tenure,
            at: due,
            due,
            lease: Duration::ZERO,
            eval: false,
        })
    }

    /// The tenure is over: nothing is to be done at `due`.
    pub(crate) fn unwatch(&self, cell: &Cell, owner: u64, due: Moment) {
        let task = self.state.lock().remove(&(due, cell.shared.id, owner));
        drop(task);
    }

    /// Has an owner leave Redis, however long it takes, until its lease is over.
    pub(crate) fn leave(self: &Arc<Self>, cell: &Arc<Cell>, leaving: Leaving) {
        // A forked child releases nothing that its parent holds.
        if cell.shared.same_process().is_err() {
            return;
        }
        let now = Moment::now();
        let until = leaving.valid_until.max(now.after(leaving.lease));
        let owner = leaving.owner;
        let task = Task {
            cell: cell.clone(),
            owner,
            what: What::Leave(Box::new(leaving), until),
            at: now,
            due: now,
            lease: Duration::ZERO,
            eval: false,
        };
        if let Err(error) = self.schedule(task) {
            // Our caller may have the cell locked: no observer is told here.
            tracing::warn!(lock = &*cell.name, %error, "left to its lease");
        }
    }

    fn schedule(self: &Arc<Self>, task: Task) -> Result<(), Error> {
        let key = (task.at, task.cell.shared.id, task.owner);
        let mut state = self.state.lock();
        if !state.lines.contains_key(&key.1) {
            // Closed meanwhile. The task's cell must not end under our lock.
            drop(state);
            drop(task);
            return Ok(());
        }
        let replaced = state.insert(key, task);
        if !state.running {
            let renewer = self.clone();
            let thread = thread::Builder::new().name("rc-renewal".to_owned()).spawn(move || renewer.run());
            if let Err(e) = thread {
                let task = state.remove(&key);
                drop(state);
                drop((task, replaced));
                let error = Error::new(ErrorKind::Unavailable, "");
                return Err(error.because("the renewal thread could not be started").caused_by(e));
            }
            state.running = true;
        } else if key.0 < state.wakes_at {
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

    /// Waits for the thread to end if it has nothing to do any more, at most until `limit`.
    pub(crate) fn wait_for_end(&self, limit: Moment) -> bool {
        let mut state = self.state.lock();
        while state.running && state.lines.is_empty() && Moment::now() < limit {
            let Some(instant) = limit.instant() else { return false };
            self.ended.wait_until(&mut state, instant);
        }
        !state.running || !state.lines.is_empty()
    }

    // ---- the thread ------------------------------------------------------------------------

    fn run(self: Arc<Self>) {
        let mut idle_since: Option<Moment> = None;
        loop {
            let mut state = self.state.lock();
            let now = Moment::now();
            let round = state.take_due(now);
            if !round.is_empty() {
                idle_since = None;
                state.wakes_at = Moment::default();
                drop(state);
                self.round(round);
                continue;
            }
            // One period without work, or nobody left who could have some: the end.
            let next = match state.schedule.first_key_value() {
                Some(((due, _, _), _)) => {
                    idle_since = None;
                    *due
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

    /// Sends all that is due, to every server, then reads what each has to say.
    fn round(self: &Arc<Self>, tasks: Vec<Task>) {
        // In order, so that a schedule that is run again is the same.
        let mut batches: BTreeMap<u64, Batch> = BTreeMap::new();
        for task in tasks {
            let batch = batches.entry(task.cell.shared.id).or_insert_with(Batch::new);
            if let Some(task) = self.prepare(task, &mut batch.bytes) {
                batch.push(task);
            }
        }
        batches.retain(|_, batch| !batch.tasks.is_empty());
        let patience: HashMap<u64, Duration> = {
            let state = self.state.lock();
            batches.keys().map(|client| (*client, state.patience(*client, &batches))).collect()
        };
        let mut sent = Vec::with_capacity(batches.len());
        for (client, mut batch) in batches {
            let Some(cell) = batch.tasks.first().map(|(t, _)| t.cell.clone()) else { continue };
            let (shared, patience) = (&cell.shared, patience[&client]);
            if let Err(error) = shared.inbox.start(shared) {
                tracing::warn!(%error, "a holder cannot be told of a forced unlock before its next renewal");
            }
            batch.connection = self.take_connection(client);
            batch.send(patience);
            shared.backend.count(batch.sent());
            sent.push((Moment::now().after(patience), client, cell, batch));
        }
        // The most impatient first: what a silent server costs then is its own time.
        sent.sort_by_key(|(limit, client, ..)| (*limit, *client));
        for (limit, client, cell, mut batch) in sent {
            batch.receive(limit);
            let connection = batch.connection.take();
            let connected = batch.connected;
            let line = Outlook { connected, soon: self.give_connection_back(client, connection, &cell) };
            for ((task, sent), answer) in batch.tasks.into_iter().zip(batch.answers) {
                self.finish(task, sent, answer, line);
            }
        }
    }

    /// Adds the request that a task needs now. One that needs none is finished, or put back.
    fn prepare(self: &Arc<Self>, mut task: Task, requests: &mut Vec<u8>) -> Option<Task> {
        let now = Moment::now();
        match &task.what {
            What::Leave(_, until) if *until <= now => {
                self.state.lock().not_under_way(&task);
                let cell = &task.cell;
                let error =
                    cell.error(Error::new(ErrorKind::Unknown, "").because("no answer to its release"));
                cell.shared.watch.tell(|o| o.release_abandoned(cell.observed(), &error));
                return None;
            }
            What::Leave(leaving, _) => requests::pack_leave(requests, &task.cell, leaving, task.eval),
            What::Tenure => {
                let mut core = task.cell.core.lock();
                let then = core.gate.expire(task.owner, now);
                core = carry_out(&task.cell, core, then);
                let tenure = core.gate.look(task.owner).filter(|t| t.lost.is_none())?;
                let (fixed, until, lease) = (tenure.terms.fixed, tenure.valid_until, tenure.renewal(now));
                let cell = task.cell.clone();
                let held = core.gate.oldest(task.owner, now);
                let forgotten = !fixed && cell.shared.config.max_hold.is_some_and(|longest| longest <= held);
                if forgotten {
                    // What ends takes nobody in.
                    core.gate.shut(task.owner);
                }
                drop(core);
                if fixed || forgotten {
                    self.again(task, until);
                    if forgotten {
                        let error =
                            Error::new(ErrorKind::Config, "").because("held for longer than max_hold");
                        tell_failure(&cell, until.since(now), Some(Failure::Never(error)));
                    }
                    return None;
                }
                task.lease = lease;
                requests::pack_renew(requests, &task.cell, task.owner, lease, task.eval);
            }
        }
        Some(task)
    }

    /// Applies one answer, and puts the task back where there is more to do.
    fn finish(self: &Arc<Self>, task: Task, sent: Moment, answer: Option<Value>, line: Outlook) {
        let now = Moment::now();
        if matches!(&answer, Some(Value::ServerError(e)) if e.kind() == Some(ServerErrorKind::NoScript)) {
            return self.again(Task { eval: true, ..task }, now);
        }
        let config = &task.cell.shared.config;
        // Refused is not cut off: a new connection may be refused as well.
        let soon = line.soon && answer.is_none();
        let pause = |lease: Duration| if soon { SOON } else { SOON.max(lease / 12) };
        let answer = match answer {
            // It never left: no reason to doubt anything.
            None if !line.connected => Err(Some(Failure::Unsent(Error::new(ErrorKind::Unavailable, "")))),
            None => Err(None),
            Some(Value::ServerError(e)) => Err(Some(refused(e.into()))),
            Some(value) => Ok(value),
        };
        // What is not this kind any more is not our hold either.
        let alien = matches!(&answer, Err(Some(failure)) if failure.is_wrong_kind());
        match &task.what {
            What::Leave(..) if answer.is_ok() || alien => self.state.lock().not_under_way(&task),
            What::Leave(leaving, _) => {
                // Others wait for it, whatever its lease is.
                let due = now.after(pause(leaving.lease.min(config.lease)).min(RELEASE_AGAIN));
                self.again(task, due);
            }
            What::Tenure => {
                let renewal = match &answer {
                    Ok(value) => requests::renewed(value).unwrap_or(Renewal::Failed),
                    Err(None) => Renewal::Unanswered,
                    Err(Some(_)) if alien => Renewal::NotInside,
                    Err(Some(_)) => Renewal::Failed,
                };
                let mut core = task.cell.core.lock();
                // By the clock under the lock: nobody has seen it lost before.
                let now = Moment::now();
                let left = core.gate.look(task.owner).map(|t| t.valid_until.since(now)).unwrap_or_default();
                let then = core.gate.renewed(task.owner, sent, renewal, now);
                if renewal == Renewal::Unanswered {
                    core.gate.doubt(task.owner, sent, task.lease);
                }
                core = carry_out(&task.cell, core, then);
                let Some(tenure) = core.gate.look(task.owner).filter(|t| t.lost.is_none()) else { return };
                let (until, lease) = (tenure.valid_until, tenure.terms.lease);
                let done = matches!(renewal, Renewal::Left(_));
                let at = match done {
                    true => tenure.due(now, config.renew_every),
                    false => now.after(pause(lease)).min(until),
                };
                if !core.move_due(task.owner, task.at, at) {
                    return;
                }
                drop(core);
                if done {
                    let lag = sent.since(task.due);
                    task.cell.shared.watch.tell(|o| o.renewed(task.cell.observed(), lag, left));
                    self.put_back(Task { due: at, eval: false, ..task }, at);
                } else {
                    // That a connection is about to be there is no failure: so it is at first.
                    if line.connected || !line.soon {
                        tell_failure(&task.cell, until.since(now), answer.err().flatten());
                    }
                    self.put_back(task, at);
                }
            }
        }
    }

    /// The same task once more, at `at`; unless it is a look at a tenure that has ended, or one
    /// that a `renew_for` has replaced meanwhile: two would renew for ever.
    fn again(self: &Arc<Self>, task: Task, at: Moment) {
        if let What::Tenure = task.what
            && !task.cell.core.lock().move_due(task.owner, task.at, at)
        {
            return;
        }
        self.put_back(task, at);
    }

    fn put_back(self: &Arc<Self>, task: Task, at: Moment) {
        let cell = task.cell.clone();
        if let Err(error) = self.schedule(Task { at, ..task }) {
            tracing::error!(lock = &*cell.name, %error, "a lease is not renewed");
        }
    }

    // ---- connections -----------------------------------------------------------------------

    fn take_connection(&self, client: u64) -> Option<Connection> {
        self.state.lock().lines.get_mut(&client)?.connection.take()
    }

    /// Puts a client's connection back; or, where there is none, has one made by a thread that
    /// ends with that, as connecting may take its time. Returns whether one can be expected soon.
    fn give_connection_back(
        self: &Arc<Self>,
        client: u64,
        connection: Option<Connection>,
        cell: &Arc<Cell>,
    ) -> bool {
        let mut state = self.state.lock();
        let Some(line) = state.lines.get_mut(&client) else { return false };
        if connection.is_some() {
            line.connection = connection;
            return false;
        }
        if line.connecting {
            return !line.failed;
        }
        let manager = cell.shared.manager.clone();
        let renewer = Arc::downgrade(self);
        let thread = thread::Builder::new().name("rc-connect".to_owned()).spawn(move || {
            let connection = manager.raw();
            if let Err(error) = &connection {
                tracing::debug!(%error, "no connection for renewals");
            }
            let Some(renewer) = renewer.upgrade() else { return };
            let mut state = renewer.state.lock();
            if let Some(line) = state.lines.get_mut(&client) {
                line.connecting = false;
                line.failed = connection.is_err();
                line.connection = connection.ok();
            }
        });
        match thread {
            Ok(_) => line.connecting = true,
            Err(error) => tracing::error!(%error, "the connecting thread could not be started"),
        }
        line.connecting && !line.failed
    }
}

fn tell_failure(cell: &Cell, left: Duration, failure: Option<Failure>) {
    let unanswered = || Error::new(ErrorKind::Unknown, "").because("no usable answer to a renewal");
    let error = cell.error(failure.map_or_else(unanswered, Failure::error));
    cell.shared.watch.tell(|o| o.renewal_failed(cell.observed(), left, &error));
}

/// How it stands with a client's connection after a round.
#[derive(Clone, Copy)]
struct Outlook {
    /// There was one, so what was sent may have run.
    connected: bool,
    /// A new one is about to be there.
    soon: bool,
}
