//! A thread's request, what is sent to Redis for it, and Redis's reply.

use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::{Millis, Moment};

/// The highest priority; the lowest is its negative.
pub(crate) const MOST_PRIORITY: i8 = 3;
/// How much waiting one priority is worth, as in `lua/lib/queue.lua`.
const STEP: Duration = Duration::from_secs(30);

/// Identifies a waiting thread in a lock state, and later its hold. Tickets count up from one.
pub(crate) type Ticket = u64;

/// The identity of a holder, for re-entry and for `is_held_by_current_thread`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum HolderId {
    /// A thread, by [one more](Self::number) than its number in this process.
    Thread(NonZeroU64),
    /// The owner of the owned guard.
    Guard,
}

impl HolderId {
    pub(crate) fn thread(thread: u64) -> Self {
        HolderId::Thread(Self::number(thread))
    }

    /// Never zero, so that a `HolderId` takes no more space than the number.
    pub(crate) fn number(thread: u64) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(thread)
    }
}

/// The arguments of a request to the kind's rule. Most kinds have none, and cloning that costs nothing:
/// neither an allocation nor a reference count shared by all threads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Args(Option<Arc<String>>);

impl From<String> for Args {
    fn from(args: String) -> Self {
        Args(Some(args).filter(|args| !args.is_empty()).map(Arc::new))
    }
}

impl From<&str> for Args {
    fn from(args: &str) -> Self {
        args.to_owned().into()
    }
}

impl Deref for Args {
    type Target = str;

    fn deref(&self) -> &str {
        self.0.as_ref().map_or("", |args| args)
    }
}

/// The terms on which a hold is requested.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// The lease expires by itself and is never renewed.
    pub(crate) fixed: bool,
    pub(crate) fair: bool,
    /// The minimum hold time: a hold that is released earlier stays in Redis for the rest of it.
    pub(crate) at_least: Millis,
    /// How long the process keeps the lock for its next hold while no other caller wants it.
    pub(crate) linger: Millis,
    /// The arguments for the kind's rule.
    pub(crate) args: Args,
    /// The order class, of a kind with priorities. Lower classes come first.
    pub(crate) class: Option<u8>,
    /// Within a class: each step counts as [so much](STEP) more waiting.
    pub(crate) priority: i8,
    /// Whether the value that the rule adds to a grant is its holder's fencing token.
    pub(crate) token_is_value: bool,
}

impl Terms {
    pub(crate) fn new(lease: Duration, args: impl Into<Args>) -> Self {
        Terms { lease, args: args.into(), ..Terms::default() }
    }

    /// Checks that the terms are consistent; the error says how they are not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (lease, least) = (self.lease, Duration::from(self.at_least));
        if self.fixed && least > lease {
            return Err(format!("a hold with a lease of {lease:?} cannot be kept for {least:?}"));
        }
        Ok(())
    }

    /// Whether a grant on these terms can go to a request on the terms `next`, without Redis. They may differ
    /// in `linger`: each hold decides for itself how long the lock is kept afterwards. A request of lower priority
    /// may be behind waiters of other processes.
    pub(crate) fn can_serve(&self, next: &Terms) -> bool {
        let Terms { lease, fixed, fair, at_least, linger: _, ref args, class, priority, token_is_value: _ } =
            *self;
        !fixed
            && !fair
            && !next.fixed
            && !next.fair
            && next.priority >= priority
            && (lease, at_least, class) == (next.lease, next.at_least, next.class)
            && *args == next.args
    }

    /// Where a thread that arrives now belongs among the waiters of its process.
    pub(super) fn rank(&self, now: Moment) -> (Option<u8>, Moment) {
        (self.class, now.after(STEP * u32::try_from(MOST_PRIORITY - self.priority).unwrap_or(0)))
    }

    /// Whether the process keeps a grant on these terms for its next hold.
    pub(crate) fn lingers(&self) -> bool {
        self.linger != Millis::default() && !self.fixed && !self.fair
    }
}

/// One thread's request to acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) holder: HolderId,
    /// The thread that asks, even if it is for an owned guard.
    pub(crate) thread: u64,
    pub(crate) terms: Terms,
    /// A single attempt, no queueing.
    pub(crate) once: bool,
    /// A grant of the same thread, in another mode of the same lock: the rule may admit this request beside
    /// that grant, ahead of the waiters.
    pub(crate) from: Option<u64>,
    /// Whether that grant ends when this request is admitted.
    pub(crate) instead: bool,
    /// How many threads may wait before it. Not part of what it asks for: who waits already is not turned away.
    pub(crate) most: Option<usize>,
}

/// What a request asks of Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum AcquireMode {
    Try,
    Wait,
    Keep,
    /// Asks, for an existing hold, whether more threads of this process may join it.
    Share,
    /// Leaves the condition without waiting for its signal any longer, and asks for the lock.
    Back,
}

/// A request to send for the head.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asking {
    pub(crate) owner: u64,
    pub(crate) how: AcquireMode,
    pub(crate) terms: Terms,
    pub(crate) arrival: String,
    /// How many threads it stands for: the head, and those that wait behind it.
    pub(crate) threads: usize,
    /// See [`Request::from`].
    pub(crate) from: Option<u64>,
    /// See [`Request::instead`].
    pub(crate) instead: bool,
    /// See [`Request::most`].
    pub(crate) most: Option<usize>,
    /// The name of the asking thread, if another thread sends the request. The lock state leaves it out.
    pub(crate) thread: Option<Arc<str>>,
    /// What its threads hold that have waited for long. The lock state leaves it out.
    pub(crate) blocked: String,
}

impl Asking {
    /// A request that says no more than this.
    pub(super) fn new(owner: u64, how: AcquireMode, terms: Terms, threads: usize) -> Self {
        let (arrival, blocked) = (String::new(), String::new());
        let (from, instead, most, thread) = (None, false, None, None);
        Asking { owner, how, terms, arrival, threads, from, instead, most, thread, blocked }
    }

    /// Whether it asks for a new queue position, so that the inbox must be ready to receive the grant.
    pub(crate) fn enqueues(&self) -> bool {
        self.how == AcquireMode::Wait && self.arrival.is_empty()
    }
}

/// Redis's reply to a request to acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    In {
        number: u64,
        left: Duration,
        /// The value that the rule adds to the grant.
        value: u64,
    },
    Busy {
        last_number: u64,
        again: Duration,
        arrival: String,
        /// How many other threads wait, if the request [said](Asking::most) how many may.
        others: usize,
    },
    /// There is no queue position under this id: ask again, under the same id.
    Gone,
    /// This id has a tombstone: ask again, under another id.
    Ended,
    Refused(String),
    /// The wait for a condition ended without a signal, and the request for the lock got this reply.
    Back(Box<Answer>),
    /// The request was rejected before it could have any effect, and asking again may help; or it was never
    /// sent.
    Failed,
    /// The request may have run, or may still run.
    Unanswered,
}
