//! The gates of one process: one, or of a lock of two modes two.

use std::iter;
use std::ops::{Index, IndexMut};

use crate::engine::state::lock_state::LockState;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Gates(pub(super) LockState, pub(super) Option<Box<LockState>>);

impl Gates {
    pub(super) fn iter(&self) -> impl Iterator<Item = &LockState> {
        iter::once(&self.0).chain(self.1.as_deref())
    }

    /// By their numbers.
    pub(super) fn numbers(&self) -> std::ops::Range<u8> {
        0..1 + u8::from(self.1.is_some())
    }

    /// The owners of all their tenures.
    pub(super) fn owners(&self) -> Vec<u64> {
        self.iter().flat_map(LockState::owners).collect()
    }

    /// The number of the gate that has a tenure of this owner.
    pub(super) fn of(&self, owner: u64) -> Option<u8> {
        self.numbers().find(|g| self[*g].look(owner).is_some())
    }
}

impl Index<u8> for Gates {
    type Output = LockState;

    fn index(&self, g: u8) -> &LockState {
        self.1.as_deref().filter(|_| g > 0).unwrap_or(&self.0)
    }
}

impl IndexMut<u8> for Gates {
    fn index_mut(&mut self, g: u8) -> &mut LockState {
        match self.1.as_deref_mut() {
            Some(second) if g > 0 => second,
            _ => &mut self.0,
        }
    }
}
