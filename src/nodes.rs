//! The nodes of a Redis Cluster, as a user names them.

use redis::ConnectionAddr;

use crate::address::{HostList, server_at};
use crate::engine::redis::slots::Node;
use crate::error::Error;
use crate::settings::bad;

/// The nodes of a cluster: a client of the first one, which has the login, and the addresses of all.
pub(crate) type Nodes = (redis::Client, Vec<Node>);

const NONE: &str = "this names no node of a cluster: redis+cluster://host:port,host:port";

/// The nodes in this URL, `redis+cluster://[user:password@]host[:port],host[:port],…[?protocol=resp3]`;
/// `None` if it is not the URL of a cluster. Errors never contain the password.
pub(crate) fn nodes_at(url: &str) -> Option<Result<Nodes, Error>> {
    let (scheme, rest) = url.split_once("://")?;
    let scheme = scheme.strip_suffix("+cluster")?;
    Some(HostList::of(rest).and_then(|HostList { login, hosts, tail }| {
        let clients = hosts.map(|node| match node {
            "" => Err(bad(NONE)),
            node => server_at(&format!("{scheme}://{login}{node}{tail}")),
        });
        let clients = clients.collect::<Result<Vec<_>, _>>()?;
        let nodes = clients.iter().map(node).collect::<Result<Vec<_>, _>>()?;
        let first = clients.into_iter().next().ok_or_else(|| bad(NONE))?;
        Ok((first, nodes))
    }))
}

fn node(client: &redis::Client) -> Result<Node, Error> {
    let info = client.get_connection_info();
    if info.redis_settings().db() != 0 {
        return Err(bad("a Redis Cluster has database 0 only"));
    }
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Ok(Node { host: host.clone(), port: *port })
        }
        _ => Err(bad("the nodes of a cluster are named by host and port")),
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../verify/unit/nodes.rs"]
mod tests;
