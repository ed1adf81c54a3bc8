//! How many processes hold a lock, which is the outcome of most pitfalls.

use std::fmt;

use redis_concurrent::ErrorKind;

use super::Finding;
use super::table::counted;

/// How many processes hold the lock at once, each of them sure that it does, and the error returned to a
/// process that wrongly believed that it did.
#[derive(Debug, PartialEq, Eq)]
pub struct Holders {
    pub at_once: usize,
    pub error: Option<ErrorKind>,
}

impl Holders {
    pub fn new(at_once: usize) -> Holders {
        Holders { at_once, error: None }
    }
}

impl Finding for Holders {
    fn is_kept(&self) -> bool {
        self.at_once <= 1
    }
}

impl fmt::Display for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", counted(self.at_once, "holder"))?;
        match self.error {
            Some(kind) => write!(f, "; the other is told {kind:?}"),
            None => Ok(()),
        }
    }
}
