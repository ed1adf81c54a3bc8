//! The lock states of one process: one, or two for a lock with two modes, and one more for each thread that
//! waits for a condition.

use std::ops::{Index, IndexMut};

use crate::engine::state::lock_state::LockState;

use super::waits::Wait;

/// The lock state for writing; the only one of an exclusive lock.
pub(super) const WRITES: u8 = 0;
/// The lock state for reading.
pub(super) const READS: u8 = 1;
/// The lock state of the first thread while it waits for a condition.
const OWN: u8 = 2;

/// Returns the number of the lock state that a thread has to itself while it waits for a condition.
pub(super) fn own(thread: u8) -> u8 {
    OWN + thread
}

/// Whether this lock state belongs to a single thread.
pub(super) fn is_own(g: u8) -> bool {
    g >= OWN
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LockStates {
    first: LockState,
    pub(super) second: Option<Box<LockState>>,
    waits: Vec<Wait>,
}

impl LockStates {
    pub(super) fn of(first: LockState, second: Option<LockState>) -> LockStates {
        LockStates { first, second: second.map(Box::new), waits: Vec::new() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LockState> {
        let waits = self.waits.iter().map(|wait| &wait.lock_state);
        [&self.first].into_iter().chain(self.second.as_deref()).chain(waits)
    }

    /// Returns their numbers.
    pub(super) fn numbers(&self) -> impl Iterator<Item = u8> + use<> {
        let waits: Vec<u8> = self.waits.iter().map(|wait| own(wait.thread)).collect();
        (WRITES..=if self.second.is_some() { READS } else { WRITES }).chain(waits)
    }

    /// Returns the owners of all their grants.
    pub(super) fn owners(&self) -> Vec<u64> {
        self.iter().flat_map(LockState::owners).collect()
    }

    /// Returns the number of the lock state that has a grant of this owner.
    pub(super) fn of_owner(&self, owner: u64) -> Option<u8> {
        self.numbers().find(|g| self[*g].grant(owner).is_some())
    }

    /// Returns the wait for which a thread has the lock state with this number to itself.
    pub(super) fn wait(&self, g: u8) -> Option<&Wait> {
        self.waits.iter().find(|wait| own(wait.thread) == g)
    }

    pub(super) fn wait_mut(&mut self, g: u8) -> Option<&mut Wait> {
        self.waits.iter_mut().find(|wait| own(wait.thread) == g)
    }

    pub(super) fn begin(&mut self, wait: Wait) {
        self.waits.reserve_exact(1);
        self.waits.push(wait);
        self.waits.sort_by_key(|wait| wait.thread);
    }

    pub(super) fn end(&mut self, thread: u8) -> Option<Wait> {
        let i = self.waits.iter().position(|wait| wait.thread == thread)?;
        Some(self.waits.remove(i))
    }
}

impl Index<u8> for LockStates {
    type Output = LockState;

    fn index(&self, g: u8) -> &LockState {
        match (g, self.second.as_deref()) {
            (READS, Some(second)) => second,
            (WRITES | READS, _) => &self.first,
            _ => &self.wait(g).expect("the thread waits").lock_state,
        }
    }
}

impl IndexMut<u8> for LockStates {
    fn index_mut(&mut self, g: u8) -> &mut LockState {
        if is_own(g) {
            return &mut self.wait_mut(g).expect("the thread waits").lock_state;
        }
        match self.second.as_deref_mut() {
            Some(second) if g == READS => second,
            _ => &mut self.first,
        }
    }
}
