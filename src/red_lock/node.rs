//! One of the servers, and how it has been of late.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::client::Client;
use crate::clock::Moment;
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::runtime::Shared;
use crate::engine::state::grant::drift;
use crate::error::{Error, ErrorKind};
use crate::sync::{Mutex, thread};

/// The first pause before it is asked again, and the longest.
const PROBE_PAUSES: [Duration; 2] = [Duration::from_millis(10), Duration::from_millis(500)];
/// What a wait for an answer may be off by.
const JITTER: Duration = Duration::from_millis(1);

/// One of the servers.
pub(super) struct Node {
    pub(super) shared: Arc<Shared>,
    pub(super) address: String,
    health: Mutex<Health>,
    /// Cancelled when nobody has it any more.
    gone: CancellationToken,
}

#[derive(Default)]
struct Health {
    /// Why it is not to be waited for, if it is not.
    away: Option<Error>,
    /// Since when it has been up, if that was not for long when it was asked last.
    up_since: Option<Moment>,
    /// How long its answers take.
    usual: Duration,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl Node {
    pub(super) fn new(client: &Client) -> Node {
        let shared = client.shared().clone();
        let address = shared.manager.address();
        Node { shared, address, health: Mutex::default(), gone: CancellationToken::new() }
    }

    /// Why it is not to be waited for, if it is not.
    pub(super) fn away(&self) -> Option<Error> {
        self.health.lock().away.clone()
    }

    /// Why it does not count yet for this lease, if it is known that it does not.
    pub(super) fn young(&self, lease: Duration, now: Moment) -> Option<Error> {
        let old_at = old_at(self.health.lock().up_since?, lease);
        (old_at > now).then(|| young(old_at.since(now)))
    }

    /// Whether the server that answered has been up for a whole lease: else it may have forgotten what it
    /// granted to others.
    pub(super) fn counts(
        &self,
        server: Option<&ServerInfo>,
        lease: Duration,
        now: Moment,
    ) -> Result<(), Error> {
        let Some(up_since) = server.and_then(|server| server.up_since) else {
            let why = "it does not tell how long it has been up (INFO server)";
            return Err(Error::new(ErrorKind::Unavailable, "").because(why));
        };
        let old_at = old_at(up_since, lease);
        if old_at <= now {
            return Ok(());
        }
        self.health.lock().up_since = Some(up_since);
        Err(young(old_at.since(now)))
    }

    /// How long its answers take.
    pub(super) fn usual(&self) -> Duration {
        self.health.lock().usual
    }

    /// Whether its answer is not worth waiting for, when others have answered within `elapsed`.
    pub(super) fn is_slow(&self, elapsed: Duration) -> bool {
        self.usual() > elapsed * 2 + JITTER
    }

    /// It has answered what it was asked at `asked`, and was waited for since `awaited`.
    pub(super) fn answered(&self, asked: Moment, awaited: Moment) {
        let now = Moment::now();
        let took = now.since(asked);
        let mut health = self.health.lock();
        if now.since(awaited) > JITTER {
            // The first answer is all that is known: a slow server is to cost its time once.
            let known = if health.usual.is_zero() { took } else { health.usual };
            health.usual = (known * 3 + took) / 4;
        } else {
            // It was there before: how long, nobody saw.
            health.usual = health.usual.min(took);
        }
    }

    /// It has not answered in time: from now on it is not waited for, until a thread that ends with that has
    /// heard of it again.
    pub(super) fn failed(self: &Arc<Self>, error: Error) {
        if self.health.lock().away.replace(error).is_some() {
            return;
        }
        let (node, gone) = (Arc::downgrade(self), self.gone.clone());
        let probing = thread::Builder::new().name("rc-probe".to_owned()).spawn(move || probe(&node, &gone));
        if let Err(error) = probing {
            tracing::error!(%error, "a thread that asks whether a server is back could not be started");
            self.health.lock().away = None;
        }
    }

    /// Asks whether it is there. Returns whether that is known for good.
    fn is_back(&self) -> bool {
        // Not less than anybody would give it: one that is slow would never be back.
        let limit = Moment::now().after(self.shared.config.command_timeout);
        match self.shared.backend.command(&redis::cmd("PING"), limit) {
            // Refused is answered.
            Err(failure) if !failure.is_final() => {
                let error = failure.error();
                let closed = error.is_closed();
                self.health.lock().away = Some(error);
                closed
            }
            _ => {
                *self.health.lock() = Health::default();
                true
            }
        }
    }
}

/// When who has been up since then will have been for a whole lease.
fn old_at(up_since: Moment, lease: Duration) -> Moment {
    up_since.after(lease).after(drift(lease))
}

fn young(left: Duration) -> Error {
    let why = format!("it was started not long ago, and counts in {left:.1?}");
    Error::new(ErrorKind::Unavailable, "").because(why)
}

/// Asks a server that was away again and again until it answers.
fn probe(node: &Weak<Node>, gone: &CancellationToken) {
    let [mut pause, longest] = PROBE_PAUSES;
    // Nobody else keeps it alive while it is asked, at most for the limit of that.
    while node.upgrade().is_some_and(|node| !node.is_back()) && !gone.wait_timeout(pause) {
        pause = (pause * 2).min(longest);
    }
}
