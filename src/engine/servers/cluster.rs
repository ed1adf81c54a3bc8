//! The primaries of a Redis Cluster: a [`Server`] for each, and which of them has which slot.
//!
//! The slot map comes from any node (`CLUSTER SLOTS`), and is only a hint. A node that receives a request for
//! a slot that is elsewhere replies `MOVED`; the request was not executed then, and is sent to the node that
//! has the slot. After a `MOVED`, and after a connection failed, the thread that noticed asks for the map
//! again. It holds no lock meanwhile, and other threads continue with the map as it is known. There is no
//! thread for this alone. No request is sent before there is a first map: a server that is not part of a
//! cluster would execute it.
//!
//! While a slot moves between two nodes, both refuse requests for several keys of which some do not exist
//! yet, as is usual for the keys of a lock. Such a request is repeated for a short while, within its own
//! timeout; if the slot has not moved by the end of it, the error is `Unavailable`, which a waiting call
//! survives.

use std::collections::HashSet;
use std::ops::RangeInclusive;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::exchange::Reply;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::Pools;
use crate::engine::redis::probe::probe_node;
use crate::engine::redis::slots::{self, Node, Range, Redirect, SLOTS, Slot};
use crate::engine::servers::Servers;
use crate::engine::servers::server::Server;
use crate::error::{Error, ErrorKind};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, thread};

/// How long one node may take to return the map.
const MAP_TIMEOUT: Duration = Duration::from_millis(250);
/// The shortest time between two requests for the map.
const MAP_INTERVAL: Duration = Duration::from_millis(100);
/// How many times in a row a request follows its slot to another node.
const HOPS: u32 = 5;
/// How long a request waits in total while its slot moves; its first and its longest pause.
const MIGRATION_TIMEOUT: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What a client does when slots have moved: those that are `true`. Called by a thread that holds no lock of the engine.
type OnMove = Box<dyn Fn(&[bool]) + Send + Sync>;

pub(crate) struct Cluster {
    servers: Servers,
    /// `None` once the client is closed: then no server is added.
    pools: Mutex<Option<Pools>>,
    pub(in crate::engine) on_move: OnceLock<OnMove>,
    /// Whether there has been a map.
    mapped: AtomicBool,
    /// Whether the map may be out of date.
    suspected: AtomicBool,
    requests: Mutex<MapRequests>,
    /// Notified when a thread has finished asking for the map.
    answered: Condvar,
}

/// The state of the requests for the map.
#[derive(Default)]
struct MapRequests {
    /// Whether a thread is asking.
    asking: bool,
    /// When the last attempt ended.
    at: Moment,
    /// The number of attempts so far. Each begins with another node, as a node's map may be wrong for long.
    attempts: usize,
    /// The server that last failed a request: it is asked last.
    doubted: Option<u64>,
    /// Why the last attempt got no map.
    failed: Option<Failure>,
}

impl Cluster {
    /// Creates the cluster that these nodes are part of; `manager` leads to the first of them. Login, TLS and timeouts
    /// are the same at all. Sends nothing.
    pub(crate) fn new(manager: ConnectionManager, pools: Pools, first: &Node, others: &[Node]) -> Cluster {
        let cluster = Cluster {
            servers: Servers::new(Server::new(manager, &pools, Some(first.clone()))),
            pools: Mutex::new(Some(pools)),
            on_move: OnceLock::new(),
            mapped: AtomicBool::new(false),
            suspected: AtomicBool::new(true),
            requests: Mutex::default(),
            answered: Condvar::new(),
        };
        for node in others {
            cluster.number_of(node);
        }
        cluster
    }

    pub(crate) fn to(&self, slot: Slot) -> &Arc<Server> {
        self.servers.of(slot)
    }

    /// Returns all servers that there have ever been.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        self.servers.all().cloned().collect()
    }

    /// Ends the threads that make connections. No server is added from now on.
    pub(crate) fn end(&self) {
        let pools = self.pools.lock().take();
        drop(pools);
    }

    /// Returns whether this server has any slot.
    pub(crate) fn leads_to(&self, server: &Server) -> bool {
        self.servers.number(|it| it.id == server.id).is_some_and(|n| self.servers.has_slots(n))
    }

    /// Makes `act` send a request about keys of this slot to the server that has them. It is sent again if the keys
    /// have moved to another server or are being moved, and it was not executed; or had no reply, unless it is sent
    /// `once` at most.
    pub(crate) fn follow(
        &self,
        slot: Slot,
        limit: Moment,
        once: bool,
        mut act: impl FnMut(&Arc<Server>) -> Result<Reply, Failure>,
    ) -> Result<Reply, Failure> {
        if !self.mapped.load(Ordering::Acquire) {
            self.refresh(limit, true);
            if !self.mapped.load(Ordering::Acquire) {
                return Err(self.requests.lock().failed.clone().unwrap_or_else(unknown));
            }
        }
        let began = Moment::now();
        let (mut hops, mut pause, mut patience, mut unanswered) = (0, FIRST_PAUSE, None, None);
        loop {
            if self.suspected.load(Ordering::Acquire) {
                self.refresh(limit, false);
            }
            let server = self.to(slot);
            let failure = match act(server) {
                // An earlier copy may have been executed at another server.
                Ok(reply) if unanswered.is_some() => return Ok(Reply { first_by: Some(began), ..reply }),
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            let redirect = self.learn(server, &failure);
            let failure = match (failure, unanswered.take()) {
                (failure @ (Failure::Never(_) | Failure::WrongKind(_)), _) => return Err(failure),
                // An earlier copy may have been executed, or may still be.
                (_, Some(first)) => Failure::Unanswered(first),
                (failure, None) => failure,
            };
            let now = Moment::now();
            let may_be_sent_again = match &failure {
                Failure::Unsent(_) | Failure::Later(_) => true,
                Failure::Unanswered(_) => !once,
                _ => false,
            };
            if limit <= now || !may_be_sent_again {
                return Err(failure);
            }
            if self.suspected.load(Ordering::Acquire) && Arc::ptr_eq(self.to(slot), server) {
                self.refresh(limit, redirect.is_none());
            }
            let is_elsewhere = !Arc::ptr_eq(self.to(slot), server) && hops < HOPS;
            let until = *patience.get_or_insert_with(|| limit.min(now.after(MIGRATION_TIMEOUT)));
            if !is_elsewhere && (redirect.is_none() || until <= now.after(pause)) {
                return Err(failure);
            }
            if let Failure::Unanswered(first) = failure {
                unanswered = Some(first);
            }
            if is_elsewhere {
                hops += 1;
            } else {
                thread::sleep(pause);
                (hops, pause) = (0, LONGEST_PAUSE.min(pause * 2));
            }
        }
    }

    /// Learns from a failed request: where its slot is, if the failure says so, and that the map may be out
    /// of date. Returns the redirection, if the failure was one.
    pub(crate) fn learn(&self, server: &Server, failure: &Failure) -> Option<Redirect> {
        let redirect = server.node.as_ref().and_then(|node| Redirect::of(failure, node));
        if let Some(Redirect::Moved(slot, Some(node))) = &redirect {
            self.assign([(slot.index()..=slot.index(), node)]);
        }
        match &redirect {
            // A slot rarely moves alone, so the rest of the map is suspect too.
            Some(_) => self.suspect(),
            None if matches!(failure, Failure::Unsent(_) | Failure::Unanswered(_)) => self.doubt(server),
            None => {}
        }
        redirect
    }

    /// Marks the map as possibly out of date.
    fn suspect(&self) {
        self.suspected.store(true, Ordering::Release);
    }

    /// The same, because this server does not respond.
    pub(crate) fn doubt(&self, server: &Server) {
        self.requests.lock().doubted = Some(server.id);
        self.suspect();
    }

    /// Asks one node after the other for the map, until `limit` at most. If another thread is asking, or
    /// asked a moment ago, a caller that `waits` (its request failed) waits until there is a result or it may
    /// ask; others return at once.
    pub(crate) fn refresh(&self, limit: Moment, waits: bool) {
        let mut requests = self.requests.lock();
        let attempts = requests.attempts;
        loop {
            let now = Moment::now();
            let again_at = requests.at.after(MAP_INTERVAL);
            if !requests.asking && again_at <= now {
                break;
            }
            let until = if requests.asking { limit } else { again_at.min(limit) };
            if !waits || limit <= now {
                return;
            }
            until.wait_on(&self.answered, &mut requests);
            if requests.attempts != attempts {
                return;
            }
        }
        requests.asking = true;
        let (times, doubted) = (attempts, requests.doubted.take());
        drop(requests);
        self.suspected.store(false, Ordering::Release);
        let failed = self.ask(times, doubted, limit).map(|map| self.adopt(&map)).err();
        if failed.is_some() {
            self.suspect();
        }
        let mut requests = self.requests.lock();
        (requests.asking, requests.at, requests.attempts) = (false, Moment::now(), attempts.wrapping_add(1));
        requests.failed = failed;
        self.answered.notify_all();
    }

    fn ask(&self, times: usize, doubted: Option<u64>, limit: Moment) -> Result<Vec<Range>, Failure> {
        let (mut named, others): (Vec<_>, Vec<_>) =
            self.servers.all().enumerate().partition(|(n, _)| self.servers.has_slots(*n as u32));
        let first = times % named.len().max(1);
        named.rotate_left(first);
        named.sort_by_key(|(_, server)| doubted == Some(server.id));
        let all: Vec<_> = named.into_iter().chain(others).collect();
        let mut failed = None;
        for (i, (_, server)) in all.iter().enumerate() {
            let now = Moment::now();
            let Some(node) = server.node.as_ref().filter(|_| now < limit) else { continue };
            // Without a map no request can be sent meanwhile, so each node gets its share of the time.
            let share = limit.since(now) / (all.len() - i) as u32;
            let within =
                if self.mapped.load(Ordering::Acquire) { MAP_TIMEOUT } else { MAP_TIMEOUT.max(share) };
            match server.backend.command(&slots::request(), limit.min(now.after(within))) {
                Ok(reply) => {
                    let map = slots::read(&reply, node);
                    if !map.is_empty() {
                        return Ok(map);
                    }
                }
                // A server that is not part of a cluster is a configuration error, whatever the others say.
                Err(Failure::Denied(e)) if e.kind() == ErrorKind::InvalidInput => {
                    failed = Some(Failure::Denied(node.is_of_no_cluster()));
                }
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        Err(match failed.unwrap_or_else(unknown) {
            // Only the request for the map failed: the lock's own was never sent, so its outcome is known.
            Failure::Unanswered(e) => Failure::Unsent(e),
            Failure::Never(e) => Failure::Denied(e),
            failure => failure,
        })
    }

    /// Adopts a map that a node returned.
    fn adopt(&self, map: &[Range]) {
        self.assign(map.iter().map(|range| (range.slots.clone(), &range.primary)));
        self.mapped.store(true, Ordering::Release);
    }

    /// Records which nodes have these slots, and reports those that another had before.
    fn assign<'a>(&self, slots: impl IntoIterator<Item = (RangeInclusive<usize>, &'a Node)>) {
        let mut elsewhere = vec![false; SLOTS];
        for (slots, node) in slots {
            let Some(n) = self.number_of(node) else { continue };
            for slot in slots {
                elsewhere[slot] = self.servers.set(slot, n);
            }
        }
        if elsewhere.contains(&true)
            && let Some(moved) = self.on_move.get()
        {
            moved(&elsewhere);
        }
    }

    /// Returns the number of the server at this address, which is added if it is new. Returns `None` if it
    /// cannot be added any more.
    fn number_of(&self, node: &Node) -> Option<u32> {
        let pools = self.pools.lock();
        let known = self.servers.number(|it| it.node.as_ref() == Some(node));
        if known.is_some() {
            return known;
        }
        let manager = self.servers.first.manager.at(node);
        self.servers.add(Server::new(manager, pools.as_ref()?, Some(node.clone())))
    }
}

fn unknown() -> Failure {
    Failure::Later(ErrorKind::Unavailable.because("no node of the Redis Cluster returned a slot map"))
}

impl Cluster {
    /// Asks every server for its map, and adopts the first one. At least one server must be reachable, and
    /// all that are must be part of the same cluster.
    ///
    /// # Errors
    /// `InvalidInput` for a server that is not part of a cluster, or is part of another than the first. If
    /// none could be asked, the error of the last one.
    pub(crate) fn probe(&self, channel: &str) -> Result<(), Error> {
        let mut map: Option<(Node, Vec<Range>)> = None;
        let mut failed = None;
        for server in self.servers() {
            let Some(node) = &server.node else { continue };
            match (probe_node(&server.manager, channel, node), &map) {
                (Ok(ranges), Some((first, known))) if !share_nodes(known, &ranges) => {
                    let why = format!("the nodes at {first} and {node} are of different Redis Clusters");
                    return Err(ErrorKind::InvalidInput.because(why));
                }
                (Ok(_), Some(_)) => {}
                (Ok(ranges), None) => map = Some((node.clone(), ranges)),
                (Err(e), _) if e.kind() == ErrorKind::InvalidInput => return Err(e),
                (Err(e), _) => {
                    tracing::warn!(%node, "a node of the cluster could not be asked");
                    failed = Some(e);
                }
            }
        }
        let Some((_, map)) = map else { return failed.map_or(Ok(()), Err) };
        self.suspected.store(false, Ordering::Release);
        self.adopt(&map);
        Ok(())
    }
}

/// Returns whether two maps are of the same cluster: they share a node. They need not be equal, as nodes
/// learn of changes at different times.
fn share_nodes(one: &[Range], other: &[Range]) -> bool {
    let known: HashSet<_> = one.iter().flat_map(|range| &range.ids).collect();
    other.iter().flat_map(|range| &range.ids).any(|id| known.contains(id))
}
