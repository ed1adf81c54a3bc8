//! A lock on a primary whose replica is late: the primary dies right after the grant, the replica becomes
//! primary, has never heard of the lock, and grants it again.

use std::fmt;

use super::holders::Holders;
use super::pair::Pair;
use super::scene::Scene;
use super::table::counted;
use super::{Failure, Finding};

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
