//! What only the models and the tests ask of a lock state.

#![cfg_attr(shuttle, allow(dead_code))]

use super::{LockState, Ticket};
use crate::clock::Moment;

impl LockState {
    /// Whether this hold exists and its grant is valid.
    pub(crate) fn holds_valid(&self, ticket: Ticket, now: Moment) -> bool {
        let hold = self.holds.get(ticket);
        hold.and_then(|h| self.grant(h.owner)).is_some_and(|t| t.loss(now).is_none())
    }

    /// Whether the head was granted what it asks for, and has not taken its turn since.
    pub(crate) fn is_granted(&self) -> bool {
        self.ask.as_ref().is_some_and(|ask| ask.is_granted())
    }

    /// For a model in which all waiters are as urgent: makes states equal that differ only in when each came.
    pub(crate) fn forget_ranks(&mut self) {
        self.line.waiters.iter_mut().for_each(|w| w.rank = (w.rank.0, Moment::default()));
    }

    /// The owners of its grants.
    pub(crate) fn owners(&self) -> Vec<u64> {
        self.grants.iter().map(|t| t.owner).collect()
    }

    /// No waiters, no holders, no request in flight.
    pub(crate) fn is_idle(&self) -> bool {
        !self.is_in_use() && self.holds.iter().next().is_none() && self.leaves.in_flight == 0
    }
}
