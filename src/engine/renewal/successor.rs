//! Renewing holds that another server may never have seen.
//!
//! The server that a client reaches after a failover or a restart may not know the most recent grants, and
//! after a restart without data knows none: it may grant the lock to others at once. So as soon as a new
//! connection leads to another server than those before it, every hold there is renewed, and a loss is
//! reported within a round trip. Otherwise a lost hold would be considered valid until its next renewal, for
//! a third of its lease.

use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::entries::entry::{Core, LockEntry};
use crate::engine::entries::runtime::Shared;
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::servers::server::Server;

/// Checks what the server at the end of a new connection said about itself. If it is another than before,
/// renews all holds there.
pub(crate) fn connected(shared: &Arc<Shared>, server: &Arc<Server>, info: &ServerInfo) {
    if let Some(last_reply) = server.known.is_another(info, Moment::now()) {
        // Connections from before then lead to the former server, which may never reply.
        server.backend.moved.put(last_reply);
        renew_all(shared, server);
    }
}

/// Returns whether it is known which server this is. If not, asks it, and blocks until `limit` at most.
pub(crate) fn identified(shared: &Arc<Shared>, server: &Arc<Server>, limit: Moment) -> bool {
    if server.known.run_id().is_none()
        && let Ok(info) = server.backend.command(&redis::cmd("INFO"), limit)
    {
        connected(shared, server, &ServerInfo::read(&info, Moment::now()));
    }
    server.known.run_id().is_some()
}

/// Schedules a renewal of every grant at this server for now.
pub(crate) fn renew_all(shared: &Arc<Shared>, server: &Arc<Server>) {
    server.found.put(Moment::now());
    for entry in &shared.entries_at(server) {
        renew(entry, &mut entry.core.lock(), Moment::now(), |_, _| true);
    }
}

/// Schedules a renewal by `due` of those grants of this lock for whose owner `which` returns true.
pub(crate) fn renew(entry: &Arc<LockEntry>, core: &mut Core, due: Moment, which: fn(&Core, u64) -> bool) {
    let now = Moment::now();
    for owner in core.lock_state.renewed_owners() {
        // A grant that is not scheduled yet is about to be.
        let Some(planned) = core.due(owner).filter(|_| which(core, owner)) else { continue };
        // No later than its planned look, which need not be a renewal. (An overdue renewal may be in flight,
        // to the former server.)
        let due = if planned <= now { now } else { planned.min(due) };
        if let Err(error) = entry.shared.renewer.plan(entry, core, owner, now, due) {
            tracing::error!(lock = entry.name(), error = %format_args!("{error:#}"), "a lease is not renewed");
        }
    }
}
