//! Servers that may have forgotten a holder, because they were started, flushed or promoted less than a lease
//! ago.
//!
//! A holder from before learns of that at its next renewal at the latest, and its hold ends after a lease;
//! its command runs until then. So a lock that is granted meanwhile is held, but its command waits. The
//! server reports when it was started, and whether it was ever flushed or a replica, but not when. So the
//! first caller that finds no mark of an earlier one leaves a mark. The mark names the server's replication
//! id, which a promotion changes: the mark of a former primary does not count.

use std::time::Duration;

use redis_concurrent::guard::LONGEST_STAY;
use redis_concurrent::redis::{self, Connection, ConnectionInfo, RedisResult};
use redis_concurrent::{CancellationToken, Client, Error};

use super::acquire::number_name;
use super::signals::Signals;
use crate::args::Run;
use crate::connect;
use crate::exit::{Failure, code};
use crate::say::Say;
use crate::target::Target;

/// How many keys are tried until one is in a slot of the server.
const KEYS: u32 = 4096;

/// Returns how much longer a hold of these locks that a server has forgotten may last. It is zero if the
/// server denies the right to ask, or lacks a command for that; it is a lease if the server does not answer,
/// or takes no mark.
pub fn how_long(client: &Client, namespace: &str, (args, slot): (&Run, Option<u32>), say: Say) -> Duration {
    if args.trust_server {
        return Duration::ZERO;
    }
    let not_known = |why: Failure, lacks: bool| {
        say.detail(format!("it is not known whether the server has just lost its data: {why}"));
        if lacks || why.status() != code::UNAVAILABLE { Duration::ZERO } else { args.lease }
    };
    let servers = match servers(client, args, slot) {
        Ok(servers) => servers,
        Err(error) => return not_known(error.into(), false),
    };
    let each = servers.into_iter().map(|info| match connect::to(info) {
        Ok(mut connection) => ask(&mut connection, namespace, args.lease, say).unwrap_or_else(|error| {
            let lacks = error.to_string().contains("unknown command");
            not_known(error.into(), lacks)
        }),
        Err(why) => not_known(why, false),
    });
    each.max().unwrap_or_default()
}

/// Returns the servers that have the locks.
fn servers(client: &Client, args: &Run, slot: Option<u32>) -> Result<Vec<ConnectionInfo>, Error> {
    let mut all: Vec<ConnectionInfo> = Vec::new();
    let number = slot.map(|i| number_name(&args.name, i));
    for name in args.names().chain(&number) {
        let info = Target::of(args.at, args.redisson).primary(client, name)?;
        if !all.iter().any(|other| other.addr() == info.addr()) {
            all.push(info);
        }
    }
    Ok(all)
}

fn ask(connection: &mut Connection, namespace: &str, lease: Duration, say: Say) -> RedisResult<Duration> {
    let (server, replication, commands, (s, us)): (String, String, String, (u64, u64)) = redis::pipe()
        .cmd("INFO")
        .arg("server")
        .cmd("INFO")
        .arg("replication")
        .cmd("INFO")
        .arg("commandstats")
        .cmd("TIME")
        .query(connection)?;
    let now = Duration::from_secs(s).saturating_add(Duration::from_micros(us));
    // The uptime is in whole seconds.
    let started = (lease + Duration::from_secs(1)).saturating_sub(uptime(&server).unwrap_or(lease));
    if !was_flushed(&commands) && !was_promoted(&replication) {
        return Ok(started);
    }
    let id = field(&replication, "master_replid:").unwrap_or("-");
    let since = match marked_since(connection, namespace, id, now) {
        Ok(Some(since)) => since,
        Ok(None) => return Ok(started),
        Err(error) => {
            say.note(format!(
                "the server was flushed or promoted at some time; when, cannot be marked there: {error}"
            ));
            now
        }
    };
    Ok(started.max(lease.saturating_sub(now.saturating_sub(since))))
}

/// Returns since when the mark is there; leaves one as of `now` if the server with this replication id has
/// none. A mark is kept for as long as any hold may last. A server of a cluster has it at the first key that
/// is in a slot of its own; `None` if no key is.
fn marked_since(
    connection: &mut Connection,
    namespace: &str,
    id: &str,
    now: Duration,
) -> RedisResult<Option<Duration>> {
    for key in (0..KEYS).map(|i| key(namespace, i)) {
        let mark: Option<String> = match redis::cmd("GET").arg(&key).query(connection) {
            Err(e) if e.code() == Some("MOVED") => continue,
            mark => mark?,
        };
        if let Some(since) = mark.and_then(|mark| left_by(&mark, id)) {
            return Ok(Some(since));
        }
        let text = format!("{id} {}", now.as_millis());
        let kept = LONGEST_STAY.as_millis() as u64;
        redis::cmd("SET").arg(key).arg(text).arg("PX").arg(kept).exec(connection)?;
        return Ok(Some(now));
    }
    Ok(None)
}

/// Returns a key for the mark: one that every user of locks may access, and that no lock has. Lists take it
/// for one that belongs to a key outside the namespace.
fn key(namespace: &str, i: u32) -> String {
    format!("{namespace}:{{{i}}}:at:cli-since")
}

/// Returns when the server with this replication id left the mark, by its clock.
fn left_by(mark: &str, id: &str) -> Option<Duration> {
    let (by, ms) = mark.split_once(' ')?;
    (by == id).then_some(())?;
    ms.parse().ok().map(Duration::from_millis)
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}

/// Returns the uptime, if the server reports it. If its clock was set back to before its start, that is negative: it may
/// have been started just now.
fn uptime(server: &str) -> Option<Duration> {
    let seconds: i64 = field(server, "uptime_in_seconds:")?.parse().ok()?;
    Some(Duration::from_secs(seconds.try_into().unwrap_or_default()))
}

/// Whether a command has ever deleted all of the server's data.
fn was_flushed(commands: &str) -> bool {
    let emptying = ["cmdstat_flushall:", "cmdstat_flushdb:", "cmdstat_swapdb:"];
    commands.lines().any(|line| emptying.iter().any(|it| line.starts_with(it)))
}

/// Whether it was a replica before: then it also has the replication id of its former primary.
fn was_promoted(replication: &str) -> bool {
    field(replication, "master_replid2:").is_some_and(|id| id.contains(|c| c != '0'))
}

/// Waits for this long; returns false if the lock is lost, or a signal comes, before.
pub fn waited_out(wait: Duration, lost: &CancellationToken, signals: &Signals) -> bool {
    let either = lost.receiver();
    redis_concurrent::crossbeam_channel::select! {
        recv(either) -> _ => false,
        recv(signals.stop.receiver()) -> _ => false,
        default(wait) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_may_have_forgotten_is_found_in_what_it_says() {
        assert!(was_flushed("# Commandstats\r\ncmdstat_get:calls=1\r\ncmdstat_flushall:calls=1,usec=2\r\n"));
        assert!(!was_flushed("# Commandstats\r\ncmdstat_get:calls=1,usec=2\r\n"));
        let info = "role:master\r\nmaster_replid:ab\r\nmaster_replid2:";
        assert!(was_promoted(&format!("{info}00c0\r\n")) && !was_promoted(&format!("{info}0000\r\n")));
        assert_eq!(field(info, "master_replid:"), Some("ab"));
        let up = |seconds: &str| uptime(&format!("run_id:ab\r\nuptime_in_seconds:{seconds}\r\n"));
        assert_eq!((up("7"), up("-7")), (Some(Duration::from_secs(7)), Some(Duration::ZERO)));
        assert_eq!(uptime(info), None);
        assert_eq!((left_by("ab 17", "ab"), left_by("ab 17", "a")), (Some(Duration::from_millis(17)), None));
    }
}
