//! What a server is asked once, when a client connects: whether it can serve this library at all.
//!
//! Asking takes one round trip, and only the rights that the client needs anyway. A server that leaves
//! something open is given the benefit of the doubt: the first call that fails will show it.

use redis::{RedisError, ServerError, ServerErrorKind, Value};

use crate::clock::Moment;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::refusal::{no_sentinel_leads_there, not_connected, refused};
use crate::engine::redis::resp::{list, number, text};
use crate::engine::redis::server_info::{ServerInfo, field, lines};
use crate::engine::redis::slots::{self, Node, Range};
use crate::engine::redis::wire::Connection;
use crate::error::{Error, ErrorKind};

/// The first version with `SET … GET` and `PXAT`.
const OLDEST: [u32; 2] = [6, 2];

/// No script has this digest.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// What a server said about itself, and when.
#[derive(Debug)]
pub(crate) struct Probed {
    pub(crate) server: ServerInfo,
    pub(crate) received: Moment,
}

/// Why a server could not be probed, or cannot be used.
pub(crate) enum Unprobed {
    /// There was no connection, or it broke, or Redis rejected it.
    Failed(RedisError),
    /// The server cannot be used.
    Unfit(Error),
}

impl From<RedisError> for Unprobed {
    fn from(e: RedisError) -> Self {
        Unprobed::Failed(e)
    }
}

/// Asks the server at the end of a new connection whether it can serve a client that listens on `channel`,
/// and warns of what is missing but not essential. Blocks for the connect timeout and the command timeout at
/// most.
///
/// # Errors
/// `Unfit` with `InvalidInput` for a server that can never be used, `Unavailable` for a replica, which may be
/// promoted.
pub(crate) fn probe(manager: &ConnectionManager, channel: &str) -> Result<Probed, Unprobed> {
    let mut replies = ask(manager, channel)?;
    let at = manager.address();
    unfit(&replies.info, &at)
        .or_else(|| is_replica(&replies.info, &at))
        .map_or(Ok(()), Err)
        .map_err(Unprobed::Unfit)?;
    if field(&replies.info, "cluster_enabled:") == Some("1") {
        let [slots] = replies.connection.ask([slots::request().get_packed_command()])?;
        let primaries = primaries(&slots);
        if primaries > 1 {
            return Err(Unprobed::Unfit(never(format!(
                "the server at {at} is one of the {primaries} primaries of a Redis Cluster: it has some of the locks, \
                 and cannot be used by itself; redis+cluster://{at} finds all of them"
            ))));
        }
    }
    replies.can_run_scripts(&at)?;
    Ok(replies.probed)
}

/// Asks a node of a cluster, primary or replica, the same, and which node has which slot.
///
/// # Errors
/// `Unfit` with `InvalidInput` for a server that is not part of a cluster, or can never be used.
pub(crate) fn probe_node(
    manager: &ConnectionManager,
    channel: &str,
    node: &Node,
) -> Result<(Probed, Vec<Range>), Unprobed> {
    let mut replies = ask(manager, channel)?;
    let at = manager.address();
    unfit(&replies.info, &at).map_or(Ok(()), Err).map_err(Unprobed::Unfit)?;
    let [reply] = replies.connection.ask([slots::request().get_packed_command()])?;
    if let Value::ServerError(e) = &reply {
        let error = refused(e.clone().into()).error();
        return Err(Unprobed::Unfit(if error.kind() == ErrorKind::InvalidInput {
            node.is_of_no_cluster()
        } else {
            error
        }));
    }
    let map = slots::read(&reply, node);
    if map.is_empty() {
        return Err(Unprobed::Unfit(never(match list(&reply) {
            [] => format!("the node at {at} is of no Redis Cluster: it knows of no slots"),
            _ => format!("the slot map of the node at {at} does not name the host of any primary"),
        })));
    }
    replies.can_run_scripts(&at)?;
    Ok((replies.probed, map))
}

/// The replies of a server.
struct ProbeReplies {
    connection: Connection,
    probed: Probed,
    /// What it says about itself.
    info: String,
    pubsub: Value,
    scripts: Value,
}

fn ask(manager: &ConnectionManager, channel: &str) -> Result<ProbeReplies, Unprobed> {
    let mut connection = manager.raw().map_err(|e| {
        let unknown = e.kind() == redis::ErrorKind::MasterNameNotFoundBySentinel;
        let why = no_sentinel_leads_there(&e).filter(|_| unknown);
        Unprobed::Unfit(why.map_or_else(|| not_connected(e.clone()).error(), |why| never(why.to_owned())))
    })?;
    let requests = [
        redis::cmd("PING").get_packed_command(),
        redis::cmd("INFO").get_packed_command(),
        redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).get_packed_command(),
        redis::cmd("EVALSHA").arg(NO_SCRIPT).arg(0).get_packed_command(),
    ];
    let [pong, info, pubsub, scripts] = connection.ask(requests)?;
    pong.extract_error()?;
    let received = Moment::now();
    let (info, probed) = (lines(&info), Probed { server: ServerInfo::read(&info, received), received });
    Ok(ProbeReplies { connection, probed, info, pubsub, scripts })
}

impl ProbeReplies {
    fn can_run_scripts(&self, at: &str) -> Result<(), Unprobed> {
        let missing = is_missing(&self.scripts);
        if let Some(why) = missing.filter(|e| e.kind() != Some(ServerErrorKind::NoScript)) {
            let error =
                never(format!("the server at {at} does not run scripts, of which every lock is made"));
            return Err(Unprobed::Unfit(error.caused_by(RedisError::from(why.clone()))));
        }
        warn(&self.info, at, &self.pubsub);
        Ok(())
    }
}

fn never(why: String) -> Error {
    Error::new(ErrorKind::InvalidInput, "").because(why)
}

/// Returns why a server that says this of itself cannot have any locks.
fn unfit(info: &str, at: &str) -> Option<Error> {
    let mode = field(info, "redis_mode:").or_else(|| field(info, "server_mode:"));
    if mode == Some("sentinel") {
        return Some(never(format!(
            "the server at {at} is a Sentinel, which has no data: redis+sentinel://{at}/<name of a primary> leads to the \
             primary that it watches by this name"
        )));
    }
    if let Some(version) = field(info, "redis_version:").filter(|version| is_too_old(version)) {
        let [major, minor] = OLDEST;
        return Some(never(format!(
            "the server at {at} is Redis {version}: {major}.{minor} is the first that can be used"
        )));
    }
    None
}

/// Returns the error for a server that says it is a replica.
fn is_replica(info: &str, at: &str) -> Option<Error> {
    field(info, "role:").filter(|role| *role == "slave")?;
    let of = |name| field(info, name).unwrap_or("?");
    let (host, port) = (of("master_host:"), of("master_port:"));
    Some(Error::new(ErrorKind::Unavailable, "").because(format!(
        "the server at {at} is a replica of {host}:{port}: locks need an address that leads to the primary"
    )))
}

/// A version whose numbers cannot be read is not too old.
fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    match (numbers.next(), numbers.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => [major, minor] < OLDEST,
        _ => false,
    }
}

/// Returns how many primaries the cluster of this node has.
fn primaries(slots: &Value) -> usize {
    let primary = |range: &Value| {
        let node = list(list(range).get(2)?);
        Some((text(node.first()).unwrap_or_default(), number(node.get(1)), text(node.get(2))))
    };
    let mut all: Vec<_> = list(slots).iter().filter_map(primary).collect();
    all.sort();
    all.dedup();
    all.len()
}

/// Returns the error of a server that does not have the command, rather than of a user who may not use it.
fn is_missing(answer: &Value) -> Option<&ServerError> {
    let Value::ServerError(e) = answer else { return None };
    let words = e.details().unwrap_or_default().to_ascii_lowercase();
    let info =
        ["unknown", "unsupported", "not supported", "disabled"].iter().any(|word| words.contains(word));
    info.then_some(e)
}

/// Warns of what does not matter until later.
fn warn(info: &str, at: &str, pubsub: &Value) {
    let policy = field(info, "maxmemory_policy:").unwrap_or("noeviction");
    if policy != "noeviction" && field(info, "maxmemory:").is_some_and(|most| most != "0") {
        tracing::warn!(
            server = at,
            policy,
            "this server evicts keys when its memory is full, and an evicted lock is free: maxmemory-policy should \
             be noeviction"
        );
    }
    if let Some(e) = is_missing(pubsub) {
        tracing::warn!(
            server = at,
            error = %e,
            "this server, or a proxy before it, has no publish/subscribe: free locks can be acquired, and waiting is \
             Unavailable"
        );
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/redis/probe.rs"]
mod tests;
