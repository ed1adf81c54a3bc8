//! The private server, and its own statistics.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use redis::Connection;
use redis_concurrent_testkit::RedisServer;

/// Whether clients connect to a server's Unix socket.
pub(crate) static BY_UNIX_SOCKET: AtomicBool = AtomicBool::new(false);

/// A server, and a connection for its statistics that stays open so that asking costs little.
pub(crate) struct Watched {
    pub(crate) redis: RedisServer,
    connection: Connection,
}

impl Watched {
    pub(crate) fn start() -> io::Result<Watched> {
        let redis = RedisServer::builder().unix_socket(BY_UNIX_SOCKET.load(Ordering::Relaxed)).start()?;
        let connection = redis.connection().map_err(io::Error::other)?;
        connection.set_read_timeout(Some(Duration::from_secs(60))).map_err(io::Error::other)?;
        Ok(Watched { redis, connection })
    }

    /// Where clients connect.
    pub(crate) fn url(&self) -> String {
        self.redis.unix_url().unwrap_or_else(|| self.redis.url())
    }

    /// Microseconds of CPU that the server has used.
    pub(crate) fn cpu_us(&mut self) -> io::Result<f64> {
        let info = self.info("cpu")?;
        let seconds: f64 = ["used_cpu_sys:", "used_cpu_user:"]
            .iter()
            .filter_map(|name| field(&info, name)?.parse::<f64>().ok())
            .sum();
        Ok(seconds * 1e6)
    }

    /// Resets the statistics of all commands.
    pub(crate) fn reset_stats(&mut self) -> io::Result<()> {
        redis::cmd("CONFIG").arg("RESETSTAT").exec(&mut self.connection).map_err(io::Error::other)
    }

    /// Microseconds that scripts took inside the server since the last reset.
    pub(crate) fn script_us(&mut self) -> io::Result<f64> {
        let info = self.info("commandstats")?;
        let us = field(&info, "cmdstat_evalsha:")
            .and_then(|line| line.split(',').find_map(|it| it.strip_prefix("usec=")))
            .and_then(|usec| usec.parse().ok());
        // Threads of one process may have needed no script.
        Ok(us.unwrap_or(0.0))
    }

    /// How many PINGs the server has received since the last reset.
    pub(crate) fn pings(&mut self) -> io::Result<u64> {
        let info = self.info("commandstats")?;
        let calls = field(&info, "cmdstat_ping:")
            .and_then(|line| line.split(',').find_map(|it| it.strip_prefix("calls=")))
            .and_then(|calls| calls.parse().ok());
        // A command that was never sent has no line.
        Ok(calls.unwrap_or(0))
    }

    /// How many keys there are, and how many of them never expire.
    pub(crate) fn keys(&mut self) -> io::Result<(u64, u64)> {
        let info = self.info("keyspace")?;
        let Some(line) = field(&info, "db0:") else { return Ok((0, 0)) };
        let number = |name: &str| -> u64 {
            line.split(',').find_map(|it| it.strip_prefix(name)?.parse().ok()).unwrap_or(0)
        };
        let keys = number("keys=");
        Ok((keys, keys - number("expires=")))
    }

    fn info(&mut self, section: &str) -> io::Result<String> {
        redis::cmd("INFO").arg(section).query(&mut self.connection).map_err(io::Error::other)
    }
}

fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)).map(str::trim)
}
