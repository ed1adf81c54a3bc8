//! What a lock state remembers of earlier asks and grants, if there is anything to remember.

use super::habit::Habit;
use crate::engine::state::asking::Terms;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    /// The asks that gave way to a waiter of a better class: their terms, and the arrivals that they return
    /// to.
    pub(super) displaced: Vec<(Terms, String)>,
    /// Whether keeping the lock in its process has paid so far.
    pub(super) habit: Habit,
}

impl Past {
    /// Changes what is remembered, and frees it if nothing is left.
    pub(super) fn forget(past: &mut Option<Box<Past>>, what: impl FnOnce(&mut Past)) {
        past.take_if(|past| {
            what(past);
            **past == Past::default()
        });
    }

    /// Takes out the arrival of a displaced ask on these terms, if there is one.
    pub(super) fn displaced_arrival(past: &mut Option<Box<Past>>, terms: &Terms) -> Option<String> {
        let mut arrival = None;
        Past::forget(past, |Past { displaced, .. }| {
            let at = displaced.iter().position(|(displaced, _)| displaced == terms);
            arrival = at.map(|at| displaced.swap_remove(at).1);
        });
        arrival
    }
}
