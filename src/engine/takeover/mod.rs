//! When another server takes over: who asks it, and what becomes of the holds.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entries::runtime::Shared;
use crate::engine::operations::effects::carry_out;
use crate::engine::redis::life::Life;
use crate::engine::redis::sentinels::SentinelClient;
use crate::engine::redis::slots::Node;
use crate::engine::redis::subscriber::{PING_AFTER, Pushed, Subscriber};
use crate::engine::renewal::successor;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::error::Error;

/// The pause after a sentinel could not be listened to, or not any longer: the others are heard meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// Makes this client follow the changes of its cluster, if it has one.
pub(crate) fn keep_up(shared: &Arc<Shared>) {
    if let Route::Cluster(cluster) = &shared.route {
        let shared = Arc::downgrade(shared);
        let _ = cluster.on_move.set(Box::new(move |slots| moved(&shared, slots)));
    }
}

/// These slots have moved. Renews the holds there at once, as a promoted replica may not know the most recent ones: a loss
/// is reported within a round trip. Waiters ask there at once, too, and not only at their next heartbeat.
fn moved(shared: &Weak<Shared>, slots: &[bool]) {
    let Some(shared) = shared.upgrade() else { return };
    let entries = shared.entries.lock().all();
    for entry in entries.iter().filter(|entry| slots[entry.hash_slot.index()]) {
        let mut core = entry.core.lock();
        let now = Moment::now();
        successor::renew(entry, &mut core, now, |_, _| true);
        let then = core.lock_state.ask_again(now);
        carry_out(entry, core, then);
    }
}

/// Starts the threads, if the client finds a server by sentinels.
///
/// # Errors
/// `Unavailable` if this process cannot start a thread.
pub(crate) fn watch(shared: &Arc<Shared>) -> Result<(), Error> {
    shared.route.servers().iter().try_for_each(|server| {
        let Some(sentinels) = &server.manager.sentinels else { return Ok(()) };
        server.switchover.iter().enumerate().try_for_each(|(node, life)| {
            life.start("rc-sentinel", || {
                let (shared, server, sentinels) = (Arc::downgrade(shared), server.clone(), sentinels.clone());
                let watch = SentinelWatch { shared, server, sentinels, node };
                move || watch.run()
            })
        })
    })
}

/// Listens for the failovers that one sentinel announces: a thread and a connection for each sentinel of a client,
/// for as long as the client lives. (Sentinels learn of a failover at different times: clients that each listened
/// to a single one would use two primaries in the meantime.)
///
/// A server that crashed, or that says that it is a replica, is noticed without this. A server that was suspended
/// while another was promoted is not: when it resumes, it believes for seconds that it is still the primary, and
/// grants locks. So once a failover is known, connections from before are no longer used, and the holds from before
/// are renewed at once: the new primary reports whether it knows them.
struct SentinelWatch {
    /// Weak: the thread does not keep its client alive.
    shared: Weak<Shared>,
    server: Arc<Server>,
    sentinels: Arc<SentinelClient>,
    /// The sentinel that it listens to.
    node: usize,
}

impl SentinelWatch {
    fn run(self) {
        let mut known = None;
        while self.goes_on() {
            if let Some((mut line, place)) = self.sentinels.subscribe(self.node, PING_AFTER) {
                // A failover may have happened while nobody listened.
                self.is_at(place, &mut known);
                self.listen(&mut line, &mut known);
            }
            self.life().sleep(PAUSE);
        }
        self.life().ended();
    }

    fn life(&self) -> &Life {
        &self.server.switchover[self.node]
    }

    fn goes_on(&self) -> bool {
        !self.life().is_stopped() && self.shared.strong_count() > 0
    }

    /// Receives messages until the connection fails or the client ends.
    fn listen(&self, line: &mut Subscriber, known: &mut Option<Node>) {
        while self.goes_on()
            && let Ok(pushed) = line.next()
        {
            if let Some(Pushed::Message { channel, text }) = pushed
                && let Some(place) = self.sentinels.moved(&channel, &text)
            {
                self.is_at(place, known);
            }
        }
    }

    /// A sentinel says that the primary is at `place`. If that is news, connections from before are no longer
    /// used, and all holds are renewed.
    fn is_at(&self, place: Node, known: &mut Option<Node>) {
        let before = known.replace(place.clone());
        if !self.sentinels.is_news(before.as_ref(), &place) {
            return;
        }
        let Some(shared) = self.shared.upgrade() else { return };
        tracing::info!(primary = %place, "a sentinel reports a new primary");
        self.server.backend.moved.put(Moment::now());
        self.server.inbox.life.wake();
        successor::renew_all(&shared, &self.server);
    }
}
