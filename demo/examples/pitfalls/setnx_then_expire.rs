//! SETNX, then EXPIRE: the process dies between the two, and the key never expires.

use std::fmt;
use std::time::{Duration, Instant};

use redis::Commands;

use super::bare::take;
use super::fixture::{Fixture, LONG, SURELY};
use super::{Failure, Finding};

/// What became of the lock of a dead process: when the next process acquired it, if ever.
#[derive(Debug, PartialEq, Eq)]
pub struct Orphan {
    pub next_after: Option<Duration>,
}

impl Finding for Orphan {
    fn is_kept(&self) -> bool {
        self.next_after.is_some()
    }
}

impl fmt::Display for Orphan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.next_after {
            Some(after) => write!(f, "the next is in {} ms after the crash", after.as_millis()),
            None => write!(f, "nobody ever gets in (PTTL -1)"),
        }
    }
}

pub fn wrong(fixture: &Fixture) -> Result<Orphan, Failure> {
    let [mut doomed, mut next] = fixture.processes()?;
    let began = Instant::now();
    if !doomed.set_nx::<_, _, bool>("lock", "doomed")? {
        return Err("the lock was not free".into());
    }
    // The process dies before its EXPIRE.
    drop(doomed);
    let (in_now, left) = (take(&mut next, "lock", "next", LONG)?, next.pttl::<_, i64>("lock")?);
    let ends = in_now || left != -1;
    Ok(Orphan { next_after: ends.then(|| began.elapsed()) })
}

/// The script that acquires the lock also sets its expiry.
pub fn right(fixture: &Fixture) -> Result<Orphan, Failure> {
    let doomed = fixture.mortal(Duration::from_millis(500))?;
    let held = doomed.client.simple_lock("lock").try_lock_owned()?;
    doomed.dies()?;
    let began = Instant::now();
    let [next] = fixture.clients()?;
    let next = next.simple_lock("lock").lock_owned_with(SURELY)?;
    drop(held);
    Ok(Orphan { next_after: next.map(|_| began.elapsed()) })
}
