//! The server: whether it is reachable, of a tested version, and configured so that locks last.

use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use redis_concurrent::redis::{self, Connection};

use super::{Finding, Group};
use crate::bench::{Measured, in_ms, pings, summary};

/// How long round trips are measured.
const MEASURED: Duration = Duration::from_millis(300);
/// If round trips take longer than this, a lock costs more than most work under it.
const SLOW: Duration = Duration::from_millis(20);
/// Clocks further apart than this make times hard to read.
const APART: Duration = Duration::from_secs(1);
/// A replica that is further behind than this, in bytes, would miss more than a moment's grants.
const BEHIND: u64 = 1 << 20;

pub fn check(connection: &mut Connection, group: Group, is_here_by_tcp: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    match pings(connection, MEASURED) {
        Ok(all) => {
            let all = Measured::new("PING", all);
            let text = summary(&all);
            findings.push(match all.quantile(0.99) > SLOW {
                false => Finding::ok("reach", text),
                true => Finding::warn(
                    "reach",
                    text,
                    "the network or the server is slow: leases must be much longer",
                ),
            });
        }
        Err(failure) => return vec![Finding::fail("reach", failure.to_string(), "check the server")],
    }
    findings.extend(is_here_by_tcp.then(|| unix_socket(connection)).flatten());
    let info: String = match redis::cmd("INFO").query(connection) {
        Ok(info) => info,
        Err(e) => {
            findings.push(Finding::warn(
                "info",
                e.to_string(),
                "the right to INFO is missing: most checks are left out",
            ));
            return findings;
        }
    };
    let field =
        |name: &str| info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim);
    findings.push(version(field("redis_version"), field("valkey_version").or(field("server_name"))));
    findings.push(memory(field("maxmemory"), field("maxmemory_policy")));
    findings.push(persistence(field("aof_enabled"), setting(connection, "appendfsync").as_deref()));
    findings.push(role(field("role"), &info, field("master_repl_offset"), group));
    findings.push(mode(field("redis_mode").or(field("server_mode")), connection, group));
    if group != Group::None {
        findings.push(cut_off(setting(connection, "min-replicas-to-write").as_deref()));
    }
    findings.extend(clock(connection));
    findings.push(match setting(connection, "timeout").as_deref() {
        Some("0") => Finding::ok("timeout", "0: idle connections stay"),
        Some(s) => Finding::warn(
            "timeout",
            format!("{s} s"),
            "set timeout to 0: the server closes connections that wait for messages",
        ),
        None => Finding::ok("timeout", "not known (no right to CONFIG GET)"),
    });
    let threshold =
        setting(connection, "busy-reply-threshold").or_else(|| setting(connection, "lua-time-limit"));
    findings.push(match threshold.as_deref().map(str::parse::<u64>) {
        Some(Ok(ms @ 1..1000)) => Finding::warn(
            "busy-reply",
            format!("{ms} ms"),
            "set busy-reply-threshold to 5000: requests are refused while a script runs",
        ),
        Some(Ok(ms)) => Finding::ok("busy-reply", format!("{ms} ms")),
        _ => Finding::ok("busy-reply", "not known (no right to CONFIG GET)"),
    });
    findings
}

fn setting(connection: &mut Connection, name: &str) -> Option<String> {
    let pair: Vec<String> = redis::cmd("CONFIG").arg(&["GET", name]).query(connection).ok()?;
    pair.into_iter().nth(1)
}

/// What a shorter way to a server on this host is, if it has one that can be seen from here.
fn unix_socket(connection: &mut Connection) -> Option<Finding> {
    let path = setting(connection, "unixsocket").filter(|path| Path::new(path).exists())?;
    let to_do = format!("redis+unix://{path} would save up to a third of each request");
    Some(Finding { to_do, ..Finding::ok("address", "this host, over TCP") })
}

fn version(version: Option<&str>, other: Option<&str>) -> Finding {
    let text = match other {
        Some(other) => format!("{} ({other})", version.unwrap_or("?")),
        None => version.unwrap_or("?").to_owned(),
    };
    let mut parts = version.unwrap_or("0").split('.').map(|it| it.parse::<u32>().unwrap_or(0));
    match (parts.next().unwrap_or(0), parts.next().unwrap_or(0)) {
        (0..6, _) | (6, 0..2) => Finding::fail("version", text, "6.2 or later is needed"),
        (6..=8, _) => Finding::ok("version", text),
        _ => Finding::warn("version", text, "newer than what was tested: 6.2 to 8.2, Valkey 7.2 to 9"),
    }
}

fn memory(most: Option<&str>, policy: Option<&str>) -> Finding {
    let (most, policy) = (most.unwrap_or("0"), policy.unwrap_or("?"));
    match (most, policy) {
        ("0", _) => Finding::ok("memory", "no limit"),
        (_, "noeviction") => Finding::ok("memory", format!("{most} bytes, noeviction")),
        _ => Finding::fail(
            "memory",
            format!("{most} bytes, {policy}"),
            "set maxmemory-policy to noeviction: locks would be evicted",
        ),
    }
}

fn persistence(aof: Option<&str>, fsync: Option<&str>) -> Finding {
    match (aof, fsync) {
        (Some("1"), Some("no")) => Finding::warn(
            "persistence",
            "appendonly, fsync no",
            "set appendfsync to everysec or always: a crash of the machine forgets locks",
        ),
        (Some("1"), fsync) => {
            Finding::ok("persistence", format!("appendonly, fsync {}", fsync.unwrap_or("not known")))
        }
        _ => Finding::warn(
            "persistence",
            "no append-only file",
            "set appendonly to yes: a restart forgets all locks while their holders work on",
        ),
    }
}

fn role(role: Option<&str>, info: &str, offset: Option<&str>, group: Group) -> Finding {
    if role != Some("master") {
        return Finding::fail("role", role.unwrap_or("?"), "use the address of the primary");
    }
    let offset: u64 = offset.and_then(|it| it.parse().ok()).unwrap_or(0);
    let lags =
        info.lines().filter(|line| line.starts_with("slave") && line.contains("offset=")).map(|line| {
            let seen =
                line.split("offset=").nth(1).and_then(|it| it.split(',').next()?.trim().parse::<u64>().ok());
            offset.saturating_sub(seen.unwrap_or(0))
        });
    let lags: Vec<u64> = lags.collect();
    let text = format!(
        "primary, {} replicas{}",
        lags.len(),
        lags.iter().max().map(|n| format!(", {n} bytes behind at most")).unwrap_or_default()
    );
    if group != Group::None && lags.is_empty() {
        return Finding::warn("role", text, "give it a replica: nothing takes over when it fails");
    }
    match lags.iter().any(|lag| *lag > BEHIND) {
        true => Finding::warn("role", text, "a replica that took over would not know the last grants"),
        false => Finding::ok("role", text),
    }
}

fn mode(mode: Option<&str>, connection: &mut Connection, group: Group) -> Finding {
    match (mode, group) {
        (Some("cluster"), Group::Cluster) => {
            let text: Result<String, _> = redis::cmd("CLUSTER").arg("INFO").query(connection);
            match text {
                Ok(text) if text.contains("cluster_state:ok") => Finding::ok("mode", "cluster, state ok"),
                Ok(_) => {
                    Finding::fail("mode", "cluster, state fail", "see CLUSTER NODES: slots have no primary")
                }
                Err(e) => Finding::warn("mode", e.to_string(), "the right to CLUSTER INFO is missing"),
            }
        }
        (Some("cluster"), _) => {
            Finding::warn("mode", "a node of a cluster", "name all of it: redis+cluster://HOST:PORT")
        }
        (Some("sentinel"), _) => {
            Finding::fail("mode", "a sentinel", "name its primary: redis+sentinel://HOST:PORT/NAME")
        }
        _ => Finding::ok("mode", "one server"),
    }
}

/// Checks what a primary does once its replicas have left it.
fn cut_off(least: Option<&str>) -> Finding {
    match least {
        Some("0") => Finding::warn(
            "cut off",
            "min-replicas-to-write 0",
            "set it to 1: a primary that is cut off grants locks beside the one that replaces it",
        ),
        Some(n) => Finding::ok("cut off", format!("min-replicas-to-write {n}")),
        None => Finding::ok("cut off", "not known (no right to CONFIG GET)"),
    }
}

fn clock(connection: &mut Connection) -> Option<Finding> {
    let began = Instant::now();
    let (s, us): (u64, u64) = redis::cmd("TIME").query(connection).ok()?;
    let ours =
        SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).ok()?.saturating_sub(began.elapsed() / 2);
    let apart = ours.abs_diff(Duration::from_secs(s).saturating_add(Duration::from_micros(us)));
    Some(match apart > APART {
        true => Finding::warn(
            "clock",
            format!("{} apart", in_ms(apart)),
            "run NTP on both: locks do not need it, readers of their logs do",
        ),
        false => Finding::ok("clock", format!("{} apart", in_ms(apart))),
    })
}
