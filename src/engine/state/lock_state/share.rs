//! The share: threads of a process that have one tenure together, and what keeps others out of it.

use super::ask::PendingAcquire;
use super::{Acquired, Asking, Grant, LockState, Request, Ticket};
use crate::clock::Moment;
use crate::kind::Sharing;
use crate::observe::AcquiredVia;

impl LockState {
    /// Threads share a tenure.
    pub(super) fn joined(&self) -> bool {
        self.shape.sharing == Sharing::SharedPerProcess
    }

    /// Lets a thread into a share that other threads of this process have, if one may be joined.
    pub(super) fn join(&mut self, ticket: Ticket, request: &Request, now: Moment) -> Option<Acquired> {
        let local_handoff = self.shape.local_handoff;
        if !self.joined() || local_handoff.is_zero() || request.from.is_some() || self.stands_behind(request)
        {
            return None;
        }
        let share = self.grants.find_shared(|t| t.may_be_joined(&request.terms, local_handoff, now))?;
        Some(self.holds.take(share, ticket, request.holder, AcquiredVia::Joined))
    }

    /// Asks whether a share may take more threads in, well before its slice is over, so that those who
    /// come meanwhile need not wait for the answer.
    pub(super) fn asks_ahead(&mut self, owner: u64, request: &Request, now: Moment) -> Option<Asking> {
        let half = self.shape.local_handoff / 2;
        let share = self.grant_mut(owner).filter(|t| !t.is_asked())?;
        share.open_since().filter(|since| now.since(*since) > half)?;
        Some(share.asks(request, 1, now))
    }

    /// A share whose slice is over, but which may take more threads in if Redis has nobody waiting.
    pub(super) fn share_to_extend(&mut self, request: &Request, now: Moment) -> Option<&mut Grant> {
        if !self.joined() || self.shape.local_handoff.is_zero() || request.from.is_some() {
            return None;
        }
        self.grants.find_shared(|t| t.goes_on_as(&request.terms, now))
    }

    /// Something is let in beside this tenure: it goes to nobody else here.
    pub(crate) fn shut(&mut self, owner: u64) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.shut = true;
        }
    }

    /// It is to end for what is let in in its place.
    pub(crate) fn exchange(&mut self, owner: u64) {
        self.shut(owner);
        if let Some(grant) = self.grant_mut(owner) {
            grant.exchanged = true;
        }
    }

    /// A message: somebody waits whom the share of `owner` must not pass.
    pub(crate) fn yields(&mut self, owner: u64) {
        self.shut(owner);
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.shut = true;
        }
    }

    /// Whether a thread waits here of which Redis does not know yet. While this process has the lock, there is
    /// nobody whom it would have to know of.
    pub(crate) fn waits_unknown(&self, now: Moment) -> bool {
        let known = |ask: &PendingAcquire| ask.queued || ask.grant.is_some() || ask.refused.is_some();
        self.waiters.iter().any(|w| !w.request.once)
            && !self.ask.as_deref().is_some_and(known)
            && self.in_the_way(now).is_none()
    }

    /// Whether a thread of this process waits for another mode of this lock, and Redis does not know of it yet
    /// (`ahead`): then it is known here alone, so no share takes anybody in any more, and nobody asks Redis, past
    /// it. Where Redis has not answered that thread since `trouble`, it has not answered those behind it either.
    /// Returns whom to wake once it is over.
    pub(crate) fn stand_behind(&mut self, ahead: bool, trouble: Option<Moment>) -> Option<Ticket> {
        let was = std::mem::replace(&mut self.behind, ahead);
        if self.ask.is_none() && (ahead || was) {
            self.trouble = trouble.filter(|_| ahead);
        }
        if !ahead {
            return self.head().filter(|_| was);
        }
        self.grants.shut_all();
        if let Some(ask) = &mut self.ask {
            ask.shut = true;
        }
        None
    }

    /// Whether this request has to wait for a thread of this process that Redis does not know of. One from
    /// another mode does not: whoever waits there waits for its thread.
    pub(super) fn stands_behind(&self, request: &Request) -> bool {
        self.behind && request.from.is_none()
    }
}
