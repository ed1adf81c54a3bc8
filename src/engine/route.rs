//! From a key to the server that has it.
//!
//! The engine does not know how many servers there are. A lock's entry has no server: for each request, renewal and
//! wait it asks the route, and keeps nothing of the answer. So a key may change its server at any time between two
//! requests, and no entry has to be told; the state machine never learns of servers at all.
//!
//! What a route may do:
//!
//! - *Name another server for a key* from now on, because its slot has moved, or another node was promoted. What
//!   is on its way to the former server is answered there. If that server refuses it because the key is
//!   elsewhere, it was not carried out, so sending it to the new one makes no second copy. A renewal that was refused
//!   comes back to the schedule, and goes into the line of the server that is named then. A waiter asks there at its
//!   next heartbeat at the latest: a queue position that the new server does not know is asked for anew. A hold
//!   that it does not know is lost, as its renewal says.
//! - *Add a server.* First the renewer is given a line for it, then it may be named. Its listener is started when the
//!   first entry waits or holds there; when its inbox comes up, every entry of that server asks again.
//! - *Have a server's address change*, as with one primary and its replicas: server, inbox and line stay, and new
//!   connections lead elsewhere. [`LastServer`](super::redis::server_info::LastServer) sees that it is another one, and
//!   [all holds there](super::renewal::successor) are renewed at once. So a primary that sentinels name is one server, whose
//!   address is asked for at each connection: the route has no part in a failover. A request that the former primary
//!   refused goes out once more on a younger connection ([`Backend::send`](super::redis::backend::Backend::send)).
//!
//! What it may not do: wait, or ask Redis, as it is asked under an entry's mutex; touch an entry; drop a
//! server while its client lives. One that no key leads to any more is idle, and costs nothing.
//!
//! What a route learns it learns from the outcome of a request: so requests go by [`Route::follow`], which sends one
//! again if it was not carried out and its key is elsewhere by now.
//!
//! Requests about several locks are about those of one slot each (`several`).

use std::sync::Arc;

use super::cluster::{Cluster, Repeated};
use super::redis::backend::Idempotent;
use super::redis::failure::Failure;
use super::redis::slots::Slot;
use super::server::Server;
use crate::clock::Moment;

/// The servers of one client, and which of them has which key.
pub(crate) enum Route {
    /// All keys are on one server.
    One(Arc<Server>),
    /// Each is on the primary of its slot.
    Cluster(Box<Cluster>),
}

impl Route {
    /// What decides where a key is. (The first part of a key in two is enough: it has the hash tag.)
    pub(crate) fn slot(&self, key: &[u8]) -> Slot {
        match self {
            Route::One(_) => Slot::default(),
            Route::Cluster(_) => Slot::of(key),
        }
    }

    /// The server that has the keys of this slot now.
    pub(crate) fn to(&self, slot: Slot) -> &Arc<Server> {
        match self {
            Route::One(server) => server,
            Route::Cluster(cluster) => cluster.to(slot),
        }
    }

    /// Has `act` send a request about keys of this slot to the server that has them, until `limit` at most; and
    /// again, if it was not carried out (or there is no answer and two copies do no more than one), and they are at
    /// another server by now or on their way there.
    pub(crate) fn follow<T: Repeated>(
        &self,
        slot: Slot,
        limit: Moment,
        idempotent: Idempotent,
        mut act: impl FnMut(&Arc<Server>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        match self {
            Route::One(server) => act(server),
            Route::Cluster(cluster) => cluster.follow(slot, limit, idempotent, act),
        }
    }

    /// A request to this server, sent by another way, was not carried out: its keys may be elsewhere. Whether they
    /// are, or are on their way. Asks nobody.
    pub(crate) fn learn(&self, server: &Server, failure: &Failure) -> bool {
        match self {
            Route::One(_) => false,
            Route::Cluster(cluster) => cluster.learn(server, failure).is_some(),
        }
    }

    /// Some keys were found to be at another server, and others may be, too: what is known is brought up to date, until
    /// `limit` at most, unless another thread does that or did it a moment ago.
    pub(crate) fn catch_up(&self, limit: Moment) {
        if let Route::Cluster(cluster) = self {
            cluster.refresh(limit, false);
        }
    }

    /// This server cannot be reached: perhaps others have what was there. They are asked, until `limit` at most.
    /// Whether there are any.
    pub(crate) fn lost(&self, server: &Server, limit: Moment) -> bool {
        let Route::Cluster(cluster) = self else { return false };
        cluster.doubt(server);
        cluster.refresh(limit, true);
        true
    }

    /// Whether any key may be at this server.
    pub(crate) fn leads_to(&self, server: &Server) -> bool {
        match self {
            Route::One(_) => true,
            Route::Cluster(cluster) => cluster.leads_to(server),
        }
    }

    /// All of them.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        match self {
            Route::One(server) => vec![server.clone()],
            Route::Cluster(cluster) => cluster.servers(),
        }
    }

    /// No server is added any more.
    pub(crate) fn end(&self) {
        if let Route::Cluster(cluster) = self {
            cluster.end();
        }
    }
}
