//! The share: threads of a process that have one tenure together, and what keeps others out of it.

use super::{Asking, Gate, Grip, Request, Tenure, Ticket};
use crate::clock::Moment;
use crate::kind::Sharing;
use crate::observe::Way;

impl Gate {
    /// Threads share a tenure.
    pub(super) fn joined(&self) -> bool {
        self.shape.sharing == Sharing::Joined
    }

    /// Lets a thread into a share that other threads of this process have, if one may be joined.
    pub(super) fn join(&mut self, ticket: Ticket, request: &Request, now: Moment) -> Option<Grip> {
        if !self.joined() || request.from.is_some() {
            return None;
        }
        let slice = self.shape.slice;
        let t = self.tenures.iter().position(|t| t.may_be_joined(&request.terms, slice, now))?;
        Some(self.take_hold(ticket, request.taker, t, Way::Joined))
    }

    /// Asks whether a share may take more threads in, well before its slice is over, so that those who
    /// come meanwhile need not wait for the answer.
    pub(super) fn asks_ahead(&mut self, owner: u64, request: &Request, now: Moment) -> Option<Asking> {
        let half = self.shape.slice / 2;
        let share = self.tenure_mut(owner).filter(|t| !t.is_asked())?;
        share.open_since().filter(|since| now.since(*since) > half)?;
        Some(share.asks(request, 1, now))
    }

    /// A share whose slice is over, but which may take more threads in if Redis has nobody waiting.
    pub(super) fn share_to_extend(&mut self, request: &Request, now: Moment) -> Option<&mut Tenure> {
        if !self.joined() || self.shape.slice.is_zero() || request.from.is_some() {
            return None;
        }
        self.tenures.iter_mut().find(|t| t.goes_on_as(&request.terms, now))
    }

    /// Something is let in beside this tenure: it goes to nobody else here.
    pub(crate) fn shut(&mut self, owner: u64) {
        if let Some(tenure) = self.tenure_mut(owner) {
            tenure.shut = true;
        }
    }

    /// It is to end for what is let in in its place.
    pub(crate) fn exchange(&mut self, owner: u64) {
        self.shut(owner);
        if let Some(tenure) = self.tenure_mut(owner) {
            tenure.exchanged = true;
        }
    }

    /// A message: somebody waits whom the share of `owner` must not pass.
    pub(crate) fn yields(&mut self, owner: u64) {
        self.shut(owner);
        if let Some(ask) = self.ask.as_mut().filter(|a| a.owner == owner) {
            ask.shut = true;
        }
    }

    /// A thread of this process waits for another mode of this lock: no share takes anybody in before
    /// Redis has been asked.
    pub(crate) fn yields_all(&mut self) {
        for tenure in &mut self.tenures {
            tenure.shut = true;
        }
        if let Some(ask) = &mut self.ask {
            ask.shut = true;
        }
    }
}
