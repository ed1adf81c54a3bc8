//! A primary and its replica, which may lag.

use redis::{Commands, Connection, cmd};
use redis_concurrent::Client;
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use super::Failure;
use super::fixture::{SURELY, builder};

/// A primary, and a replica that is connected to it by a proxy of its own.
pub struct Pair<'a> {
    primary: &'a RedisServer,
    replica: RedisServer,
    line: Proxy,
}

impl Pair<'_> {
    /// Starts a replica of this primary, and waits until it is up to date.
    pub fn of(primary: &RedisServer) -> Result<Pair<'_>, Failure> {
        let mut there = primary.connection()?;
        // Otherwise the first synchronization waits for more replicas.
        cmd("CONFIG").arg("SET").arg("repl-diskless-sync-delay").arg(0).exec(&mut there)?;
        let line = Proxy::start(primary.port())?;
        let replica = RedisServer::start()?;
        let mut here = replica.connection()?;
        // By a command, replication begins at once, and not at the next full second.
        cmd("REPLICAOF").arg("127.0.0.1").arg(line.port()).exec(&mut here)?;
        there.set::<_, _, ()>("mark", 1)?;
        wait_until(SURELY, "the replica to be up to date", || here.exists("mark").unwrap_or(false));
        Ok(Pair { primary, replica, line })
    }

    /// From here on no write on the primary reaches the replica; both believe that they are connected.
    pub fn falls_behind(&self) {
        self.line.black_hole(true);
    }

    /// Kills the primary, and promotes the replica.
    pub fn fails_over(&self) -> Result<(), Failure> {
        self.primary.kill()?;
        let mut replica: Connection = self.replica.connection()?;
        Ok(cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut replica)?)
    }

    /// Returns a process that begins before the failover.
    pub fn early(&self) -> Result<Client, Failure> {
        Ok(builder(&self.primary.url()).connect()?)
    }

    /// Returns a process that begins after it.
    pub fn late(&self) -> Result<Client, Failure> {
        Ok(builder(&self.replica.url()).connect()?)
    }
}
