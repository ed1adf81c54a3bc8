//! `doctor`: checks whether the servers are fit for locks; each check reports what it found and what to do.

mod locks;
mod sentinels;
mod server;

use std::net::IpAddr;
use std::process::ExitCode;

use redis_concurrent::redis::ConnectionAddr;
use serde_json::json;

use crate::args::Global;
use crate::connect::{self, Servers};
use crate::exit::Failure;
use crate::say;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    Ok,
    Warn,
    Fail,
}

/// A check's outcome.
pub struct Finding {
    name: &'static str,
    /// Set if several servers are checked.
    server: Option<String>,
    state: State,
    found: String,
    /// Empty if nothing is to be done.
    to_do: String,
}

impl Finding {
    pub fn ok(name: &'static str, found: impl Into<String>) -> Finding {
        Finding { name, server: None, state: State::Ok, found: found.into(), to_do: String::new() }
    }

    pub fn warn(name: &'static str, found: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { name, server: None, state: State::Warn, found: found.into(), to_do: to_do.into() }
    }

    pub fn fail(name: &'static str, found: impl Into<String>, to_do: impl Into<String>) -> Finding {
        Finding { name, server: None, state: State::Fail, found: found.into(), to_do: to_do.into() }
    }

    /// Returns the same finding, about this one of several servers.
    pub fn at(self, server: &str) -> Finding {
        Finding { server: Some(server.to_owned()), ..self }
    }

    fn word(&self) -> &'static str {
        match self.state {
            State::Ok => "ok",
            State::Warn => "warn",
            State::Fail => "fail",
        }
    }
}

/// Exits 0 if all is well, 1 with a warning, 2 with a failure.
pub fn doctor(global: &Global) -> Result<ExitCode, Failure> {
    let findings = findings(global);
    for it in &findings {
        if global.json {
            let to_do = Some(&it.to_do).filter(|it| !it.is_empty());
            let found = say::without_passwords(&it.found);
            say::objects([json!({
                "check": it.name, "server": it.server, "state": it.word(), "found": found, "to_do": to_do,
            })])?;
        } else {
            let found = say::without_passwords(&it.found);
            let to_do = if it.to_do.is_empty() { String::new() } else { format!("; {}", it.to_do) };
            let server = it.server.as_ref().map(|it| format!("{it}: ")).unwrap_or_default();
            say::answer(format!("{:4}  {:16}  {server}{found}{to_do}", it.word(), it.name))?;
        }
    }
    let worst = findings.iter().map(|it| it.state).max().unwrap_or(State::Ok);
    Ok(ExitCode::from(worst as u8))
}

fn findings(global: &Global) -> Vec<Finding> {
    let unreached = |failure: Failure| {
        Finding::fail(
            "reach",
            failure.to_string(),
            "check the address, the network, the password, the database",
        )
    };
    // It sends no request.
    let named = Servers::of(global).and_then(|it| Ok((it.builder().connect_later()?, it)));
    let (sentinels, servers) = match named {
        Ok((client, servers)) => (client.sentinels(), servers),
        Err(failure) => return vec![unreached(failure)],
    };
    let mut findings = sentinels.as_ref().map(sentinels::check).unwrap_or_default();
    let infos = match servers.primaries() {
        Ok(infos) => infos,
        Err(failure) => {
            findings.push(unreached(failure));
            return findings;
        }
    };
    let group = match (sentinels.is_some(), servers.is_cluster()) {
        (true, _) => Group::Replicated,
        (_, true) => Group::Cluster,
        _ => Group::None,
    };
    let mut is_reached = true;
    for info in infos {
        let at = info.addr().clone();
        let address = at.to_string();
        let found = match connect::to(info) {
            Ok(mut connection) => server::check(&mut connection, group, is_here_by_tcp(&at)),
            Err(failure) => {
                is_reached = false;
                vec![unreached(if group == Group::None { failure.at(&address) } else { failure })]
            }
        };
        findings.extend(found.into_iter().map(|it| if group == Group::None { it } else { it.at(&address) }));
    }
    if is_reached {
        findings.extend(locks::check(&servers));
    }
    findings
}

fn is_here_by_tcp(address: &ConnectionAddr) -> bool {
    let (ConnectionAddr::Tcp(host, _) | ConnectionAddr::TcpTls { host, .. }) = address else { return false };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The group that a server is part of.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// A single server.
    None,
    /// The primary that sentinels name.
    Replicated,
    /// A primary of a cluster.
    Cluster,
}
