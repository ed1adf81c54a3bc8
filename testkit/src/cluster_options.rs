//! The configuration of a private Redis Cluster.

use std::io;
use std::time::Duration;

use super::cluster::RedisCluster;
use super::cluster_doors::Doors;
use super::server::RedisServer;
use super::server_options::{RedisServerBuilder, TlsFiles};

/// The configuration of a [`RedisCluster`] that is yet to start; created by [`RedisCluster::builder`].
///
/// The defaults: three primaries without replicas, and a node timeout of 15 s, since a busy machine may stall
/// a node for seconds. A slot without a primary makes only its own keys unavailable
/// (`cluster-require-full-coverage no`, which is not Redis's default).
#[derive(Debug, Clone)]
#[must_use = "nothing runs before start()"]
pub struct RedisClusterBuilder {
    pub(super) primaries: usize,
    /// Per primary.
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
    /// Sets how many primaries share the slots, in equal parts; at least one.
    pub fn primaries(mut self, n: usize) -> Self {
        self.primaries = n;
        self
    }

    /// Sets how many replicas each primary has.
    pub fn replicas(mut self, n: usize) -> Self {
        self.replicas = n;
        self
    }

    /// Sets whether a slot without a primary makes all keys unavailable (`cluster-require-full-coverage`).
    pub fn full_coverage(mut self, on: bool) -> Self {
        self.full_coverage = on;
        self
    }

    /// Sets after how long a silent node is considered failed (`cluster-node-timeout`). Replicas are promoted
    /// about a second later.
    pub fn node_timeout(mut self, timeout: Duration) -> Self {
        self.node_timeout = timeout;
        self
    }

    /// Sets one option in the `redis.conf` of every node, as [`RedisServerBuilder::arg`] does.
    pub fn arg(mut self, key: &str, value: &str) -> Self {
        self.server = self.server.arg(key, value);
        self
    }

    /// Puts proxies in front of each node, through which clients and other nodes reach it, so that it can be
    /// [cut off](RedisCluster::part) together with some of the clients. Needs Redis 7.0 (`bind-source-addr`),
    /// addresses of 127.0.0.0/8, and no TLS.
    pub fn behind_proxies(mut self) -> Self {
        self.proxies = true;
        self
    }

    /// Makes the nodes use TLS, with each other too (`tls-cluster`); see [`RedisServerBuilder::tls`]. Needs
    /// Redis 7.0.
    pub fn tls(mut self, files: &TlsFiles) -> Self {
        self.server = self.server.tls(files);
        self
    }

    /// Starts the nodes and joins them to a cluster. Returns once each of them knows all others and their
    /// slots and serves requests, which takes 2 to 5 s.
    ///
    /// # Errors
    ///
    /// If a node does not start, or the nodes have not joined within 60 s.
    pub fn start(self) -> io::Result<RedisCluster> {
        RedisCluster::launch(self)
    }

    /// Starts one node, and its proxies if it is to have any.
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
            // Allows a replica to be promoted even if it was disconnected for a while.
            .arg("cluster-replica-validity-factor", "0")
            .arg("repl-diskless-sync-delay", "0")
    }
}
