//! What a thread asks for, what is asked of Redis for it, and what Redis says to that.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Millis;

/// Who the holder is: for re-entry, and for `is_held_by_current_thread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HolderId {
    /// A thread, by its number in this process.
    Thread(u64),
    /// Whoever has the owned guard.
    Guard,
}

/// On what terms a hold is asked for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// The lease ends by itself and is never renewed.
    pub(crate) fixed: bool,
    pub(crate) fair: bool,
    /// A hold that is released earlier stays in Redis for the rest of this.
    pub(crate) at_least: Millis,
    /// For the kind's rule.
    pub(crate) args: Arc<str>,
}

impl Terms {
    pub(crate) fn new(lease: Duration, args: impl Into<Arc<str>>) -> Self {
        Terms { lease, fixed: false, fair: false, at_least: Millis::default(), args: args.into() }
    }

    /// Whether they agree with each other; says how not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (lease, least) = (self.lease, Duration::from(self.at_least));
        if self.fixed && least > lease {
            return Err(format!("a hold with a lease of {lease:?} cannot be kept for {least:?}"));
        }
        Ok(())
    }

    /// Whether a tenure on these terms can go on as one on those, without Redis.
    pub(crate) fn goes_on_as(&self, next: &Terms) -> bool {
        self == next && !self.fixed && !self.fair
    }
}

/// One thread's wish to get in.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) holder: HolderId,
    /// The thread that asks, even for an owned guard.
    pub(crate) thread: u64,
    pub(crate) terms: Terms,
    /// One attempt, no queueing.
    pub(crate) once: bool,
    /// A tenure of the same thread, in another mode of the same lock: the rule may let it in beside
    /// that one, past those who wait.
    pub(crate) from: Option<u64>,
    /// And that one ends by it.
    pub(crate) instead: bool,
}

/// How to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum AcquireMode {
    Try,
    Wait,
    Keep,
    /// For a hold that is there: may it take more threads of this process in?
    Share,
    /// Out of the condition, whose signal is waited for no longer, and into the lock.
    Back,
}

/// A request to send for the head.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asking {
    pub(crate) owner: u64,
    pub(crate) how: AcquireMode,
    pub(crate) terms: Terms,
    pub(crate) arrival: String,
    /// How many threads wait behind it, itself included.
    pub(crate) threads: usize,
    /// The place was never there before, so the inbox must be ready to hear of it.
    pub(crate) enqueues: bool,
    /// See [`Request::from`].
    pub(crate) from: Option<u64>,
    /// See [`Request::instead`].
    pub(crate) instead: bool,
}

/// What Redis said to an ask.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    In {
        number: u64,
        left: Duration,
        /// What the rule says beside.
        value: u64,
    },
    Busy {
        floor: u64,
        again: Duration,
        arrival: String,
    },
    /// No place: ask anew, under the same id.
    Gone,
    /// This id is barred: ask anew, under another.
    Over,
    Refused(String),
    /// It came back from a condition without a signal, and was told this.
    Back(Box<Answer>),
    /// It was refused before it could do anything, and asking again may help; or it never left.
    Failed,
    /// It may have run, now or later.
    Unanswered,
}
