//! Increments a number in a key by reading and writing it, without a lock or under one.

use redis::{Commands, Connection};
use redis_concurrent::optimistic::Outcome;
use redis_concurrent::{Client, SimpleLock};

use super::clock::{now, pass};
use super::contended::Turn;

const KEY: &str = "bench:number";

/// An optimistic update. Its wait is the whole update, with all attempts.
pub(crate) fn optimistic(client: &Client, hold_us: u64) -> Result<Turn<'_>, String> {
    let update = client.optimistic(&[KEY]).max_attempts(10_000);
    Ok(Box::new(move || {
        let done = update.run(|read, write| {
            let number: Option<u64> = read.get(KEY)?;
            pass(hold_us);
            write.set(KEY, number.unwrap_or(0) + 1);
            Ok(Outcome::Commit(()))
        });
        done.map(|_| now()).map_err(|e| e.to_string())
    }))
}

/// An update under a lock. Its wait is the whole update, to the end of the unlock. It has a connection of its
/// own for reading and writing.
pub(crate) fn locked<'a>(lock: &'a SimpleLock, url: &str, hold_us: u64) -> Result<Turn<'a>, String> {
    let connection = redis::Client::open(url).and_then(|client| client.get_connection());
    let mut redis = connection.map_err(|e| e.to_string())?;
    let add_one = move |redis: &mut Connection| -> redis::RedisResult<()> {
        let number: Option<u64> = redis.get(KEY)?;
        pass(hold_us);
        redis.set(KEY, number.unwrap_or(0) + 1)
    };
    Ok(Box::new(move || {
        let guard = lock.lock().map_err(|e| e.to_string())?;
        add_one(&mut redis).map_err(|e| e.to_string())?;
        guard.unlock().map(|()| now()).map_err(|e| e.to_string())
    }))
}
