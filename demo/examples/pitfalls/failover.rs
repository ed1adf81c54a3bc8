//! A lock on a primary whose replica lags: the primary dies right after the grant, and the replica that is
//! promoted has never received the lock, and grants it again.

use std::fmt;
use std::time::Duration;

use redis_concurrent::kinds::Reentrant;
use redis_concurrent::{Client, Error, ErrorKind, MultiLock, OwnedGuard, RedLockClient};
use redis_concurrent_testkit::RedisServer;

use super::fixture::{Fixture, builder};
use super::holders::Holders;
use super::pair::Pair;
use super::table::counted;
use super::{Failure, Finding};

/// Makes one attempt on this server alone.
fn attempt(client: &Client) -> Result<Option<OwnedGuard<Reentrant>>, Error> {
    client.reentrant_lock("lock").try_lock_owned()
}

/// Any lock on a single primary, including this library's.
pub fn wrong(fixture: &Fixture) -> Result<Holders, Failure> {
    twice(fixture, attempt, attempt, |it| it.is_lost())
}

/// The grant counts only once the replica has it. (The new primary has no replica yet.)
pub fn right_by_replicas(fixture: &Fixture) -> Result<Holders, Failure> {
    let patience = Duration::from_millis(100);
    let acknowledged =
        |client: &Client| client.reentrant_lock("lock").with_replicas(1, patience).try_lock_owned();
    twice(fixture, acknowledged, attempt, |it| it.is_lost())
}

/// The lock counts only if two masters granted it, and the second one is still up.
pub fn right_by_multi_lock(fixture: &Fixture) -> Result<Holders, Failure> {
    let other = RedisServer::start()?;
    let on_both = |client: &Client| {
        let (here, there) = (client.clone(), builder(&other.url()).connect()?);
        let [here, there] = [here, there].map(|it| it.reentrant_lock("lock"));
        MultiLock::new(&[&here, &there]).try_lock_owned()
    };
    twice(fixture, on_both, on_both, |it| it.is_lost())
}

/// The lock is held if most of three masters granted it, and two of them are still up.
pub fn right_by_red_lock(fixture: &Fixture) -> Result<Holders, Failure> {
    let others = [RedisServer::start()?, RedisServer::start()?];
    let by_most = |client: &Client| {
        let [second, third] = [builder(&others[0].url()).connect()?, builder(&others[1].url()).connect()?];
        let masters = RedLockClient::new([client.clone(), second, third])?;
        // All servers are new and have granted nothing before. None is slow, but the machine may be.
        let masters = masters.skip_startup_delay().with_node_timeout(Duration::from_secs(2));
        masters.lock("lock").try_lock_owned()
    };
    twice(fixture, by_most, by_most, |it| it.is_lost())
}

/// One caller asks the primary right before its end, another one asks the replica that has replaced it.
fn twice<G>(
    fixture: &Fixture,
    early: impl FnOnce(&Client) -> Result<Option<G>, Error>,
    late: impl FnOnce(&Client) -> Result<Option<G>, Error>,
    is_lost: impl Fn(&G) -> bool,
) -> Result<Holders, Failure> {
    let pair = Pair::of(&fixture.server)?;
    pair.falls_behind();
    let (first, error) = match early(&pair.early()?) {
        Ok(first) => (first, None),
        Err(why) => (None, Some(why.kind())),
    };
    pair.fails_over()?;
    let second = late(&pair.late()?)?;
    let at_once = [&first, &second].into_iter().flatten().filter(|it| !is_lost(it)).count();
    Ok(Holders { at_once, error })
}

/// Both believe that they hold the lock, and each of them writes to what it protects, the early one last.
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

/// The protected resource checks the token of each write, and rejects a token lower than it has seen. The new
/// primary knows no token of the old one, but tokens begin with the time.
pub fn right_by_token(fixture: &Fixture) -> Result<Writes, Failure> {
    let pair = Pair::of(&fixture.server)?;
    pair.falls_behind();
    let first = attempt(&pair.early()?)?.ok_or("the lock was not free")?;
    pair.fails_over()?;
    let second = attempt(&pair.late()?)?.ok_or("the lock was not free")?;
    pair.late()?.fenced("stock").set(second.token(), "the second's")?;
    // The first holder finds the new primary where its service is now.
    let late = pair.late()?.fenced("stock").set(first.token(), "the first's");
    let holders = [&first, &second].iter().filter(|it| !it.is_lost()).count();
    Ok(Writes { holders, late_refused: late.is_err_and(|why| why.kind() == ErrorKind::Conflict) })
}
