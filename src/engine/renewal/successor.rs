//! Holds that another server may never have seen.
//!
//! The server that a client reaches after a failover or a restart may not know what was granted shortly before, and
//! after a restart without data knows nothing: it may grant the lock to others at once. So as soon as a new connection
//! leads to another server than those before it, every hold there is renewed, and a loss is reported within a round
//! trip. Without that the hold would be believed until its next renewal, for a third of its lease.

use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::entry::{Core, LockEntry};
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::runtime::Shared;
use crate::engine::server::Server;

/// A new connection of this client to `server` leads to one that said this.
pub(crate) fn connected(shared: &Arc<Shared>, server: &Arc<Server>, told: &ServerInfo) {
    if let Some(heard) = server.known.is_another(told, Moment::now()) {
        // What was connected by then led to the one before it, and may be silent for ever.
        server.backend.moves(heard);
        renew_all(shared, server);
    }
}

/// Makes every grant at this server be renewed at once.
pub(crate) fn renew_all(shared: &Arc<Shared>, server: &Arc<Server>) {
    server.found.put(Moment::now());
    let entries = shared.entries.lock().all();
    for entry in entries.iter().filter(|entry| Arc::ptr_eq(entry.server(), server)) {
        renew(entry, &mut entry.core.lock(), Moment::now(), |_, _| true);
    }
}

/// Makes those grants of this lock be renewed by `due` of which `which` says so, by their owner.
pub(crate) fn renew(entry: &Arc<LockEntry>, core: &mut Core, due: Moment, which: fn(&Core, u64) -> bool) {
    let now = Moment::now();
    for owner in core.lock_state.renewed_owners() {
        // One that is not watched is about to be.
        let Some(planned) = core.due(owner).filter(|_| which(core, owner)) else { continue };
        // No later than it would be looked at, which need not be a renewal. (What is overdue may be under way, and to the
        // server from before.)
        let due = if planned <= now { now } else { planned.min(due) };
        if let Err(error) = entry.shared.renewer.look_at(entry, core, owner, now, due) {
            tracing::error!(lock = entry.name(), error = %format_args!("{error:#}"), "a lease is not renewed");
        }
    }
}
