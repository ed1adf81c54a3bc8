//! The addresses of a client's servers, as its user writes them.

use std::str::Split;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo};

use crate::engine::redis::slots::Node;
use crate::error::Error;
use crate::names::unescape;
use crate::settings::{bad, within};

/// A sentinel's default port.
const SENTINEL_PORT: u16 = 26379;

/// What follows the scheme in a URL that names several hosts:
/// `[user:password@]host[:port],host[:port],…[tail]`.
struct HostList<'a> {
    /// Including the `@`; may be empty.
    login: &'a str,
    /// May contain empty ones.
    hosts: Split<'a, char>,
    /// Everything from the first `/`, `?` or `#` on.
    tail: &'a str,
}

impl<'a> HostList<'a> {
    fn of(rest: &'a str) -> Result<Self, Error> {
        check_encoded(rest)?;
        let (login, rest) = rest.split_at(rest.rfind('@').map_or(0, |at| at + 1));
        let (hosts, tail) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        Ok(HostList { login, hosts: hosts.split(','), tail })
    }
}

/// Where a client's servers are.
pub(crate) struct Address {
    /// The server; with sentinels how to log in to their primary, with nodes the first of them.
    pub(crate) server: ConnectionInfo,
    pub(crate) sentinels: Option<Sentinels>,
    /// The nodes of a cluster.
    pub(crate) nodes: Vec<Node>,
}

/// Returns what a client's URL names. Errors never contain a password.
pub(crate) fn address_at(url: &str) -> Result<Address, Error> {
    let (scheme, rest) = url.split_once("://").unwrap_or_default();
    if let Some(scheme) = scheme.strip_suffix("+cluster") {
        return cluster_at(scheme, rest);
    }
    let of_servers = scheme.strip_suffix("+sentinel").filter(|it| ["redis", "rediss"].contains(it));
    let (server, sentinels) = match of_servers {
        Some(scheme) => sentinels_at(scheme, rest).map(|(login, sentinels)| (login, Some(sentinels)))?,
        None => (server_at(url)?, None),
    };
    // A server with fewer databases reports that itself, but of a number above 2^31-1 it only reports that it is
    // invalid.
    within("a database's number", server.redis_settings().db(), 0..=i64::from(i32::MAX)).map_err(bad)?;
    Ok(Address { server, sentinels, nodes: Vec::new() })
}

const NONE: &str = "this names no node of a cluster: redis+cluster://host:port,host:port";

/// `[user:password@]host[:port],host[:port],…[?protocol=resp3]`
fn cluster_at(scheme: &str, rest: &str) -> Result<Address, Error> {
    let HostList { login, hosts, tail } = HostList::of(rest)?;
    let servers = hosts.map(|node| match node {
        "" => Err(bad(NONE)),
        node => server_at(&format!("{scheme}://{login}{node}{tail}")),
    });
    let servers = servers.collect::<Result<Vec<_>, _>>()?;
    let nodes = servers.iter().map(node).collect::<Result<_, _>>()?;
    let server = servers.into_iter().next().ok_or_else(|| bad(NONE))?;
    Ok(Address { server, sentinels: None, nodes })
}

fn node(info: &ConnectionInfo) -> Result<Node, Error> {
    if info.redis_settings().db() != 0 {
        return Err(bad("a Redis Cluster has database 0 only"));
    }
    match info.addr() {
        ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. } => {
            Ok(Node { host: host.clone(), port: *port })
        }
        _ => Err(bad("the nodes of a cluster are named by host and port")),
    }
}

/// The sentinels of a client: see [`Client::sentinels`](crate::Client::sentinels).
#[derive(Clone)]
#[non_exhaustive]
pub struct Sentinels {
    /// The name that the sentinels use for the primary.
    pub master: String,
    /// How to connect to each sentinel, with the user and the password of its address.
    pub nodes: Vec<ConnectionInfo>,
}

// Leaves out the passwords.
shows!(Sentinels as "Sentinels", |it| "master": it.master, "nodes": {
    it.nodes.iter().map(|node| node.addr().to_string()).collect::<Vec<_>>()
});

/// How to log in to the primary, and its sentinels:
/// `[user:password@]host[:port],host[:port]/master[/db][?query][#insecure]`
fn sentinels_at(scheme: &str, rest: &str) -> Result<(ConnectionInfo, Sentinels), Error> {
    let HostList { login, hosts, tail } = HostList::of(rest)?;
    let (tail, fragment) = tail.split_at(tail.find('#').unwrap_or(tail.len()));
    let (path, query) = tail.split_once('?').unwrap_or((tail, ""));
    let path = path.strip_prefix('/').unwrap_or_default();
    let (master, db) = path.split_once('/').unwrap_or((path, ""));
    let (mut user, mut password, mut others) = ("", "", Vec::new());
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("sentinel_user", name)) => user = name,
            Some(("sentinel_password", secret)) => password = secret,
            _ => others.push(pair),
        }
    }
    let of_sentinels =
        if user.is_empty() && password.is_empty() { String::new() } else { format!("{user}:{password}@") };
    let master =
        unescape(master).ok_or_else(|| bad("the primary's name is not valid percent-encoded text"))?;
    let query = if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
    // The host is a placeholder: the sentinels name the real one.
    let login = server_at(&format!("{scheme}://{login}primary/{db}{query}{fragment}"))?;
    if master.is_empty() {
        return Err(bad(
            "which primary is meant? Sentinels know several, by name: redis+sentinel://host:port/name",
        ));
    }
    let nodes = hosts.filter(|node| !node.is_empty()).map(|node| {
        // Colons in brackets belong to an IPv6 address.
        let has_port = node.rsplit_once(']').map_or(node, |(_, port)| port).contains(':');
        let port = if has_port { String::new() } else { format!(":{SENTINEL_PORT}") };
        server_at(&format!("{scheme}://{of_sentinels}{node}{port}{fragment}"))
    });
    let nodes = nodes.collect::<Result<Vec<_>, _>>()?;
    if nodes.is_empty() {
        return Err(bad(format!("no sentinel was given for the primary {master:?}")));
    }
    Ok((login, Sentinels { nodes, master }))
}

/// Returns how to connect to the server at this URL. Errors never contain the password.
fn server_at(url: &str) -> Result<ConnectionInfo, Error> {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.into_connection_info().map_err(no_address);
    };
    let is_tls = ["rediss", "valkeys"].contains(&scheme);
    let is_tcp = is_tls || ["redis", "valkey"].contains(&scheme);
    if is_tcp {
        check_encoded(rest)?;
    }
    let understood = format!("{scheme}://{}", understood(rest, is_tcp, is_tls)?);
    // Another crate may have enabled TLS in the redis crate, so this is an error only if the redis crate rejects
    // the URL.
    if !cfg!(feature = "tls") && is_tls {
        let needed = format!("{scheme}:// needs the feature `tls` of redis-concurrent");
        return understood.into_connection_info().map_err(|_| bad(needed));
    }
    understood.into_connection_info().map_err(no_address)
}

/// Returns what follows the scheme, with a database in the query where the redis crate looks for it. That crate
/// ignores what it does not know: of two callers, one would use another database.
fn understood(rest: &str, is_tcp: bool, is_tls: bool) -> Result<String, Error> {
    let (rest, fragment) = rest.split_at(rest.find('#').unwrap_or(rest.len()));
    if !(fragment.is_empty() || is_tls && fragment == "#insecure") {
        return Err(bad(
            "what follows the '#' in this URL is not understood: only rediss:// may have #insecure",
        ));
    }
    let (path, query) = rest.split_once('?').unwrap_or((rest, ""));
    let names: &[_] = if is_tcp { &["db", "protocol"] } else { &["db", "protocol", "user", "pass"] };
    let mut pairs: Vec<_> = query.split('&').filter(|pair| !pair.is_empty()).collect();
    let count = |name: &&str| {
        pairs.iter().filter(|pair| pair.split_once('=').is_some_and(|(it, _)| it == *name)).count()
    };
    // Neither names nor values are repeated: they may be part of a password.
    if names.iter().map(count).sum::<usize>() < pairs.len() || names.iter().any(|name| count(name) > 1) {
        let names = names.join(", ");
        return Err(bad(format!("the query of this URL is not understood: it can have {names}, each once")));
    }
    let in_query = pairs.iter().position(|pair| is_tcp && pair.starts_with("db=")).map(|at| pairs.remove(at));
    let database = in_query.map(|pair| &pair["db=".len()..]);
    if database.is_some_and(|it| it.is_empty() || !it.bytes().all(|byte| byte.is_ascii_digit())) {
        return Err(bad("the database of this URL is not a number"));
    }
    let path = match (path.split_once('/'), database) {
        (Some((_, in_path)), Some(number)) if !["", number].contains(&in_path.trim_matches('/')) => {
            return Err(bad("this URL names two databases"));
        }
        (_, Some(number)) => format!("{}/{number}", path.split('/').next().unwrap_or_default()),
        (_, None) => path.to_owned(),
    };
    let query = if pairs.is_empty() { String::new() } else { format!("?{}", pairs.join("&")) };
    Ok(format!("{path}{query}{fragment}"))
}

/// Rejects credentials that are not percent-encoded. They end at the last `@`, which cannot occur after the
/// host: with a `/`, `?` or `#` before it, part of them would be taken for a port, a database number or a
/// query.
fn check_encoded(rest: &str) -> Result<(), Error> {
    match rest.rfind('@').and_then(|at| rest[..at].find(['/', '?', '#']).map(|i| &rest[i..=i])) {
        None => Ok(()),
        Some(cut) => Err(bad(format!(
            "this URL has a {cut:?} before the last '@': special characters of the user name and the password must be \
             percent-encoded"
        ))),
    }
}

fn no_address(e: redis::RedisError) -> Error {
    bad(format!("this is not the address of a server, as redis://host:6379/0 is: {e}"))
}

#[cfg(all(test, not(shuttle)))]
#[path = "../verify/unit/address.rs"]
mod tests;
