//! The addresses of this process's servers and proxies.

use std::collections::BTreeSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use parking_lot::Mutex;

/// How many ports are tried: another process may take a port between our check and Redis's bind.
pub(super) const PORT_TRIES: usize = 20;

/// How far the port of the cluster bus is above that of its node.
const BUS: u16 = 10_000;

static TAKEN: Mutex<BTreeSet<SocketAddr>> = Mutex::new(BTreeSet::new());

/// A loopback address that no other server or proxy of this process gets until this is dropped. Otherwise the
/// kernel could give the port of a server that is down, or of a proxy that refuses connections, to the next
/// one that starts, and clients of the first would reach the second.
#[derive(Debug)]
pub(super) struct Reserved(SocketAddr);

impl Reserved {
    /// Reserves this address; `None` if it is reserved already.
    pub(super) fn at(address: SocketAddr) -> Option<Self> {
        // Not `then_some`: dropping what was not reserved would free the address of its owner.
        TAKEN.lock().insert(address).then(|| Self(address))
    }

    /// Listens at an address that nobody has reserved, and reserves it; port 0 stands for any free port.
    pub(super) fn listen(address: SocketAddr) -> io::Result<(TcpListener, Self)> {
        for _ in 0..PORT_TRIES {
            let listener = TcpListener::bind(address)?;
            if let Some(reserved) = Self::at(listener.local_addr()?) {
                return Ok((listener, reserved));
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, format!("{address} is reserved")))
    }

    /// Reserves a port of 127.0.0.1 without a listener. Linux never picks one that an outgoing connection
    /// uses.
    pub(super) fn free_port() -> io::Result<Self> {
        Self::listen((Ipv4Addr::LOCALHOST, 0).into()).map(|(_, reserved)| reserved)
    }

    /// Reserves such a port for a cluster node, and that of its bus, [`BUS`] above it.
    pub(super) fn free_ports() -> io::Result<[Self; 2]> {
        for _ in 0..PORT_TRIES {
            let node = Self::free_port()?;
            let bus = node.port().checked_add(BUS).map(|bus| SocketAddr::from((Ipv4Addr::LOCALHOST, bus)));
            if let Some(address) = bus
                && TcpListener::bind(address).is_ok()
                && let Some(bus) = Self::at(address)
            {
                return Ok([node, bus]);
            }
        }
        Err(io::Error::new(io::ErrorKind::AddrInUse, "no free port has a free one for the cluster's bus"))
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.0
    }

    pub(super) fn port(&self) -> u16 {
        self.0.port()
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        TAKEN.lock().remove(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Proxy, RedisServer};

    #[test]
    fn an_address_has_one_owner_at_a_time() {
        let address = SocketAddr::from(([127, 9, 9, 9], 1));
        let first = Reserved::at(address).unwrap();
        assert!(Reserved::at(address).is_none());
        drop(first);
        assert!(Reserved::at(address).is_some());
    }

    #[test]
    fn a_server_that_is_down_and_a_proxy_that_refuses_keep_their_ports() {
        let server = RedisServer::start().unwrap();
        let proxy = Proxy::start(server.port()).unwrap();
        server.kill().unwrap();
        proxy.refuse_connections(true).unwrap();
        for port in [server.port(), proxy.port()] {
            assert!(Reserved::at((Ipv4Addr::LOCALHOST, port).into()).is_none());
            assert!(Proxy::start_at((Ipv4Addr::LOCALHOST, port).into(), 1).is_err());
        }
    }
}
