//! A wait for a condition: the hold that it gives up and gets back, in the state of its lock; and how far it
//! is, in the state that it waits in, which is its thread's alone.
//!
//! That thread asks with `wait`, which gives the lock up for a place in the condition, and keeps it with
//! `keep`. When its time is over it asks with `back`, and from then on waits for the lock, as one that was
//! signalled does: without a deadline, since it cannot return before it has the lock again.

use std::sync::Arc;

use super::ask::PendingAcquire;
use super::{
    AcquireMode, Answer, Effects, Hold, LockState, PendingRelease, Request, Shape, Ticket, leaving_of,
};
use crate::clock::Moment;
use crate::engine::state::grant::Grant;
use crate::observe::{AcquiredVia, LossReason};

/// What the threads wait for in a lock state.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum WaitsFor {
    #[default]
    Lock,
    /// A signal, and then the lock: the state is one thread's alone.
    Condition(Box<ConditionWaiter>),
}

impl WaitsFor {
    /// How the head asks next. `once`: it makes a single attempt; `inbox`: a grant would be heard.
    pub(super) fn mode(&mut self, ask: &PendingAcquire, once: bool, inbox: bool) -> AcquireMode {
        match self {
            WaitsFor::Condition(waiter) => waiter.mode(ask.queued),
            WaitsFor::Lock if ask.queued => AcquireMode::Keep,
            // What may be answered at once needs no inbox.
            WaitsFor::Lock if once || !(inbox || ask.asked) => AcquireMode::Try,
            WaitsFor::Lock => AcquireMode::Wait,
        }
    }

    /// What a reply means to the lock state.
    pub(super) fn hears(&mut self, ask: &PendingAcquire, answer: Answer) -> Answer {
        match self {
            WaitsFor::Lock => answer,
            WaitsFor::Condition(waiter) => waiter.hears(ask, answer),
        }
    }

    fn condition(&mut self) -> Option<&mut ConditionWaiter> {
        match self {
            WaitsFor::Lock => None,
            WaitsFor::Condition(waiter) => Some(waiter),
        }
    }
}

/// How far a thread's wait for a condition is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ConditionWaiter {
    /// Of what was sent something may have run: the hold may be given up.
    sent: bool,
    /// Redis has said that the hold is given up.
    entered: bool,
    /// Its time is over.
    over: bool,
    /// Redis was told so.
    told: bool,
    /// It came back before it was signalled.
    unsignalled: bool,
    /// The hold, where a request of it may be on its way yet: once it is given up, it is barred.
    unsettled: Option<PendingRelease>,
}

/// What a wait has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stay {
    /// The hold is as it was: nothing that was sent can have run.
    pub(crate) stayed: bool,
    /// Redis has said that the hold is given up.
    pub(crate) entered: bool,
    pub(crate) unsignalled: bool,
}

/// A hold while its thread waits for a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SuspendedHold {
    hold: Hold,
    grant: Grant,
}

impl SuspendedHold {
    /// The leave of what is given up.
    pub(crate) fn leaving(&self, now: Moment) -> PendingRelease {
        leaving_of(&self.grant, now)
    }

    /// What its thread asks for, to wait in its stead.
    pub(crate) fn request(&self, thread: u64) -> Request {
        let (holder, terms) = (self.hold.holder, self.grant.terms.clone());
        Request { holder, thread, terms, once: false, from: Some(self.grant.owner), instead: false }
    }

    /// By which way it came.
    pub(crate) fn way(&self) -> AcquiredVia {
        self.hold.way
    }
}

impl ConditionWaiter {
    fn mode(&mut self, queued: bool) -> AcquireMode {
        if self.over && !self.told {
            self.told = true;
            return AcquireMode::Back;
        }
        if queued { AcquireMode::Keep } else { AcquireMode::Wait }
    }

    /// Takes in what only a wait for a condition is told, and returns what is the same for all.
    fn hears(&mut self, ask: &PendingAcquire, answer: Answer) -> Answer {
        self.sent |= answer != Answer::Failed;
        let answer = match answer {
            Answer::Back(rest) => {
                self.unsignalled = true;
                *rest
            }
            // An earlier copy has given the hold up, and its place was lost since: it comes in as anybody.
            Answer::Refused(why) if why == NOT_INSIDE && ask.unsettled => {
                self.entered = true;
                Answer::Gone
            }
            other => other,
        };
        match &answer {
            Answer::In { .. } | Answer::Busy { .. } => self.entered = true,
            Answer::Failed | Answer::Unanswered => self.told = false,
            _ => {}
        }
        answer
    }
}

/// The refusal of a wait whose hold is not there to be given up.
pub(crate) const NOT_INSIDE: &str = "not-inside";

impl LockState {
    /// The state of one wait for a condition.
    pub(crate) fn of_room(shape: impl Into<Arc<Shape>>) -> Self {
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

    /// Once it is given up, the hold is spoken of no more. Returns its leave, if it is to be barred.
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
    pub(crate) fn stay(&self) -> Stay {
        let (sent, entered, unsignalled) = match &self.waits_for {
            WaitsFor::Lock => (false, false, false),
            WaitsFor::Condition(waiter) => (waiter.sent, waiter.entered, waiter.unsignalled),
        };
        Stay { stayed: !sent, entered, unsignalled }
    }

    /// What the wait of this state was granted; it is not this state's any more.
    pub(crate) fn hand_over(&mut self, ticket: Ticket) -> Option<Grant> {
        let owner = self.holds.remove(ticket)?.owner;
        self.grants.remove(owner)
    }

    /// The hold `ticket` is given up whole, to be put back later. An error, and what is to be done about
    /// it, where it is lost.
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
        let suspended = SuspendedHold { hold, grant };
        Ok((suspended, Effects { wake: self.head(), ..Effects::default() }))
    }

    /// A hold that was set aside goes on, as often held as before: with what its wait was `granted`, or
    /// as it was, or lost.
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
        let (owner, token) = (grant.owner, grant.token());
        self.holds.insert(Hold { owner, token, since: Some(now), ..suspended.hold });
        let mut leave = None;
        if self.closed && grant.lost.is_none() {
            grant.lost = Some(LossReason::Closed);
            self.leaving += 1;
            leave = Some(leaving_of(&grant, now));
        }
        self.grants.insert(grant);
        // While it was set aside nobody renewed it.
        Effects { leave, ..self.expire(owner, now) }
    }
}
