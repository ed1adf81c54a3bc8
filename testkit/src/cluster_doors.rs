//! What is in front of a node of a private Redis Cluster, so that it can be cut off together with some clients.

use std::io;
use std::net::Ipv4Addr;

use super::proxy::Proxy;
use super::server::RedisServer;
use super::server_options::RedisServerBuilder;

/// Where clients reach all nodes that are to be cut off with one of them. The others, and the nodes, are at 127.0.0.1.
pub(super) const APART: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

/// The proxies of one node. A node tells no addresses (`cluster-preferred-endpoint-type`), only ports, so a client
/// stays at the address by which it came.
#[derive(Debug)]
pub(super) struct Doors {
    /// Of most clients, and of its replicas.
    common: Proxy,
    /// The same port, at the other address.
    apart: Proxy,
    /// Of the other nodes.
    bus: Proxy,
}

impl Doors {
    /// Opens them; they lead nowhere yet.
    pub(super) fn open() -> io::Result<Self> {
        let [common, apart] = Proxy::start_at_one_port([(Ipv4Addr::LOCALHOST, 1), (APART, 1)])?;
        Ok(Self { common, apart, bus: Proxy::start(1)? })
    }

    /// What a node behind them is started with.
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

    /// Where the node's own connections come from: an address of its own.
    fn source(&self) -> Ipv4Addr {
        let [high, low] = self.common.port().to_be_bytes();
        Ipv4Addr::new(127, 1, high, low)
    }

    /// The node is reached by clients that are to be cut off with it, and by nobody else.
    pub(super) fn part(&self) {
        self.common.black_hole(true);
        self.bus.black_hole(true);
    }

    /// The node is reached neither by those clients nor by the node behind these doors.
    pub(super) fn part_from(&self, other: &Doors) {
        self.apart.black_hole(true);
        self.common.cut_off(Some(other.source().into()));
        self.bus.cut_off(Some(other.source().into()));
    }

    pub(super) fn heal(&self) -> io::Result<()> {
        [&self.common, &self.apart, &self.bus].into_iter().try_for_each(Proxy::heal)
    }
}
