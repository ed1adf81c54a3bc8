//! Routing: from a key to the server that has it.
//!
//! The engine does not know how many servers there are. A lock's entry has no server of its own: for each
//! request, renewal and wait it asks the route, and does not keep the answer. So a key may move to another
//! server between any two requests without any entry being notified. The state machine knows nothing of
//! servers.
//!
//! What a route may do:
//!
//! - *Name another server for a key* from some time on, because its slot has moved or another node was
//!   promoted. Requests on their way to the former server are answered there. If that server refuses one
//!   because the key is elsewhere, it was not executed, so sending it to the new server makes no second copy.
//!   A renewal that was refused returns to the schedule, and goes into the line of the server that is named
//!   then. A waiter asks the new server at its next heartbeat at the latest; if that server does not know its
//!   queue position, it asks for another. A hold that the new server does not know is lost, as its renewal
//!   finds.
//! - *Add a server.* The renewer gets a line for it when the first entry holds there. Its listener is started
//!   when the first entry waits or holds there; when its inbox comes up, every entry of that server asks
//!   again.
//! - *Have a server's address change*, as with one primary and its replicas: server, inbox and line stay, and
//!   new connections lead elsewhere. [`LastServer`](crate::engine::redis::server_info::LastServer) detects that it is
//!   another one, and [all holds there](crate::engine::renewal::successor) are renewed at once. So a primary that
//!   sentinels name is one server, whose address is looked up for each connection: the route has no part in a
//!   failover. A request that the former primary refused is sent again on a more recent connection
//!   ([`exchange`](crate::engine::redis::exchange)).
//!
//! What it must not do: block or ask Redis, as it is called under an entry's mutex; touch an entry; drop a
//! server while its client lives. A server that no longer has any key is idle, and costs nothing.
//!
//! A route learns from the outcomes of requests. That is why requests go through [`Route::ask`], which
//! sends a request again if it was not executed and its key has moved.
//!
//! A request about several locks is about locks of one slot (`several`).

use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::redis::exchange::{Command, Reply};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::Given;
use crate::engine::redis::slots::Slot;
use crate::engine::servers::cluster::Cluster;
use crate::engine::servers::server::Server;

/// The servers of a client, and which of them has which key.
pub(crate) enum Route {
    /// All keys are on one server.
    One(Arc<Server>),
    /// Each key is on the primary of its slot.
    Cluster(Box<Cluster>),
}

impl Route {
    /// Returns the slot of a key, which decides where it is. (The first part of a key in two parts is enough:
    /// it has the hash tag.)
    pub(crate) fn slot(&self, key: &[u8]) -> Slot {
        match self {
            Route::One(_) => Slot::default(),
            Route::Cluster(_) => Slot::of(key),
        }
    }

    /// Returns the server that has the keys of this slot now.
    pub(crate) fn to(&self, slot: Slot) -> &Arc<Server> {
        match self {
            Route::One(server) => server,
            Route::Cluster(cluster) => cluster.to(slot),
        }
    }

    /// Sends commands about keys of this slot to the server that has them, until `limit` at most; on `connection` at
    /// first, if they must go behind what is unread there.
    pub(crate) fn ask(
        &self,
        slot: Slot,
        commands: &[Command<'_>],
        mut connection: Option<Given>,
        limit: Moment,
    ) -> Result<Reply, Failure> {
        let mut posted =
            |server: &Arc<Server>| connection.take().map(|it| server.backend.post_on(it, commands));
        let once = || commands.iter().any(|it| it.once);
        match self {
            Route::One(server) => server.backend.exchange(posted(server), commands, limit)?.reply(commands),
            Route::Cluster(cluster) => cluster.follow(slot, limit, once(), |server| {
                server.backend.exchange(posted(server), commands, limit)?.reply(commands)
            }),
        }
    }

    /// Learns from a failed request to this server that did not go through `ask`. Returns whether its keys
    /// are elsewhere, or are being moved. Sends nothing.
    pub(crate) fn learn(&self, server: &Server, failure: &Failure) -> bool {
        match self {
            Route::One(_) => false,
            Route::Cluster(cluster) => cluster.learn(server, failure).is_some(),
        }
    }

    /// Some keys were found to be at another server, and others may be, too. Brings the map up to date, until
    /// `limit` at most, unless another thread is doing so or did a moment ago.
    pub(crate) fn catch_up(&self, limit: Moment) {
        if let Route::Cluster(cluster) = self {
            cluster.refresh(limit, false);
        }
    }

    /// This server cannot be reached, and others may have its keys now. Asks them, until `limit` at most.
    /// Returns whether there may be others.
    pub(crate) fn lost(&self, server: &Server, limit: Moment) -> bool {
        let Route::Cluster(cluster) = self else { return false };
        cluster.doubt(server);
        cluster.refresh(limit, true);
        true
    }

    /// Returns whether any key may be at this server.
    pub(crate) fn leads_to(&self, server: &Server) -> bool {
        match self {
            Route::One(_) => true,
            Route::Cluster(cluster) => cluster.leads_to(server),
        }
    }

    /// Returns all servers.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        match self {
            Route::One(server) => vec![server.clone()],
            Route::Cluster(cluster) => cluster.servers(),
        }
    }

    /// No server is added from now on.
    pub(crate) fn end(&self) {
        if let Route::Cluster(cluster) = self {
            cluster.end();
        }
    }
}
