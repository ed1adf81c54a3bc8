//! A wait for a condition: the hold that it gives up and gets back, in the state of its lock, and what the state
//! that it waits in says of it.

use std::sync::Arc;

use super::condition_waiter::{SuspendedHold, WaitOutcome, WaitsFor};
use super::{Effects, Hold, LockState, PendingRelease, Shape, Ticket};
use crate::clock::Moment;
use crate::engine::state::grant::Grant;
use crate::observe::LossReason;

impl LockState {
    /// The state of one wait for a condition.
    pub(crate) fn of_condition_waiter(shape: impl Into<Arc<Shape>>) -> Self {
        LockState { waits_for: WaitsFor::Condition(Box::default()), ..LockState::new(shape) }
    }

    /// The wait of this state gives up the hold that this is the leave of.
    pub(crate) fn gives_up(&mut self, leaving: &PendingRelease) {
        if let Some(waiter) = self.waits_for.condition() {
            waiter.unsettled = leaving.unsettled.then(|| leaving.clone());
        }
    }

    /// What this lock is like.
    pub(crate) fn shape(&self) -> &Arc<Shape> {
        &self.shape
    }

    /// The time of the wait that this state is for is over. Returns whether it goes on until it has the
    /// lock: if not, it never gave it up.
    pub(crate) fn turns_back(&mut self, now: Moment) -> bool {
        let Some(waiter) = self.waits_for.condition().filter(|waiter| waiter.sent) else { return false };
        waiter.over = true;
        if let Some(ask) = &mut self.ask {
            ask.again_at = now;
        }
        true
    }

    /// Once it is given up, the hold is no longer mentioned. Returns its leave, if it is to get a tombstone.
    pub(super) fn forget_given_up(&mut self) -> Option<PendingRelease> {
        let waiter = self.waits_for.condition().filter(|waiter| waiter.entered)?;
        let unsettled = waiter.unsettled.take();
        if let Some(ask) = &mut self.ask {
            ask.from = None;
        }
        if let Some(head) = self.waiters.front_mut() {
            head.request.from = None;
        }
        unsettled
    }

    /// What the wait of this state has come to.
    pub(crate) fn wait_outcome(&self) -> WaitOutcome {
        let (sent, entered, unsignalled) = match &self.waits_for {
            WaitsFor::Lock => (false, false, false),
            WaitsFor::Condition(waiter) => (waiter.sent, waiter.entered, waiter.unsignalled),
        };
        WaitOutcome { stayed: !sent, entered, unsignalled }
    }

    /// What the wait of this state was granted; it is not this state's any more.
    pub(crate) fn hand_over(&mut self, ticket: Ticket) -> Option<Grant> {
        let owner = self.holds.remove(ticket)?.owner;
        self.grants.remove(owner)
    }

    /// The hold `ticket` is given up whole, to be put back later. An error, and what must be done about it,
    /// if it is lost.
    pub(crate) fn set_aside(
        &mut self,
        ticket: Ticket,
        now: Moment,
    ) -> Result<(SuspendedHold, Effects), Box<(LossReason, Effects)>> {
        let Some(owner) = self.holds.get(ticket).map(|h| h.owner) else {
            return Err((LossReason::Revoked, Effects::default()).into());
        };
        let then = self.expire(owner, now);
        if let Some(loss) = self.grant(owner).map_or(Some(LossReason::Revoked), |t| t.lost) {
            return Err((loss, then).into());
        }
        let (Some(hold), Some(grant)) = (self.holds.remove(ticket), self.grants.remove(owner)) else {
            return Err((LossReason::Revoked, then).into());
        };
        let mut grant = grant;
        if let Some(keep) = &mut grant.keep {
            // While it is not here, no message finds it.
            keep.wanted.get_or_insert(now);
        }
        let suspended = SuspendedHold { hold, grant };
        Ok((suspended, Effects { wake: self.head(), ..Effects::default() }))
    }

    /// A hold that was suspended is resumed, as often held as before: with what its wait was `granted`, or as
    /// it was, or lost.
    pub(crate) fn put_back(
        &mut self,
        suspended: SuspendedHold,
        granted: Option<Grant>,
        lost: Option<LossReason>,
        now: Moment,
    ) -> Effects {
        let mut grant = granted.unwrap_or(suspended.grant);
        grant.holds = 1;
        grant.lost = grant.lost.or(lost);
        let owner = grant.owner;
        self.holds.insert(Hold { owner, since: Some(now), ..suspended.hold });
        let mut leave = None;
        if self.closed && grant.lost.is_none() {
            grant.lost = Some(LossReason::Closed);
            self.leaving += 1;
            leave = Some(PendingRelease::of(&grant, now));
        }
        self.grants.insert(grant);
        // While it was suspended it was not renewed.
        Effects { leave, ..self.expire(owner, now) }
    }
}
