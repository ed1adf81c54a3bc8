//! The primaries of a Redis Cluster: a [`Server`] for each, and which of them has which slot.
//!
//! The map comes from any node (`CLUSTER SLOTS`), and is only a guess: the node that a request goes to says if its
//! slot is elsewhere (`MOVED`), and then the request goes there, as it was not carried out. After that, and after a
//! connection that failed, the map is asked for anew by the thread that noticed, which holds no lock; others go on
//! meanwhile with what is known. No thread does only this. Before there is a first map no request is sent: a server
//! that is no node of a cluster would carry it out.
//!
//! While a slot moves between two nodes, both refuse requests about several keys of which some do not exist yet, as
//! those about a lock are. Such a request is repeated for a short while, within its own timeout; what lasts longer is
//! `Unavailable`, which a wait survives.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use redis::Value;

use super::redis::backend::{Backend, Idempotent, Reply};
use super::redis::connection::ConnectionManager;
use super::redis::failure::Failure;
use super::redis::pool::{Pooled, Pools};
use super::redis::slots::{self, Node, Range, Redirect, SLOTS, Slot};
use super::server::Server;
use super::servers::Servers;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, thread};

/// How long one node may take to tell the map.
const TOLD_WITHIN: Duration = Duration::from_millis(250);
/// The map is not asked for more often than this.
const SELDOM: Duration = Duration::from_millis(100);
/// How often a request follows its slot to another node.
const HOPS: u32 = 5;
/// How long a request waits in all while its slot moves, and its first and its longest pause.
const PATIENCE: Duration = Duration::from_millis(500);
const FIRST_PAUSE: Duration = Duration::from_millis(2);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// What a client does as its cluster changes. Called by a thread that holds no lock of the engine.
pub(crate) trait Watch: Send + Sync {
    /// This server will be named from now on.
    fn added(&self, server: &Arc<Server>);
    /// The slots with these indices are at another server than before.
    fn moved(&self, slots: &[bool]);
}

/// What a request comes to.
pub(crate) trait Repeated {
    /// The same, of a request of which an earlier copy may have been carried out at another server; it was sent by a
    /// connection that was made before then.
    fn repeated(self, first_by: Moment) -> Self;
}

impl Repeated for Reply {
    fn repeated(self, first_by: Moment) -> Self {
        Reply { resent: true, first_by: Some(first_by), ..self }
    }
}

impl Repeated for Value {
    fn repeated(self, _: Moment) -> Self {
        self
    }
}

impl Repeated for (Arc<Server>, Pooled) {
    fn repeated(self, _: Moment) -> Self {
        self
    }
}

pub(crate) struct Cluster {
    /// Makes the managers of the nodes' connections: login, TLS and timeouts are those of the first one.
    template: ConnectionManager,
    servers: Servers,
    known: Mutex<Known>,
    watch: OnceLock<Box<dyn Watch>>,
    /// There has been a map.
    mapped: AtomicBool,
    /// What is known may be out of date.
    suspected: AtomicBool,
    asked: Mutex<Asked>,
    /// A thread that asked for the map is done.
    answered: Condvar,
}

struct Known {
    numbers: HashMap<Node, u32>,
    /// Gone once the client is closed: then no server is added.
    pools: Option<Pools>,
}

/// When and how the map is asked for.
#[derive(Default)]
struct Asked {
    /// A thread does so.
    asking: bool,
    /// The last one was done then.
    at: Moment,
    /// How many were: each begins with another node, as one may be wrong for long.
    told: usize,
    /// The server that last failed a request is the last to be asked.
    doubted: Option<u64>,
    /// Why the last one got no map.
    failed: Option<Failure>,
}

impl Cluster {
    /// A cluster that these nodes are of; `template` leads to the first of them. Sends nothing.
    pub(crate) fn new(template: ConnectionManager, pools: Pools, nodes: &[Node]) -> io::Result<Cluster> {
        let first = server_at(&template, &pools, nodes.first())?;
        let numbers = nodes.first().map(|node| (node.clone(), 0)).into_iter().collect();
        let cluster = Cluster {
            servers: Servers::new(first),
            known: Mutex::new(Known { numbers, pools: Some(pools) }),
            template,
            watch: OnceLock::new(),
            mapped: AtomicBool::new(false),
            suspected: AtomicBool::new(true),
            asked: Mutex::default(),
            answered: Condvar::new(),
        };
        for node in nodes {
            cluster.number_of(node);
        }
        Ok(cluster)
    }

    /// From now on its client is told of changes; of the servers that there are, too.
    pub(crate) fn watched_by(&self, watch: impl Watch + 'static) {
        let _ = self.watch.set(Box::new(watch));
    }

    pub(crate) fn to(&self, slot: Slot) -> &Arc<Server> {
        self.servers.of(slot)
    }

    /// All servers that there have been.
    pub(crate) fn servers(&self) -> Vec<Arc<Server>> {
        self.servers.all().cloned().collect()
    }

    /// From now on no server is added, and the threads end that make connections.
    pub(crate) fn end(&self) {
        let pools = self.known.lock().pools.take();
        drop(pools);
    }

    /// Whether any slot is there.
    pub(crate) fn leads_to(&self, server: &Server) -> bool {
        let n = server.node.as_ref().and_then(|node| self.known.lock().numbers.get(node).copied());
        n.is_some_and(|n| self.servers.has_slots(n))
    }

    /// See [`Route::follow`](super::route::Route::follow).
    pub(crate) fn follow<T: Repeated>(
        &self,
        slot: Slot,
        limit: Moment,
        idempotent: Idempotent,
        mut act: impl FnMut(&Arc<Server>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        if !self.mapped.load(Ordering::Acquire) {
            self.find(limit)?;
        }
        let began = Moment::now();
        let (mut hops, mut pause, mut patience, mut unanswered) = (0, FIRST_PAUSE, None, None);
        loop {
            if self.suspected.load(Ordering::Acquire) {
                self.refresh(limit, false);
            }
            let server = self.to(slot);
            let failure = match act(server) {
                Ok(done) if unanswered.is_some() => return Ok(done.repeated(began)),
                Ok(done) => return Ok(done),
                Err(failure) => failure,
            };
            let redirect = self.learn(server, &failure);
            let failure = match (failure, unanswered.take()) {
                (Failure::Never(e), _) => return Err(Failure::Never(e)),
                // Another copy may have been carried out, or may yet.
                (_, Some(first)) => Failure::Unanswered(first),
                (failure, None) => failure,
            };
            let now = Moment::now();
            let may_be_sent_again = match &failure {
                Failure::Unsent(_) | Failure::Later(_) => true,
                Failure::Unanswered(_) => idempotent == Idempotent::Yes,
                _ => false,
            };
            if limit <= now || !may_be_sent_again {
                return Err(failure);
            }
            if self.suspected.load(Ordering::Acquire) && Arc::ptr_eq(self.to(slot), server) {
                self.refresh(limit, redirect.is_none());
            }
            let is_elsewhere = !Arc::ptr_eq(self.to(slot), server) && hops < HOPS;
            let until = *patience.get_or_insert_with(|| limit.min(now.after(PATIENCE)));
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

    /// Asks for the first map.
    fn find(&self, limit: Moment) -> Result<(), Failure> {
        self.refresh(limit, true);
        if self.mapped.load(Ordering::Acquire) {
            return Ok(());
        }
        Err(self.asked.lock().failed.clone().unwrap_or_else(unknown))
    }

    /// Learns from a failed request where its slot is, as far as it says; otherwise that the map is to be asked for.
    pub(crate) fn learn(&self, server: &Server, failure: &Failure) -> Option<Redirect> {
        let redirect = server.node.as_ref().and_then(|node| Redirect::of(failure, node));
        match &redirect {
            Some(Redirect::Moved(slot, Some(node))) => {
                if let Some(n) = self.number_of(node)
                    && self.servers.set(slot.index(), n)
                {
                    let mut moved = vec![false; SLOTS];
                    moved[slot.index()] = true;
                    self.tell_moved(&moved);
                }
                // Seldom it is the only one.
                self.suspect();
            }
            Some(_) => self.suspect(),
            None if matches!(failure, Failure::Unsent(_) | Failure::Unanswered(_)) => self.doubt(server),
            None => {}
        }
        redirect
    }

    /// What is known may be out of date.
    fn suspect(&self) {
        self.suspected.store(true, Ordering::Release);
    }

    /// The same, as this server does not answer.
    pub(crate) fn doubt(&self, server: &Server) {
        self.asked.lock().doubted = Some(server.id);
        self.suspect();
    }

    /// Asks one node after the other for the map, until `limit` at most; where another thread does so, or did a moment
    /// ago, a caller whose request failed `waits` for that.
    pub(crate) fn refresh(&self, limit: Moment, waits: bool) {
        let mut asked = self.asked.lock();
        let told = asked.told;
        loop {
            let now = Moment::now();
            let again_at = if asked.told == 0 { now } else { asked.at.after(SELDOM) };
            if !asked.asking && again_at <= now {
                break;
            }
            let until = if asked.asking { limit } else { again_at.min(limit) };
            match until.instant().filter(|_| waits && now < limit) {
                Some(instant) => drop(self.answered.wait_until(&mut asked, instant)),
                None => return,
            }
            if asked.told != told {
                return;
            }
        }
        asked.asking = true;
        let (times, doubted) = (told, asked.doubted.take());
        drop(asked);
        self.suspected.store(false, Ordering::Release);
        let failed = self.ask(times, doubted, limit).map(|map| self.adopt(&map)).err();
        if failed.is_some() {
            self.suspect();
        }
        let mut asked = self.asked.lock();
        (asked.asking, asked.at, asked.told) = (false, Moment::now(), told.wrapping_add(1));
        asked.failed = failed;
        self.answered.notify_all();
    }

    fn ask(&self, times: usize, doubted: Option<u64>, limit: Moment) -> Result<Vec<Range>, Failure> {
        let (mut named, others): (Vec<_>, Vec<_>) =
            self.servers.all().enumerate().partition(|(n, _)| self.servers.has_slots(*n as u32));
        if !named.is_empty() {
            let first = times % named.len();
            named.rotate_left(first);
        }
        named.sort_by_key(|(_, server)| doubted == Some(server.id));
        let all: Vec<_> = named.into_iter().chain(others).collect();
        let mut failed = None;
        for (i, (_, server)) in all.iter().enumerate() {
            let now = Moment::now();
            let Some(node) = server.node.as_ref().filter(|_| now < limit) else { continue };
            // Without a map nothing can be done meanwhile: each has its share of the time.
            let share = limit.since(now) / (all.len() - i) as u32;
            let within =
                if self.mapped.load(Ordering::Acquire) { TOLD_WITHIN } else { TOLD_WITHIN.max(share) };
            match server.backend.command(&slots::request(), limit.min(now.after(within))) {
                Ok(told) => {
                    let map = slots::read(&told, node);
                    if !map.is_empty() {
                        return Ok(map);
                    }
                }
                // Whatever the others say, it should not have been named.
                Err(failure) if is_wrong(&failure) => failed = Some(Failure::Denied(node.is_of_no_cluster())),
                Err(failure) => failed = failed.or(Some(failure)),
            }
        }
        Err(match failed.unwrap_or_else(unknown) {
            // This was no request of a lock.
            Failure::Unanswered(e) => Failure::Unsent(e),
            Failure::Never(e) => Failure::Denied(e),
            failure => failure,
        })
    }

    /// The map, as it is told at the beginning.
    pub(super) fn learned(&self, map: &[Range]) {
        self.suspected.store(false, Ordering::Release);
        self.adopt(map);
    }

    /// Takes over a map that a node told.
    fn adopt(&self, map: &[Range]) {
        let mut moved = vec![false; SLOTS];
        for range in map {
            let Some(n) = self.number_of(&range.primary) else { continue };
            for slot in range.indices() {
                moved[slot] = self.servers.set(slot, n);
            }
        }
        self.mapped.store(true, Ordering::Release);
        if moved.contains(&true) {
            self.tell_moved(&moved);
        }
    }

    fn tell_moved(&self, slots: &[bool]) {
        if let Some(watch) = self.watch.get() {
            watch.moved(slots);
        }
    }

    /// The number of the server at this address, which is added where it is new; `None` where that cannot be.
    fn number_of(&self, node: &Node) -> Option<u32> {
        let mut known = self.known.lock();
        if let Some(n) = known.numbers.get(node) {
            return Some(*n);
        }
        let server = server_at(&self.template, known.pools.as_ref()?, Some(node)).inspect_err(|e| {
            tracing::error!(%node, error = %e, "a node of the cluster cannot be used");
        });
        let (server, n) = (server.ok()?, u32::try_from(known.numbers.len()).ok()?);
        if let Some(watch) = self.watch.get() {
            watch.added(&server);
        }
        self.servers.add(n, server).then(|| known.numbers.insert(node.clone(), n))?;
        Some(n)
    }
}

/// Whether the server is of no cluster.
fn is_wrong(failure: &Failure) -> bool {
    matches!(failure, Failure::Denied(e) if e.is_invalid_input())
}

fn unknown() -> Failure {
    let error = Error::new(ErrorKind::Unavailable, "");
    Failure::Later(error.because("no node of the Redis Cluster tells which slots it has"))
}

fn server_at(template: &ConnectionManager, pools: &Pools, node: Option<&Node>) -> io::Result<Arc<Server>> {
    let manager = match node {
        Some(node) => template.at(node).map_err(io::Error::other)?,
        None => template.clone(),
    };
    let pool = pools.pool(manager.clone())?;
    Ok(Server::at(manager, Backend::new(pool), node.cloned()))
}
