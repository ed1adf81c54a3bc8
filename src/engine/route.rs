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
//!   [young holds](super::renewal::young) are renewed at once. So a primary that sentinels name is one server, whose
//!   address is asked for at each connection: the route has no part in a failover. A request that the former primary
//!   refused goes out once more on a younger connection ([`Backend::send`](super::redis::backend::Backend::send)).
//!
//! What it may not do: wait, or ask Redis, as it is asked under an entry's mutex; touch an entry; drop a
//! server while its client lives. One that no key leads to any more is idle, and costs nothing.
//!
//! Requests about several locks are about those of one server each (`several`).

use std::slice;
use std::sync::Arc;

use super::server::Server;

/// The servers of one client, and which of them has which key.
pub(crate) enum Route {
    /// All keys are on one server.
    One(Arc<Server>),
}

impl Route {
    /// The server that has this key now. (The first part of a key in two is enough: it has the hash tag.)
    pub(crate) fn to(&self, _key: &[u8]) -> &Arc<Server> {
        match self {
            Route::One(server) => server,
        }
    }

    /// All of them.
    pub(crate) fn servers(&self) -> &[Arc<Server>] {
        match self {
            Route::One(server) => slice::from_ref(server),
        }
    }
}
