//! The servers that have a client's locks: for what operators ask them besides locks.

use std::fmt;
use std::sync::Arc;

use redis::ConnectionInfo;

use crate::client::Client;
use crate::engine::redis::refusal::not_connected;
use crate::engine::servers::server::Server;
use crate::error::Error;
use crate::names::Names;

/// The sentinels of a client: see [`Client::sentinels`].
#[derive(Clone)]
#[non_exhaustive]
pub struct Sentinels {
    /// The name that the sentinels use for the primary.
    pub master: String,
    /// How to connect to each sentinel, with the user and the password of its address.
    pub nodes: Vec<ConnectionInfo>,
}

/// Leaves out the passwords.
impl fmt::Debug for Sentinels {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nodes = self.nodes.iter().map(|node| node.addr().to_string());
        let nodes: Vec<_> = nodes.collect();
        f.debug_struct("Sentinels").field("master", &self.master).field("nodes", &nodes).finish()
    }
}

impl Client {
    /// Returns how to connect to the servers that have this client's locks: the single server, the primary
    /// that its sentinels name, or the primaries of its cluster, as far as this client knows them. Contains
    /// the user and the password: do not log it. After the next failover it may be another server.
    ///
    /// Blocks for at most the connect timeout if sentinels must be asked.
    ///
    /// ```
    /// use redis_concurrent::{Client, redis};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// let client = Client::connect(&url)?;
    /// for info in client.primaries()? {
    ///     let mut connection = redis::Client::open(info)?.get_connection()?;
    ///     let get = redis::cmd("CONFIG").arg(&["GET", "maxmemory-policy"]).to_owned();
    ///     let policy: Vec<String> = get.query(&mut connection)?;
    ///     assert_eq!(policy[1], "noeviction");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `Unavailable`, `Closed`, `Forked`.
    pub fn primaries(&self) -> Result<Vec<ConnectionInfo>, Error> {
        self.shared().usable()?;
        self.servers_with_locks().iter().map(info).collect()
    }

    /// Returns the one of the [`primaries`](Client::primaries) that has the lock `name`.
    ///
    /// # Errors
    /// `Unavailable`, `Closed`, `Forked`, and `InvalidInput` for an invalid name.
    pub fn primary_of(&self, name: &str) -> Result<ConnectionInfo, Error> {
        self.behind(&Names::new(&self.shared().config.namespace, name)?).map_err(|e| e.about(name))
    }

    /// The same for a lock at a user-chosen key, as [`look_at_key`](Client::look_at_key) is for
    /// [`look`](Client::look).
    ///
    /// # Errors
    /// See [`primary_of`](Client::primary_of).
    pub fn primary_of_key(&self, key: &str) -> Result<ConnectionInfo, Error> {
        self.behind(&Names::beside(&self.shared().config.namespace, key)?).map_err(|e| e.about(key))
    }

    /// Returns the [sentinels](crate::ClientBuilder::url) that name this client's primary; `None` if
    /// there are none. Sends no request.
    pub fn sentinels(&self) -> Option<Sentinels> {
        let servers = self.shared().route.servers();
        let (master, nodes) = servers.first()?.manager.sentinels()?.named();
        Some(Sentinels { master: master.to_owned(), nodes: nodes.cloned().collect() })
    }

    fn behind(&self, names: &Names) -> Result<ConnectionInfo, Error> {
        let shared = self.shared();
        shared.usable()?;
        info(shared.route.to(shared.route.slot(names.key().as_bytes())))
    }

    /// Leaves out the nodes of a cluster that were configured but are replicas.
    pub(super) fn servers_with_locks(&self) -> Vec<Arc<Server>> {
        let route = &self.shared().route;
        route.servers().into_iter().filter(|server| route.leads_to(server)).collect()
    }
}

fn info(server: &Arc<Server>) -> Result<ConnectionInfo, Error> {
    server.manager.info().map_err(|e| not_connected(e).error())
}
