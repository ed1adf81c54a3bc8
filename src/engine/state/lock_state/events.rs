//! The vocabulary of the lock state: what is reported to it, and what it asks to be done. Nothing is decided
//! here.

use std::time::Duration;

use super::{Asking, Ticket};
use crate::clock::Moment;
use crate::engine::state::grant::Grant;
use crate::observe::{AcquiredVia, KeptEnd, LossReason};

/// A hold, as its guard knows it. It is passed from one stack frame to the next, and has no field smaller
/// than a word: what lies between words is copied in pieces, and the processor waits for each of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Acquired {
    pub(crate) ticket: Ticket,
    pub(crate) owner: u64,
    pub(crate) token: u64,
    pub(crate) via: AcquiredVia,
    /// The value that the rule added to the grant.
    pub(crate) value: u64,
    /// How many times its thread holds it now.
    pub(crate) count: usize,
}

impl Acquired {
    /// Whether it is not a re-entry.
    pub(crate) fn is_outermost(&self) -> bool {
        self.count == 1
    }
}

/// An owner that must leave Redis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PendingRelease {
    pub(crate) owner: u64,
    pub(crate) maybe_in_flight: bool,
    /// Until when it was valid. Leaving later changes nothing in this process. If the renewer repeats it: until then.
    pub(crate) valid_until: Moment,
    pub(crate) lease: Duration,
    /// Until when it stays in Redis, by its minimum hold time or as its holder chose. Until then no other
    /// caller may get in: it does not leave, but gets the rest of that time as its lease.
    pub(crate) stays_until: Moment,
}

impl PendingRelease {
    /// The release of this grant, which stays in Redis until then, or does not: the default.
    pub(super) fn of(grant: &Grant, stays_until: Moment, now: Moment) -> Self {
        PendingRelease {
            owner: grant.owner,
            maybe_in_flight: grant.validity.doubt.exists(),
            valid_until: grant.validity.until,
            lease: grant.renewal(now),
            stays_until,
        }
    }

    /// Returns how long it must stay, if at all. The clock is read only if it may have to.
    pub(crate) fn rest(&self, now: impl FnOnce() -> Moment) -> Option<Duration> {
        let until = Some(self.stays_until).filter(|until| *until > Moment::default())?;
        // Redis counts in milliseconds.
        Some(until.since(now())).filter(|rest| !rest.is_zero()).map(|rest| rest.max(Duration::from_millis(1)))
    }
}

/// Why a thread did not even start to wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Refusal {
    /// Other threads of this process share the hold, so it cannot leave the process.
    Shared,
    Closed,
    /// This thread's own hold is lost; its guard must be released first. With the reason given by the caller that
    /// took it away by force.
    LeaseLost(LossReason, Option<Box<str>>),
    WouldDeadlock,
    /// So many threads wait already.
    QueueFull(usize),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Entered {
    Again(Acquired),
    /// It shares a hold with other threads, or has the grant that its process kept. With a request to send and
    /// to report by [`answered`](super::LockState::answered), if one is due: whether still more threads may join.
    Joined(Acquired, Option<Asking>),
    Waits(Ticket),
    /// A single attempt, and a local thread is ahead.
    Busy,
}

/// What the thread with this ticket must do next.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// It has its hold; wake the new head, if any.
    In(Acquired, Option<Ticket>),
    /// Send this and report by [`answered`](super::LockState::answered).
    Ask(Asking),
    /// The grant is too old to be used as it is: renew it and report by
    /// [`confirmed`](super::LockState::confirmed).
    Confirm(u64, Duration),
    /// Leave, report by [`left`](super::LockState::left), and take another turn: what was granted is not
    /// what this head asked for.
    Leave(PendingRelease),
    /// The same, with a request to acquire in the same round trip: report that by
    /// [`answered`](super::LockState::answered), too.
    LeaveAndAsk(PendingRelease, Asking),
    /// Take the connection on which a leave is unread, report by [`goes_behind`](super::LockState::goes_behind), take
    /// another turn, and send its request there; if another thread is using the connection, sleep until then at most.
    Behind(Moment),
    /// Sleep until then at most.
    Park(Moment),
    /// The single attempt found the lock busy.
    Busy,
    /// Permanently rejected by the rule.
    Refused(String),
    Closed,
    /// The caller's time is up, and it has no hold.
    GiveUp,
}

/// What must be done after an event, by the thread that reported it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Effects {
    pub(crate) wake: Option<Ticket>,
    /// Leave Redis now, and report by [`left`](super::LockState::left).
    pub(crate) leave: Option<PendingRelease>,
    /// Leave Redis in the background: no thread waits for it.
    pub(crate) background: Option<PendingRelease>,
    /// This owner's grant was just lost, with that many holds: notify their guards, the observer and the
    /// renewer.
    pub(crate) lost: Option<(u64, LossReason, u32)>,
    /// This owner's grant, which its process kept and no thread held, has ended: notify the observer and the
    /// renewer.
    pub(crate) dropped: Option<(u64, KeptEnd)>,
}

/// How a hold ends.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Exit {
    /// This thread still holds it.
    Held,
    /// Other threads still hold it.
    Shared,
    /// The next local thread has it now: wake it.
    HandedOn(Ticket),
    /// The process keeps the grant of this owner, at most until then.
    Kept(u64, Moment),
    /// It had been lost before, which each of its guards reports. With what must be done, if that was found
    /// out just now.
    Lost(LossReason, Effects),
    /// Send this leave, with the request for the next head if there is one, and report by
    /// [`left`](super::LockState::left) and [`answered`](super::LockState::answered).
    Leave(PendingRelease, Option<Asking>),
}

/// How a wait ends without a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum GaveUp {
    /// It does not: the hold arrived at this very moment.
    In(Acquired),
    Out(Effects),
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Renewal {
    Left(Duration),
    NotInside,
    /// Its id will never be admitted again. Its entry may stay for a time, to keep others out.
    Tombstone,
    Unanswered,
    Failed,
}
