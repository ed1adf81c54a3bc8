//! The vocabulary of the small Redis: its requests, its replies, and what it stores about an owner.

use super::conditions::Stage;
use super::{SmallRedis, millis};
use crate::engine::state::lock_state::{AcquireMode, Answer, Asking, Renewal};

/// What a lock is requested for: the `args` of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::engine) enum Mode {
    /// The only mode, for a kind that has no others.
    Plain,
    Write,
    Read,
    /// Reading in order of arrival: later writers do not pass it.
    InOrder,
    /// This many permits.
    Permits(u8),
}

impl Mode {
    pub(in crate::engine) fn args(self) -> &'static str {
        match self {
            Mode::Plain => "",
            Mode::Write => "write",
            Mode::Read => "read",
            Mode::InOrder => "read-in-order",
            Mode::Permits(n) => ["0", "1", "2", "3"][usize::from(n)],
        }
    }

    /// Returns the number of permits.
    pub(in crate::engine) fn permits(self) -> u8 {
        if let Mode::Permits(n) = self { n } else { 0 }
    }

    pub(in crate::engine) fn of(args: &str) -> Mode {
        let permits = [1, 2, 3].map(Mode::Permits);
        let modes = [Mode::Write, Mode::Read, Mode::InOrder].into_iter().chain(permits);
        { modes }.find(|mode| mode.args() == args).unwrap_or(Mode::Plain)
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::engine) struct PendingAcquire {
    pub(in crate::engine) owner: u64,
    pub(in crate::engine) how: AcquireMode,
    pub(in crate::engine) lease: u64,
    pub(in crate::engine) mode: Mode,
    pub(in crate::engine) arrival: Option<u64>,
    pub(in crate::engine) from: Option<u64>,
    pub(in crate::engine) instead: bool,
    pub(in crate::engine) threads: usize,
    pub(in crate::engine) most: Option<usize>,
    pub(in crate::engine) priority: i8,
}

impl From<&Asking> for PendingAcquire {
    fn from(asking: &Asking) -> Self {
        let Asking { owner, how, from, instead, most, .. } = *asking;
        // Only a limit counts them.
        let threads = if most.is_some() { asking.threads } else { 1 };
        let (mode, priority) = (Mode::of(&asking.terms.args), asking.terms.priority);
        let (lease, arrival) = (millis(asking.terms.lease), asking.arrival.parse().ok());
        PendingAcquire { owner, how, lease, mode, arrival, from, instead, threads, most, priority }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::engine) enum Op {
    Acquire(PendingAcquire),
    Leave {
        owner: u64,
        maybe_in_flight: bool,
        next: Option<PendingAcquire>,
    },
    Renew {
        owner: u64,
        lease: u64,
    },
    /// An administrator ends the renewals of this owner by force.
    Revoke {
        owner: u64,
    },
    /// `ask.from` is the hold to give up for a position in the condition.
    Await {
        ask: PendingAcquire,
        condition: u8,
    },
    Signal {
        owner: u64,
        condition: u8,
        all: bool,
    },
    Quit {
        owner: u64,
        condition: u8,
        maybe_in_flight: bool,
    },
}

impl Op {
    pub(in crate::engine) fn owner(&self) -> u64 {
        match self {
            Op::Acquire(ask) | Op::Await { ask, .. } => ask.owner,
            Op::Leave { owner, .. }
            | Op::Renew { owner, .. }
            | Op::Revoke { owner }
            | Op::Signal { owner, .. }
            | Op::Quit { owner, .. } => *owner,
        }
    }

    /// Returns where in the queue's order `owner` belongs if it had no position before this request: where it
    /// says that it was, or behind all that are as urgent; behind everybody if it wants no position.
    pub(in crate::engine) fn came(&self, owner: u64, redis: &SmallRedis) -> u64 {
        match self {
            Op::Acquire(ask) | Op::Leave { next: Some(ask), .. }
                if ask.owner == owner && ask.how == AcquireMode::Wait =>
            {
                let newest = redis.ranked(redis.arrivals + 1, ask.priority);
                redis.position_of(ask.mode, ask.arrival.unwrap_or(newest))
            }
            _ => u64::MAX,
        }
    }

    /// Whether this request lets `owner` pass the queue.
    pub(in crate::engine) fn passes(&self, owner: u64, redis: &SmallRedis) -> bool {
        matches!(self, Op::Acquire(ask) if ask.owner == owner && redis.kind.can_barge(ask))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Reply {
    Acquired(Answer),
    Left {
        inside: bool,
        next: Option<Answer>,
    },
    Renewed(Renewal),
    /// How many waiters were moved, if the owner was inside.
    Signalled(Option<usize>),
}

/// What a message says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::engine) enum Says {
    /// "You have the lock": under which number, for how long.
    In,
    /// "A caller is waiting that you must not pass".
    Waits,
    /// "Ask again": before the next heartbeat is due.
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(in crate::engine) struct Message {
    pub(in crate::engine) owner: u64,
    pub(in crate::engine) says: Says,
    pub(in crate::engine) number: u64,
    pub(in crate::engine) lease: u64,
    pub(in crate::engine) value: u64,
}

impl Message {
    /// One that grants nothing.
    pub(in crate::engine) fn word(owner: u64, says: Says) -> Message {
        Message { owner, says, number: 0, lease: 0, value: 0 }
    }

    pub(in crate::engine) fn is_grant(&self) -> bool {
        self.says == Says::In
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Holder {
    pub(in crate::engine) owner: u64,
    pub(in crate::engine) number: u64,
    pub(in crate::engine) end: u64,
    pub(in crate::engine) mode: Mode,
    /// The value that the rule adds.
    pub(in crate::engine) value: u64,
    /// The owner that it replaced.
    pub(in crate::engine) instead: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct QueuePosition {
    pub(in crate::engine) owner: u64,
    pub(in crate::engine) lease: u64,
    pub(in crate::engine) heartbeat: u64,
    /// Since when it is heard without a gap; `None` while it has its waiter timeout once more, in which to be
    /// heard.
    pub(in crate::engine) steady: Option<u64>,
    pub(in crate::engine) mode: Mode,
    pub(in crate::engine) stage: Stage,
    pub(in crate::engine) threads: usize,
    pub(in crate::engine) priority: i8,
}

impl QueuePosition {
    pub(super) fn ask(&self) -> PendingAcquire {
        let QueuePosition { owner, lease, mode, threads, priority, .. } = *self;
        PendingAcquire {
            owner,
            how: AcquireMode::Wait,
            lease,
            mode,
            arrival: None,
            from: None,
            instead: false,
            threads,
            most: None,
            priority,
        }
    }
}
