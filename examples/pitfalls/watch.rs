//! WATCH, and again if somebody else was quicker, without a limit: of those who watch one key at a time
//! one comes through, and nobody says that it will ever be you.

use std::fmt;
use std::thread;

use redis::{Commands, Connection, RedisResult, Value, cmd};

use super::scene::Scene;
use super::table::{counted, grouped};
use super::{Failure, Finding};

const WRITERS: usize = 32;
/// How often they all try.
const ROUNDS: u64 = 100;

/// What the writers' tries came to.
#[derive(Debug, PartialEq, Eq)]
pub struct Updates {
    pub tries: u64,
    pub done: u64,
    /// What the counter says.
    pub counted: u64,
    /// Of the writer that came off worst.
    pub fewest: u64,
}

impl Finding for Updates {
    fn is_kept(&self) -> bool {
        self.counted == self.done && self.fewest > 0
    }
}

impl fmt::Display for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (tries, done) = (grouped(self.tries), counted(self.done as usize, "update"));
        write!(f, "{tries} tries for {done}; worst of {WRITERS}: {}", self.fewest)
    }
}

/// The first half of a try.
fn watch(redis: &mut Connection) -> RedisResult<u64> {
    cmd("WATCH").arg("counter").exec(redis)?;
    redis.get("counter")
}

/// The second half: whether nobody else had written.
fn exec(redis: &mut Connection, next: u64) -> RedisResult<bool> {
    cmd("MULTI").exec(redis)?;
    cmd("SET").arg("counter").arg(next).exec(redis)?;
    Ok(cmd("EXEC").query::<Value>(redis)? != Value::Nil)
}

/// In each round all have read before the first one writes. The first is quicker than the others every
/// time; nothing in this way of doing it makes it stand back.
pub fn wrong(scene: &Scene) -> Result<Updates, Failure> {
    let mut writers = scene.processes::<WRITERS>()?;
    writers[0].set::<_, _, ()>("counter", 0)?;
    let mut done = [0; WRITERS];
    for _ in 0..ROUNDS {
        let seen: Vec<u64> = writers.iter_mut().map(watch).collect::<Result<_, _>>()?;
        for ((writer, seen), done) in writers.iter_mut().zip(seen).zip(&mut done) {
            *done += u64::from(exec(writer, seen + 1)?);
        }
    }
    updates(&mut writers[0], ROUNDS * WRITERS as u64, &done)
}

/// One try an update, and everybody in turn.
pub fn right(scene: &Scene) -> Result<Updates, Failure> {
    const EACH: u64 = 4;
    let [mut redis] = scene.processes()?;
    redis.set::<_, _, ()>("counter", 0)?;
    let clients = scene.clients::<WRITERS>()?;
    let done = thread::scope(|scope| {
        let writers = clients.map(|client| {
            scope.spawn(move || -> Result<u64, Failure> {
                let [mut redis] = scene.processes()?;
                let lock = client.reentrant_lock("counter");
                for _ in 0..EACH {
                    let guard = lock.lock()?;
                    let seen: u64 = redis.get("counter")?;
                    redis.set::<_, _, ()>("counter", seen + 1)?;
                    guard.unlock()?;
                }
                Ok(EACH)
            })
        });
        let done = writers.into_iter().map(|it| it.join().expect("a writer does not panic"));
        done.collect::<Result<Vec<_>, _>>()
    })?;
    updates(&mut redis, EACH * WRITERS as u64, &done)
}

fn updates(redis: &mut Connection, tries: u64, done: &[u64]) -> Result<Updates, Failure> {
    let fewest = done.iter().min().copied().unwrap_or(0);
    Ok(Updates { tries, done: done.iter().sum(), counted: redis.get("counter")?, fewest })
}
