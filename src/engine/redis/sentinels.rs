//! Finds the primary of several servers through the sentinels that watch them.
//!
//! Its address is not cached: each new connection asks for it. Any sentinel may be down or out of date, so
//! the address that one gives is tried, and the next one is asked if it leads nowhere: to no server, or to a
//! server that itself says that it is a replica.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use redis::{Cmd, ConnectionInfo, ErrorKind, RedisError, Value, cmd};

use crate::clock::Moment;
use crate::engine::redis::credentials::Credentials;
use crate::engine::redis::refusal::{NO_SENTINEL, is_denied};
use crate::engine::redis::resp::{list, number, text};
use crate::engine::redis::server_info::ServerInfo;
use crate::engine::redis::slots::Node;
use crate::engine::redis::subscriber::Subscriber;
use crate::engine::redis::wire;
use crate::sync::Mutex;

/// How long one sentinel is waited for, at most.
const SENTINEL_TIMEOUT: Duration = Duration::from_millis(250);
/// The same on a second round, if the first led nowhere and a sentinel timed out: it may be far away, or
/// busy.
const LONG_SENTINEL_TIMEOUT: Duration = Duration::from_secs(1);

/// The channels on which sentinels announce another primary. They all use the first; the one that has
/// promoted the primary uses the second, and tells the others only when the remaining replicas follow it.
const CHANNELS: [&str; 2] = ["+switch-master", "+promoted-slave"];

/// The sentinels of a client.
#[derive(Debug)]
pub(crate) struct SentinelClient {
    /// The primary's name in their configuration.
    master: String,
    nodes: Vec<ConnectionInfo>,
    /// For the sentinels.
    credentials: Credentials,
    /// The sentinel to ask first: the last one that was right.
    first: AtomicUsize,
    /// Where the first connection led, or what the first sentinel to hear of a failover has said since.
    known: Mutex<Option<Node>>,
}

/// Why a sentinel did not lead to the primary.
#[derive(Debug)]
enum Why {
    /// It did not reply, or could not be reached.
    Away(RedisError),
    /// It does not let this client ask, or its user has another password.
    Denied(RedisError),
    /// It is not a sentinel.
    NoSentinel,
    /// It does not know the primary's name.
    Unknown,
    /// It names a replica.
    Replica(Node),
    /// It names a server that cannot be connected to.
    Unreachable(Node, RedisError),
    /// It names another server than the one heard of last.
    Contradicts(Node),
    /// It names a server that another one has named, and that was tried without success.
    Likewise(Node),
}

/// How to log in at the primary. The address in it is not used.
type Login<'a> = (&'a ConnectionInfo, &'a Credentials);

/// The connection to the primary, and where that is.
type Found = (wire::Connection, Node);

/// Why each of the sentinels that were asked did not lead there, by their numbers.
type Reasons = Vec<(usize, Why)>;

impl SentinelClient {
    /// The sentinels at `nodes`, which know the primary as `master`.
    pub(crate) fn new(master: String, nodes: Vec<ConnectionInfo>, credentials: Credentials) -> Self {
        let (first, known) = (AtomicUsize::new(0), Mutex::default());
        SentinelClient { master, nodes, credentials, first, known }
    }

    /// Returns the primary's name, and how to connect to the sentinels.
    pub(crate) fn named(&self) -> (&str, &[ConnectionInfo]) {
        (&self.master, &self.nodes)
    }

    /// Connects to the primary. Blocks for `limit` at most.
    ///
    /// Sentinels do not learn of a failover at the same time, and a former primary that is alive does not
    /// know of it for seconds. So an address that contradicts what was heard last is tried last.
    pub(super) fn find(&self, login: Login<'_>, limit: Duration) -> Result<Found, RedisError> {
        let until = Moment::now().after(limit);
        let share = |limit: Duration| limit / u32::try_from(self.nodes.len() + 1).unwrap_or(u32::MAX);
        let patience = SENTINEL_TIMEOUT.min(share(limit));
        let mut found = self.ask_all(login, until, patience)?;
        let more = LONG_SENTINEL_TIMEOUT.min(share(until.since(Moment::now())));
        let silent = |(_, why): &(usize, Why)| matches!(why, Why::Away(e) if e.is_timeout());
        if found.as_ref().is_err_and(|reasons| reasons.iter().any(silent)) && more > patience {
            found = self.ask_all(login, until, more)?;
        }
        found.map_err(|reasons| self.no_primary(&reasons))
    }

    /// Asks each of them, for `patience` at most, until one leads to the primary; or returns why none did.
    ///
    /// # Errors
    /// The servers reject this client.
    fn ask_all(
        &self,
        login: Login<'_>,
        until: Moment,
        patience: Duration,
    ) -> Result<Result<Found, Reasons>, RedisError> {
        let known = self.known.lock().clone();
        let (mut tried, mut others, mut reasons) = (Vec::new(), Vec::new(), Vec::new());
        for node in self.in_order() {
            let left = until.since(Moment::now());
            if left.is_zero() {
                break;
            }
            let found = self.ask(node, patience.min(left)).and_then(|place| {
                if known.as_ref().is_some_and(|known| *known != place) {
                    others.push((node, place.clone()));
                    return Err(Why::Contradicts(place));
                }
                if tried.contains(&place) {
                    return Err(Why::Likewise(place));
                }
                tried.push(place.clone());
                let left = until.since(Moment::now());
                // Half of the time is for the others, if there are any left.
                self.dial(login, place, if reasons.len() + 1 < self.nodes.len() { left / 2 } else { left })
            });
            match found {
                Ok(found) => return Ok(Ok(self.right(node, found))),
                // By way of any other sentinel it would be the same.
                Err(Why::Unreachable(_, e)) if is_denied(&e) => return Err(e),
                Err(why) => reasons.push((node, why)),
            }
        }
        let first = self.first.load(Ordering::Relaxed);
        let unheard = known.filter(|known| !tried.contains(known) && !others.is_empty());
        for (node, place) in unheard.map(|known| (first, known)).into_iter().chain(others) {
            let left = until.since(Moment::now());
            if tried.contains(&place) || left.is_zero() {
                continue;
            }
            tried.push(place.clone());
            match self.dial(login, place, left / 2) {
                Ok(found) => return Ok(Ok(self.right(node, found))),
                Err(why) => reasons.push((node % self.nodes.len(), why)),
            }
        }
        // Those that had no turn come first the next time.
        self.first.fetch_add(reasons.len(), Ordering::Relaxed);
        Ok(Err(reasons))
    }

    /// Remembers that this sentinel led to the primary.
    fn right(&self, node: usize, found: Found) -> Found {
        self.first.store(node, Ordering::Relaxed);
        self.known.lock().get_or_insert_with(|| found.1.clone());
        found
    }

    /// Subscribes to this sentinel's announcements of failovers. Returns the connection, and where the
    /// primary is now. Blocks for `limit` at most at each step.
    pub(crate) fn subscribe(&self, node: usize, limit: Duration) -> Option<(Subscriber, Node)> {
        let mut connection = self.reach(node, limit).ok()?;
        let until = Moment::now().after(limit);
        // In one write, so that nothing can happen in between.
        let subscribe = cmd("SUBSCRIBE").arg(&CHANNELS).get_packed_command();
        let asked = [self.question().get_packed_command(), subscribe];
        let [answer, first] = connection.ask(asked, until).ok()?;
        first.extract_error().ok()?;
        connection.recv_response(Moment::now(), until).ok()?.extract_error().ok()?;
        Some((Subscriber::new(connection, false), place(&answer).ok()?))
    }

    /// A sentinel that has named `before` now says that the primary is at `now`. Returns whether that is
    /// news. (The first address it names is not: it may be out of date.)
    pub(crate) fn is_news(&self, before: Option<&Node>, now: &Node) -> bool {
        let mut known = self.known.lock();
        let news = before.is_some_and(|before| before != now) && known.as_ref() != Some(now);
        if news {
            *known = Some(now.clone());
        }
        news
    }

    /// Returns where the primary has moved, if a message on this channel says that it has.
    pub(crate) fn moved(&self, channel: &str, message: &str) -> Option<Node> {
        let words: Vec<_> = message.split(' ').collect();
        let (master, host, port) = match (CHANNELS.iter().position(|it| *it == channel)?, &*words) {
            (0, [master, _, _, host, port]) => (master, host, port),
            (1, ["slave", _, host, port, "@", master, ..]) => (master, host, port),
            _ => return None,
        };
        let port = port.parse().ok().filter(|_| *master == self.master)?;
        Some(Node { host: (*host).to_owned(), port })
    }

    /// Whether both lead to the same data, as far as their addresses tell.
    pub(crate) fn lead_where(&self, others: &SentinelClient) -> bool {
        let shared = |node: &ConnectionInfo| others.nodes.iter().any(|other| other.addr() == node.addr());
        self.master == others.master && self.nodes.iter().any(shared)
    }

    /// Describes the primary and its sentinels, for messages.
    pub(crate) fn address(&self) -> String {
        let nodes: Vec<_> = (0..self.nodes.len()).map(|node| self.address_of(node)).collect();
        format!("{:?} of the sentinels {}", self.master, nodes.join(", "))
    }

    fn address_of(&self, node: usize) -> String {
        self.nodes[node].addr().to_string()
    }

    /// Returns all of them, starting with the one that was right last.
    fn in_order(&self) -> impl Iterator<Item = usize> {
        let (n, first) = (self.nodes.len(), self.first.load(Ordering::Relaxed));
        (0..n).map(move |i| (first + i) % n)
    }

    fn question(&self) -> Cmd {
        cmd("SENTINEL").arg("GET-MASTER-ADDR-BY-NAME").arg(&self.master).clone()
    }

    fn reach(&self, node: usize, patience: Duration) -> Result<wire::Connection, RedisError> {
        wire::connect(&self.nodes[node], &self.credentials, patience)
    }

    /// Asks this sentinel where the primary is.
    fn ask(&self, node: usize, patience: Duration) -> Result<Node, Why> {
        let away = |e: RedisError| if is_denied(&e) { Why::Denied(e) } else { Why::Away(e) };
        let until = Moment::now().after(patience);
        let mut connection = self.reach(node, patience).map_err(away)?;
        let [answer] = connection.ask([self.question().get_packed_command()], until).map_err(away)?;
        place(&answer)
    }

    /// Connects to the server there, if it is a primary.
    fn dial(&self, (login, credentials): Login<'_>, place: Node, limit: Duration) -> Result<Found, Why> {
        let connected = || {
            let until = Moment::now().after(limit);
            let mut connection = wire::connect(&place.like(login), credentials, limit)?;
            let primary = is_primary(&mut connection, until)?;
            Ok((connection, primary))
        };
        match connected() {
            Ok((connection, true)) => Ok((connection, place)),
            Ok((_, false)) => Err(Why::Replica(place)),
            Err(e) => Err(Why::Unreachable(place, e)),
        }
    }

    /// Returns the error that says what is wrong, for each sentinel that was asked.
    fn no_primary(&self, reasons: &[(usize, Why)]) -> RedisError {
        let of_each = reasons.iter().map(|(node, why)| format!("{} {}", self.address_of(*node), why));
        let of_each: Vec<_> = of_each.collect();
        let text = format!("{NO_SENTINEL} {:?}: {}", self.master, of_each.join("; "));
        let answered: Vec<_> =
            reasons.iter().map(|(_, why)| why).filter(|why| !matches!(why, Why::Away(_))).collect();
        let kind = if answered.is_empty() {
            ErrorKind::Client
        } else if answered.iter().all(|why| matches!(why, Why::NoSentinel | Why::Unknown)) {
            ErrorKind::MasterNameNotFoundBySentinel
        } else if answered.iter().all(|why| matches!(why, Why::Denied(_))) {
            ErrorKind::AuthenticationFailed
        } else {
            ErrorKind::Client
        };
        RedisError::from((kind, "no primary", text))
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Why::Away(e) if e.is_timeout() => f.write_str("does not answer"),
            Why::Away(e) => write!(f, "cannot be reached ({e})"),
            Why::Denied(e) => write!(f, "rejects this client ({e})"),
            Why::NoSentinel => f.write_str("is no sentinel"),
            Why::Unknown => f.write_str("does not know this name"),
            Why::Replica(place) => write!(f, "names {place}, which is a replica"),
            Why::Unreachable(place, e) if e.is_timeout() => write!(f, "names {place}, which does not answer"),
            Why::Unreachable(place, e) => write!(f, "names {place}, which cannot be reached ({e})"),
            Why::Contradicts(place) => write!(f, "names {place}, which another replaced, as far as is known"),
            Why::Likewise(place) => write!(f, "names {place}, too"),
        }
    }
}

/// Reads the address in a sentinel's reply.
fn place(answer: &Value) -> Result<Node, Why> {
    match answer {
        Value::ServerError(e) if e.code() == "ERR" => Err(Why::NoSentinel),
        Value::ServerError(e) => Err(Why::Denied(e.clone().into())),
        answer => {
            let (host, port) = (text(list(answer).first()), number(list(answer).get(1)));
            let port = port.and_then(|port| port.try_into().ok());
            host.zip(port).map(|(host, port)| Node { host, port }).ok_or(Why::Unknown)
        }
    }
}

/// Asks by `ROLE`, or by `INFO` if that is not permitted. A server that answers neither is given the benefit
/// of the doubt.
fn is_primary(connection: &mut wire::Connection, until: Moment) -> Result<bool, RedisError> {
    let [role] = connection.ask([cmd("ROLE").get_packed_command()], until)?;
    if let Some(role) = text(list(&role).first()) {
        return Ok(role == "master");
    }
    let [info] = connection.ask([cmd("INFO").arg("replication").get_packed_command()], until)?;
    Ok(ServerInfo::read(&info, Moment::now()).is_primary != Some(false))
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/redis/sentinels.rs"]
mod tests;
