//! One Redis server of a client, and what the client has there. Which server has a key is the [route](super::route)'s.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::inbox::Inbox;
use super::life::Life;
use super::redis::backend::Backend;
use super::redis::connection::ConnectionManager;
use super::redis::server_info::LastServer;
use super::redis::slots::Node;
use crate::clock::{LatestMoment, Moment};

/// A server, or what is at its address: after a failover this may be another machine, which is seen by what it says
/// about itself. The [renewer](super::renewal::renewer) keeps a line for each server.
pub(crate) struct Server {
    /// Tells the servers of all clients of this process apart.
    pub(crate) id: u64,
    pub(crate) manager: ConnectionManager,
    /// The pool.
    pub(crate) backend: Backend,
    /// Where the locks tell this client what it was granted.
    pub(crate) inbox: Arc<Inbox>,
    /// What is known of it.
    pub(crate) known: LastServer,
    /// When another server was last found to be at its address: it can be reached.
    pub(crate) found: LatestMoment,
    /// Of the threads that [hear of failovers](super::switchover), one for each sentinel.
    pub(super) switchover: Vec<Arc<Life>>,
    /// Its address in its cluster, if it is of one.
    pub(crate) node: Option<Node>,
}

impl Server {
    pub(crate) fn new(manager: ConnectionManager, backend: Backend) -> Arc<Server> {
        Server::at(manager, backend, None)
    }

    /// The server at this address of a cluster.
    pub(super) fn at(manager: ConnectionManager, backend: Backend, node: Option<Node>) -> Arc<Server> {
        static SERVERS: AtomicU64 = AtomicU64::new(0);
        let sentinels = manager.sentinels().map_or(0, |sentinels| sentinels.count());
        Arc::new(Server {
            switchover: (0..sentinels).map(|_| Arc::default()).collect(),
            id: SERVERS.fetch_add(1, Ordering::Relaxed),
            manager,
            backend,
            inbox: Arc::default(),
            known: LastServer::default(),
            found: LatestMoment::default(),
            node,
        })
    }

    /// Tells its threads to end; they do within a tick.
    pub(super) fn stop(&self) {
        self.inbox.life.stop();
        self.switchover.iter().for_each(|life| life.stop());
    }

    /// Waits for them to end, until `limit` at most.
    pub(super) fn wait_for_end(&self, limit: Moment) -> bool {
        self.switchover.iter().chain([&self.inbox.life]).all(|life| life.wait_for_end(limit))
    }
}
