//! Holds that another server may never have seen.
//!
//! What was granted shortly before a failover, or a restart, may not be known to the server that a client
//! reaches afterwards: it may grant the lock to others at once. So as soon as a new connection leads to
//! another server than those before it, whatever was written shortly before is renewed, and a loss is
//! reported within a round trip. Without that the hold would be believed until its next renewal, for a third
//! of its lease.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::runtime::Shared;
use crate::engine::server::Server;

/// How far a replica, or a file, may be behind.
const YOUNG: Duration = Duration::from_secs(5);

/// A new connection of this client to `server` leads to one that said this. The one before it was last known to be
/// the primary, and to live, at `alive`.
pub(crate) fn connected(shared: &Arc<Shared>, server: &Arc<Server>, told: &ServerInfo, alive: Moment) {
    if server.known.is_another(told, Moment::now()) {
        renew(shared, server, alive.before(YOUNG));
    }
}

/// Makes every grant there be renewed at once that was written since then.
pub(crate) fn renew(shared: &Arc<Shared>, server: &Arc<Server>, since: Moment) {
    server.found.put(Moment::now());
    let entries = shared.entries.lock().all();
    for entry in entries.iter().filter(|entry| Arc::ptr_eq(entry.server(), server)) {
        let mut core = entry.core.lock();
        for owner in core.lock_state.written_since(since) {
            // One that is not watched is about to be.
            if core.due(owner).is_none() {
                continue;
            }
            let now = Moment::now();
            if let Err(error) = shared.renewer.look_at(entry, &mut core, owner, now, now) {
                tracing::error!(lock = entry.name(), error = %format_args!("{error:#}"), "a lease is not renewed");
            }
        }
    }
}
