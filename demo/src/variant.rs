//! The runs: the same sale, each time with another lock, or with something other than a lock.

use serde::{Deserialize, Serialize};

/// One run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Variant {
    None,
    Simple,
    Reentrant,
    ReentrantKill,
    Fair,
    RedLock,
    Optimistic,
    Inventory,
}

impl Variant {
    /// In the order of the runs.
    pub const ALL: [Variant; 8] = [
        Variant::None,
        Variant::Simple,
        Variant::Reentrant,
        Variant::ReentrantKill,
        Variant::Fair,
        Variant::RedLock,
        Variant::Optimistic,
        Variant::Inventory,
    ];

    /// Its name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Variant::None => "none",
            Variant::Simple => "simple",
            Variant::Reentrant => "reentrant",
            Variant::ReentrantKill => "reentrant+kill",
            Variant::Fair => "fair",
            Variant::RedLock => "redlock",
            Variant::Optimistic => "optimistic",
            Variant::Inventory => "inventory",
        }
    }

    /// Its description, in one line.
    pub fn about(self) -> &'static str {
        match self {
            Variant::None => "no lock at all",
            Variant::Simple => "a SimpleLock: one string key",
            Variant::Reentrant => "a ReentrantLock",
            Variant::ReentrantKill => "the same; one process is killed (-9) while it holds an inventory lock",
            Variant::Fair => "a ReentrantLock, fair: processes strictly in turn",
            Variant::RedLock => "a RedLock over five servers of its own",
            Variant::Optimistic => "no lock: WATCH, reads, MULTI, EXEC, and once more if somebody was faster",
            Variant::Inventory => "no lock: pieces are reserved in an Inventory, and then sold",
        }
    }

    /// Whether a process is killed during the run.
    pub fn kills(self) -> bool {
        self == Variant::ReentrantKill
    }

    /// Whether orders acquire locks.
    pub fn locks(self) -> bool {
        !matches!(self, Variant::None | Variant::Optimistic | Variant::Inventory)
    }
}
