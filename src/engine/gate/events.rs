//! The words of the gate: what it is told, and what it says is to be done.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Millis, Moment};
use crate::observe::{Loss, Way};

/// Who the holder is: for re-entry, and for `is_held_by_current_thread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Taker {
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
            return Err(format!("a hold that ends after {lease:?} cannot be kept for {least:?}"));
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
    pub(crate) taker: Taker,
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

/// A place in a gate: of a waiting thread, later of its hold.
pub(crate) type Ticket = u64;

/// How to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum How {
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
    pub(crate) how: How,
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

/// A hold, as its guard knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Grip {
    pub(crate) ticket: Ticket,
    pub(crate) owner: u64,
    pub(crate) token: u64,
    pub(crate) way: Way,
    /// What the rule said beside the number.
    pub(crate) value: u64,
    /// Not a re-entry.
    pub(crate) outermost: bool,
}

/// An owner that is to leave Redis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Leaving {
    pub(crate) owner: u64,
    pub(crate) unsettled: bool,
    /// Until when it was valid; leaving later changes nothing here.
    pub(crate) valid_until: Moment,
    pub(crate) lease: Duration,
    /// Nobody is to get in before: until then it does not leave, it gets what is left as its lease.
    pub(crate) stays_until: Moment,
}

impl Leaving {
    /// How long it is to stay, if it is.
    pub(crate) fn rest(&self, now: Moment) -> Option<Duration> {
        // Redis counts in milliseconds.
        (self.stays_until > now).then(|| self.stays_until.since(now).max(Duration::from_millis(1)))
    }
}

/// Why a thread did not even begin to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    Closed,
    /// This thread's own hold is lost; its guard must go first.
    LeaseLost(Loss),
    WouldDeadlock,
    /// One attempt only, and a local thread is ahead.
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entered {
    Again(Grip),
    /// It shares a hold of other threads. With a request to send and to report by [`Gate::answered`]:
    /// whether still others may.
    Joined(Grip, Option<Asking>),
    Waits(Ticket),
}

/// What the thread with this ticket is to do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Turn {
    /// It has its hold; wake the new head, if any.
    In(Grip, Option<Ticket>),
    /// Send this and report by [`Gate::answered`].
    Ask(Asking),
    /// The grant is too old to be used as it is: renew it and report by [`Gate::confirmed`].
    Confirm(u64, Duration),
    /// Leave, report by [`Gate::left`], come back: what was granted is not what this head wants.
    Leave(Leaving),
    /// Sleep, at most until then.
    Park(Moment),
    /// One attempt, and it was busy.
    Busy,
    /// The rule said never.
    Refused(String),
    Closed,
    /// The caller's time is up, and it has nothing.
    Over,
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

/// What is to be done after an event, by whoever brought it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Then {
    pub(crate) wake: Option<Ticket>,
    /// Leave Redis now, and report by [`Gate::left`].
    pub(crate) leave: Option<Leaving>,
    /// Leave Redis some time, nobody waits for it.
    pub(crate) background: Option<Leaving>,
    /// This owner's tenure was just lost: tell its guards, the observer, the renewer.
    pub(crate) lost: Option<(u64, Loss)>,
}

/// How a hold ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Exit {
    /// This thread holds it still.
    Held,
    /// Other threads hold it still.
    Shared,
    /// The next local thread has it now: wake it.
    HandedOn(Ticket),
    /// It was lost before, which each of its guards is told; what is to be done where that was found out just now.
    Lost(Loss, Then),
    /// Send this leave, with the ask for the next head if there is one, and report by
    /// [`Gate::left`] and [`Gate::answered`].
    Leave(Leaving, Option<Asking>),
}

/// How a wait ends without a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GaveUp {
    /// It does not: the hold came in this instant.
    In(Grip),
    Out(Then),
}

/// What a renewal was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Renewal {
    Left(Duration),
    NotInside,
    Unanswered,
    Failed,
}
