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

/// How far a replica, or a file, may be behind.
const YOUNG: Duration = Duration::from_secs(5);

/// A new connection of this client leads to the server that said this. The previous one was last known to be
/// the primary, and alive, at `alive`.
pub(crate) fn connected(shared: &Arc<Shared>, server: &ServerInfo, alive: Moment) {
    if shared.server.is_another(server, Moment::now()) {
        renew(shared, alive.before(YOUNG));
    }
}

/// Makes every grant be renewed at once that was written since then.
fn renew(shared: &Arc<Shared>, since: Moment) {
    let entries = shared.entries.lock().all();
    for entry in &entries {
        let mut core = entry.core.lock();
        for owner in core.lock_state.written_since(since) {
            // One that is not watched is about to be.
            if core.due(owner).is_none() {
                continue;
            }
            if let Err(error) = shared.renewer.watch(entry, &mut core, owner, Moment::now()) {
                tracing::error!(lock = &*entry.name, error = %format_args!("{error:#}"), "a lease is not renewed");
            }
        }
    }
}
