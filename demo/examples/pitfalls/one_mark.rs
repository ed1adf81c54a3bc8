//! One write-wait mark for all waiting writers: the first writer that gives up removes it for the others,
//! too.

use std::fmt;
use std::thread;

use redis::{Commands, Connection, RedisResult};
use redis_concurrent::CancellationToken;
use redis_concurrent_testkit::wait_until;

use super::fixture::{Fixture, LONG, SURELY, key};
use super::{Failure, Finding};

/// How many readers arrive after the writer.
const LATER: usize = 100;

/// How many of the later readers passed a waiting writer.
#[derive(Debug, PartialEq, Eq)]
pub struct Passed {
    pub readers: usize,
}

impl Finding for Passed {
    fn is_kept(&self) -> bool {
        self.readers == 0
    }
}

impl fmt::Display for Passed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {LATER} readers pass a waiting writer", self.readers)
    }
}

/// A reader as the articles show it: admitted unless a writer waits.
fn read(redis: &mut Connection) -> RedisResult<bool> {
    let may = !redis.exists::<_, bool>("write_wait")?;
    if may {
        redis.incr::<_, _, ()>("readers", 1)?;
    }
    Ok(may)
}

pub fn wrong(fixture: &Fixture) -> Result<Passed, Failure> {
    let [mut reader, mut gives_up, mut waits, mut later] = fixture.processes()?;
    if !read(&mut reader)? {
        return Err("the first reader was not let in".into());
    }
    for writer in [&mut gives_up, &mut waits] {
        writer.set_ex::<_, _, ()>("write_wait", 1, LONG.as_secs())?;
    }
    if read(&mut later)? {
        return Err("a later reader came in while both writers waited".into());
    }
    gives_up.del::<_, ()>("write_wait")?;
    let mut readers = 0;
    for _ in 0..LATER {
        readers += usize::from(read(&mut later)?);
    }
    Ok(Passed { readers })
}

/// Each writer's own queue position keeps the readers out.
pub fn right(fixture: &Fixture) -> Result<Passed, Failure> {
    let [reader, gives_up, waits, later] = fixture.clients()?.map(|it| it.read_write_lock("lock"));
    let reading = reader.read_lock().lock_owned()?;
    let [mut redis] = fixture.processes()?;
    let mut await_writers = |n: usize| {
        let queue = format!("{}:queue", key("lock"));
        wait_until(SURELY, "the writers wait", || redis.zcard::<_, usize>(&queue).is_ok_and(|it| it == n));
    };
    let patience = CancellationToken::new();
    thread::scope(|scope| {
        let gives_up = scope.spawn(|| gives_up.write_lock().lock_owned_with(&patience).map(drop));
        let waits = scope.spawn(|| waits.write_lock().lock_owned().map(drop));
        await_writers(2);
        patience.cancel();
        await_writers(1);
        let passed = (0..LATER).map(|_| later.read_lock().try_lock_owned());
        let passed = passed.collect::<Result<Vec<_>, _>>()?;
        let readers = passed.iter().flatten().count();
        reading.unlock()?;
        drop(passed);
        let (gives_up, waits) = (gives_up.join(), waits.join());
        if gives_up.expect("a writer does not panic").is_ok() {
            return Err("the writer that gave up got in".into());
        }
        waits.expect("a writer does not panic")?;
        Ok(Passed { readers })
    })
}
