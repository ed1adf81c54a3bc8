//! Servers that may have forgotten a holder: one that was started, or flushed, less than a lease ago.
//!
//! A holder of before learns of that at its next renewal at the latest, and is over after a lease; its command runs
//! until then. So what is granted meanwhile is held, but the command waits. The server tells when it was started, and
//! whether it was ever flushed; when that was it does not tell, so the first caller that finds no mark of an earlier
//! one leaves it.

use std::time::Duration;

use redis_concurrent::CancellationToken;
use redis_concurrent::redis::{self, Connection, RedisResult};

use super::signals::Signals;
use crate::args::Global;
use crate::connect;
use crate::say::Say;

/// How long the mark is kept.
const KEPT: Duration = Duration::from_secs(40 * 24 * 3600);

/// How much longer a hold of this lease may exist that the server has forgotten. Without an answer to that, not at all:
/// a server may refuse the right to ask.
pub fn how_long(global: &Global, lease: Duration, say: Say) -> Duration {
    let asked = connect::plain(global).map_err(|e| e.to_string());
    let known = asked.and_then(|mut it| ask(&mut it, &global.namespace, lease).map_err(|e| e.to_string()));
    known.unwrap_or_else(|why| {
        say.detail(format!("it is not known whether the server has just lost its data: {why}"));
        Duration::ZERO
    })
}

fn ask(connection: &mut Connection, namespace: &str, lease: Duration) -> RedisResult<Duration> {
    let mark = format!("{namespace}:cli-since");
    let (server, commands, (s, us), since): (String, String, (u64, u64), Option<u64>) = redis::pipe()
        .cmd("INFO")
        .arg("server")
        .cmd("INFO")
        .arg("commandstats")
        .cmd("TIME")
        .cmd("GET")
        .arg(&mark)
        .query(connection)?;
    let now = Duration::from_micros(s * 1_000_000 + us);
    // It counts whole seconds.
    let up = number(&server, "uptime_in_seconds:").map_or(lease, Duration::from_secs);
    let started = (lease + Duration::from_secs(1)).saturating_sub(up);
    if !was_flushed(&commands) {
        return Ok(started);
    }
    let since = match since {
        Some(ms) => Duration::from_millis(ms),
        None => {
            let mut leave = redis::cmd("SET");
            leave
                .arg(&mark)
                .arg(now.as_millis().to_string())
                .arg("NX")
                .arg("PX")
                .arg(KEPT.as_millis() as u64);
            leave.exec(connection)?;
            now
        }
    };
    Ok(started.max(lease.saturating_sub(now.saturating_sub(since))))
}

fn number(info: &str, field: &str) -> Option<u64> {
    info.lines().find_map(|line| line.strip_prefix(field))?.trim().parse().ok()
}

/// Whether the server has ever deleted all of its data by a command.
fn was_flushed(commands: &str) -> bool {
    let emptying = ["cmdstat_flushall:", "cmdstat_flushdb:", "cmdstat_swapdb:"];
    commands.lines().any(|line| emptying.iter().any(|it| line.starts_with(it)))
}

/// Waits for so long; false if the lock is lost, or a signal comes, before.
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
    fn what_empties_a_server_is_found_in_its_statistics() {
        assert!(was_flushed("# Commandstats\r\ncmdstat_get:calls=1\r\ncmdstat_flushall:calls=1,usec=2\r\n"));
        assert!(!was_flushed("# Commandstats\r\ncmdstat_get:calls=1,usec=2\r\n"));
        assert_eq!(number("a:1\r\nuptime_in_seconds:17\r\n", "uptime_in_seconds:"), Some(17));
    }
}
