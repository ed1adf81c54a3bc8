//! A private Redis Cluster: its nodes, and an operator's commands.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis::{Connection, RedisResult, Value, cmd};

use super::cluster_doors::{APART, Doors};
use super::cluster_options::RedisClusterBuilder;
use super::cluster_view::{View, is_ready};
use super::server::RedisServer;
use super::wait::poll;

/// The number of slots of a cluster.
const SLOTS: usize = 16384;

/// How long the nodes may take to agree. After its start, a node waits for 2 s before it serves requests.
const LIMIT: Duration = Duration::from_secs(60);

/// A private Redis Cluster: nodes on free loopback ports, each with a temporary folder.
///
/// Dropping it stops all nodes, as dropping a [`RedisServer`] does. A killed node can be started again with
/// [`RedisServer::restart`] and rejoins the cluster by itself. Methods that query the cluster ask each
/// running node about itself, so their answers are right as soon as the nodes know their own state.
#[derive(Debug)]
pub struct RedisCluster {
    options: RedisClusterBuilder,
    nodes: Mutex<Vec<Arc<RedisServer>>>,
    /// By the port of the node.
    doors: Mutex<HashMap<u16, Doors>>,
}

impl RedisCluster {
    /// Starts a cluster of this many primaries; see [`RedisClusterBuilder::start`].
    ///
    /// # Errors
    ///
    /// See [`RedisClusterBuilder::start`].
    pub fn start(primaries: usize) -> io::Result<Self> {
        Self::builder().primaries(primaries).start()
    }

    /// Returns a builder, to set options before the start.
    pub fn builder() -> RedisClusterBuilder {
        RedisClusterBuilder::default()
    }

    pub(super) fn launch(options: RedisClusterBuilder) -> io::Result<Self> {
        let n = options.primaries * (1 + options.replicas);
        let started = thread::scope(|scope| {
            let start = |_| scope.spawn(|| options.start_node());
            let starting: Vec<_> = (0..n).map(start).collect();
            let started = starting.into_iter().map(|node| {
                node.join().unwrap_or_else(|_| Err(io::Error::other("a starting thread panicked")))
            });
            started.collect::<io::Result<Vec<_>>>()
        })?;
        let cluster = Self { nodes: Mutex::default(), doors: Mutex::default(), options };
        for (node, doors) in started {
            cluster.take(node, doors);
        }
        cluster.join().map_err(io::Error::other)?;
        cluster.wait_until_ready()?;
        Ok(cluster)
    }

    fn take(&self, node: RedisServer, doors: Option<Doors>) -> Arc<RedisServer> {
        let node = Arc::new(node);
        self.doors.lock().extend(doors.map(|doors| (node.port(), doors)));
        self.nodes.lock().push(node.clone());
        node
    }

    /// Assigns slots to the primaries, and primaries to the replicas.
    fn join(&self) -> RedisResult<()> {
        let nodes = self.nodes();
        let (primaries, replicas) = nodes.split_at(self.options.primaries);
        // Before they meet, so that they announce their slots when they do.
        for (i, node) in primaries.iter().enumerate() {
            let slots: Vec<usize> =
                (i * SLOTS / primaries.len()..(i + 1) * SLOTS / primaries.len()).collect();
            cmd("CLUSTER").arg("ADDSLOTS").arg(slots).exec(&mut node.connection()?)?;
        }
        for (i, node) in nodes.iter().enumerate() {
            let mut connection = node.connection()?;
            cmd("CLUSTER").arg("SET-CONFIG-EPOCH").arg(i + 1).exec(&mut connection)?;
            for other in &nodes[..i] {
                meet(other, &mut connection)?;
            }
        }
        for (i, node) in replicas.iter().enumerate() {
            replicate(node, &primaries[i % primaries.len()])?;
        }
        Ok(())
    }

    /// Returns a URL that lists all present nodes as seeds: `redis+cluster://127.0.0.1:…,127.0.0.1:…`, or
    /// `rediss+cluster://…` if they have TLS.
    pub fn url(&self) -> String {
        let nodes = self.nodes();
        let scheme = if nodes.iter().any(|node| node.tls_port().is_some()) { "rediss" } else { "redis" };
        let nodes: Vec<_> = nodes.iter().map(|node| format!("127.0.0.1:{}", node.peer_port())).collect();
        format!("{scheme}+cluster://{}", nodes.join(","))
    }

    /// Returns the URL of clients that are cut off together with a primary: see [`part`](Self::part).
    pub fn url_apart(&self) -> String {
        self.url().replace("127.0.0.1", &APART.to_string())
    }

    /// Partitions the network until [`heal`](Self::heal): on one side this node and the clients of
    /// [`url_apart`](Self::url_apart), on the other side all other nodes and the clients of
    /// [`url`](Self::url).
    ///
    /// # Panics
    ///
    /// If the nodes are not [behind proxies](RedisClusterBuilder::behind_proxies).
    pub fn part(&self, node: &RedisServer) {
        let doors = self.doors.lock();
        let parted = &doors[&node.port()];
        parted.part();
        doors.iter().filter(|(port, _)| **port != node.port()).for_each(|(_, it)| it.part_from(parted));
    }

    /// Ends the partition: all nodes and clients reach each other again.
    ///
    /// # Errors
    ///
    /// See [`Proxy::heal`](super::proxy::Proxy::heal).
    pub fn heal(&self) -> io::Result<()> {
        self.doors.lock().values().try_for_each(Doors::heal)
    }

    /// Returns all nodes, killed ones included; the initial primaries come first.
    pub fn nodes(&self) -> Vec<Arc<RedisServer>> {
        self.nodes.lock().clone()
    }

    /// Returns the running nodes that report themselves as primaries.
    ///
    /// # Errors
    ///
    /// If a running node does not reply.
    pub fn primaries(&self) -> RedisResult<Vec<Arc<RedisServer>>> {
        let views = self.views()?.into_iter();
        Ok(views.filter(|(_, view)| view.is_primary).map(|(node, _)| node).collect())
    }

    /// Returns the running node that owns this key's slot, by the latest claim; `None` while no node owns it.
    ///
    /// # Errors
    ///
    /// If a running node does not reply.
    pub fn primary_of(&self, key: &str) -> RedisResult<Option<Arc<RedisServer>>> {
        Ok(self.node_with(self.slot_of(key)?)?.map(|(node, _)| node))
    }

    /// Returns the running replicas of this node.
    ///
    /// # Errors
    ///
    /// If a running node does not reply.
    pub fn replicas_of(&self, primary: &RedisServer) -> RedisResult<Vec<Arc<RedisServer>>> {
        let id = id(primary)?;
        let views = self.views()?.into_iter();
        let replicas = views.filter(|(_, view)| view.replicates.as_deref() == Some(&*id));
        Ok(replicas.map(|(node, _)| node).collect())
    }

    /// Returns the slot of this key, as computed by Redis.
    ///
    /// # Errors
    ///
    /// If no node replies.
    pub fn slot_of(&self, key: &str) -> RedisResult<u16> {
        let nodes = self.running();
        let node = nodes.first().ok_or_else(none_runs)?;
        cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut node.connection()?)
    }

    /// Promotes this replica in agreement with its primary (`CLUSTER FAILOVER`), and returns once that is
    /// done.
    ///
    /// # Errors
    ///
    /// If the replica does not reply, or is still not a primary after 60 s.
    pub fn fail_over_to(&self, replica: &RedisServer) -> io::Result<()> {
        let ask = || -> RedisResult<bool> {
            let mut connection = replica.connection()?;
            let is_primary = View::own(&mut connection)?.is_primary;
            if !is_primary {
                // Fails if a failover is already under way.
                let _: RedisResult<()> = cmd("CLUSTER").arg("FAILOVER").exec(&mut connection);
            }
            Ok(is_primary)
        };
        in_time("the replica was not promoted", || ask().unwrap_or(false))
    }

    /// Moves a slot with its keys to the primary `to`, as an operator would; see
    /// [`begin_move`](Self::begin_move).
    ///
    /// # Errors
    ///
    /// If a node does not reply, or rejects a command.
    pub fn move_slot(&self, slot: u16, to: &RedisServer) -> RedisResult<()> {
        self.begin_move(slot, to)?;
        self.finish_move(slot, to)
    }

    /// Begins to move a slot to the primary `to`. Until [`finish_move`](Self::finish_move) its keys stay
    /// where they are, and the node that has them answers `ASK` for keys that it does not have. No effect if
    /// `to` already owns the slot. Blocks until `to` has learned of the slots that the source node received
    /// last: a second or two, if the source received them just before.
    ///
    /// # Errors
    ///
    /// If a node does not reply or rejects a command, or if `to` has not learned of those slots after 60 s.
    pub fn begin_move(&self, slot: u16, to: &RedisServer) -> RedisResult<()> {
        let Some((source, view)) = self.source_of(slot, to)? else { return Ok(()) };
        // `to` will take an epoch above all those it knows. With an epoch below the source's, its claim would
        // not count: it would give the slot back, the source would not take it, and no node would own it.
        let mut connection = to.connection()?;
        in_time("a node of the cluster has not heard of another's slots", || {
            View::of(&mut connection, &view.id)
                .is_ok_and(|received| received.is_some_and(|received| received.epoch >= view.epoch))
        })?;
        let set = |at: &mut Connection, what: &str, other: &str| {
            cmd("CLUSTER").arg("SETSLOT").arg(slot).arg(what).arg(other).exec(at)
        };
        set(&mut connection, "IMPORTING", &view.id)?;
        set(&mut source.connection()?, "MIGRATING", &View::own(&mut connection)?.id)
    }

    /// Moves the keys of a slot whose move has begun, and then the slot itself.
    ///
    /// # Errors
    ///
    /// If a node does not reply, or rejects a command.
    pub fn finish_move(&self, slot: u16, to: &RedisServer) -> RedisResult<()> {
        let Some((source, _)) = self.source_of(slot, to)? else { return Ok(()) };
        let mut connection = source.connection()?;
        loop {
            let keys: Vec<Vec<u8>> =
                cmd("CLUSTER").arg("GETKEYSINSLOT").arg(slot).arg(100).query(&mut connection)?;
            if keys.is_empty() {
                break;
            }
            let mut migrate = cmd("MIGRATE");
            migrate.arg("127.0.0.1").arg(to.peer_port()).arg("").arg(0).arg(5000).arg("KEYS").arg(keys);
            // NOKEY if they have expired meanwhile.
            migrate.query::<Value>(&mut connection)?;
        }
        // The new owner first: until it has the slot, the old owner knows where the keys are.
        let mut nodes = self.running();
        nodes.sort_by_key(|node| (node.port() != to.port(), node.port() != source.port()));
        let target = id(to)?;
        for node in nodes {
            let mut connection = node.connection()?;
            let mut command = cmd("CLUSTER");
            let set = command.arg("SETSLOT").arg(slot).arg("NODE").arg(&target).exec(&mut connection);
            // Replicas learn of it from their primaries, and a primary without any other slot may be a
            // replica by now.
            if View::own(&mut connection)?.is_primary {
                set?;
            }
        }
        Ok(())
    }

    /// Returns the node that owns the slot, unless that is `to`.
    fn source_of(&self, slot: u16, to: &RedisServer) -> RedisResult<Option<(Arc<RedisServer>, View)>> {
        let none = || redis::RedisError::from((redis::ErrorKind::Io, "the slot has no node"));
        let source = self.node_with(slot)?.ok_or_else(none)?;
        Ok((source.0.port() != to.port()).then_some(source))
    }

    /// Returns the running node that owns the slot, by the latest claim.
    fn node_with(&self, slot: u16) -> RedisResult<Option<(Arc<RedisServer>, View)>> {
        let claims = self.views()?.into_iter().filter(|(_, view)| view.is_primary && view.has(slot));
        Ok(claims.max_by_key(|(_, view)| view.epoch))
    }

    /// Adds a primary without slots, and returns once all nodes know it.
    ///
    /// # Errors
    ///
    /// If the node does not start, or the others do not know it after 60 s.
    pub fn add_primary(&self) -> io::Result<Arc<RedisServer>> {
        let (added, doors) = self.options.start_node()?;
        for node in self.running() {
            let mut connection = added.connection().map_err(io::Error::other)?;
            meet(&node, &mut connection).map_err(io::Error::other)?;
        }
        let added = self.take(added, doors);
        self.wait_until_ready()?;
        Ok(added)
    }

    /// Removes a node from the cluster and kills it. Its slots are first moved to `heir`, one by one.
    ///
    /// # Errors
    ///
    /// If a node does not reply, or rejects a command.
    pub fn remove(&self, node: &RedisServer, heir: &RedisServer) -> io::Result<()> {
        self.take_out(node, heir).map_err(io::Error::other)?;
        node.kill()
    }

    fn take_out(&self, node: &RedisServer, heir: &RedisServer) -> RedisResult<()> {
        let view = View::own(&mut node.connection()?)?;
        for slot in view.slots() {
            self.move_slot(slot, heir)?;
        }
        self.nodes.lock().retain(|other| other.port() != node.port());
        for other in self.running() {
            cmd("CLUSTER").arg("FORGET").arg(&view.id).exec(&mut other.connection()?)?;
        }
        Ok(())
    }

    /// Waits until each running node serves requests, is connected to all other nodes and knows their slots,
    /// for at most 60 s. A node that was killed must have been started again, or [removed](Self::remove).
    ///
    /// # Errors
    ///
    /// `TimedOut` if they are not ready in time.
    pub fn wait_until_ready(&self) -> io::Result<()> {
        in_time("the nodes of the cluster have not joined", || self.is_ready().unwrap_or(false))
    }

    fn is_ready(&self) -> RedisResult<bool> {
        let (n, views) = (self.nodes().len(), self.views()?);
        for (node, _) in &views {
            if !is_ready(&mut node.connection()?, n, views.iter().map(|(_, view)| view))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn running(&self) -> Vec<Arc<RedisServer>> {
        self.nodes().into_iter().filter(|node| node.pid().is_some()).collect()
    }

    /// Returns what the running nodes report about themselves.
    fn views(&self) -> RedisResult<Vec<(Arc<RedisServer>, View)>> {
        let view = |node: Arc<RedisServer>| Ok((node.clone(), View::own(&mut node.connection()?)?));
        self.running().into_iter().map(view).collect()
    }
}

/// Makes a node a replica of `primary`, as soon as it knows that node.
fn replicate(node: &RedisServer, primary: &RedisServer) -> RedisResult<()> {
    let id = id(primary)?;
    let ask = || cmd("CLUSTER").arg("REPLICATE").arg(&id).exec(&mut node.connection()?);
    match poll(LIMIT, || ask().ok()) {
        Some(()) => Ok(()),
        None => ask(),
    }
}

/// Introduces `node` to the node at the other end of this connection.
fn meet(node: &RedisServer, connection: &mut Connection) -> RedisResult<()> {
    let mut meet = cmd("CLUSTER");
    meet.arg("MEET").arg("127.0.0.1").arg(node.peer_port()).arg(node.peer_bus_port()).exec(connection)
}

fn id(node: &RedisServer) -> RedisResult<String> {
    cmd("CLUSTER").arg("MYID").query(&mut node.connection()?)
}

fn none_runs() -> redis::RedisError {
    (redis::ErrorKind::Io, "no node of the cluster runs").into()
}

fn in_time(otherwise: &str, mut reached: impl FnMut() -> bool) -> io::Result<()> {
    match poll(LIMIT, || reached().then_some(())) {
        Some(()) => Ok(()),
        None => Err(io::Error::new(io::ErrorKind::TimedOut, format!("{otherwise} within {LIMIT:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_move_nodes_come_and_go_and_replicas_are_promoted() {
        let cluster = RedisCluster::builder()
            .primaries(2)
            .replicas(1)
            .node_timeout(Duration::from_secs(3))
            .start()
            .unwrap();
        let key = "rc:{a}";
        let slot = cluster.slot_of(key).unwrap();
        assert_eq!(slot, 15495);
        let owner = || cluster.primary_of(key).unwrap().unwrap();
        let old = owner();
        assert_eq!((cluster.primaries().unwrap().len(), cluster.nodes().len()), (2, 4));
        cmd("SET").arg(key).arg("kept").exec(&mut old.connection().unwrap()).unwrap();

        let added = cluster.add_primary().unwrap();
        cluster.move_slot(slot, &added).unwrap();
        assert_eq!(owner().port(), added.port());
        let kept: String = cmd("GET").arg(key).query(&mut added.connection().unwrap()).unwrap();
        assert_eq!(kept, "kept");
        cluster.remove(&added, &old).unwrap();
        cluster.wait_until_ready().unwrap();
        assert_eq!((owner().port(), cluster.nodes().len()), (old.port(), 4));

        let replicas = cluster.replicas_of(&old).unwrap();
        let [replica] = &replicas[..] else { panic!("{replicas:?}") };
        cluster.fail_over_to(replica).unwrap();
        assert_eq!(owner().port(), replica.port());
    }
}
