//! What a lock state remembers of asks and grants that are over, where there is anything to remember.

use super::habit::Habit;
use crate::engine::state::asking::Terms;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Past {
    /// Of asks that made room for a waiter of a better class: their terms, and the arrivals to which they come back.
    pub(super) displaced: Vec<(Terms, String)>,
    /// Of a lock that its process keeps, whether that has paid so far.
    pub(super) habit: Habit,
}

impl Past {
    /// Changes what is remembered, and does away with it if that is nothing more.
    pub(super) fn forget(past: &mut Option<Box<Past>>, what: impl FnOnce(&mut Past)) {
        past.take_if(|past| {
            what(past);
            **past == Past::default()
        });
    }

    /// The arrival of the ask on these terms that was displaced, if one was.
    pub(super) fn displaced_arrival(past: &mut Option<Box<Past>>, terms: &Terms) -> Option<String> {
        let mut arrival = None;
        Past::forget(past, |Past { displaced, .. }| {
            let at = displaced.iter().position(|(displaced, _)| displaced == terms);
            arrival = at.map(|at| displaced.swap_remove(at).1);
        });
        arrival
    }
}
