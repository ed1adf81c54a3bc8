//! What a thread asks for, what is asked of Redis for it, and what Redis replies.

use std::num::NonZeroU64;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::clock::Millis;

/// A position in a lock state: of a waiting thread, later of its hold. They are numbered from one as they come.
pub(crate) type Ticket = u64;

/// The holder's identity: for re-entry, and for `is_held_by_current_thread`.
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

    /// Never zero, so that to tell a thread from a guard takes no more room.
    pub(crate) fn number(thread: u64) -> NonZeroU64 {
        NonZeroU64::MIN.saturating_add(thread)
    }
}

/// What a request tells the kind's rule. Most kinds have nothing to tell, and to copy that costs nothing: neither an
/// allocation nor a count that all threads share.
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
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    /// The lease expires by itself and is never renewed.
    pub(crate) fixed: bool,
    pub(crate) fair: bool,
    /// A hold that is released earlier stays in Redis for the rest of this.
    pub(crate) at_least: Millis,
    /// How long the process keeps the lock for its next hold while no other caller wants it.
    pub(crate) linger: Millis,
    /// For the kind's rule.
    pub(crate) args: Args,
    /// The order class, of a kind that has priorities: lower ones first.
    pub(crate) class: Option<u8>,
    /// The value that the rule adds to a grant is its holder's fencing token.
    pub(crate) token_is_value: bool,
}

impl Terms {
    pub(crate) fn new(lease: Duration, args: impl Into<Args>) -> Self {
        Terms {
            lease,
            fixed: false,
            fair: false,
            at_least: Millis::default(),
            linger: Millis::default(),
            args: args.into(),
            class: None,
            token_is_value: false,
        }
    }

    /// Checks that they agree with each other; the error says how they do not.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (lease, least) = (self.lease, Duration::from(self.at_least));
        if self.fixed && least > lease {
            return Err(format!("a hold with a lease of {lease:?} cannot be kept for {least:?}"));
        }
        Ok(())
    }

    /// Whether a grant on these terms can be handed on to one on those, without Redis. How long it is kept
    /// afterwards is each hold's own wish.
    pub(crate) fn goes_on_as(&self, next: &Terms) -> bool {
        let Terms { lease, fixed, fair, at_least, linger: _, ref args, class, token_is_value: _ } = *self;
        !fixed
            && !fair
            && !next.fixed
            && !next.fair
            && (lease, at_least, class) == (next.lease, next.at_least, next.class)
            && *args == next.args
    }

    /// Whether the process keeps what is granted on these terms.
    pub(crate) fn lingers(&self) -> bool {
        self.linger != Millis::default() && !self.fixed && !self.fair
    }
}

/// One thread's request to acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Request {
    pub(crate) holder: HolderId,
    /// The thread that asks, even for an owned guard.
    pub(crate) thread: u64,
    pub(crate) terms: Terms,
    /// One attempt, no queueing.
    pub(crate) once: bool,
    /// A grant of the same thread, in another mode of the same lock: the rule may admit this request beside
    /// that grant, ahead of the waiters.
    pub(crate) from: Option<u64>,
    /// And that grant ends by it.
    pub(crate) instead: bool,
}

/// How to ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum AcquireMode {
    Try,
    Wait,
    Keep,
    /// For a hold that exists: may it admit more threads of this process?
    Share,
    /// Out of the condition, whose signal is no longer waited for, and into the lock.
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
    /// The position is new, so the inbox must be ready to hear of it.
    pub(crate) enqueues: bool,
    /// See [`Request::from`].
    pub(crate) from: Option<u64>,
    /// See [`Request::instead`].
    pub(crate) instead: bool,
    /// The name of the thread that asks, where another one sends this. The lock state leaves it out.
    pub(crate) thread: Option<Arc<str>>,
}

/// Redis's reply to a request to acquire.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Answer {
    In {
        number: u64,
        left: Duration,
        /// What the rule adds.
        value: u64,
    },
    Busy {
        floor: u64,
        again: Duration,
        arrival: String,
    },
    /// No queue position: ask anew, under the same id.
    Gone,
    /// This id has a tombstone: ask anew, under another.
    Ended,
    Refused(String),
    /// It came back from a condition without a signal, and got this reply.
    Back(Box<Answer>),
    /// It was rejected before it could have any effect, and asking again may help; or it was never sent.
    Failed,
    /// It may have run, now or later.
    Unanswered,
}
