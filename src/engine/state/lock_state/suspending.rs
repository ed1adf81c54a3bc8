//! Holds that leave the state, and come back: for a wait for a condition, of which the wait's own state says how it goes,
//! and for another process, with a receipt.

use std::sync::Arc;

use super::condition_waiter::{HasGivenUp, Signal, SuspendedHold, WaitsFor};
use super::{Acquired, Effects, HolderId, LockState, OurHold, PendingRelease, Refusal, Shape, Ticket};
use crate::clock::Moment;
use crate::engine::state::grant::{Grant, Standing};
use crate::observe::{AcquiredVia, LossReason};

impl LockState {
    /// Creates the state of one wait for a condition.
    pub(crate) fn of_condition_waiter(shape: impl Into<Arc<Shape>>) -> Self {
        LockState { waits_for: WaitsFor::Condition(Box::default()), ..LockState::new(shape) }
    }

    /// This state's wait is to give up the hold of which `leaving` is the release.
    pub(crate) fn gives_up(&mut self, leaving: &PendingRelease) {
        if let Some(waiter) = self.waits_for.condition() {
            waiter.in_flight = leaving.maybe_in_flight.then(|| leaving.clone());
        }
    }

    /// The time of this state's wait is over. Returns whether the wait goes on until it has the lock again;
    /// if not, it never gave the lock up.
    pub(crate) fn turns_back(&mut self, now: Moment) -> bool {
        let waiter = self.waits_for.condition();
        let Some(waiter) = waiter.filter(|it| it.given_up != HasGivenUp::No) else { return false };
        if waiter.signal == Signal::Awaited {
            waiter.signal = Signal::TimedOut;
        }
        if let Some(ask) = &mut self.ask {
            ask.again_at = now;
        }
        true
    }

    /// Once the hold is given up, requests no longer name it. Returns its release if it is to get a
    /// tombstone.
    pub(super) fn forget_given_up(&mut self) -> Option<PendingRelease> {
        let waiter = self.waits_for.condition().filter(|waiter| waiter.given_up == HasGivenUp::Yes)?;
        let in_flight = waiter.in_flight.take();
        if let Some(ask) = &mut self.ask {
            ask.sought.from = None;
        }
        if let Some(head) = self.line.waiters.front_mut() {
            head.request.from = None;
        }
        in_flight
    }

    /// Returns whether this state's wait has given up the hold, and whether it ended before it was signalled.
    pub(crate) fn wait_outcome(&self) -> (HasGivenUp, bool) {
        match &self.waits_for {
            WaitsFor::Condition(waiter) => (waiter.given_up, waiter.signal == Signal::Missed),
            _ => (HasGivenUp::No, false),
        }
    }

    /// Takes out the grant that this state's wait was given.
    pub(crate) fn hand_over(&mut self, ticket: Ticket) -> Option<Grant> {
        let owner = self.holds.remove(ticket)?.owner;
        self.grants.remove(owner)
    }

    /// Takes out the hold `ticket` with its grant, to be put back later. The error says why it is lost, and
    /// what must be done about that.
    pub(crate) fn set_aside(
        &mut self,
        ticket: Ticket,
        now: Moment,
    ) -> Result<(SuspendedHold, Effects), Box<(LossReason, Effects)>> {
        let owner = self.holds.get(ticket).map(|h| h.owner);
        let then = owner.map(|owner| self.expire(owner, now)).unwrap_or_default();
        if let Some(loss) = owner.and_then(|owner| Some(self.grant(owner)?.lost()?.why)) {
            return Err((loss, then).into());
        }
        let grant = owner.and_then(|owner| self.grants.remove(owner));
        let (Some(hold), Some(mut grant)) = (self.holds.remove(ticket), grant) else {
            return Err((LossReason::Revoked, then).into());
        };
        // While the grant is not here, no message finds it.
        grant.is_wanted(now);
        Ok((SuspendedHold { hold, grant }, self.wakes_head()))
    }

    /// Resumes a suspended hold, with as many guards as before: with the grant that its wait was given
    /// (`granted`), with its old one, or lost.
    pub(crate) fn put_back(
        &mut self,
        suspended: SuspendedHold,
        granted: Option<Grant>,
        lost: Option<LossReason>,
        now: Moment,
    ) -> Effects {
        let is_new = granted.is_some();
        let mut grant = granted.unwrap_or(suspended.grant);
        grant.holds = 1;
        if let Some(why) = lost {
            grant.loses(why);
        }
        let owner = grant.owner;
        self.holds.insert(OurHold { owner, since: Some(now), ..suspended.hold });
        let mut leave = None;
        if self.closed && grant.lost().is_none() {
            grant.loses(LossReason::Closed);
            self.leaves.in_flight += 1;
            leave = Some(PendingRelease::of(&grant, Moment::default(), now));
        }
        // The observers know of the new grant, which `close` did not report, as it was not here.
        let closed = grant
            .lost()
            .filter(|lost| is_new && lost.why == LossReason::Closed)
            .map(|lost| (owner, lost.why, 1));
        self.grants.insert(grant);
        // It was not renewed while it was suspended.
        let expired = self.expire(owner, now);
        Effects { leave, lost: closed.or(expired.lost), ..expired }
    }
}

// A grant that moves from this process to another, without returning to Redis in between.
impl LockState {
    /// Returns the grant of the hold `ticket` if that can go: the grant is valid, and this is its only hold.
    pub(crate) fn may_detach(&self, ticket: Ticket, now: Moment) -> Result<&Grant, Refusal> {
        let hold = self.holds.get(ticket);
        let Some((hold, grant)) = hold.and_then(|h| Some((h, self.grant(h.owner)?))) else {
            return Err(Refusal::LeaseLost(LossReason::Revoked, None));
        };
        match grant.loss(now) {
            Some(loss) => Err(Refusal::LeaseLost(loss, grant.reason().map(Box::from))),
            None if grant.holds > 1 || hold.count > 1 => Err(Refusal::Shared),
            None => Ok(grant),
        }
    }

    /// The hold `ticket` leaves this process, with its grant. Redis does not notice. The threads that wait
    /// here then ask Redis, as they would if another process had acquired the lock.
    pub(crate) fn detach(&mut self, ticket: Ticket, now: Moment) -> Result<(Grant, Effects), Refusal> {
        let grant = self.may_detach(ticket, now)?.clone();
        self.grants.remove(grant.owner);
        self.holds.remove(ticket);
        Ok((grant, self.wakes_head()))
    }

    /// Takes over, for a guard, a grant that another process had. Returns `None` if the client was closed
    /// meanwhile.
    ///
    /// The grant ends with its guard: the head may have a queue position in Redis, and must still be waiting
    /// there when it is granted the lock.
    pub(crate) fn adopt(&mut self, grant: Grant) -> Option<Acquired> {
        if self.closed {
            return None;
        }
        let mut grant = Grant { standing: Standing::ClosedToOthers, ..grant };
        let acquired = self.holds.take(&mut grant, self.line.ticket(), HolderId::Guard, AcquiredVia::Adopted);
        self.grants.insert(grant);
        Some(acquired)
    }
}
