//! One thread a process keeps all leases of all its clients alive.
//!
//! A schedule of due times is its work, a channel its alarm clock: it is woken only for something
//! that is due before it would wake anyway, so a lock that is held for less than a third of its
//! lease wakes nobody. What is due goes out in pipelines of 64, to every server that has some
//! before an answer of any is read; all answers of a round share one time limit. Nothing here
//! waits for a pool, and connecting is done by a thread of its own, so that one server's silence
//! costs another's leases nothing.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use parking_lot::{Condvar, Mutex};
use redis::{Connection, ServerErrorKind, Value};

use super::backend::{Failure, refused};
use super::cell::Cell;
use super::gate::{Leaving, Renewal};
use super::{carry_out, requests};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};

/// How many requests go out in one write: more would hold up other clients of the server.
const BATCH: usize = 64;
/// How many answers are read before the time limit is set anew.
const READS: usize = 16;
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

#[derive(Default)]
struct State {
    /// When, whose, for which owner.
    schedule: BTreeMap<Due, Task>,
    /// One for each client that is not closed.
    lines: HashMap<u64, Line>,
    running: bool,
    wakes_at: Moment,
}

type Due = (Moment, u64, u64);

/// A client's own connection for renewals.
struct Line {
    connection: Option<Connection>,
    connecting: bool,
    /// The last attempt to connect was in vain.
    failed: bool,
    renew_every: Duration,
}

struct Task {
    cell: Arc<Cell>,
    owner: u64,
    what: What,
    /// When it was due at first: what its lag is counted from.
    due: Moment,
    /// Redis does not know the script: send all of it.
    eval: bool,
}

enum What {
    /// Look at the tenure: renew it, or see that it is over.
    Tenure,
    /// Repeat a leave until it is answered or its lease is over anyway.
    Leave(Leaving, Moment),
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
                let renewer = Arc::new(Renewer {
                    pid,
                    state: Mutex::default(),
                    alarm: bounded(1),
                    ended: Condvar::new(),
                });
                // A parent's is left as it is: its mutex may be held by a thread that is not here.
                std::mem::forget(current.replace(renewer.clone()));
                renewer
            }
        }
    }

    /// A client comes.
    pub(crate) fn add(&self, client: u64, renew_every: Duration) {
        let line = Line { connection: None, connecting: false, failed: false, renew_every };
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
        drop(line);
        mine.into_values().filter(|t| matches!(t.what, What::Leave(..))).map(|t| t.cell).collect()
    }

    /// Looks at the tenure at `due`.
    pub(crate) fn watch(self: &Arc<Self>, cell: &Arc<Cell>, owner: u64, due: Moment) -> Result<(), Error> {
        self.schedule(Task { cell: cell.clone(), owner, what: What::Tenure, due, eval: false }, due)
    }

    /// The tenure is over: nothing is to be done at `due`.
    pub(crate) fn unwatch(&self, cell: &Cell, owner: u64, due: Moment) {
        let task = self.state.lock().schedule.remove(&(due, cell.shared.id, owner));
        drop(task);
    }

    /// Has an owner leave Redis, however long it takes, until its lease is over.
    pub(crate) fn leave(self: &Arc<Self>, cell: &Arc<Cell>, leaving: Leaving) {
        let now = Moment::now();
        let until = leaving.valid_until.max(now.after(leaving.lease));
        let owner = leaving.owner;
        let task =
            Task { cell: cell.clone(), owner, what: What::Leave(leaving, until), due: now, eval: false };
        if let Err(error) = self.schedule(task, now) {
            tracing::warn!(lock = cell.name, %error, "left to its lease");
        }
    }

    fn schedule(self: &Arc<Self>, task: Task, due: Moment) -> Result<(), Error> {
        let key = (due, task.cell.shared.id, task.owner);
        let mut state = self.state.lock();
        if !state.lines.contains_key(&key.1) {
            // Closed meanwhile. The task's cell must not end under our lock.
            drop(state);
            drop(task);
            return Ok(());
        }
        let replaced = state.schedule.insert(key, task);
        if !state.running {
            let renewer = self.clone();
            let thread = thread::Builder::new().name("rc-renewal".to_owned()).spawn(move || renewer.run());
            if let Err(e) = thread {
                let task = state.schedule.remove(&key);
                drop(state);
                drop((task, replaced));
                let error = Error::new(ErrorKind::Unavailable, "");
                return Err(error.because("the renewal thread could not be started").caused_by(e));
            }
            state.running = true;
        } else if due < state.wakes_at {
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
        let mut batches: HashMap<u64, Batch> = HashMap::new();
        for task in tasks {
            let client = task.cell.shared.id;
            if let Some(request) = self.prepare(&task) {
                batches.entry(client).or_insert_with(Batch::new).push(task, request);
            }
        }
        let mut limit = Moment::NEVER;
        for (client, batch) in &mut batches {
            let Some(shared) = batch.tasks.first().map(|(t, _)| t.cell.shared.clone()) else { continue };
            if let Err(error) = shared.inbox.start(&shared) {
                tracing::warn!(%error, "a holder cannot be told of a forced unlock before its next renewal");
            }
            batch.connection = self.take_connection(*client);
            let patience = shared.config.command_timeout.min(shared.config.lease / 6);
            batch.send(patience);
            shared.backend.count(batch.sent());
            limit = limit.min(Moment::now().after(patience));
        }
        for (client, mut batch) in batches {
            batch.receive(limit);
            let connection = batch.connection.take();
            let Some(cell) = batch.tasks.first().map(|(t, _)| t.cell.clone()) else { continue };
            let soon = self.give_connection_back(client, connection, &cell);
            for ((task, sent), answer) in batch.tasks.into_iter().zip(batch.answers) {
                self.finish(task, sent, answer, soon);
            }
        }
    }

    /// The request that a task needs now, if any.
    fn prepare(self: &Arc<Self>, task: &Task) -> Option<Vec<u8>> {
        let now = Moment::now();
        match &task.what {
            What::Leave(_, until) if *until <= now => None,
            What::Leave(leaving, _) => Some(requests::packed_leave(&task.cell, leaving, task.eval)),
            What::Tenure => {
                let core = task.cell.core.lock();
                let tenure = core.gate.look(task.owner)?;
                if tenure.loss(now).is_some() || tenure.terms.fixed {
                    let mut core = core;
                    let then = core.gate.expire(task.owner, now);
                    let core = carry_out(&task.cell, core, then);
                    self.look_again(task, core, now);
                    return None;
                }
                let lease = tenure.renewal(now);
                drop(core);
                Some(requests::packed_renew(&task.cell, task.owner, lease, task.eval))
            }
        }
    }

    /// A tenure that is not to be renewed is looked at when it ends.
    fn look_again(
        self: &Arc<Self>,
        task: &Task,
        mut core: parking_lot::MutexGuard<'_, super::cell::Core>,
        now: Moment,
    ) {
        let Some(until) = core.gate.look(task.owner).filter(|t| t.loss(now).is_none()).map(|t| t.valid_until)
        else {
            return;
        };
        core.set_due(task.owner, until);
        if let Err(error) = self.watch(&task.cell, task.owner, until) {
            tracing::error!(%error, "a lease is not watched");
        }
    }

    /// Applies one answer, and puts the task back where there is more to do.
    fn finish(self: &Arc<Self>, task: Task, sent: Moment, answer: Option<Value>, soon: bool) {
        let now = Moment::now();
        let config = &task.cell.shared.config;
        let pause = |lease: Duration| if soon { SOON } else { SOON.max(lease / 12) };
        let unknown =
            matches!(&answer, Some(Value::ServerError(e)) if e.kind() == Some(ServerErrorKind::NoScript));
        if unknown {
            let again = Task { eval: true, ..task };
            return self.again(again, now);
        }
        match &task.what {
            What::Leave(leaving, _) => {
                let refused = matches!(&answer, Some(Value::ServerError(e))
                    if matches!(refused(e.clone().into()), Failure::Never(e) if e.kind() == ErrorKind::WrongKind));
                if matches!(answer, Some(Value::Array(_))) || refused {
                    return;
                }
                let due = now.after(pause(leaving.lease.min(config.lease)));
                self.again(task, due);
            }
            What::Tenure => {
                let renewal = match answer {
                    None => Renewal::Unanswered,
                    Some(Value::ServerError(e)) => match refused(e.into()) {
                        Failure::Never(e) if e.kind() == ErrorKind::WrongKind => Renewal::NotInside,
                        _ => Renewal::Failed,
                    },
                    Some(value) => requests::renewed(&value).unwrap_or(Renewal::Failed),
                };
                let mut core = task.cell.core.lock();
                let then = core.gate.renewed(task.owner, sent, renewal, now);
                let mut core = carry_out(&task.cell, core, then);
                let Some(tenure) = core.gate.look(task.owner).filter(|t| t.loss(now).is_none()) else {
                    return;
                };
                let (until, lease) = (tenure.valid_until, tenure.terms.lease);
                let done = matches!(renewal, Renewal::Left(_));
                let due =
                    if done { now.after(config.renew_every) } else { now.after(pause(lease)) }.min(until);
                core.set_due(task.owner, due);
                drop(core);
                if done {
                    let lag = sent.since(task.due);
                    task.cell.shared.watch.tell(|o| o.renewed(&task.cell.name, lag));
                    self.again(Task { due, eval: false, ..task }, due);
                } else {
                    self.again(task, due);
                }
            }
        }
    }

    /// The same task once more. One whose tenure ended meanwhile finds that out when it is due.
    fn again(self: &Arc<Self>, task: Task, due: Moment) {
        let cell = task.cell.clone();
        let task_owner = task.owner;
        if let What::Tenure = task.what {
            let mut core = cell.core.lock();
            if core.gate.look(task_owner).is_none() {
                return;
            }
            core.set_due(task_owner, due);
        }
        if let Err(error) = self.schedule(task, due) {
            tracing::error!(lock = cell.name, %error, "a lease is not renewed");
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

impl State {
    /// What is due, at most one batch a client.
    fn take_due(&mut self, now: Moment) -> Vec<Task> {
        let mut tasks = Vec::new();
        let mut taken: HashMap<u64, usize> = HashMap::new();
        while let Some(entry) = self.schedule.first_entry() {
            let (due, client, _) = *entry.key();
            let mine = taken.entry(client).or_insert(0);
            if due > now || *mine == BATCH {
                break;
            }
            *mine += 1;
            tasks.push(entry.remove());
        }
        tasks
    }
}

/// What goes to one server in one round.
struct Batch {
    tasks: Vec<(Task, Moment)>,
    bytes: Vec<u8>,
    answers: Vec<Option<Value>>,
    connection: Option<Connection>,
    /// There was a connection to begin with.
    connected: bool,
}

impl Batch {
    fn new() -> Self {
        Batch {
            tasks: Vec::new(),
            bytes: Vec::new(),
            answers: Vec::new(),
            connection: None,
            connected: false,
        }
    }

    fn push(&mut self, task: Task, request: Vec<u8>) {
        self.tasks.push((task, Moment::now()));
        self.bytes.extend(request);
        self.answers.push(None);
    }

    fn sent(&self) -> usize {
        if self.connected { self.tasks.len() } else { 0 }
    }

    fn send(&mut self, patience: Duration) {
        self.connected = self.connection.is_some();
        let now = Moment::now();
        for (_, sent) in &mut self.tasks {
            *sent = now;
        }
        if let Some(connection) = &mut self.connection {
            let sent = connection
                .set_write_timeout(Some(patience))
                .and_then(|()| connection.send_packed_command(&self.bytes));
            if sent.is_err() {
                self.connection = None;
            }
        }
    }

    /// Reads the answers until `limit`. One that does not come leaves the connection out of step,
    /// and with it goes whatever else was on it.
    fn receive(&mut self, limit: Moment) {
        for (i, answer) in self.answers.iter_mut().enumerate() {
            let Some(connection) = &mut self.connection else { return };
            let read = if i % READS == 0 {
                let left = limit.since(Moment::now()).max(Duration::from_millis(1));
                connection.set_read_timeout(Some(left))
            } else {
                Ok(())
            };
            match read.and_then(|()| connection.recv_response()) {
                Ok(value) => *answer = Some(value),
                Err(_) => self.connection = None,
            }
        }
    }
}
