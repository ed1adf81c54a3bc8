//! A wait for a condition: how the lock's state gives up the hold and gets it back, and what the wait's own
//! state says of the wait.

use std::sync::Arc;

use super::condition_waiter::{HasGivenUp, Signal, SuspendedHold, WaitOutcome, WaitsFor};
use super::{Effects, LockState, OurHold, PendingRelease, Shape, Ticket};
use crate::clock::Moment;
use crate::engine::state::grant::Grant;
use crate::observe::LossReason;

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
        let Some(waiter) = self.waits_for.condition().filter(|waiter| waiter.given_up != HasGivenUp::No)
        else {
            return false;
        };
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

    /// Returns the outcome of this state's wait.
    pub(crate) fn wait_outcome(&self) -> WaitOutcome {
        match &self.waits_for {
            WaitsFor::Condition(waiter) => {
                WaitOutcome { given_up: waiter.given_up, unsignalled: waiter.signal == Signal::Missed }
            }
            _ => WaitOutcome { given_up: HasGivenUp::No, unsignalled: false },
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
        let Some(owner) = self.holds.get(ticket).map(|h| h.owner) else {
            return Err((LossReason::Revoked, Effects::default()).into());
        };
        let then = self.expire(owner, now);
        if let Some(loss) = self.grant(owner).map_or(Some(LossReason::Revoked), |t| Some(t.lost()?.why)) {
            return Err((loss, then).into());
        }
        let (Some(hold), Some(grant)) = (self.holds.remove(ticket), self.grants.remove(owner)) else {
            return Err((LossReason::Revoked, then).into());
        };
        let mut grant = grant;
        // While the grant is not here, no message finds it.
        grant.is_wanted(now);
        let suspended = SuspendedHold { hold, grant };
        Ok((suspended, Effects { wake: self.head(), ..Effects::default() }))
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
            leave = Some(PendingRelease::of(&grant, now));
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
