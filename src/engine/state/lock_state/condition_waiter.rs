//! The progress of a wait for a condition, kept in a lock state of its own, which belongs to the waiting
//! thread alone.
//!
//! That thread sends `wait`, which gives up the lock for a position in the condition, and keeps the position
//! with `keep`. When its time is over it sends `back`. From then on it waits for the lock as a signalled
//! waiter does: without a deadline, since it cannot return before it has the lock again.

use super::ask::PendingAcquire;
use super::{AcquireMode, Answer, Hold, PendingRelease, Request};
use crate::clock::Moment;
use crate::engine::state::grant::Grant;
use crate::observe::AcquiredVia;

/// What the threads in a lock state wait for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum WaitsFor {
    #[default]
    Lock,
    /// A signal, and then the lock: the state belongs to one thread alone.
    Condition(Box<ConditionWaiter>),
}

impl WaitsFor {
    /// Returns how the head asks next. `once`: it makes a single attempt; `inbox`: a grant would be received.
    pub(super) fn mode(&mut self, ask: &PendingAcquire, once: bool, inbox: bool) -> AcquireMode {
        match self {
            WaitsFor::Condition(waiter) => waiter.mode(ask.queued),
            WaitsFor::Lock if ask.queued => AcquireMode::Keep,
            // A request that may be answered at once needs no inbox.
            WaitsFor::Lock if once || !(inbox || ask.asked) => AcquireMode::Try,
            WaitsFor::Lock => AcquireMode::Wait,
        }
    }

    /// Returns what a reply means to the lock state.
    pub(super) fn hears(&mut self, ask: &PendingAcquire, answer: Answer) -> Answer {
        match self {
            WaitsFor::Lock => answer,
            WaitsFor::Condition(waiter) => waiter.hears(ask, answer),
        }
    }

    pub(super) fn is_condition(&self) -> bool {
        matches!(self, WaitsFor::Condition(_))
    }

    pub(super) fn condition(&mut self) -> Option<&mut ConditionWaiter> {
        match self {
            WaitsFor::Lock => None,
            WaitsFor::Condition(waiter) => Some(waiter),
        }
    }
}

/// The progress of a thread's wait for a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ConditionWaiter {
    /// A request that was sent may have run, and so may have given up the hold.
    pub(super) sent: bool,
    /// Redis has confirmed that the hold was given up.
    pub(super) entered: bool,
    /// The time of the wait is over.
    pub(super) over: bool,
    /// The request that tells Redis so was sent.
    told: bool,
    /// The wait ended before it was signalled.
    pub(super) unsignalled: bool,
    /// The release of the hold, if a request of it may still be in flight: once the hold is given up, it gets
    /// a tombstone.
    pub(super) unsettled: Option<PendingRelease>,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitOutcome {
    /// The hold is as it was: no request that was sent can have run.
    pub(crate) stayed: bool,
    /// Redis has confirmed that the hold was given up.
    pub(crate) entered: bool,
    pub(crate) unsignalled: bool,
}

/// A hold while its thread waits for a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SuspendedHold {
    pub(super) hold: Hold,
    pub(super) grant: Grant,
}

impl SuspendedHold {
    /// Returns the release of the hold that is given up.
    pub(crate) fn leaving(&self, now: Moment) -> PendingRelease {
        PendingRelease::of(&self.grant, now)
    }

    /// Returns the request by which its thread waits in its place.
    pub(crate) fn request(&self, thread: u64) -> Request {
        let (holder, terms) = (self.hold.holder, self.grant.terms.clone());
        Request { holder, thread, terms, once: false, from: Some(self.grant.owner), instead: false }
    }

    /// How it was acquired.
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

    /// Handles what only the replies to a wait for a condition say, and returns the rest, which any lock
    /// state understands.
    fn hears(&mut self, ask: &PendingAcquire, answer: Answer) -> Answer {
        self.sent |= answer != Answer::Failed;
        let answer = match answer {
            Answer::Back(rest) => {
                self.unsignalled = true;
                *rest
            }
            // An earlier copy has given up the hold, and its position was lost since: the waiter joins the
            // queue like any other.
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

/// The rejection of a wait whose hold Redis does not have, so that it cannot be given up.
pub(crate) const NOT_INSIDE: &str = "not-inside";
