//! The simulated servers as nodes of a cluster: which of them has which slot, by what each of them knows, and how a slot
//! moves, a key at a time.

use std::collections::{BTreeMap, BTreeSet};

use super::checks::sometimes;
use super::net::host;
use super::redis::Reply;
use super::server::Server;
use crate::engine::redis::slots::{SLOTS, Slot};

/// The port of each node, as of a server without one in its URL.
pub(super) const PORT: u16 = 6379;

/// What a client may ask of any node.
const OF_NO_KEY: &[&str] =
    &["CLIENT", "CLUSTER", "INFO", "PING", "PUBLISH", "ROLE", "SCRIPT", "SUBSCRIBE", "UNSUBSCRIBE"];

/// The first nodes are primaries in the beginning, and those after them their replicas, in the same order.
pub(super) struct Slots {
    /// Who has each slot, by what each node knows.
    known: Vec<Vec<usize>>,
    /// The primaries now.
    primaries: Vec<usize>,
    /// Those that are cut off from the other nodes.
    isolated: BTreeSet<usize>,
    /// Those that have noticed that they are, and serve nobody.
    down: BTreeSet<usize>,
    /// The slots that are on their way, from one node to another.
    moving: BTreeMap<usize, (usize, usize)>,
}

impl Slots {
    pub(super) fn new(servers: usize) -> Slots {
        let nodes = servers / 2;
        // Each has one of the first ones, as a client looks there first, a step of the scheduler for each.
        let owner = |slot: usize| if slot < nodes { slot } else { slot * nodes / SLOTS };
        let owners: Vec<usize> = (0..SLOTS).map(owner).collect();
        Slots {
            known: vec![owners; servers],
            primaries: (0..nodes).collect(),
            isolated: BTreeSet::new(),
            down: BTreeSet::new(),
            moving: BTreeMap::new(),
        }
    }

    /// The other node that has the same slots, or had them, or will have.
    pub(super) fn partner(&self, node: usize) -> usize {
        (node + self.primaries.len()) % self.known.len()
    }

    /// The primary of what this node was in the beginning.
    pub(super) fn primary(&self, node: usize) -> usize {
        self.primaries[node]
    }

    pub(super) fn primaries(&self) -> usize {
        self.primaries.len()
    }

    /// Whether what one node publishes reaches another.
    pub(super) fn hears(&self, node: usize, other: usize) -> bool {
        node != other && !self.isolated.contains(&node) && !self.isolated.contains(&other)
    }

    /// A node is cut off from the others.
    pub(super) fn isolates(&mut self, node: usize) {
        self.isolated.insert(node);
    }

    pub(super) fn is_isolated(&self, node: usize) -> bool {
        self.isolated.contains(&node)
    }

    /// A node notices that it is cut off.
    pub(super) fn notices(&mut self, node: usize) {
        self.down.insert(node);
    }

    /// The replica of a node takes over; the others learn of it later.
    pub(super) fn promotes(&mut self, node: usize) {
        let (next, nodes) = (self.partner(node), self.primaries.len());
        self.primaries[node % nodes] = next;
        self.hears_of(next, next);
    }

    /// A node learns who has the slots of another one now.
    pub(super) fn hears_of(&mut self, node: usize, primary: usize) {
        let before = self.partner(primary);
        let owners = self.known[node].iter_mut().filter(|owner| **owner == before);
        owners.for_each(|owner| *owner = primary);
    }

    /// A former primary is a replica of the one that took over.
    pub(super) fn follows(&mut self, node: usize) {
        self.isolated.remove(&node);
        self.down.remove(&node);
        self.hears_of(node, self.partner(node));
    }

    /// The reply to `CLUSTER SLOTS` of a node to a process.
    pub(super) fn map(&self, node: usize, process: usize) -> Reply {
        let owners = &self.known[node];
        let number = |n: usize| Reply::Int(n as i64);
        let mut ranges = Vec::new();
        let mut first = 0;
        for slot in 0..SLOTS {
            if slot + 1 < SLOTS && owners[slot + 1] == owners[first] {
                continue;
            }
            let named = |node: usize| {
                let name = Reply::Bulk(host((process, node)).into_bytes());
                let id = Reply::Bulk(format!("{node:040}").into_bytes());
                Reply::List(vec![name, number(PORT.into()), id, Reply::List(Vec::new())])
            };
            let (primary, replica) = (named(owners[first]), named(self.partner(owners[first])));
            ranges.push(Reply::List(vec![number(first), number(slot), primary, replica]));
            first = slot + 1;
        }
        Reply::List(ranges)
    }

    /// Why a node does not run a command, as Redis 7 says it.
    pub(super) fn refuses(
        &self,
        (process, node): (usize, usize),
        server: &mut Server,
        command: &[String],
    ) -> Option<Reply> {
        let keys = keys(command);
        let slot = Slot::of(keys.first()?.as_bytes()).index();
        if self.down.contains(&node) {
            return Some(Reply::Error("CLUSTERDOWN The cluster is down".to_owned()));
        }
        let says = |code: &str, to: usize| {
            Some(Reply::Error(format!("{code} {slot} {}:{PORT}", host((process, to)))))
        };
        if keys.iter().any(|key| Slot::of(key.as_bytes()).index() != slot) {
            return Some(Reply::Error("CROSSSLOT Keys in request don't hash to the same slot".to_owned()));
        }
        let owner = self.known[node][slot];
        // A channel is not a key, and a replica has subscribers of its own.
        let of_a_channel = matches!(command[0].as_str(), "SSUBSCRIBE" | "SUNSUBSCRIBE" | "SPUBLISH");
        if of_a_channel && owner == self.partner(node) {
            return None;
        }
        if owner != node {
            sometimes("a request is sent on to another node");
            return says("MOVED", owner);
        }
        if self.isolated.contains(&node) {
            sometimes("a node goes on that is cut off");
        }
        let to = self.moving.get(&slot).filter(|(from, _)| *from == node).map(|(_, to)| *to)?;
        if of_a_channel {
            return None;
        }
        let there = keys.iter().filter(|key| server.has(key)).count();
        match there {
            n if n == keys.len() => None,
            0 => says("ASK", to),
            _ => {
                sometimes("the keys of a request are at two nodes");
                Some(Reply::Error("TRYAGAIN Multiple keys request during rehashing of slot".to_owned()))
            }
        }
    }

    /// A slot begins to move, unless it does already.
    pub(super) fn begins(&mut self, slot: usize, from: usize, to: usize) -> bool {
        let owns = self.known.iter().all(|owners| owners[slot] == from) && to < self.primaries.len();
        let begins = owns && from != to && !self.moving.contains_key(&slot);
        if begins {
            self.moving.insert(slot, (from, to));
        }
        begins
    }

    pub(super) fn moving(&self, slot: usize) -> (usize, usize) {
        self.moving[&slot]
    }

    /// A node learns that a slot has moved. Returns whether that is new to it.
    pub(super) fn learns(&mut self, node: usize, slot: usize, to: usize) -> bool {
        std::mem::replace(&mut self.known[node][slot], to) != to
    }

    pub(super) fn ends(&mut self, slot: usize) {
        self.moving.remove(&slot);
    }
}

/// The keys of a command, or the channel that stands for one.
fn keys(command: &[String]) -> &[String] {
    match command[0].as_str() {
        "EVAL" | "EVALSHA" => &command[3..3 + command[2].parse::<usize>().expect("a number of keys")],
        name if OF_NO_KEY.contains(&name) => &[],
        _ => command.get(1..2).unwrap_or_default(),
    }
}
