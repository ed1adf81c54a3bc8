//! What a client does when slots of its cluster have moved to another server, by a failover or a resharding.

use std::sync::{Arc, Weak};

use super::carry_out;
use super::cluster::Watch;
use super::renewal::successor;
use super::route::Route;
use super::runtime::Shared;
use super::server::Server;
use crate::clock::Moment;

/// Makes this client follow the changes of its cluster, if it has one.
pub(crate) fn keep_up(shared: &Arc<Shared>) {
    if let Route::Cluster(cluster) = &shared.route {
        cluster.watched_by(Moves(Arc::downgrade(shared)));
    }
}

struct Moves(Weak<Shared>);

impl Watch for Moves {
    fn added(&self, server: &Arc<Server>) {
        if let Some(shared) = self.0.upgrade().filter(|shared| !shared.is_closed()) {
            shared.has_server(server);
        }
    }

    /// Renews the holds there at once, as a promoted replica may not know the most recent ones: a loss is
    /// reported within a round trip. Waiters ask there at once, too, and not only at their next heartbeat.
    fn moved(&self, slots: &[bool]) {
        let Some(shared) = self.0.upgrade() else { return };
        let entries = shared.entries.lock().all();
        for entry in entries.iter().filter(|entry| slots[entry.hash_slot.index()]) {
            let mut core = entry.core.lock();
            let now = Moment::now();
            successor::renew(entry, &mut core, now, |_, _| true);
            let then = core.lock_state.ask_again(now);
            carry_out(entry, core, then);
        }
    }
}
