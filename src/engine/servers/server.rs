//! One Redis server of a client, and what the client has there. The [route](crate::engine::servers::route) decides which
//! server has a key.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::{LatestMoment, Moment};
use crate::engine::hearing::inbox::Inbox;
use crate::engine::redis::backend::Backend;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::life::Life;
use crate::engine::redis::pool::Pools;
use crate::engine::redis::server_info::LastServer;
use crate::engine::redis::slots::Node;

/// A server, by its address. After a failover another machine may be there, which is detected by what it says
/// about itself. The [renewer](crate::engine::renewal::renewer) keeps a line for each server.
/// The threads that listen there keep it, and not its client.
pub(crate) struct Server {
    /// Unique among the servers of all clients of this process.
    pub(crate) id: u64,
    pub(crate) manager: ConnectionManager,
    /// The pool of connections.
    pub(crate) backend: Backend,
    /// The channel on which the client receives its grants, and its listener.
    pub(crate) inbox: Inbox,
    /// What the server last said about itself.
    pub(crate) known: LastServer,
    /// When another server was last found at its address, which can therefore be reached.
    pub(crate) found: LatestMoment,
    /// The threads that [listen for failovers](crate::engine::takeover), one for each sentinel.
    pub(crate) switchover: Vec<Life>,
    /// Its address in its cluster, if it is part of one.
    pub(crate) node: Option<Node>,
}

impl Server {
    /// Creates the server, which has the address `node` in its cluster, if it is part of one.
    pub(crate) fn new(manager: ConnectionManager, pools: &Pools, node: Option<Node>) -> Arc<Server> {
        static SERVERS: AtomicU64 = AtomicU64::new(0);
        let sentinels = manager.sentinels.as_ref().map_or(0, |sentinels| sentinels.named().1.len());
        Arc::new(Server {
            switchover: (0..sentinels).map(|_| Life::default()).collect(),
            id: SERVERS.fetch_add(1, Ordering::Relaxed),
            backend: Backend::new(pools, manager.clone()),
            manager,
            inbox: Inbox::default(),
            known: LastServer::default(),
            found: LatestMoment::default(),
            node,
        })
    }

    /// Whether both have the same data, as far as their addresses and what is known of the servers there tell.
    pub(crate) fn is_same(&self, other: &Server) -> bool {
        let one_run = || self.known.run_id().is_some_and(|id| other.known.run_id() == Some(id));
        self.manager.leads_where(&other.manager) || self.manager.db() == other.manager.db() && one_run()
    }

    /// Tells its threads to end, which they do within a tick.
    pub(crate) fn stop(&self) {
        self.inbox.life.stop();
        self.switchover.iter().for_each(|life| life.stop());
    }

    /// Waits for them to end, until `limit` at most. Returns whether they have.
    pub(crate) fn wait_for_end(&self, limit: Moment) -> bool {
        self.switchover.iter().chain([&self.inbox.life]).all(|life| life.wait_for_end(limit))
    }
}
