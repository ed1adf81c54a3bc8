//! A lock made of a timestamp: the key holds the time when it expires, by the clock of the process that set
//! it, and a process that finds it expired acquires it with GETSET. A process whose clock is ahead finds
//! every lock expired.

use std::time::Duration;

use redis::{Commands, Connection, RedisResult, cmd};

use super::Failure;
use super::fixture::{Fixture, LONG};
use super::holders::Holders;

/// How far the second process's clock is ahead.
const AHEAD: Duration = Duration::from_secs(60);

/// Any time will do: it is only compared with itself.
const NOON: Duration = Duration::from_secs(1_700_000_000);

/// One attempt by a process at this time.
fn try_lock(redis: &mut Connection, now: Duration) -> RedisResult<bool> {
    let (now, ends) = (now.as_millis() as u64, (now + LONG).as_millis() as u64);
    if redis.set_nx("lock", ends)? {
        return Ok(true);
    }
    let seen: u64 = redis.get("lock")?;
    if seen >= now {
        return Ok(false);
    }
    // Expired. Of the processes that see that, one gets the old value back.
    let old: u64 = cmd("GETSET").arg("lock").arg(ends).query(redis)?;
    Ok(old == seen)
}

pub fn wrong(fixture: &Fixture) -> Result<Holders, Failure> {
    with_the_second_ahead(fixture, AHEAD)
}

/// Two processes try in the same instant, but the second one's clock is ahead.
pub fn with_the_second_ahead(fixture: &Fixture, by: Duration) -> Result<Holders, Failure> {
    let [mut first, mut second] = fixture.processes()?;
    let held = [try_lock(&mut first, NOON)?, try_lock(&mut second, NOON + by)?];
    Ok(Holders::new(held.into_iter().filter(|it| *it).count()))
}

/// No process's clock matters: a lease is a duration, and it ends by the server's clock.
pub fn right(fixture: &Fixture) -> Result<Holders, Failure> {
    super::exists_then_set::right(fixture)
}
