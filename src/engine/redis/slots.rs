//! The slots of a Redis Cluster: which slot a key has, which node has a slot, and what a node answers about keys
//! that are not, or not all, at it. Source: the Redis Cluster specification.

use std::fmt;

use redis::{RedisError, Value};

use super::answers::{list, number, text};
use super::failure::Failure;
use crate::error::{Error, ErrorKind};
use crate::names::hashed;

/// How many there are.
pub(crate) const SLOTS: usize = 16384;

/// The slot of a key; without a cluster all keys have the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Slot(u16);

impl Slot {
    /// By the CRC16 (XMODEM) of its hash tag, or of the whole key.
    pub(crate) fn of(key: &[u8]) -> Slot {
        let crc = hashed(key).iter().fold(0u16, |crc, byte| {
            (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
                0 => crc << 1,
                _ => (crc << 1) ^ 0x1021,
            })
        });
        Slot(crc % SLOTS as u16)
    }

    fn new(number: i64) -> Option<Slot> {
        u16::try_from(number).ok().filter(|slot| usize::from(*slot) < SLOTS).map(Slot)
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The address of a node.
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
    /// The error for one that is of no cluster.
    pub(crate) fn is_of_no_cluster(&self) -> Error {
        Error::new(ErrorKind::InvalidInput, "").because(format!(
            "the server at {self} is not a node of a Redis Cluster: connect by redis://{self}"
        ))
    }

    /// As the node `asked` names it: without a host, it is at the same one; `?` is a host that it does not know.
    fn named(host: Option<&str>, port: u16, asked: &Node) -> Option<Node> {
        match host.unwrap_or_default() {
            "?" => None,
            "" => Some(Node { host: asked.host.clone(), port }),
            host => Some(Node { host: host.to_owned(), port }),
        }
    }
}

/// What a node says about keys that are not, or not all, at it. It has not carried out the request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Redirect {
    /// The slot is at this node, if it says where.
    Moved(Slot, Option<Node>),
    /// The slot is moving to another node, or has none: in a moment that may be over. (What is asked about several
    /// keys, of which some do not exist, both nodes refuse until the slot has moved, also after `ASKING`.)
    Soon,
}

impl Redirect {
    /// What this failure says, of a request to the node `asked`.
    pub(crate) fn of(failure: &Failure, asked: &Node) -> Option<Redirect> {
        let Failure::Later(error) = failure else { return None };
        let said: &RedisError = error.cause()?;
        Redirect::read(said.code()?, said.detail().unwrap_or_default(), asked)
    }

    /// `MOVED <slot> <host>:<port>` and its like.
    pub(crate) fn read(code: &str, words: &str, asked: &Node) -> Option<Redirect> {
        match code {
            "MOVED" => {
                let (slot, node) = words.split_once(' ')?;
                let (host, port) = node.trim().rsplit_once(':')?;
                let node = Node::named(Some(host), port.parse().ok()?, asked);
                Some(Redirect::Moved(Slot::new(slot.parse().ok()?)?, node))
            }
            "ASK" | "TRYAGAIN" | "CLUSTERDOWN" => Some(Redirect::Soon),
            _ => None,
        }
    }
}

/// Slots that one primary has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Range {
    first: Slot,
    last: Slot,
    pub(crate) primary: Node,
    /// The ids of the primary and its replicas.
    pub(crate) ids: Vec<String>,
}

impl Range {
    /// The indices of its slots.
    pub(crate) fn indices(&self) -> std::ops::RangeInclusive<usize> {
        self.first.index()..=self.last.index()
    }
}

/// What asks for the map.
pub(crate) fn request() -> redis::Cmd {
    redis::cmd("CLUSTER").arg("SLOTS").clone()
}

/// Reads the reply of the node `asked`: of each range its first and last slot, its primary and its replicas, each
/// with host, port and id. A primary whose host is not known there is left out.
pub(crate) fn read(answer: &Value, asked: &Node) -> Vec<Range> {
    let range = |value: &Value| {
        let [first, last, nodes @ ..] = list(value) else { return None };
        let primary = list(nodes.first()?);
        let port = number(primary.get(1))?.try_into().ok()?;
        Some(Range {
            first: Slot::new(number(Some(first))?)?,
            last: Slot::new(number(Some(last))?)?,
            primary: Node::named(text(primary.first()).as_deref(), port, asked)?,
            ids: nodes.iter().filter_map(|node| text(list(node).get(2))).collect(),
        })
    };
    list(answer).iter().filter_map(range).collect()
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/redis/slots.rs"]
mod tests;
