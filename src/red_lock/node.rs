//! One of the servers, its recent health, and one exchange with all of them: every command is written before any
//! reply is waited for.

use std::slice;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::client::Client;
use crate::clock::Moment;
use crate::engine::entries::runtime::Shared;
use crate::engine::redis::exchange::{Command, Posted, Reply};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::renewal::successor::connected;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::engine::state::grant::drift;
use crate::error::{Error, ErrorKind};
use crate::sync::{Mutex, spawn, thread};

/// The first and the longest pause between two probes of a server that did not reply.
const PROBE_PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// For how long a reply is read at least: servers are waited for one after another, so what the last one has replied is
/// read even if the first took all of the time.
const GRACE: Duration = Duration::from_millis(2);
/// The tolerance in comparisons of reply times.
pub(super) const JITTER: Duration = Duration::from_millis(1);

/// One of the servers.
pub(super) struct Voter {
    pub(super) shared: Arc<Shared>,
    /// The only server of the client.
    pub(super) server: Arc<Server>,
    pub(super) address: String,
    health: Mutex<Health>,
}

#[derive(Default)]
struct Health {
    /// Why the server should not be waited for, and since when; `None` if it should.
    away: Option<(Error, Moment)>,
    /// Whether a thread probes the server.
    is_probed: bool,
    /// Since when the server has been there, by its last reply.
    since: Option<Moment>,
    /// How long its replies usually take.
    usual: Duration,
}

shows!(Voter as "Voter", |it| "address": it.address);

impl Voter {
    /// The server of a client, or why it cannot be one of several.
    pub(super) fn new(client: &Client) -> Result<Voter, &'static str> {
        let shared = client.shared().clone();
        let Route::One(server) = &shared.route else {
            return Err("is of several: the primaries of a Redis Cluster are not independent");
        };
        if server.manager.sentinels.is_some() {
            return Err(
                "follows the failovers of its sentinels: a replica that takes over has been up for long, and \
                        may not know what was granted",
            );
        }
        let (server, address) = (server.clone(), server.manager.address());
        Ok(Voter { shared, server, address, health: Mutex::default() })
    }

    /// How long its replies usually take; or why it is not asked, and whether it is if there is no majority without
    /// it. If it is to have been there for `lease`, it does not count before that.
    pub(super) fn usual(&self, lease: Option<Duration>, now: Moment) -> Result<Duration, (Error, bool)> {
        let health = self.health.lock();
        match (lease.zip(health.since).and_then(|(lease, since)| young(since, lease, now)), &health.away) {
            (Some(error), _) => Err((error, false)),
            (None, Some((error, _))) => Err((error.clone(), true)),
            (None, None) => Ok(health.usual),
        }
    }

    /// Why the server that replied does not count: if it was not at its address for a whole lease, it may know
    /// nothing of what was granted to others there.
    pub(super) fn rejects(&self, server: Option<&ServerInfo>, lease: Duration, now: Moment) -> Option<Error> {
        let Some(server) = server.filter(|it| it.run_id.is_some() || it.up_since.is_some()) else {
            let why = "the server does not report its uptime (INFO server)";
            return Some(ErrorKind::Unavailable.because(why));
        };
        connected(&self.shared, &self.server, server);
        let since = self.server.known.serves_since(server, Moment::now());
        self.health.lock().since = Some(since);
        young(since, lease, now)
    }

    /// Records a reply to a request sent at `sent`, for which the caller has waited since `awaited`. If the
    /// server was already away at `sent`, it was asked because there was no majority without it, and it is
    /// back: its grant is released there as usual.
    fn answered(&self, sent: Moment, awaited: Moment) {
        let now = Moment::now();
        let took = now.since(sent);
        let mut health = self.health.lock();
        health.away.take_if(|(_, since)| *since <= sent);
        if now.since(awaited) > JITTER {
            // The first reply is all that is known yet: a slow server should cost its time only once.
            let known = if health.usual.is_zero() { took } else { health.usual };
            health.usual = (known * 3 + took) / 4;
        } else {
            // The reply was there before it was read; for how long is not known.
            health.usual = health.usual.min(took);
        }
    }

    /// Records that the server has not replied in time: from now on it is not waited for until it replies
    /// again, to a probe of the thread started here or to an attempt that has no majority without it.
    pub(super) fn failed(self: &Arc<Self>, error: Error) {
        let mut health = self.health.lock();
        health.away = Some((error, Moment::now()));
        if std::mem::replace(&mut health.is_probed, true) {
            return;
        }
        drop(health);
        let node = Arc::downgrade(self);
        if let Err(error) = spawn("rc-probe", move || probe(&node)) {
            tracing::error!(error = %format_args!("{error:#}"), "nobody asks whether a server is back");
            *self.health.lock() = Health::default();
        }
    }

    /// Probes the server. Returns whether probing can end.
    fn is_back(&self) -> bool {
        {
            let mut health = self.health.lock();
            health.is_probed = health.away.is_some();
            if !health.is_probed {
                return true;
            }
        }
        // As long as any caller would wait: otherwise a slow server would never be back.
        let limit = Moment::now().after(self.shared.config.command_timeout);
        // By a script, as every lock is: a server that pauses writes replies to a `PING`.
        let reply = self.server.backend.command(redis::cmd("EVAL").arg("return 1").arg(0), limit);
        let mut health = self.health.lock();
        // An error reply is a reply.
        let Some(failure) = reply.err().filter(|failure| !failure.is_final()) else {
            *health = Health::default();
            return true;
        };
        let error = failure.error();
        let closed = error.kind() == ErrorKind::Closed;
        // An attempt may have got a reply in the meantime.
        health.away.iter_mut().for_each(|(why, _)| *why = error.clone());
        closed
    }
}

/// A request to a server.
pub(super) struct Query<'a> {
    pub(super) node: &'a Arc<Voter>,
    command: Command<'a>,
    /// `None` as long as there was no connection for it.
    pub(super) posted: Option<Posted>,
    /// Why it is not sent.
    away: Option<Error>,
}

impl<'a> Query<'a> {
    pub(super) fn new(node: &'a Arc<Voter>, command: Command<'a>) -> Self {
        Query { node, command, posted: None, away: None }
    }

    /// The same, written at once if there is a connection for it by `now`; but not to a server that is away.
    pub(super) fn sent(node: &'a Arc<Voter>, command: Command<'a>, now: Moment) -> Self {
        let away = node.usual(None, now).err().map(|(error, _)| error);
        let mut query = Query { away, ..Query::new(node, command) };
        query.post(now);
        query
    }

    /// Writes the request, unless it was written or is not sent, once there is a connection for it, by `limit`. Returns
    /// whether it did.
    pub(super) fn post(&mut self, limit: Moment) -> bool {
        let is_due = self.posted.is_none() && self.away.is_none();
        if is_due {
            self.posted = self.node.server.backend.post(slice::from_ref(&self.command), limit);
        }
        is_due && self.posted.is_some()
    }

    /// Waits for the reply until `deadline`. A server that does not reply is left out from now on, unless it
    /// `has_time`: others may wait longer.
    pub(super) fn read(&mut self, began: Moment, deadline: Moment, has_time: bool) -> Result<Reply, Failure> {
        if let Some(error) = self.away.take() {
            return Err(Failure::Unsent(error));
        }
        let (node, command, awaited) = (self.node, slice::from_ref(&self.command), Moment::now());
        let limit = deadline.max(awaited.after(GRACE));
        let exchanged = node.server.backend.exchange(self.posted.take(), command, limit);
        let reply = exchanged.and_then(|it| it.reply(command));
        match &reply {
            Err(Failure::Unsent(_) | Failure::Unanswered(_)) if has_time => {}
            Err(Failure::Unsent(e) | Failure::Unanswered(e)) => node.failed(e.clone()),
            _ => node.answered(began, awaited),
        }
        reply
    }
}

/// Writes those requests for which there has been no connection yet, by `deadline`. Reads the replies, as they are asked
/// for, each with what it is about.
pub(super) fn read_all<'a, T>(
    mut queries: Vec<(T, Query<'a>)>,
    began: Moment,
    deadline: Moment,
) -> impl Iterator<Item = (T, Result<Reply, Failure>)> + use<'a, T> {
    queries.iter_mut().for_each(|(_, query)| _ = query.post(deadline));
    queries.into_iter().map(move |(of, mut query)| (of, query.read(began, deadline, false)))
}

/// Why a server that has been there since then does not count: that is less than a whole lease ago.
fn young(since: Moment, lease: Duration, now: Moment) -> Option<Error> {
    let left = since.after(lease).after(drift(lease)).since(now);
    let why = || format!("it was started or replaced recently, and counts in {left:.1?}");
    (!left.is_zero()).then(|| Error::new(ErrorKind::Unavailable, "").because(why()))
}

/// Asks a server that was down again and again until it replies, or nobody needs it any more.
fn probe(node: &Weak<Voter>) {
    let [mut pause, longest] = PROBE_PAUSES;
    // While it is asked, only this keeps the node alive: at most for the timeout of that request.
    while node.upgrade().is_some_and(|node| !node.is_back()) {
        thread::sleep(pause);
        pause = (pause * 2).min(longest);
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/unit/red_lock/node.rs"]
mod tests;
