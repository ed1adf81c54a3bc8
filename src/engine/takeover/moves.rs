//! What a client does when slots of its cluster have moved to another server, by a failover or a resharding.

use std::sync::{Arc, Weak};

use crate::clock::Moment;
use crate::engine::entries::runtime::Shared;
use crate::engine::operations::effects::carry_out;
use crate::engine::renewal::successor;
use crate::engine::servers::cluster::ClusterWatch;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;

/// Makes this client follow the changes of its cluster, if it has one.
pub(crate) fn keep_up(shared: &Arc<Shared>) {
    if let Route::Cluster(cluster) = &shared.route {
        cluster.watched_by(SlotMoves(Arc::downgrade(shared)));
    }
}

struct SlotMoves(Weak<Shared>);

impl ClusterWatch for SlotMoves {
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
