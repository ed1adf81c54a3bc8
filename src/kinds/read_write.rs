//! The two halves of a read/write lock.

use crate::kind::{Exclusive, Kind, Reentry, Sharing};

const RULE: &str = include_str!("../../lua/read_write.lua");

/// The kind of a [`ReadLock`](crate::ReadLock): many may read at a time, while nobody writes. The threads
/// of a process share a hold in Redis, with a lease of its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    /// In order of arrival: later writers do not pass.
    pub(crate) in_order: bool,
}

impl Kind for Read {
    const NAME: &'static str = "read lock";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::Joined;
    const REENTRY: Reentry = Reentry::Count;

    fn args(&self) -> String {
        if self.in_order { "read-in-order" } else { "read" }.to_owned()
    }
}

/// The kind of a [`WriteLock`](crate::WriteLock): one writes at a time, while nobody else reads.
#[derive(Clone, Copy, Debug, Default)]
pub struct Write;

impl Kind for Write {
    const NAME: &'static str = "write lock";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::Exclusive;
    const REENTRY: Reentry = Reentry::Count;

    fn args(&self) -> String {
        "write".to_owned()
    }
}

impl Exclusive for Write {}
