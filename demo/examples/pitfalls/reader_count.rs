//! Readers counted by INCR and DECR: a reader that dies is never subtracted.

use std::fmt;
use std::time::{Duration, Instant};

use redis::Commands;

use super::fixture::{Fixture, SURELY};
use super::{Failure, Finding};

/// Readers, one of which dies while it reads.
const READERS: usize = 3;

/// What a writer finds when no reader is alive any more.
#[derive(Debug, PartialEq, Eq)]
pub struct Readers {
    pub counted: i64,
    /// How long after the crash the writer acquires the lock, if ever.
    pub writer_in: Option<Duration>,
}

impl Finding for Readers {
    fn is_kept(&self) -> bool {
        self.writer_in.is_some()
    }
}

impl fmt::Display for Readers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.writer_in {
            Some(after) => write!(f, "a writer is in {} ms after the crash", after.as_millis()),
            None => write!(f, "{} counted, 0 alive: no writer ever", self.counted),
        }
    }
}

pub fn wrong(fixture: &Fixture) -> Result<Readers, Failure> {
    let mut readers = fixture.processes::<READERS>()?;
    for reader in &mut readers {
        reader.incr::<_, _, ()>("readers", 1)?;
    }
    let [doomed, living @ ..] = readers;
    drop(doomed);
    for mut reader in living {
        reader.decr::<_, _, ()>("readers", 1)?;
    }
    let [mut writer] = fixture.processes()?;
    let counted: i64 = writer.get("readers")?;
    if writer.pttl::<_, i64>("readers")? != -1 {
        return Err("the count has an end".into());
    }
    Ok(Readers { counted, writer_in: (counted == 0).then_some(Duration::ZERO) })
}

/// Each reading process has a lease of its own.
pub fn right(fixture: &Fixture) -> Result<Readers, Failure> {
    let doomed = fixture.mortal(Duration::from_millis(500))?;
    let held = doomed.client.read_write_lock("lock").read_lock().lock_owned()?;
    let living = fixture.clients::<{ READERS - 1 }>()?.map(|it| it.read_write_lock("lock"));
    let reading: Vec<_> = living.iter().map(|it| it.read_lock().lock_owned()).collect::<Result<_, _>>()?;
    doomed.dies()?;
    let began = Instant::now();
    reading.into_iter().try_for_each(|it| it.unlock())?;
    let [writer] = fixture.clients()?;
    let writer = writer.read_write_lock("lock");
    let writing = writer.write_lock().lock_owned_with(SURELY)?;
    let writer_in = writing.as_ref().map(|_| began.elapsed());
    drop(held);
    let counted = i64::try_from(writer.read_count()?)?;
    Ok(Readers { counted, writer_in })
}
