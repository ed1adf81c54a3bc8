//! The vocabulary of the lock state: what it is told, and what it asks to be done. Nothing is decided here.

use std::time::Duration;

use super::{Asking, Ticket};
use crate::clock::Moment;
use crate::engine::state::grant::Grant;
use crate::observe::{AcquiredVia, KeptEnd, LossReason};

/// A hold, as its guard knows it. It goes from one stack frame to the next, and has no field of less than a word: what
/// lies between words is copied in pieces, and the processor waits for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acquired {
    pub(crate) ticket: Ticket,
    pub(crate) owner: u64,
    pub(crate) token: u64,
    pub(crate) way: AcquiredVia,
    /// What the rule added to the number.
    pub(crate) value: u64,
    /// How often its thread holds it by now.
    pub(crate) count: usize,
}

impl Acquired {
    /// It is no re-entry.
    pub(crate) fn is_outermost(&self) -> bool {
        self.count == 1
    }
}

/// An owner that must leave Redis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingRelease {
    pub(crate) owner: u64,
    pub(crate) unsettled: bool,
    /// Until when it was valid; leaving later changes nothing here.
    pub(crate) valid_until: Moment,
    pub(crate) lease: Duration,
    /// No other caller may get in before: until then it does not leave, it gets what is left as its lease.
    pub(crate) stays_until: Moment,
}

impl PendingRelease {
    pub(super) fn of(grant: &Grant, now: Moment) -> Self {
        PendingRelease {
            owner: grant.owner,
            unsettled: grant.unsettled,
            valid_until: grant.valid_until,
            lease: grant.renewal(now),
            stays_until: Moment::default(),
        }
    }

    /// How long it must stay, if at all; for those that need not the clock is not read.
    pub(crate) fn rest(&self, now: impl FnOnce() -> Moment) -> Option<Duration> {
        let until = Some(self.stays_until).filter(|until| *until > Moment::default())?;
        // Redis counts in milliseconds.
        Some(until.since(now())).filter(|rest| !rest.is_zero()).map(|rest| rest.max(Duration::from_millis(1)))
    }
}

/// Why a thread did not even begin to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    Closed,
    /// This thread's own hold is lost; its guard must go first.
    LeaseLost(LossReason),
    WouldDeadlock,
    /// Only one attempt, and a local thread is ahead.
    Busy,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entered {
    Again(Acquired),
    /// It shares a hold with other threads. With a request to send and to report by [`LockState::answered`]:
    /// whether still others may.
    Joined(Acquired, Option<Asking>),
    /// It has what its process kept.
    Kept(Acquired),
    Waits(Ticket),
}

/// What the thread with this ticket must do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// It has its hold; wake the new head, if any.
    In(Acquired, Option<Ticket>),
    /// Send this and report by [`LockState::answered`].
    Ask(Asking),
    /// The grant is too old to be used as it is: renew it and report by [`LockState::confirmed`].
    Confirm(u64, Duration),
    /// Leave, report by [`LockState::left`], come back: what was granted is not what this head asked for.
    Leave(PendingRelease),
    /// The same, and ask by the same request: report that by [`LockState::answered`] too.
    LeaveAndAsk(PendingRelease, Asking),
    /// Sleep, at most until then.
    Park(Moment),
    /// One attempt, and it was busy.
    Busy,
    /// Permanently rejected by the rule.
    Refused(String),
    Closed,
    /// The caller's time is up, without a hold.
    Over,
}

/// What must be done after an event, by the thread that reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Effects {
    pub(crate) wake: Option<Ticket>,
    /// Leave Redis now, and report by [`LockState::left`].
    pub(crate) leave: Option<PendingRelease>,
    /// Leave Redis some time, no thread waits for it.
    pub(crate) background: Option<PendingRelease>,
    /// This owner's grant was just lost, and so many holds with it: notify their guards, the observer, the renewer.
    pub(crate) lost: Option<(u64, LossReason, u32)>,
    /// This owner's grant, which its process kept and no thread held, is over: notify the observer, the renewer.
    pub(crate) dropped: Option<(u64, KeptEnd)>,
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
    /// The process keeps the grant of this owner, until then at most.
    Kept(u64, Moment),
    /// It was lost before, which each of its guards reports; what must be done if that was found out just
    /// now.
    Lost(LossReason, Effects),
    /// Send this leave, with the request for the next head if there is one, and report by [`LockState::left`]
    /// and [`LockState::answered`].
    Leave(PendingRelease, Option<Asking>),
}

/// How a wait ends without a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GaveUp {
    /// It does not: the hold came in this instant.
    In(Acquired),
    Out(Effects),
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Renewal {
    Left(Duration),
    NotInside,
    /// Its id is never admitted again. What it had may stay for a time, to keep others out.
    Tombstone,
    Unanswered,
    Failed,
}

impl Renewal {
    /// Redis says that it is no hold.
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Renewal::NotInside | Renewal::Tombstone)
    }
}

/// Why a hold cannot go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum CannotPart {
    Lost(LossReason),
    /// Other threads of this process have holds on the same grant.
    Shared,
}
