//! What a private Redis server reports about itself, and commands that a test issues from outside.
//!
//! Each call opens its own connection, and fails if the server does not answer within 30 s.

use std::collections::{BTreeMap, BTreeSet};

use redis::{Connection, RedisResult, cmd};

use super::server::{ClientKind, RedisServer};

impl ClientKind {
    fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::PubSub => "pubsub",
            Self::Replica => "replica",
        }
    }
}

impl RedisServer {
    /// Deletes all keys of all databases (`FLUSHALL`). Loaded scripts stay.
    ///
    /// # Errors
    ///
    /// If the server does not reply.
    pub fn flush_all(&self) -> RedisResult<()> {
        self.ask(|connection| cmd("FLUSHALL").query(connection))
    }

    /// Returns all keys of database 0, sorted; bytes that are not UTF-8 are replaced. The keys are read with
    /// `SCAN`, so a key that is created or deleted meanwhile may or may not be listed.
    ///
    /// # Errors
    ///
    /// If the server does not reply.
    pub fn keys(&self) -> RedisResult<Vec<String>> {
        self.ask(|connection| {
            // SCAN may return a key more than once.
            let mut keys = BTreeSet::new();
            let mut cursor = 0_u64;
            loop {
                let (next, page): (u64, Vec<Vec<u8>>) =
                    cmd("SCAN").arg(cursor).arg("COUNT").arg(1000).query(connection)?;
                keys.extend(page.iter().map(|it| String::from_utf8_lossy(it).into_owned()));
                if next == 0 {
                    return Ok(keys.into_iter().collect());
                }
                cursor = next;
            }
        })
    }

    /// Returns how often each command has run since the start or [`reset_stats`](Self::reset_stats), by its
    /// name in lower case (`"evalsha"`, `"client|list"`). Commands called by scripts count too, and so do
    /// those of this harness (`info`, `quit`). A command that never ran is not in the map.
    ///
    /// # Errors
    ///
    /// If the server does not reply.
    pub fn command_calls(&self) -> RedisResult<BTreeMap<String, u64>> {
        self.command_stats("calls")
    }

    /// Returns how many microseconds of server time all calls of `command` took together, since the same
    /// moment as in [`command_calls`](Self::command_calls); 0 if it never ran.
    ///
    /// # Errors
    ///
    /// If the server does not reply.
    pub fn usec(&self, command: &str) -> RedisResult<u64> {
        let all = self.command_stats("usec")?;
        Ok(all.get(&command.to_lowercase()).copied().unwrap_or(0))
    }

    /// Resets the counts and times of all commands to 0 (`CONFIG RESETSTAT`).
    ///
    /// # Errors
    ///
    /// If the server does not reply.
    pub fn reset_stats(&self) -> RedisResult<()> {
        self.ask(|connection| cmd("CONFIG").arg("RESETSTAT").query(connection))
    }

    /// Returns the lines of `CLIENT LIST` for one kind of connection, except the line of the connection used
    /// for this call.
    ///
    /// # Errors
    ///
    /// If the server does not reply.
    pub fn clients(&self, kind: ClientKind) -> RedisResult<Vec<String>> {
        self.ask(|connection| {
            let own: u64 = cmd("CLIENT").arg("ID").query(connection)?;
            let own = format!("id={own} ");
            let list: String = cmd("CLIENT").arg("LIST").arg("TYPE").arg(kind.name()).query(connection)?;
            Ok(list
                .lines()
                .filter(|line| !line.is_empty() && !line.starts_with(&own))
                .map(str::to_owned)
                .collect())
        })
    }

    /// Closes all connections of one kind, except the one used for this call (`CLIENT KILL TYPE .. SKIPME
    /// yes`), and returns how many it closed.
    ///
    /// # Errors
    ///
    /// If the server does not reply.
    pub fn kill_clients(&self, kind: ClientKind) -> RedisResult<u64> {
        self.ask(|connection| {
            cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind.name()).arg("SKIPME").arg("yes").query(connection)
        })
    }

    fn command_stats(&self, field: &str) -> RedisResult<BTreeMap<String, u64>> {
        let info: String = self.ask(|connection| cmd("INFO").arg("commandstats").query(connection))?;
        Ok(info.lines().filter_map(|line| stat(line, field)).collect())
    }

    fn ask<T>(&self, question: impl FnOnce(&mut Connection) -> RedisResult<T>) -> RedisResult<T> {
        let mut connection = self.connection()?;
        let answer = question(&mut connection)?;
        farewell(&mut connection)?;
        Ok(answer)
    }
}

/// Ends a connection so that no later command finds it in the client list. After a mere close, the server
/// would still list it until it notices.
pub(super) fn farewell(connection: &mut Connection) -> RedisResult<()> {
    cmd("QUIT").query(connection)
}

/// Reads one field of a line like `cmdstat_get:calls=1,usec=2,usec_per_call=2.00`.
fn stat(line: &str, field: &str) -> Option<(String, u64)> {
    let (command, fields) = line.strip_prefix("cmdstat_")?.split_once(':')?;
    let value = fields
        .split(',')
        .filter_map(|it| it.split_once('='))
        .find_map(|(name, value)| (name == field).then_some(value))?;
    Some((command.to_owned(), value.trim().parse().ok()?))
}
