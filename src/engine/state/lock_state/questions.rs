//! Questions that a lock state answers without changing.

use std::time::Duration;

use super::{Grant, LockState, OurHold, Ticket};
use crate::clock::Moment;

impl LockState {
    /// How many times this thread holds the lock, if its grant is valid.
    pub(crate) fn hold_count(&self, thread: u64, now: Moment) -> usize {
        self.valid(self.holds.of_thread(thread), now).map(OurHold::guards).sum()
    }

    /// Those of these holds whose grants are valid.
    fn valid<'a>(
        &self,
        holds: impl Iterator<Item = &'a OurHold>,
        now: Moment,
    ) -> impl Iterator<Item = &'a OurHold> {
        holds.filter(move |h| self.grant(h.owner).is_some_and(|t| t.loss(now).is_none()))
    }

    /// How many guards this hold has.
    pub(crate) fn count(&self, ticket: Ticket) -> usize {
        self.holds.get(ticket).map_or(0, OurHold::guards)
    }

    /// How many threads and guards hold it on a valid grant.
    pub(crate) fn holders(&self, now: Moment) -> usize {
        self.valid(self.holds.iter(), now).count()
    }

    /// Returns the owner of the valid grant that this thread holds, if it holds one.
    pub(crate) fn held_by(&self, thread: u64, now: Moment) -> Option<u64> {
        self.valid(self.holds.of_thread(thread), now).next().map(|hold| hold.owner)
    }

    /// For how long this hold's thread has known that it has the lock, if it knows.
    pub(crate) fn held(&self, ticket: Ticket, now: Moment) -> Option<Duration> {
        Some(now.since(self.holds.get(ticket)?.since?))
    }

    /// For how long the youngest and the oldest hold of this owner have existed.
    pub(crate) fn ages(&self, owner: u64, now: Moment) -> (Duration, Duration) {
        let ages = || self.holds.of_owner(owner).filter_map(|h| h.since).map(|since| now.since(since));
        (ages().min().unwrap_or_default(), ages().max().unwrap_or_default())
    }

    /// The owners whose grants are renewed.
    pub(crate) fn renewed_owners(&self) -> Vec<u64> {
        let renewed = |t: &&Grant| !t.terms.fixed && t.lost().is_none();
        self.grants.iter().filter(renewed).map(|t| t.owner).collect()
    }

    /// The number of waiting threads of this process.
    pub(crate) fn local_queue_length(&self) -> usize {
        self.line.waiters.len()
    }

    /// The grant of this hold, for its guards. It may not be the one that the hold began with: a wait for a
    /// condition gives that up and gets a new one.
    pub(crate) fn grant_of(&self, ticket: Ticket) -> Option<&Grant> {
        self.grant(self.holds.get(ticket)?.owner)
    }

    /// Whether this owner asks or holds here.
    pub(crate) fn knows(&self, owner: u64) -> bool {
        self.grant(owner).is_some() || self.ask.as_ref().is_some_and(|a| a.owner == owner)
    }

    /// Since when Redis has not replied to this lock state.
    pub(crate) fn trouble(&self) -> Option<Moment> {
        self.trouble.as_ref().map(|trouble| trouble.since)
    }

    /// Whether a thread waits here, or anything is held or asked for, so that messages about the lock matter.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.line.waiters.is_empty() || self.grants.iter().next().is_some() || self.ask.is_some()
    }
}
