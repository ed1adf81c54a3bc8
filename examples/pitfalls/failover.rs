//! A lock on a primary whose replica is late: the primary dies right after the grant, the replica becomes
//! primary, has never heard of the lock, and grants it again.

use std::fmt;

use redis::{Commands, Connection, cmd};
use redis_concurrent::Client;
use redis_concurrent::testing::{Proxy, RedisServer, wait_until};

use super::holders::Holders;
use super::scene::{SURELY, Scene, builder};
use super::table::counted;
use super::{Failure, Finding};

/// A primary, and a replica that hears of it over a line of its own.
pub struct Pair<'a> {
    primary: &'a RedisServer,
    replica: RedisServer,
    line: Proxy,
}

impl Pair<'_> {
    /// A replica of this primary, up to date.
    pub fn of(primary: &RedisServer) -> Result<Pair<'_>, Failure> {
        let mut there = primary.connection()?;
        // A first copy otherwise waits for more replicas to come.
        cmd("CONFIG").arg("SET").arg("repl-diskless-sync-delay").arg(0).exec(&mut there)?;
        let line = Proxy::start(primary.port())?;
        let replica = RedisServer::start()?;
        let mut here = replica.connection()?;
        // By command it begins at once, and not at the next full second.
        cmd("REPLICAOF").arg("127.0.0.1").arg(line.port()).exec(&mut here)?;
        there.set::<_, _, ()>("mark", 1)?;
        wait_until(SURELY, "the replica to be up to date", || here.exists("mark").unwrap_or(false));
        Ok(Pair { primary, replica, line })
    }

    /// From here on nothing that is written on the primary reaches the replica; both believe that their
    /// line is up.
    pub fn falls_behind(&self) {
        self.line.black_hole(true);
    }

    /// The primary dies, and the replica is made primary.
    pub fn fails_over(&self) -> Result<(), Failure> {
        self.primary.kill()?;
        let mut replica: Connection = self.replica.connection()?;
        Ok(cmd("REPLICAOF").arg("NO").arg("ONE").exec(&mut replica)?)
    }

    /// A process that begins before the failover.
    pub fn early(&self) -> Result<Client, Failure> {
        Ok(builder(&self.primary.url()).connect()?)
    }

    /// A process that begins after it.
    pub fn late(&self) -> Result<Client, Failure> {
        Ok(builder(&self.replica.url()).connect()?)
    }
}

/// Both are sure to hold the lock, and each of them writes to what it protects, the early one last.
#[derive(Debug, PartialEq, Eq)]
pub struct Writes {
    pub holders: usize,
    pub late_refused: bool,
}

impl Finding for Writes {
    fn is_kept(&self) -> bool {
        self.late_refused
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.late_refused { "refused" } else { "taken" };
        write!(f, "{}; the late write is {what}", counted(self.holders, "holder"))
    }
}

/// Any lock on one primary, this library's too.
pub fn wrong(scene: &Scene) -> Result<Holders, Failure> {
    let pair = Pair::of(&scene.server)?;
    pair.falls_behind();
    let first = pair.early()?.reentrant_lock("lock").lock_owned()?;
    pair.fails_over()?;
    let second = pair.late()?.reentrant_lock("lock").try_lock_owned()?;
    Ok(Holders::new(usize::from(!first.is_lost()) + usize::from(second.is_some())))
}

/// The same, where what is protected looks at the tokens: it takes no write with a lower one than it has
/// seen. The replica knows no token of the primary, but tokens begin with the time.
pub fn right_by_token(scene: &Scene) -> Result<Writes, Failure> {
    let pair = Pair::of(&scene.server)?;
    pair.falls_behind();
    let first = pair.early()?.reentrant_lock("lock").lock_owned()?;
    pair.fails_over()?;
    let second = pair.late()?.reentrant_lock("lock").lock_owned()?;
    let mut highest = 0;
    let mut takes = |token: u64| {
        let takes = token >= highest;
        highest = highest.max(token);
        takes
    };
    if !takes(second.token()) {
        return Err("the write of the holder that Redis knows was refused".into());
    }
    let holders = [&first, &second].iter().filter(|it| !it.is_lost()).count();
    Ok(Writes { holders, late_refused: !takes(first.token()) })
}
