//! What a server is asked once, when a client connects: whether it can serve this library at all.
//!
//! Asking takes one round trip, and only the rights that the client needs anyway. A server that leaves
//! something open is given the benefit of the doubt: the first call that fails will show it.

use std::collections::HashSet;

use redis::{RedisError, ServerError, ServerErrorKind, Value};

use crate::clock::Moment;
use crate::engine::redis::connection::ConnectionManager;
use crate::engine::redis::refusal::{no_sentinel_leads_there, not_connected, refused, unanswered};
use crate::engine::redis::resp::list;
use crate::engine::redis::server_info::{ServerInfo, field, lines};
use crate::engine::redis::slots::{self, Node, Range};
use crate::engine::redis::wire::Connection;
use crate::error::{Error, ErrorKind};
use crate::settings::bad;

/// The first version with `SET … GET` and `PXAT`.
const OLDEST: [u32; 2] = [6, 2];

/// No script has this digest.
const NO_SCRIPT: &str = "0000000000000000000000000000000000000000";

/// Asks the server at the end of a new connection whether it can serve a client that listens on `channel`,
/// and warns of what is missing but not essential. Returns which server it is. Blocks for the connect timeout and
/// the command timeout at most.
///
/// # Errors
/// `InvalidInput` for a server that can never be used, `Unavailable` for a replica, which may be promoted, and
/// where there is no connection.
pub(crate) fn probe(manager: &ConnectionManager, channel: &str) -> Result<ServerInfo, Error> {
    let (mut connection, answer) = ask(manager, channel)?;
    let (server, info) = (ServerInfo::read(&answer, Moment::now()), lines(&answer));
    let at = manager.address();
    not_a_replica(&info, &at)?;
    if field(&info, "cluster_enabled:") == Some("1") {
        let primaries = primaries(&slots_of(manager, &mut connection)?);
        if primaries > 1 {
            return Err(bad(format!(
                "the server at {at} is one of the {primaries} primaries of a Redis Cluster: it has some of the locks, \
                 and cannot be used by itself; redis+cluster://{at} finds all of them"
            )));
        }
    }
    Ok(server)
}

/// Asks a node of a cluster, primary or replica, the same, and returns which node has which slot.
///
/// # Errors
/// `InvalidInput` for a server that is not part of a cluster, or can never be used.
pub(crate) fn probe_node(
    manager: &ConnectionManager,
    channel: &str,
    node: &Node,
) -> Result<Vec<Range>, Error> {
    let (mut connection, _) = ask(manager, channel)?;
    let at = manager.address();
    let reply = slots_of(manager, &mut connection)?;
    if let Value::ServerError(e) = &reply {
        let error = refused(e.clone().into()).error();
        let is_of_none = error.kind() == ErrorKind::InvalidInput;
        return Err(if is_of_none { node.is_of_no_cluster() } else { error });
    }
    let map = slots::read(&reply, node);
    if map.is_empty() {
        return Err(bad(match list(&reply) {
            [] => format!("the node at {at} is of no Redis Cluster: it knows of no slots"),
            _ => format!("the slot map of the node at {at} does not name the host of any primary"),
        }));
    }
    Ok(map)
}

/// Returns a connection to the server, and what it says about itself, if it can have locks at all.
fn ask(manager: &ConnectionManager, channel: &str) -> Result<(Connection, Value), Error> {
    let mut connection = manager.raw().map_err(|e| {
        let unknown = e.kind() == redis::ErrorKind::MasterNameNotFoundBySentinel;
        let why = no_sentinel_leads_there(&e).filter(|_| unknown);
        why.map_or_else(|| not_connected(e.clone()).error(), bad)
    })?;
    let all = [
        redis::cmd("PING").get_packed_command(),
        redis::cmd("INFO").get_packed_command(),
        redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).get_packed_command(),
        redis::cmd("EVALSHA").arg(NO_SCRIPT).arg(0).get_packed_command(),
    ];
    let [pong, answer, pubsub, scripts] =
        connection.ask(all, manager.due()).map_err(|e| failed(manager, e))?;
    pong.extract_error().map_err(|e| failed(manager, e))?;
    let (info, at) = (lines(&answer), manager.address());
    fit(&info, &at)?;
    if let Some(why) = is_missing(&scripts).filter(|e| e.kind() != Some(ServerErrorKind::NoScript)) {
        let error = bad(format!("the server at {at} does not run scripts, of which every lock is made"));
        return Err(error.caused_by(RedisError::from(why.clone())));
    }
    warn(&info, &at, &pubsub);
    Ok((connection, answer))
}

fn slots_of(manager: &ConnectionManager, connection: &mut Connection) -> Result<Value, Error> {
    let slots = connection.ask([slots::request().get_packed_command()], manager.due());
    slots.map(|[slots]| slots).map_err(|e| failed(manager, e))
}

/// The error for a connection that broke, or that Redis rejected.
fn failed(manager: &ConnectionManager, e: RedisError) -> Error {
    if e.is_timeout() { unanswered(e, manager.command_timeout) } else { not_connected(e).error() }
}

/// Returns why a server that says this of itself cannot have any locks, if it cannot.
fn fit(info: &str, at: &str) -> Result<(), Error> {
    let mode = field(info, "redis_mode:").or_else(|| field(info, "server_mode:"));
    if mode == Some("sentinel") {
        return Err(bad(format!(
            "the server at {at} is a Sentinel, which has no data: redis+sentinel://{at}/<name of a primary> leads to the \
             primary that it watches by this name"
        )));
    }
    if let Some(version) = field(info, "redis_version:").filter(|version| is_too_old(version)) {
        let [major, minor] = OLDEST;
        return Err(bad(format!(
            "the server at {at} is Redis {version}: {major}.{minor} is the first that can be used"
        )));
    }
    Ok(())
}

/// Returns the error for a server that says it is a replica.
fn not_a_replica(info: &str, at: &str) -> Result<(), Error> {
    if field(info, "role:") != Some("slave") {
        return Ok(());
    }
    let of = |name| field(info, name).unwrap_or("?");
    let (host, port) = (of("master_host:"), of("master_port:"));
    Err(ErrorKind::Unavailable.because(format!(
        "the server at {at} is a replica of {host}:{port}: locks need an address that leads to the primary"
    )))
}

/// A version whose numbers cannot be read is not too old.
fn is_too_old(version: &str) -> bool {
    let mut numbers = version.split('.').map(str::parse::<u32>);
    let first_two = (numbers.next(), numbers.next());
    matches!(first_two, (Some(Ok(major)), Some(Ok(minor))) if [major, minor] < OLDEST)
}

/// Returns how many primaries the cluster has whose node replied this.
fn primaries(slots: &Value) -> usize {
    let nowhere = Node { host: String::new(), port: 0 };
    slots::read(slots, &nowhere).into_iter().map(|range| range.primary).collect::<HashSet<_>>().len()
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
