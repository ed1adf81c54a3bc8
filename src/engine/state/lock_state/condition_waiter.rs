//! How far a wait for a condition is, in the state that it waits in, which is its thread's alone.
//!
//! That thread asks with `wait`, which gives up the lock for a position in the condition, and keeps it with
//! `keep`. When its time is over it asks with `back`, and from then on waits for the lock, as a signalled
//! waiter does: without a deadline, since it cannot return before it has the lock again.

use super::ask::PendingAcquire;
use super::{AcquireMode, Answer, Hold, PendingRelease, Request};
use crate::clock::Moment;
use crate::engine::state::grant::Grant;
use crate::observe::AcquiredVia;

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
            // A request that may be answered at once needs no inbox.
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

/// How far a thread's wait for a condition is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct ConditionWaiter {
    /// Some of what was sent may have run: the hold may be given up.
    pub(super) sent: bool,
    /// Redis has confirmed that the hold is given up.
    pub(super) entered: bool,
    /// Its time is over.
    pub(super) over: bool,
    /// Redis was told so.
    told: bool,
    /// It came back before it was signalled.
    pub(super) unsignalled: bool,
    /// The hold, if a request of it may be in flight yet: once it is given up, it gets a tombstone.
    pub(super) unsettled: Option<PendingRelease>,
}

/// The outcome of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitOutcome {
    /// The hold is as it was: no request that was sent can have run.
    pub(crate) stayed: bool,
    /// Redis has confirmed that the hold is given up.
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
    /// The leave of what is given up.
    pub(crate) fn leaving(&self, now: Moment) -> PendingRelease {
        PendingRelease::of(&self.grant, now)
    }

    /// What its thread asks for, to wait in its stead.
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

    /// Takes in what only a wait for a condition is told, and returns what is the same for all.
    fn hears(&mut self, ask: &PendingAcquire, answer: Answer) -> Answer {
        self.sent |= answer != Answer::Failed;
        let answer = match answer {
            Answer::Back(rest) => {
                self.unsignalled = true;
                *rest
            }
            // An earlier copy has given up the hold, and its position was lost since: it joins the queue like
            // any other.
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

/// The rejection of a wait whose hold is not there to be given up.
pub(crate) const NOT_INSIDE: &str = "not-inside";
