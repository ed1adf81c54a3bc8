//! Where the contract suite runs: on a private server or a private cluster.

use std::sync::Arc;

use crate::{RedisCluster, RedisServer};

/// The environment variable that, set to `cluster`, makes all suites run on a Redis Cluster of three
/// primaries.
const WHERE: &str = "CONTRACT_ON";

pub(super) enum Place {
    Server(Arc<RedisServer>),
    Cluster(Box<RedisCluster>),
}

impl Place {
    /// Starts a server, unless the environment says otherwise.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub(super) fn usual() -> Place {
        match std::env::var(WHERE).as_deref() {
            Ok("cluster") => Place::cluster(),
            Ok(other) if other != "server" => panic!("{WHERE} is neither server nor cluster, but {other:?}"),
            _ => Place::Server(Arc::new(started(RedisServer::start()))),
        }
    }

    /// Starts a cluster of three primaries.
    ///
    /// # Panics
    ///
    /// If it cannot be started.
    pub(super) fn cluster() -> Place {
        Place::Cluster(Box::new(started(RedisCluster::start(3))))
    }

    pub(super) fn url(&self) -> String {
        match self {
            Place::Server(server) => server.url(),
            Place::Cluster(cluster) => cluster.url(),
        }
    }

    /// Returns the server that has the lock with this name: a name without braces is the hash tag of its
    /// keys, or its key.
    pub(super) fn server_of(&self, name: &str) -> Arc<RedisServer> {
        match self {
            Place::Server(server) => server.clone(),
            Place::Cluster(cluster) => match cluster.primary_of(name) {
                Ok(Some(server)) => server,
                other => panic!("the slot of {name:?} has no primary: {other:?}"),
            },
        }
    }
}

fn started<T>(started: std::io::Result<T>) -> T {
    match started {
        Ok(started) => started,
        Err(error) => panic!("{error:#}"),
    }
}
