//! One of the servers, and its recent health.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::client::Client;
use crate::clock::Moment;
use crate::engine::entries::runtime::Shared;
use crate::engine::redis::exchange::Reply;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::renewal::successor::connected;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::engine::state::grant::drift;
use crate::error::{Error, ErrorKind};
use crate::sync::{Mutex, thread};

/// The first and the longest pause between two probes of a server that did not reply.
const PROBE_PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// The tolerance in comparisons of reply times.
const JITTER: Duration = Duration::from_millis(1);

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

impl fmt::Debug for Voter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Voter {
    /// The server of a client that has exactly one.
    pub(super) fn new(client: &Client) -> Option<Voter> {
        let shared = client.shared().clone();
        let Route::One(server) = &shared.route else { return None };
        let (server, address) = (server.clone(), server.manager.address());
        Some(Voter { shared, server, address, health: Mutex::default() })
    }

    /// Why the server should not be waited for; `None` if it should.
    pub(super) fn away(&self) -> Option<Error> {
        self.health.lock().away.as_ref().map(|(error, _)| error.clone())
    }

    /// Why the server does not count yet for this lease, if that is known.
    pub(super) fn young(&self, lease: Duration, now: Moment) -> Option<Error> {
        young(self.health.lock().since?, lease, now)
    }

    /// Why the server that replied does not count: if it was not at its address for a whole lease, it may know
    /// nothing of what was granted to others there.
    pub(super) fn rejects(&self, server: Option<&ServerInfo>, lease: Duration, now: Moment) -> Option<Error> {
        let Some((server, up_since)) = server.and_then(|server| Some((server, server.up_since?))) else {
            let why = "the server does not report its uptime (INFO server)";
            return Some(Error::new(ErrorKind::Unavailable, "").because(why));
        };
        connected(&self.shared, &self.server, server);
        let since = self.server.known.serves_since(server.run_id.as_deref(), up_since, Moment::now());
        self.health.lock().since = Some(since);
        young(since, lease, now)
    }

    /// How long its replies usually take.
    pub(super) fn usual(&self) -> Duration {
        self.health.lock().usual
    }

    /// Whether the reply is not worth waiting for when others have replied within `elapsed`.
    pub(super) fn is_slow(&self, elapsed: Duration) -> bool {
        self.usual() > elapsed * 2 + JITTER
    }

    /// Records what became of a request that was sent at `sent`, for which the caller has waited since `awaited`.
    pub(super) fn record(self: &Arc<Self>, reply: &Result<Reply, Failure>, sent: Moment, awaited: Moment) {
        match reply {
            Err(Failure::Unsent(e) | Failure::Unanswered(e)) => self.failed(e.clone()),
            _ => self.answered(sent, awaited),
        }
    }

    /// Records a reply to a request sent at `sent`, for which the caller has waited since `awaited`. If the
    /// server was already away at `sent`, it was asked because there was no majority without it, and it is
    /// back: its grant is released there as usual.
    pub(super) fn answered(&self, sent: Moment, awaited: Moment) {
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
        let probing = thread::Builder::new().name("rc-probe".to_owned()).spawn(move || probe(&node));
        if let Err(error) = probing {
            tracing::error!(%error, "a thread that asks whether a server is back could not be started");
            *self.health.lock() = Health::default();
        }
    }

    /// Probes the server. Returns whether probing can end.
    fn is_back(&self) -> bool {
        {
            let mut health = self.health.lock();
            health.is_probed = health.away.is_some();
            if !health.is_probed {
                // An attempt got a reply in the meantime.
                return true;
            }
        }
        // As long as any caller would wait: otherwise a slow server would never be back.
        let limit = Moment::now().after(self.shared.config.command_timeout);
        match self.server.backend.command(&redis::cmd("PING"), limit) {
            // An error reply is a reply.
            Err(failure) if !failure.is_final() => {
                let error = failure.error();
                let closed = error.kind() == ErrorKind::Closed;
                // An attempt may have got a reply in the meantime.
                if let Some((why, _)) = &mut self.health.lock().away {
                    *why = error;
                }
                closed
            }
            _ => {
                *self.health.lock() = Health::default();
                true
            }
        }
    }
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
