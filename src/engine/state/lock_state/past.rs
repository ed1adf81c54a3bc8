//! What a lock state remembers of earlier asks and grants.

use std::time::Duration;

use crate::clock::Moment;
use crate::engine::state::asking::Terms;

/// After this many kept grants in a row that were wanted before they were used again, none is kept for a
/// while.
const UNUSED: u32 = 3;
/// The first such pause; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest such pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    /// The asks that gave way to a waiter of a better class: their terms, and the arrivals that they return
    /// to.
    pub(super) displaced: Vec<(Terms, String)>,
    /// Whether keeping the lock in its process has paid so far.
    pub(super) habit: Habit,
}

impl Past {
    /// Takes out the arrival of a displaced ask on these terms, if there is one.
    pub(super) fn displaced_arrival(&mut self, terms: &Terms) -> Option<String> {
        let at = self.displaced.iter().position(|(displaced, _)| displaced == terms)?;
        Some(self.displaced.swap_remove(at).1)
    }
}

/// A lock that several processes take in turn is wanted each time before it is used again: keeping it costs a
/// message and a request more than releasing it. (The lesson of the JVM's biased locking, JEP 374.)
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Habit {
    /// How many kept grants in a row were not used again.
    unused: u32,
    pauses_until: Moment,
}

impl Habit {
    /// Whether keeping is paused now.
    pub(super) fn pauses(&self, now: Moment) -> bool {
        now < self.pauses_until
    }

    /// A kept grant was wanted before it was used again.
    pub(super) fn was_not_used(&mut self, now: Moment) {
        self.unused = self.unused.saturating_add(1);
        if let Some(times) = self.unused.checked_sub(UNUSED) {
            self.pauses_until = now.after(LONGEST_PAUSE.min(PAUSE * 2_u32.pow(times.min(16))));
        }
    }
}
