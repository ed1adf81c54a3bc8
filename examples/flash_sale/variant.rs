//! The runs: the same sale, each time under another lock.

use redis_concurrent::{Client, Lock};
use serde::{Deserialize, Serialize};

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    None,
    Simple,
    Reentrant,
    ReentrantKill,
    Fair,
}

impl Variant {
    /// In the order of the runs.
    pub const ALL: [Variant; 5] =
        [Variant::None, Variant::Simple, Variant::Reentrant, Variant::ReentrantKill, Variant::Fair];

    /// What it is called in the table.
    pub fn name(self) -> &'static str {
        match self {
            Variant::None => "none",
            Variant::Simple => "simple",
            Variant::Reentrant => "reentrant",
            Variant::ReentrantKill => "reentrant+kill",
            Variant::Fair => "fair",
        }
    }

    /// What it is, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Variant::None => "no lock at all",
            Variant::Simple => "a SimpleLock: one string key",
            Variant::Reentrant => "a ReentrantLock",
            Variant::ReentrantKill => "the same; one process is killed (-9) while it holds a stock lock",
            Variant::Fair => "a ReentrantLock, fair: processes strictly in turn",
        }
    }

    /// Whether a process is killed in the middle of it.
    pub fn kills(self) -> bool {
        self == Variant::ReentrantKill
    }

    /// The lock `name` of this run's kind, behind a trait object.
    pub fn lock(self, client: &Client, name: &str) -> Option<Box<dyn Lock>> {
        match self {
            Variant::None => None,
            Variant::Simple => Some(Box::new(client.simple_lock(name))),
            Variant::Reentrant | Variant::ReentrantKill => Some(Box::new(client.reentrant_lock(name))),
            Variant::Fair => Some(Box::new(client.reentrant_lock(name).fair())),
        }
    }
}
