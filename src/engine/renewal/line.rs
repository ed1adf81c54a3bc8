//! A server's line: the thread that sends renewals and releases to it, and its requests in flight.
//!
//! The thread writes whatever is due, in pipelines of 64, and reads only when there is nothing more to write.
//! So as many requests are in flight as the due times require, however long a round trip takes. Their number
//! is bounded, as a side that writes more than the sockets' buffers hold does not read meanwhile.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};
use std::time::Duration;

use redis::Value;

use crate::clock::Moment;
use crate::engine::entries::runtime::Shared;
use crate::engine::operations::packed;
use crate::engine::redis::connection::{Connection, ConnectionManager};
use crate::engine::redis::refusal::{no_primary, not_connected, refused};
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::renewal::outcome::{Missing, RELEASE_AGAIN};
use crate::engine::renewal::renewer::Renewer;
use crate::engine::renewal::schedule::{BATCH, Task, What};
use crate::engine::renewal::successor;
use crate::engine::servers::server::Server;
use crate::error::{Error, ErrorKind};
use crate::observe::serves_holds;

/// The most requests in flight at once: some 2 MB of requests, 40 kB of replies.
pub(in crate::engine) const MAX_IN_FLIGHT: usize = 64 * BATCH;
/// How many replies are read before the timeout is set again.
const READS: usize = 16;

/// The thread of one server's line.
pub(in crate::engine) struct LineThread {
    renewer: Arc<Renewer>,
    id: u64,
    /// Weak: the pool ends with its client.
    server: Weak<Server>,
    manager: ConnectionManager,
    renewal_timeout: Duration,
    connection: Option<Connection>,
    /// Whether the connection leads to a server that is no longer the primary: no more is sent on it, and it
    /// is replaced.
    moved: bool,
    /// When the last attempt to connect failed, and when the next one may be made, unless a server is found
    /// at the address before.
    failed_at: Moment,
    connects_at: Moment,
    /// The batches in flight, in the order in which they were written.
    flights: VecDeque<Flight>,
    under_way: usize,
    /// When a reply last came.
    heard: Moment,
}

/// The requests of one write.
struct Flight {
    tasks: Vec<Task>,
    /// A time just before they were written.
    sent: Moment,
}

impl LineThread {
    pub(in crate::engine) fn new(
        renewer: Arc<Renewer>,
        server: &Arc<Server>,
        renewal_timeout: Duration,
    ) -> Self {
        LineThread {
            renewer,
            id: server.id,
            server: Arc::downgrade(server),
            manager: server.manager.clone(),
            renewal_timeout,
            connection: None,
            moved: false,
            failed_at: Moment::default(),
            connects_at: Moment::default(),
            flights: VecDeque::new(),
            under_way: 0,
            heard: Moment::default(),
        }
    }

    pub(in crate::engine) fn run(mut self) {
        serves_holds();
        while let Some((tasks, waiting)) = self.next() {
            if tasks.is_empty() {
                self.receive();
            } else {
                self.send(tasks, waiting);
            }
        }
    }

    /// Returns the tasks to write next, and how many wait behind them; no tasks if replies must be read
    /// first. Returns `None` if the client is gone, or has had no work for two periods.
    fn next(&mut self) -> Option<(Vec<Task>, usize)> {
        let renewer = self.renewer.clone();
        let mut state = renewer.state.lock();
        let mut idle_until = None;
        while let Some(line) = state.lines.get_mut(&self.id) {
            self.connection = self.connection.take().or_else(|| line.connection.take());
            if self.flights.is_empty() {
                self.moved = false;
            }
            if !line.queue.is_empty() && self.under_way < MAX_IN_FLIGHT && !self.moved {
                let batch = line.queue.len().min(BATCH);
                return Some((line.queue.drain(..batch).collect(), line.queue.len()));
            }
            if !self.flights.is_empty() {
                return Some((Vec::new(), line.queue.len()));
            }
            let now = Moment::now();
            let until = *idle_until.get_or_insert_with(|| now.after(line.renew_every * 2));
            if until <= now {
                line.connection = self.connection.take();
                break;
            }
            let work = line.work.clone();
            match until.instant() {
                Some(instant) => drop(work.wait_until(&mut state, instant)),
                None => work.wait(&mut state),
            }
        }
        state.served.remove(&self.id);
        renewer.ended.notify_all();
        None
    }

    /// Writes one batch, whose replies are read later. If the line cannot have a connection of its own, uses
    /// an idle one of the client's pool, and reads the replies at once.
    fn send(&mut self, tasks: Vec<Task>, waiting: usize) {
        let first = tasks.first().map(|task| task.entry.shared.clone());
        let (Some(shared), Some(server)) = (first, self.server.upgrade()) else { return };
        if self.connection.as_ref().is_some_and(|it| !it.is_since(server.backend.moved())) {
            self.broke();
        }
        let refusal = self.connect(&shared, &server).err();
        let mut bytes = Vec::new();
        for task in &tasks {
            match &task.what {
                What::Grant => {
                    packed::pack_renew(&mut bytes, &task.entry, task.owner, task.lease, task.eval);
                }
                What::Leave(leave) => packed::pack_leave(&mut bytes, &task.entry, &leave.0, task.eval),
            }
        }
        let requests = tasks.len();
        let flight = Flight { tasks, sent: Moment::now() };
        if let Some(connection) = &mut self.connection {
            let written = connection.write(&bytes);
            self.under_way += requests;
            self.flights.push_back(flight);
            if written.is_err() {
                self.broke();
            }
        } else if let Some(mut lent) = server.backend.idle() {
            // An error shows up when the replies are read.
            let _ = lent.write(&bytes);
            let answers = flight.answers(&mut lent, flight.sent.after(self.renewal_timeout));
            answers.iter().for_each(|answer| lent.check_role(answer));
            drop(lent);
            flight.finish(&self.renewer, answers);
        } else {
            let why = refusal.unwrap_or_else(|| Error::new(ErrorKind::Unavailable, ""));
            for task in flight.tasks {
                self.renewer.finish(task, flight.sent, Err(Missing::Unsent(why.clone())));
            }
            return;
        }
        server.backend.count(requests);
        let load = self.under_way.max(requests) + waiting;
        shared.observers.tell_often_apart(move |o| o.renewal_load(load, MAX_IN_FLIGHT));
    }

    /// Makes sure that there is a connection. After a failed attempt, the next one is made only after a
    /// pause.
    fn connect(&mut self, shared: &Arc<Shared>, server: &Arc<Server>) -> Result<(), Error> {
        let no_connection = || Error::new(ErrorKind::Unavailable, "").because("no connection for renewals");
        if self.connection.is_some() {
            return Ok(());
        }
        let now = Moment::now();
        if now < self.connects_at && server.found.get() <= self.failed_at {
            return Err(no_connection());
        }
        let connection = self.manager.apart().and_then(|mut connection| {
            connection.limit_writes_to(self.renewal_timeout)?;
            connection.limit_to(Moment::now().after(self.renewal_timeout));
            let told = connection.link.request(&ServerInfo::request())?;
            Ok((connection, ServerInfo::read(&told, Moment::now())))
        });
        match connection {
            Ok((connection, told)) => {
                self.connection = Some(connection);
                successor::connected(shared, server, &told);
                Ok(())
            }
            Err(error) => {
                shared.route.lost(server, Moment::now().after(self.renewal_timeout));
                (self.failed_at, self.connects_at) =
                    (now, Moment::now().after(self.renewal_timeout.min(RELEASE_AGAIN) / 2));
                Err(no_connection().caused_by(not_connected(error).error()))
            }
        }
    }

    /// Reads the replies to the batch that was written first.
    fn receive(&mut self) {
        let (Some(flight), Some(connection)) = (self.flights.pop_front(), &mut self.connection) else {
            return;
        };
        self.under_way -= flight.tasks.len();
        // As long as replies come, the next ones are on their way: so the timeout counts from the last ones.
        let answers = flight.answers(connection, flight.sent.max(self.heard).after(self.renewal_timeout));
        self.heard = Moment::now();
        let server = self.server.upgrade();
        if server.as_ref().is_some_and(|server| !connection.is_since(server.backend.moved())) {
            // Its successor may not know the leases that it has extended.
            flight.finish(&self.renewer, Vec::new());
            return self.broke();
        }
        let broken = connection.is_broken();
        if let Some(server) = server {
            if answers.iter().any(|answer| no_primary(answer).is_some()) {
                self.moved = true;
                server.backend.refuses(flight.sent);
                server.inbox.is_deaf(flight.sent);
            } else if !answers.is_empty() {
                server.known.heard(self.heard);
            }
            self.learn(&server, &flight, &answers);
        }
        flight.finish(&self.renewer, answers);
        if broken {
            self.broke();
        } else if self.moved && self.flights.is_empty() {
            self.connection = None;
        }
    }

    /// Learns from replies which say that their keys are elsewhere. After a failover all keys are. To learn
    /// of each slot by its own renewal would cost a pass over all holds each time, so the whole map is asked
    /// for.
    fn learn(&self, server: &Server, flight: &Flight, answers: &[Value]) {
        let mut caught_up = false;
        for (task, answer) in flight.tasks.iter().zip(answers) {
            let Value::ServerError(e) = answer else { continue };
            let route = &task.entry.shared.route;
            if route.learn(server, &refused(e.clone().into())) && !caught_up {
                // Not for long: the replies that were read are applied only afterwards.
                route.catch_up(Moment::now().after(self.renewal_timeout / 8));
                caught_up = true;
            }
        }
    }

    /// Drops the connection, which is out of step. The requests in flight on it count as unanswered.
    fn broke(&mut self) {
        self.connection = None;
        self.under_way = 0;
        for flight in std::mem::take(&mut self.flights) {
            flight.finish(&self.renewer, Vec::new());
        }
    }
}

impl Flight {
    /// Reads the replies until `limit`, up to the first that does not come.
    fn answers(&self, connection: &mut Connection, limit: Moment) -> Vec<Value> {
        let mut answers = Vec::with_capacity(self.tasks.len());
        for i in 0..self.tasks.len() {
            if i % READS == 0 {
                connection.limit_to(limit);
            }
            match connection.read() {
                Ok(value) => answers.push(value),
                Err(_) => break,
            }
        }
        answers
    }

    fn finish(self, renewer: &Arc<Renewer>, answers: Vec<Value>) {
        let answers = answers.into_iter().map(Ok).chain(std::iter::repeat_with(|| Err(Missing::Unanswered)));
        for (task, answer) in self.tasks.into_iter().zip(answers) {
            renewer.finish(task, self.sent, answer);
        }
    }
}
