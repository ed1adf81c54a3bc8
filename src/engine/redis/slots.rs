//! The slots of a Redis Cluster: which slot a key has, which node has a slot, and what a node replies about
//! keys that it does not have, or not all of. Source: the Redis Cluster specification.

use std::fmt;
use std::ops::RangeInclusive;

use redis::{ConnectionAddr, ConnectionInfo, Value};

use crate::engine::redis::failure::Failure;
use crate::engine::redis::resp::{list, number, text};
use crate::error::{Error, ErrorKind};
use crate::names::hashed;

/// The number of slots.
pub(crate) const SLOTS: usize = 16384;

/// The slot of a key. Without a cluster, all keys are in the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot(u16);

impl Slot {
    /// Computes the slot from the CRC16 (XMODEM) of the key's hash tag, or of the whole key.
    pub(crate) fn of(key: &[u8]) -> Slot {
        Slot(crc16(hashed(key)) % SLOTS as u16)
    }

    fn new(number: i64) -> Option<Slot> {
        u16::try_from(number).ok().filter(|slot| usize::from(*slot) < SLOTS).map(Slot)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// Returns the CRC16 (XMODEM) of these bytes.
pub(crate) fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

/// The address of a server: of a cluster's node, or of a primary.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Node { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

impl Node {
    /// How to connect there as `info` says of another one.
    pub(crate) fn like(&self, info: &ConnectionInfo) -> ConnectionInfo {
        let Node { host, port } = self.clone();
        let addr = match info.addr().clone() {
            ConnectionAddr::TcpTls { insecure, tls_params, .. } => {
                ConnectionAddr::TcpTls { host, port, insecure, tls_params }
            }
            _ => ConnectionAddr::Tcp(host, port),
        };
        info.clone().set_addr(addr)
    }

    /// Returns the error for a server that is not part of a cluster.
    pub(crate) fn is_of_no_cluster(&self) -> Error {
        ErrorKind::InvalidInput.because(format!(
            "the server at {self} is not a node of a Redis Cluster: connect by redis://{self}"
        ))
    }

    /// Reads how the node `source` names a node: without a host, it has the same one; `?` is an unknown host.
    fn named(host: Option<&str>, port: u16, source: &Node) -> Option<Node> {
        match host.unwrap_or_default() {
            "?" => None,
            "" => Some(Node { host: source.host.clone(), port }),
            host => Some(Node { host: host.to_owned(), port }),
        }
    }
}

/// A node's reply about keys that it does not have, or not all of. It has not executed the request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot is at this node, if the reply says where.
    Moved(Slot, Option<Node>),
    /// The slot is migrating to another node, or no node has it: this may soon be over. (If a request names
    /// several keys and some of them do not exist, both nodes refuse it until the slot has migrated, even
    /// after `ASKING`.)
    Soon,
}

impl Redirect {
    /// Reads the redirect in this failure of a request to the node `source`.
    pub(crate) fn of(failure: &Failure, source: &Node) -> Option<Redirect> {
        let Failure::Later(error) = failure else { return None };
        let reply = error.of_redis()?;
        Redirect::read(reply.code()?, reply.detail().unwrap_or_default(), source)
    }

    /// Parses `MOVED <slot> <host>:<port>` and its like.
    pub(crate) fn read(code: &str, words: &str, source: &Node) -> Option<Redirect> {
        match code {
            "MOVED" => {
                let (slot, node) = words.split_once(' ')?;
                let (host, port) = node.trim().rsplit_once(':')?;
                let node = Node::named(Some(host), port.parse().ok()?, source);
                Some(Redirect::Moved(Slot::new(slot.parse().ok()?)?, node))
            }
            "ASK" | "TRYAGAIN" | "CLUSTERDOWN" => Some(Redirect::Soon),
            _ => None,
        }
    }
}

/// A range of slots that one primary has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Range {
    /// The indices of its slots.
    pub(crate) slots: RangeInclusive<usize>,
    pub(crate) primary: Node,
    /// The ids of the primary and its replicas.
    pub(crate) ids: Vec<String>,
}

/// The request for the slot map.
pub(crate) fn request() -> redis::Cmd {
    redis::cmd("CLUSTER").arg("SLOTS").clone()
}

/// Reads the reply of the node `source`: for each range the first and the last slot, the primary and the
/// replicas, each with host, port, id and perhaps what else is known of it. A range is left out if the host of
/// its primary is not known there.
pub(crate) fn read(answer: &Value, source: &Node) -> Vec<Range> {
    let range = |value: &Value| {
        let [first, last, nodes @ ..] = list(value) else { return None };
        let primary = list(nodes.first()?);
        let port = number(primary.get(1))?.try_into().ok()?;
        let index = |value| Some(Slot::new(number(Some(value))?)?.index());
        Some(Range {
            slots: index(first)?..=index(last)?,
            primary: Node::named(host(primary).as_deref(), port, source)?,
            ids: nodes.iter().filter_map(|node| text(list(node).get(2))).collect(),
        })
    };
    list(answer).iter().filter_map(range).collect()
}

/// Returns how a map names a node: by its `ip` if the nodes are named by hostnames, and it has none.
fn host(node: &[Value]) -> Option<String> {
    let preferred = text(node.first());
    if preferred.as_deref() != Some("?") {
        return preferred;
    }
    let is_ip = |name: &Value| text(Some(name)).as_deref() == Some("ip");
    let ip = match node.get(3) {
        Some(Value::Map(more)) => more.iter().find(|(name, _)| is_ip(name)).map(|(_, ip)| ip),
        more => more.and_then(|more| list(more).chunks(2).find(|pair| is_ip(&pair[0]))?.get(1)),
    };
    text(ip).or(preferred)
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/redis/slots.rs"]
mod tests;
