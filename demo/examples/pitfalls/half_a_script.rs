//! A script that fails after its first write: Redis runs it alone, but does not roll it back.

use std::fmt;

use redis::{Commands, Connection, cmd};
use redis_concurrent::ErrorKind;

use super::fixture::{Fixture, key};
use super::{Failure, Finding};

const STOCK: i64 = 10;

/// Takes a unit from stock and records its buyer; the list of sales may be something else.
const TAKE_THEN_NOTE: &str = "\
redis.call('DECR', KEYS[1])
redis.call('RPUSH', KEYS[2], ARGV[1])
return 'OK'";

/// The same, but everything that may be wrong is checked first.
const CHECK_TAKE_NOTE: &str = "\
local kind = redis.call('TYPE', KEYS[2]).ok
if kind ~= 'none' and kind ~= 'list' then
  return redis.error_reply('WRONGTYPE the list of sales is a ' .. kind)
end
redis.call('DECR', KEYS[1])
redis.call('RPUSH', KEYS[2], ARGV[1])
return 'OK'";

/// What the books say after a failed sale.
#[derive(Debug, PartialEq, Eq)]
pub struct Books {
    pub left: i64,
    pub sold: i64,
}

impl Finding for Books {
    fn is_kept(&self) -> bool {
        self.left + self.sold == STOCK
    }
}

impl fmt::Display for Books {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {STOCK} vanished", STOCK - self.left - self.sold)
    }
}

pub fn wrong(fixture: &Fixture) -> Result<Books, Failure> {
    sell(fixture, TAKE_THEN_NOTE)
}

pub fn right(fixture: &Fixture) -> Result<Books, Failure> {
    sell(fixture, CHECK_TAKE_NOTE)
}

/// One sale, when another program has put a string in the place of the list.
fn sell(fixture: &Fixture, script: &str) -> Result<Books, Failure> {
    let [mut redis] = fixture.processes()?;
    redis.set::<_, _, ()>("stock", STOCK)?;
    redis.set::<_, _, ()>("sales", "a stranger's")?;
    let mut eval = cmd("EVAL");
    let sale =
        eval.arg(script).arg(2).arg("stock").arg("sales").arg("a customer").query::<String>(&mut redis);
    // There is no list, so no sale is in it.
    match sale {
        Ok(_) => Err("the sale did not fail".into()),
        Err(_) => Ok(Books { left: redis.get("stock")?, sold: 0 }),
    }
}

/// What a lock has written when there is a foreign key in its place.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    pub error: ErrorKind,
    pub changed: bool,
}

impl Finding for Refused {
    fn is_kept(&self) -> bool {
        !self.changed
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let changed = if self.changed { "something" } else { "nothing" };
        write!(f, "{:?}; {changed} was written", self.error)
    }
}

/// The library's own scripts: check everything, then write, then notify.
pub fn right_by_the_lock(fixture: &Fixture) -> Result<Refused, Failure> {
    let [mut redis] = fixture.processes()?;
    redis.rpush::<_, _, ()>(format!("{}:fence", key("lock")), "a stranger's")?;
    let before = everything(fixture, &mut redis)?;
    let [client] = fixture.clients()?;
    let Err(why) = client.reentrant_lock("lock").try_lock_owned() else {
        return Err("it took a stranger's key".into());
    };
    Ok(Refused { error: why.kind(), changed: everything(fixture, &mut redis)? != before })
}

/// Returns all keys, and their contents.
fn everything(fixture: &Fixture, redis: &mut Connection) -> Result<Vec<(String, Vec<u8>)>, Failure> {
    let keys = fixture.server.keys()?.into_iter();
    keys.map(|key| Ok((key.clone(), cmd("DUMP").arg(key).query(redis)?))).collect()
}
