//! Shared holds: threads of a process that have one grant in common, and what keeps others from joining it.

use super::ask::Phase;
use super::condition_waiter::WaitsFor;
use super::{Acquired, Asking, Grant, LockState, Request, Ticket, Trouble};
use crate::clock::Moment;
use crate::kind::Sharing;
use crate::observe::AcquiredVia;

impl LockState {
    /// Whether the threads of a process share a grant.
    pub(super) fn joined(&self) -> bool {
        self.shape.sharing == Sharing::SharedPerProcess
    }

    /// Lets a thread join a grant of other threads of this process, if one may be joined.
    pub(super) fn join(&mut self, ticket: Ticket, request: &Request, now: Moment) -> Option<Acquired> {
        if !self.may_share(request) || self.stands_behind(request) {
            return None;
        }
        let (terms, local_handoff) = (&request.terms, self.shape.local_handoff);
        let share = self.grants.iter_mut().find(|t| t.may_be_joined(ticket, terms, local_handoff, now))?;
        Some(self.holds.take(share, ticket, request.holder, AcquiredVia::Joined))
    }

    /// Asks whether a shared grant may admit more threads, well before its local hand-off period is over, so
    /// that threads that arrive meanwhile need not wait for the reply.
    pub(super) fn asks_ahead(&mut self, owner: u64, request: &Request, now: Moment) -> Option<Asking> {
        let (half, last) = (self.shape.local_handoff / 2, self.line.last);
        let share = self.grant_mut(owner).filter(|t| !t.share_in_flight())?;
        share.joining()?.open_since.filter(|since| now.since(*since) > half)?;
        Some(share.asks(request, 1, last, now))
    }

    /// Returns a shared grant whose local hand-off period is over, but which may admit more threads if Redis
    /// has no waiters.
    pub(super) fn share_to_extend(&mut self, request: &Request, now: Moment) -> Option<&mut Grant> {
        self.may_share(request).then(|| self.grants.iter_mut().find(|t| t.can_serve(&request.terms, now)))?
    }

    /// Whether other threads' grants are looked at for this request: where none would do, there may be very many.
    fn may_share(&self, request: &Request) -> bool {
        let (local_handoff, terms) = (self.shape.local_handoff, &request.terms);
        self.joined() && !local_handoff.is_zero() && request.from.is_none() && terms.can_serve(terms)
    }

    /// Another mode is admitted beside this grant, which then goes to no other thread here.
    pub(crate) fn close_to_others(&mut self, owner: u64) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.close_to_others();
        }
    }

    /// If this hold is about to end and is the only one on its grant, the grant goes to no other thread here.
    pub(crate) fn ends_with(&mut self, ticket: Ticket) {
        let last = self.holds.get(ticket).filter(|hold| hold.count == 1).map(|hold| hold.owner);
        if let Some(owner) = last.filter(|owner| self.grant(*owner).is_some_and(|grant| grant.holds == 1)) {
            self.close_to_others(owner);
        }
    }

    /// This grant must end in exchange for the one that is admitted in its place.
    pub(crate) fn exchange(&mut self, owner: u64) {
        if let Some(grant) = self.grant_mut(owner) {
            grant.exchange();
        }
    }

    /// A message: there is a waiter that the shared holds of `owner` must not pass.
    pub(crate) fn yields(&mut self, owner: u64) {
        self.close_to_others(owner);
        if let Some(ask) = self.ask_of(owner) {
            ask.wanted = Some(Moment::default());
        }
    }

    /// Whether a thread waits here that Redis does not know of yet. While this process has the lock, no other
    /// process would have to know of it.
    pub(crate) fn waits_unknown(&self, now: Moment) -> bool {
        self.line.waiters.iter().any(|w| !w.request.once)
            && self.ask.as_ref().is_none_or(|ask| matches!(ask.phase, Phase::New | Phase::Busy))
            && self.in_the_way(now).is_none()
    }

    /// Sets whether a thread of this process waits to write without Redis knowing of it yet (`ahead`). While
    /// it does, no shared grant may be joined and no thread here asks Redis, so that none passes it. If Redis
    /// has not replied to that thread since `trouble`, it has not replied to the threads behind it either.
    /// Returns the thread to wake once the writer is no longer ahead.
    pub(crate) fn stand_behind(&mut self, ahead: bool, trouble: Option<Moment>) -> Option<Ticket> {
        let waits_for = if ahead { WaitsFor::Writer } else { WaitsFor::Lock };
        let was = std::mem::replace(&mut self.waits_for, waits_for) == WaitsFor::Writer;
        if self.ask.is_none() && (ahead || was) {
            self.trouble = trouble.filter(|_| ahead).map(|since| Trouble { since, failures: 0 });
        }
        if !ahead {
            return self.head().filter(|_| was);
        }
        self.grants.iter_mut().for_each(Grant::close_to_others);
        if let Some(ask) = &mut self.ask {
            ask.wanted = Some(Moment::default());
        }
        None
    }

    /// Whether this request has to wait for a thread of this process that Redis does not know of. A request
    /// of a thread that holds another mode does not: every waiter there waits for that thread.
    pub(super) fn stands_behind(&self, request: &Request) -> bool {
        self.waits_for == WaitsFor::Writer && request.from.is_none()
    }
}
