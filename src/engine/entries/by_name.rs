//! The index from a kind and name to the slot of the entry. Only the entry stores the name, as a process may
//! hold a hundred thousand locks.

use std::any::TypeId;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};

/// Slots by the hash of kind and name.
#[derive(Default)]
pub(in crate::engine) struct ByName {
    hashes: RandomState,
    slots: HashMap<u64, u32>,
    /// Slots that another entry displaced from the map: of an entry that is being dropped while there is a
    /// new one of the same name, or of one with another name and the same hash.
    displaced: Vec<u32>,
}

impl ByName {
    /// Returns the slots that may have the entry of this name.
    pub(in crate::engine) fn slots(&self, kind: TypeId, name: &str) -> impl Iterator<Item = u32> {
        let first = self.slots.get(&self.hash(kind, name)).copied();
        first.into_iter().chain(self.displaced.iter().copied())
    }

    pub(in crate::engine) fn insert(&mut self, kind: TypeId, name: &str, slot: u32) {
        self.displaced.extend(self.slots.insert(self.hash(kind, name), slot));
    }

    /// Removes a slot. No effect for an entry that cannot be found by its name, as its slot is not here.
    pub(in crate::engine) fn remove(&mut self, kind: TypeId, name: &str, slot: u32) {
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
#[path = "../../../verify/unit/engine/entries/by_name.rs"]
mod tests;
