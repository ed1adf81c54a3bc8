//! How a private Redis Cluster is to be configured.

use std::io;
use std::time::Duration;

use super::cluster::RedisCluster;
use super::cluster_doors::Doors;
use super::server::RedisServer;
use super::server_options::{RedisServerBuilder, TlsFiles};

/// The configuration of a [`RedisCluster`] to be; made by [`RedisCluster::builder`].
///
/// The defaults: three primaries without replicas, and a node timeout of 15 s, as a busy machine lets a node stand still
/// for seconds. A slot without a primary makes only
/// its own keys unavailable (`cluster-require-full-coverage no`, not Redis's default).
#[derive(Debug, Clone)]
#[must_use = "nothing runs before start()"]
pub struct RedisClusterBuilder {
    pub(super) primaries: usize,
    /// Of each primary.
    pub(super) replicas: usize,
    full_coverage: bool,
    node_timeout: Duration,
    proxies: bool,
    server: RedisServerBuilder,
}

impl Default for RedisClusterBuilder {
    fn default() -> Self {
        let (full_coverage, node_timeout) = (false, Duration::from_secs(15));
        let server = RedisServer::builder();
        Self { primaries: 3, replicas: 0, full_coverage, node_timeout, proxies: false, server }
    }
}

impl RedisClusterBuilder {
    /// How many primaries share the slots, in equal parts; at least one.
    pub fn primaries(mut self, n: usize) -> Self {
        self.primaries = n;
        self
    }

    /// How many replicas each primary has.
    pub fn replicas(mut self, n: usize) -> Self {
        self.replicas = n;
        self
    }

    /// Whether a slot without a primary makes all keys unavailable (`cluster-require-full-coverage`).
    pub fn full_coverage(mut self, on: bool) -> Self {
        self.full_coverage = on;
        self
    }

    /// After how long a silent node is taken for failed (`cluster-node-timeout`); replicas are promoted a
    /// second or so later.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Sets one option of `redis.conf` of every node, as [`RedisServerBuilder::arg`] does.
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.server = self.server.arg(key, value);
        self
    }

    /// Clients and nodes reach each node by proxies in front of it, so that it can be
    /// [cut off](RedisCluster::part) with some of the clients. It needs Redis 7.0 (`bind-source-addr`), addresses of
    /// 127.0.0.0/8, and no TLS.
    pub fn behind_proxies(mut self) -> Self {
        self.proxies = true;
        self
    }

    /// The nodes talk by TLS, to each other too (`tls-cluster`): see [`RedisServerBuilder::tls`]. Needs Redis 7.0.
    pub fn tls(mut self, files: &TlsFiles) -> Self {
        self.server = self.server.tls(files);
        self
    }

    /// Starts the nodes and joins them; returns when each of them knows all others and their slots, and serves
    /// requests, which takes 2 to 5 s.
    ///
    /// # Errors
    ///
    /// If a node does not start, or they have not joined within 60 s.
    pub fn start(self) -> io::Result<RedisCluster> {
        RedisCluster::launch(self)
    }

    /// Starts one node, and what is in front of it.
    pub(super) fn start_node(&self) -> io::Result<(RedisServer, Option<Doors>)> {
        if !self.proxies {
            return Ok((self.node().start()?, None));
        }
        let doors = Doors::open()?;
        let node = doors.options(self.node()).start()?;
        doors.lead_to(&node);
        Ok((node, Some(doors)))
    }

    fn node(&self) -> RedisServerBuilder {
        let timeout = self.node_timeout.as_millis().to_string();
        self.server
            .clone()
            .cluster_bus()
            .arg("cluster-enabled", "yes")
            .arg("cluster-node-timeout", &timeout)
            .arg("cluster-require-full-coverage", if self.full_coverage { "yes" } else { "no" })
            // A replica that was not connected for a while may be promoted as well.
            .arg("cluster-replica-validity-factor", "0")
            .arg("repl-diskless-sync-delay", "0")
    }
}
