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
use crate::engine::operations::commands;
use crate::engine::redis::connection::Connection;
use crate::engine::redis::exchange::{Command, write_each};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::life::pause_after;
use crate::engine::redis::refusal::{not_connected, refused};
use crate::engine::renewal::outcome::{RELEASE_AGAIN, SOON, no_reply};
use crate::engine::renewal::renewer::Renewer;
use crate::engine::renewal::schedule::{BATCH, Task, TaskKind};
use crate::engine::renewal::successor;
use crate::engine::servers::server::Server;
use crate::error::{Error, ErrorKind};
use crate::observe::serves_holds;

/// The most requests in flight at once: some 2 MB of requests, 40 kB of replies.
pub(crate) const MAX_IN_FLIGHT: usize = 64 * BATCH;

/// Tasks whose requests were written together.
struct Flight {
    tasks: Vec<Task>,
    /// A time just before that.
    sent: Moment,
}

/// Tasks with their replies; `None` is one that did not come.
type Replies = Vec<(Task, Option<Value>)>;

/// The thread of one server's line.
pub(crate) struct LineThread {
    renewer: Arc<Renewer>,
    id: u64,
    /// Weak: the pool ends with its client.
    server: Weak<Server>,
    renewal_timeout: Duration,
    /// If its server is no longer the primary, no more is sent on it, and it is replaced once all is read.
    connection: Option<Connection>,
    /// When the last attempt to connect failed, and when the next one may be made, unless a server is found
    /// at the address before.
    failed_at: Moment,
    connects_at: Moment,
    /// The pause after the last connection that broke, and when it is over.
    pause: (Duration, Moment),
    /// The batches in flight, in the order in which they were written.
    flights: VecDeque<Flight>,
    /// When a reply last came.
    last_reply: Moment,
}

impl LineThread {
    pub(crate) fn new(renewer: Arc<Renewer>, server: &Arc<Server>, renewal_timeout: Duration) -> Self {
        LineThread {
            renewer,
            id: server.id,
            server: Arc::downgrade(server),
            renewal_timeout,
            connection: None,
            failed_at: Moment::default(),
            connects_at: Moment::default(),
            pause: Default::default(),
            flights: VecDeque::new(),
            last_reply: Moment::default(),
        }
    }

    pub(crate) fn run(mut self) {
        serves_holds();
        while let Some((tasks, waiting)) = self.next() {
            let reads = tasks.is_empty() || waiting == 0;
            self.send(tasks, waiting);
            if reads {
                self.receive();
            }
        }
    }

    /// Returns the tasks to write next, and how many wait behind them; no tasks if replies must be read
    /// first. Returns `None` if the client is gone, or has had no work for two periods.
    fn next(&mut self) -> Option<(Vec<Task>, usize)> {
        let mut state = self.renewer.state.lock();
        let mut idle_until = None;
        while let Some(line) = state.lines.get_mut(&self.id) {
            if self.connection.is_none() {
                self.connection = line.connection.take();
            }
            let pauses = self.connection.is_none() && Moment::now() < self.pause.1;
            let demoted = !self.flights.is_empty() && self.connection.as_ref().is_some_and(|it| it.demoted);
            if !line.queue.is_empty() && !pauses && self.under_way() < MAX_IN_FLIGHT && !demoted {
                let batch = line.queue.len().min(BATCH);
                return Some((line.queue.drain(..batch).collect(), line.queue.len()));
            }
            if !self.flights.is_empty() {
                return Some((Vec::new(), line.queue.len()));
            }
            let now = Moment::now();
            let idle_until = *idle_until.get_or_insert_with(|| now.after(line.renew_every * 2));
            let until = if line.queue.is_empty() { idle_until } else { self.pause.1 };
            if until <= now {
                line.connection = self.connection.take();
                break;
            }
            let work = line.work.clone();
            until.wait_on(&work, &mut state);
        }
        state.served.remove(&self.id);
        self.renewer.ended.notify_all();
        None
    }

    /// Writes one batch, whose replies are read later. If the line cannot have a connection of its own, uses
    /// an idle one of the client's pool, and reads the replies at once.
    fn send(&mut self, tasks: Vec<Task>, waiting: usize) {
        let first = tasks.first().map(|task| task.entry.shared.clone());
        let (Some(shared), Some(server)) = (first, self.server.upgrade()) else { return };
        if self.connection.as_ref().is_some_and(|it| !it.is_since(server.backend.moved.get())) {
            self.broke();
        }
        let connected = self.connect(&shared, &server);
        let (requests, sent) = (tasks.len(), Moment::now());
        if let Err(refusal) = connected {
            let Some(mut lent) = server.backend.idle() else {
                for task in tasks {
                    self.renewer.finish(task, Moment::now(), Err(Failure::Unsent(refusal.clone())));
                }
                return;
            };
            write_each(&mut lent, tasks.iter().map(command));
            self.finish(read(&mut lent, tasks, sent.after(self.renewal_timeout)), sent);
        } else if let Some(connection) = &mut self.connection {
            write_each(connection, tasks.iter().map(command));
            self.flights.push_back(Flight { tasks, sent });
            if connection.broken {
                self.broke();
            }
        }
        server.backend.count(requests);
        let load = self.under_way().max(requests) + waiting;
        shared.observers.tell_often_apart(move |o| o.renewal_load(load, MAX_IN_FLIGHT));
    }

    /// Makes sure that there is a connection. After a failed attempt, the next one is made only after a
    /// pause.
    fn connect(&mut self, shared: &Arc<Shared>, server: &Arc<Server>) -> Result<(), Error> {
        let no_connection = || ErrorKind::Unavailable.because("no connection for renewals");
        if self.connection.is_some() {
            return Ok(());
        }
        let now = Moment::now();
        if now < self.connects_at && server.found.get() <= self.failed_at {
            return Err(no_connection());
        }
        let connection = server.manager.apart().and_then(|mut connection| {
            connection.opened()?.set_write_timeout(Some(self.renewal_timeout))?;
            let info = connection.identify(Moment::now().after(self.renewal_timeout))?;
            Ok((connection, info))
        });
        match connection {
            Ok((connection, info)) => {
                self.connection = Some(connection);
                successor::connected(shared, server, &info);
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
        let (Some(Flight { tasks, sent }), Some(connection)) =
            (self.flights.pop_front(), &mut self.connection)
        else {
            return;
        };
        // As long as replies come, the next ones are on their way: so the timeout counts from the last ones.
        let limit = sent.max(self.last_reply).after(self.renewal_timeout);
        let mut replies = read(connection, tasks, limit);
        self.last_reply = Moment::now();
        let (broken, demoted) = (connection.broken, connection.demoted);
        let server = self.server.upgrade();
        let replaced = server.as_ref().is_some_and(|server| !connection.is_since(server.backend.moved.get()));
        if replaced {
            // Its successor may not know the leases that it has extended.
            replies.iter_mut().for_each(|(_, reply)| *reply = None);
            self.finish(replies, sent);
            return self.broke();
        }
        if let Some(server) = server {
            if demoted {
                server.backend.refused.put(sent);
                server.inbox.is_deaf(sent);
            } else if replies.iter().any(|(_, reply)| reply.is_some()) {
                server.known.replied(self.last_reply);
            }
            self.learn(&server, &replies);
        }
        self.finish(replies, sent);
        if broken {
            self.broke();
        } else if demoted && self.flights.is_empty() {
            self.connection = None;
        }
    }

    fn finish(&self, replies: Replies, sent: Moment) {
        for (task, reply) in replies {
            self.renewer.finish(task, sent, reply.ok_or_else(|| Failure::Unanswered(no_reply())));
        }
    }

    /// The number of requests in flight.
    fn under_way(&self) -> usize {
        self.flights.iter().map(|flight| flight.tasks.len()).sum()
    }

    /// Learns from replies which say that their keys are elsewhere. After a failover all keys are. To learn
    /// of each slot by its own renewal would cost a pass over all holds each time, so the whole map is asked
    /// for.
    fn learn(&self, server: &Server, replies: &Replies) {
        let mut caught_up = false;
        for (task, reply) in replies {
            let Some(Value::ServerError(e)) = reply else { continue };
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
        if let Some(connection) = self.connection.take().filter(|it| it.broken) {
            let (now, longest) = (Moment::now(), self.renewal_timeout.min(RELEASE_AGAIN) / 2);
            let pause = pause_after(now.since(connection.by().dialled), self.pause.0.max(SOON), longest);
            self.pause = (pause, now.after(pause));
        }
        for Flight { tasks, sent } in std::mem::take(&mut self.flights) {
            self.finish(tasks.into_iter().map(|task| (task, None)).collect(), sent);
        }
    }
}

/// Reads the replies until `limit`, up to the first that does not come.
fn read(connection: &mut Connection, tasks: Vec<Task>, limit: Moment) -> Replies {
    let reply = |task| (task, if connection.broken { None } else { connection.read(limit).ok() });
    tasks.into_iter().map(reply).collect()
}

/// What is sent for a task.
fn command(task: &Task) -> Command<'_> {
    match &task.what {
        TaskKind::Leave(leaving) => commands::leave_alone(&task.entry, leaving),
        _ => commands::renew(&task.entry, task.owner, task.lease, false),
    }
}
