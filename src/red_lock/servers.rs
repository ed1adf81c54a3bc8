//! The servers of a lock over several servers. They are checked once: that there are enough, and that all
//! differ.

use std::sync::Arc;
use std::time::Duration;

use super::node::{Query, Voter, read_all};
use crate::client::Client;
use crate::clock::Moment;
use crate::engine::redis::exchange::Command;
use crate::engine::renewal::successor::connected;
use crate::error::Error;
use crate::settings::{SHORTEST_LEASE, bad};

/// The smallest number of servers of which one may fail.
const FEWEST: usize = 3;

/// Locks over several independent servers, by the algorithm called *Redlock*: a lock is held as soon as a
/// majority of the servers has granted it, and for as long as a majority does. A minority of servers
/// ((n−1)/2) may be down, hung or unreachable. Cheap to clone. Make one and keep it, as it remembers which
/// servers did not reply.
///
/// ```
/// use std::time::Duration;
/// use redis_concurrent::{Client, RedLockClient};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let servers: [_; 3] = std::array::from_fn(|_| redis_concurrent_testkit::RedisServer::start().unwrap());
/// # let [a, b, c] = servers.each_ref().map(|server| server.url());
/// let clients = [Client::connect(&a)?, Client::connect(&b)?, Client::connect(&c)?];
/// // These servers were started a moment ago, and have granted nothing before: see below.
/// let red = RedLockClient::new(clients)?.skip_startup_delay();
/// # let red = red.with_node_timeout(Duration::from_secs(10));
///
/// let lock = red.lock("stock:42");
/// let guard = lock.lock()?; // renewed while it is held
/// assert!(guard.remaining() > Duration::from_secs(20));
/// let lost = guard.lost(); // cancelled when fewer than two servers still have it
/// assert!(!lost.is_cancelled());
/// guard.unlock()?;
/// # Ok(())
/// # }
/// ```
///
/// # How it works
///
/// On each server the lock is an ordinary [`SimpleLock`](crate::SimpleLock) of that server's client. An
/// attempt writes its request to all servers before it reads a reply, and waits for none of them longer than
/// the [node timeout](RedLockClient::with_node_timeout). The lock is held when a majority said yes and the leases
/// of a majority have not expired, counted from before the first request, minus 1% for clocks that differ in
/// rate. Otherwise the attempt releases everything, including on servers that did not reply, and the call
/// retries after a random pause that grows, until its deadline. Calls do not queue: a caller that waits on
/// one server while it holds another could wait forever. So waiters are not ordered, and under contention a
/// name is acquired more slowly than with a lock on one server.
///
/// A server that does not reply is left out until it has replied to a background thread: it costs the node
/// timeout once, and not with each acquisition. Replies that a majority does not need are read in the
/// background, and count once they arrive; meanwhile that server is not asked for the same name again.
///
/// A server that was started less than a lease ago does not count, as it may have forgotten what it granted
/// (unless [configured otherwise](RedLockClient::skip_startup_delay)); nor does one that took the place of another
/// less than a lease ago, as its client found. So all users of a name must use the same lease.
///
/// # What it guarantees, and what it does not
///
/// As long as the clocks of servers and clients run at about the same rate, no server's clock is set forward,
/// no server forgets what it granted other than by a restart, and each address leads all callers to the same
/// server, there are never two holds of a name that are [valid](crate::Guard::remaining) at once, whichever
/// minority of the servers fails, in whichever way. (Of an address that begins to lead to another server, only
/// a client that was connected before can tell.)
///
/// A hold has no fencing token, and cannot have one: the servers do not know each other's numbers, so there
/// is nothing that grows with each hold. A process that pauses for longer than its lease may therefore finish
/// a write that it had begun when others hold the lock, and the resource cannot notice. If that must not
/// happen, use a lock on one server and its [token](crate::Guard::token), or a store with consensus.
#[derive(Clone, Debug)]
pub struct RedLockClient {
    pub(super) nodes: Arc<[Arc<Voter>]>,
    pub(super) lease: Duration,
    pub(super) node_timeout: Option<Duration>,
    pub(super) skips_startup_delay: bool,
}

impl RedLockClient {
    /// Makes locks over the servers of these clients: an odd number of servers, at least three, all
    /// different. The lease is the shortest of the clients' leases. Asks all servers at once to identify
    /// themselves; a server that does not reply is identified by its address, and left out until it does.
    /// Blocks for at most a client's connect timeout plus command timeout.
    ///
    /// # Errors
    /// `InvalidInput` for an even number of clients or fewer than three, for two clients of the same server,
    /// and for a client whose primary is found through sentinels. `Closed`, `Forked`.
    pub fn new(clients: impl AsRef<[Client]>) -> Result<RedLockClient, Error> {
        let nodes = checked(clients.as_ref())?;
        let lease = nodes.iter().map(|node| node.shared.config.lease).min().unwrap_or(SHORTEST_LEASE);
        Ok(RedLockClient { nodes, lease, node_timeout: None, skips_startup_delay: false })
    }

    /// The same servers with a node timeout: how long each server may take to reply. At least 1 ms, at most
    /// half the lease. The default is a twentieth of the lease, from 25 to 200 ms. If a busy machine or a
    /// slow network takes longer, the server counts as down for a while, and the lock is `Unavailable` if
    /// that applies to a majority.
    #[must_use]
    pub fn with_node_timeout(&self, timeout: Duration) -> RedLockClient {
        RedLockClient { node_timeout: Some(timeout), ..self.clone() }
    }

    /// The same servers, where those that were started less than a lease ago count, too: for a first start, when
    /// no caller can have been granted anything yet. Otherwise a server that died and came back empty may grant
    /// what another holder was granted before.
    #[must_use]
    pub fn skip_startup_delay(&self) -> RedLockClient {
        RedLockClient { skips_startup_delay: true, ..self.clone() }
    }

    pub(super) fn majority(&self) -> usize {
        self.nodes.len() / 2 + 1
    }
}

/// A twentieth of the lease, within bounds: a server that hangs costs it once, and a thread on a busy machine may well
/// not run for some 10 ms.
pub(super) fn default_node_timeout(lease: Duration) -> Duration {
    (lease / 20).clamp(Duration::from_millis(25), Duration::from_millis(200))
}

/// The clients' servers, if they are valid for a RedLock.
fn checked(clients: &[Client]) -> Result<Arc<[Arc<Voter>]>, Error> {
    let n = clients.len();
    if n < FEWEST || n.is_multiple_of(2) {
        return Err(bad(format!(
            "a RedLock needs an odd number of servers, at least {FEWEST}, got {n}: with fewer none may \
             fail, and of an even number one server fewer tolerates as many"
        )));
    }
    let voter = |(i, client)| {
        Voter::new(client).map(Arc::new).map_err(|why| bad(format!("client {i} of a RedLock {why}")))
    };
    let nodes: Arc<[_]> = clients.iter().enumerate().map(voter).collect::<Result<_, _>>()?;
    identify(&nodes)?;
    for (i, node) in nodes.iter().enumerate() {
        let same = |other: &Voter| match [&**node, other].map(|it| it.server.known.run_id()) {
            [Some(a), Some(b)] => a == b,
            // A server that did not reply is identified by its address only.
            _ => node.address == other.address,
        };
        if let Some(other) = (0..i).find(|other| same(&nodes[*other])) {
            let (one, two) = (&nodes[other].address, &node.address);
            return Err(bad(format!(
                "a RedLock needs a different server for each client: clients {other} ({one}) and {i} ({two}) have the same"
            )));
        }
    }
    Ok(nodes)
}

/// Learns which servers these are, of those that reply. All requests are written before any reply is waited for.
fn identify(nodes: &[Arc<Voter>]) -> Result<(), Error> {
    nodes.iter().try_for_each(|node| node.shared.usable())?;
    let began = Moment::now();
    let longest =
        |node: &Arc<Voter>| node.shared.config.connect_timeout.max(node.shared.config.command_timeout);
    let limit = began.after(nodes.iter().map(longest).max().unwrap_or(Duration::ZERO));
    let ping = |node| (node, Query::sent(node, Command::plain(&redis::cmd("PING")).identified(), began));
    for (node, reply) in read_all(nodes.iter().map(ping).collect(), began, limit) {
        match reply {
            Ok(reply) => reply.server.iter().for_each(|it| connected(&node.shared, &node.server, it)),
            Err(failure) => node.failed(failure.error()),
        }
    }
    Ok(())
}
