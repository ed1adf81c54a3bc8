//! Which slot has the entry of a kind and name. The name is kept in the entry alone: a process may hold a hundred
//! thousand locks.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Slots by what a kind and a name hash to.
#[derive(Default)]
pub(super) struct ByName {
    hashes: RandomState,
    slots: HashMap<u64, u32>,
    /// Those whose place another entry has taken: one that is being dropped, while there is a new one of its name; or
    /// one of another name with the same hash.
    displaced: Vec<u32>,
}

impl ByName {
    /// The slots one of which may have the entry of this name.
    pub(super) fn slots(&self, kind: TypeId, name: &str) -> impl Iterator<Item = u32> {
        let first = self.slots.get(&self.hash(kind, name)).copied();
        first.into_iter().chain(self.displaced.iter().copied())
    }

    pub(super) fn insert(&mut self, kind: TypeId, name: &str, slot: u32) {
        self.displaced.extend(self.slots.insert(self.hash(kind, name), slot));
    }

    /// Forgets a slot; one of an entry that is not found by its name is not there.
    pub(super) fn remove(&mut self, kind: TypeId, name: &str, slot: u32) {
        let hash = self.hash(kind, name);
        if self.slots.get(&hash) == Some(&slot) {
            self.slots.remove(&hash);
        }
        self.displaced.retain(|displaced| *displaced != slot);
    }

    fn hash(&self, kind: TypeId, name: &str) -> u64 {
        self.hashes.hash_one((kind, name))
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/unit/engine/by_name.rs"]
mod tests;
