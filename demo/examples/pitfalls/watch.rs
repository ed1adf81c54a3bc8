//! WATCH, repeated without a limit if another process was faster: of the processes that watch one key at a
//! time one succeeds, and no process is sure to be that one eventually.

use std::fmt;
use std::thread;

use redis::{Commands, Connection, RedisResult, Value, cmd};
use redis_concurrent::optimistic::Outcome;
use redis_concurrent::{Client, Error, ErrorKind};

use super::fixture::Fixture;
use super::table::{counted, grouped};
use super::{Failure, Finding};

const WRITERS: usize = 32;
/// How often they all try.
const ROUNDS: u64 = 100;

/// The outcome of the writers' attempts.
#[derive(Debug, PartialEq, Eq)]
pub struct Updates {
    pub tries: u64,
    pub done: u64,
    /// The final value of the counter.
    pub counted: u64,
    /// The updates of the least successful writer.
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

/// The first half of an attempt.
fn watch(redis: &mut Connection) -> RedisResult<u64> {
    cmd("WATCH").arg("counter").exec(redis)?;
    redis.get("counter")
}

/// The second half: whether no other process had written.
fn exec(redis: &mut Connection, next: u64) -> RedisResult<bool> {
    cmd("MULTI").exec(redis)?;
    cmd("SET").arg("counter").arg(next).exec(redis)?;
    Ok(cmd("EXEC").query::<Value>(redis)? != Value::Nil)
}

/// In each round all have read before the first one writes. The first is faster than the others every time;
/// nothing in this way of doing it makes it yield.
pub fn wrong(fixture: &Fixture) -> Result<Updates, Failure> {
    let mut writers = fixture.processes::<WRITERS>()?;
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

/// How many updates each writer makes, where it is sure to succeed.
const EACH: u64 = 4;

/// One attempt per update, and each writer in turn.
pub fn right(fixture: &Fixture) -> Result<Updates, Failure> {
    all_at_once(fixture, |client, redis| {
        let lock = client.reentrant_lock("counter");
        let guard = lock.lock()?;
        let seen: u64 = redis.get("counter")?;
        redis.set::<_, _, ()>("counter", seen + 1)?;
        guard.unlock()?;
        Ok(1)
    })
}

/// A limit, and random pauses that grow. Each failed attempt is another writer's update, so that there are
/// fewer than this limit.
pub fn right_with_a_limit(fixture: &Fixture) -> Result<Updates, Failure> {
    all_at_once(fixture, |client, _| {
        let counter = client.optimistic(&["counter"]).max_attempts(WRITERS as u32 * EACH as u32);
        let update = counter.run(|read, write| {
            let seen: u64 = read.get("counter")?;
            write.set("counter", seen + 1);
            Ok(Outcome::Commit(()))
        })?;
        Ok(u64::from(update.attempts))
    })
}

/// Lets every writer make its updates; each returns how many attempts it took.
fn all_at_once(
    fixture: &Fixture,
    update: impl Fn(&Client, &mut Connection) -> Result<u64, Failure> + Sync,
) -> Result<Updates, Failure> {
    let [mut redis] = fixture.processes()?;
    redis.set::<_, _, ()>("counter", 0)?;
    let (clients, update) = (fixture.clients::<WRITERS>()?, &update);
    let tries = thread::scope(|scope| {
        let writers = clients.map(|client| {
            scope.spawn(move || {
                let [mut redis] = fixture.processes()?;
                (0..EACH).map(|_| update(&client, &mut redis)).sum::<Result<u64, Failure>>()
            })
        });
        writers.into_iter().map(|it| it.join().expect("a writer does not panic")).sum::<Result<u64, _>>()
    })?;
    updates(&mut redis, tries, &[EACH; WRITERS])
}

fn updates(redis: &mut Connection, tries: u64, done: &[u64]) -> Result<Updates, Failure> {
    let fewest = done.iter().min().copied().unwrap_or(0);
    Ok(Updates { tries, done: done.iter().sum(), counted: redis.get("counter")?, fewest })
}

/// The outcome of a writer that is beaten every time.
#[derive(Debug, PartialEq, Eq)]
pub struct Beaten {
    pub tries: u64,
    pub error: ErrorKind,
}

impl Finding for Beaten {
    fn is_kept(&self) -> bool {
        self.error == ErrorKind::Conflict
    }
}

impl fmt::Display for Beaten {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} after {} tries", self.error, self.tries)
    }
}

/// Contention that does not end is an error.
pub fn right_when_beaten(fixture: &Fixture) -> Result<Beaten, Failure> {
    const LIMIT: u32 = 10;
    let [mut quicker] = fixture.processes()?;
    quicker.set::<_, _, ()>("counter", 0)?;
    let [client] = fixture.clients()?;
    let mut tries = 0;
    let update = client.optimistic(&["counter"]).max_attempts(LIMIT).run(|read, write| {
        tries += 1;
        let seen: u64 = read.get("counter")?;
        let beaten: RedisResult<()> = quicker.set("counter", seen + 1);
        beaten.map_err(|e| Error::new(ErrorKind::Unavailable, "counter").caused_by(e))?;
        write.set("counter", seen + 1);
        Ok(Outcome::Commit(()))
    });
    match update {
        Ok(_) => Err("it was not beaten".into()),
        Err(why) => Ok(Beaten { tries, error: why.kind() }),
    }
}
