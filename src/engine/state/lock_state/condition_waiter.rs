//! The progress of a wait for a condition, kept in a lock state of its own, which belongs to the waiting
//! thread alone.
//!
//! That thread sends `wait`, which gives up the lock for a position in the condition, and keeps the position
//! with `keep`. When its time is over it sends `back` instead. From then on it waits for the lock as a signalled
//! waiter does: without a deadline, since it cannot return before it has the lock again.

use super::ask::{PendingAcquire, Phase};
use super::{AcquireMode, Answer, OurHold, PendingRelease, Request};
use crate::clock::Moment;
use crate::engine::state::grant::Grant;
use crate::observe::AcquiredVia;

/// What the threads in a lock state wait for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum WaitsFor {
    Lock,
    /// A thread of this process that waits to write, and that Redis does not know of yet; then the lock.
    Writer,
    /// A signal, and then the lock: the state belongs to one thread alone.
    Condition(Box<SignalWaiter>),
}

impl WaitsFor {
    /// Returns how the head asks next. `once`: it makes a single attempt; `inbox`: a grant would be received.
    pub(super) fn mode(&self, ask: &PendingAcquire, once: bool, inbox: bool) -> AcquireMode {
        match self {
            // Each time: a replica that takes over may not know it yet.
            WaitsFor::Condition(waiter) if waiter.signal != Signal::Awaited => AcquireMode::Back,
            _ if ask.is_queued() => AcquireMode::Keep,
            WaitsFor::Condition(_) => AcquireMode::Wait,
            // A request that may be answered at once needs no inbox.
            _ if once || !inbox && ask.phase == Phase::New => AcquireMode::Try,
            _ => AcquireMode::Wait,
        }
    }

    /// Returns what a reply means to the lock state.
    pub(super) fn hears(&mut self, ask: &PendingAcquire, answer: Answer) -> Answer {
        match self {
            WaitsFor::Condition(waiter) => waiter.hears(ask, answer),
            _ => answer,
        }
    }

    pub(super) fn is_condition(&self) -> bool {
        matches!(self, WaitsFor::Condition(_))
    }

    pub(super) fn condition(&mut self) -> Option<&mut SignalWaiter> {
        match self {
            WaitsFor::Condition(waiter) => Some(waiter),
            _ => None,
        }
    }
}

/// The progress of a thread's wait for a condition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct SignalWaiter {
    pub(super) given_up: HasGivenUp,
    pub(super) signal: Signal,
    /// The release of the hold, if a request of it may still be in flight: once the hold is given up, it gets
    /// a tombstone.
    pub(super) in_flight: Option<PendingRelease>,
}

/// Whether the hold was given up for the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum HasGivenUp {
    /// No request that was sent can have run.
    #[default]
    No,
    Perhaps,
    /// Redis has confirmed it.
    Yes,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) enum Signal {
    #[default]
    Awaited,
    /// The time of the wait is over, as each request from then on tells Redis.
    TimedOut,
    /// The wait ended before it was signalled.
    Missed,
}

/// A hold while its thread waits for a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SuspendedHold {
    pub(super) hold: OurHold,
    pub(super) grant: Grant,
}

impl SuspendedHold {
    /// Returns the release of the hold that is given up.
    pub(crate) fn leaving(&self, now: Moment) -> PendingRelease {
        PendingRelease::of(&self.grant, Moment::default(), now)
    }

    /// Returns the request by which its thread waits in its place.
    pub(crate) fn request(&self, thread: u64) -> Request {
        let (holder, terms) = (self.hold.holder, self.grant.terms.clone());
        let from = Some(self.grant.owner);
        Request { holder, thread, terms, once: false, from, instead: false, most: None }
    }

    /// How it was acquired.
    pub(crate) fn via(&self) -> AcquiredVia {
        self.hold.via
    }
}

impl SignalWaiter {
    /// Handles what only the replies to a wait for a condition say, and returns the rest, which any lock
    /// state understands.
    fn hears(&mut self, ask: &PendingAcquire, answer: Answer) -> Answer {
        if answer != Answer::Failed && self.given_up == HasGivenUp::No {
            self.given_up = HasGivenUp::Perhaps;
        }
        let answer = match answer {
            Answer::Back(rest) => {
                self.signal = Signal::Missed;
                *rest
            }
            // An earlier copy has given up the hold, and its position was lost since: the waiter joins the
            // queue like any other.
            Answer::Refused(why) if why == NOT_INSIDE && ask.doubt.exists() => {
                self.given_up = HasGivenUp::Yes;
                Answer::Gone
            }
            other => other,
        };
        if let Answer::In { .. } | Answer::Busy { .. } = answer {
            self.given_up = HasGivenUp::Yes;
        }
        answer
    }
}

/// The rejection of a wait whose hold Redis does not have, so that it cannot be given up.
pub(crate) const NOT_INSIDE: &str = "not-inside";
