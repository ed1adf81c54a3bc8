//! The proxies in front of a cluster node, so that it can be cut off together with some clients.

use std::io;
use std::net::Ipv4Addr;

use super::proxy::Proxy;
use super::server::RedisServer;
use super::server_options::RedisServerBuilder;

/// The address at which clients that are to be cut off with a node reach all nodes. Other clients and the
/// nodes use 127.0.0.1.
pub(super) const APART: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The proxies of one node. A node announces only ports, no addresses (`cluster-preferred-endpoint-type`), so
/// a client keeps using the address at which it connected.
#[derive(Debug)]
pub(super) struct Doors {
    /// For most clients, and for the node's replicas.
    common: Proxy,
    /// The same port at the address `APART`.
    apart: Proxy,
    /// For the other nodes.
    bus: Proxy,
}

impl Doors {
    /// Opens the proxies; they have no target yet.
    pub(super) fn open() -> io::Result<Self> {
        let [common, apart] = Proxy::start_at_one_port([(Ipv4Addr::LOCALHOST, 1), (APART, 1)])?;
        Ok(Self { common, apart, bus: Proxy::start(1)? })
    }

    /// Adds the options that a node behind these proxies needs.
    pub(super) fn options(&self, node: RedisServerBuilder) -> RedisServerBuilder {
        node.announced(self.common.port(), self.bus.port())
            .arg("cluster-preferred-endpoint-type", "unknown-endpoint")
            .arg("bind-source-addr", &self.source().to_string())
    }

    pub(super) fn lead_to(&self, node: &RedisServer) {
        self.common.set_target(node.port());
        self.apart.set_target(node.port());
        self.bus.set_target(node.bus_port());
    }

    /// The source address of the node's own connections; no other node has it.
    fn source(&self) -> Ipv4Addr {
        let [high, low] = self.common.port().to_be_bytes();
        Ipv4Addr::new(127, 1, high, low)
    }

    /// Makes the node reachable only for clients that are to be cut off with it.
    pub(super) fn part(&self) {
        self.common.black_hole(true);
        self.bus.black_hole(true);
    }

    /// Makes this node unreachable for the node behind `other`, and for the clients that are cut off with that
    /// node.
    pub(super) fn part_from(&self, other: &Doors) {
        self.apart.black_hole(true);
        self.common.cut_off(Some(other.source().into()));
        self.bus.cut_off(Some(other.source().into()));
    }

    pub(super) fn heal(&self) -> io::Result<()> {
        [&self.common, &self.apart, &self.bus].into_iter().try_for_each(Proxy::heal)
    }
}
