//! The only error type: opaque, cheap to clone, with a kind to match on.

use std::error::Error as StdError;
use std::fmt;
use std::iter::successors;
use std::sync::Arc;

use redis::RedisError;

/// What went wrong. Kinds may be added: match with a wildcard arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call's cancellation token was cancelled.
    Cancelled,
    /// The hold ended before it was released: its lease expired, or it was taken away.
    LeaseLost,
    /// The caller does not hold what it tried to use.
    NotOwner,
    /// The wait could never end: this thread already holds the lock.
    WouldDeadlock,
    /// The wait could never end: a circle of threads, which the error prints, waited for each other's locks, and
    /// this one was [chosen](crate::ClientBuilder::deadlock_timeout) to give up. Release what it holds before trying
    /// again.
    Deadlock,
    /// As many callers wait as [`max_waiters`](crate::RedisLock::max_waiters) allows, so this one does not.
    QueueFull,
    /// The key is in use by another kind of lock, or by another program.
    WrongType,
    /// Permanently rejected by the lock kind's script or by Redis; retrying will not help (for instance more
    /// permits than there are).
    Refused,
    /// The synchronizer was broken while the caller waited.
    Broken,
    /// Another client changed what this call was about to change, meanwhile or earlier.
    Conflict,
    /// Too few replicas acknowledged the grant.
    NotReplicated,
    /// Redis could not be reached, cannot serve requests now, or rejects this user.
    Unavailable,
    /// The request was sent and no reply came: it may have taken effect, or may still do so.
    OutcomeUnknown,
    /// The client was created before this process was forked.
    Forked,
    /// The client was closed, or its process was found to be a [copy](crate::guide::operations#the-server) of another.
    Closed,
    /// A setting, a name or an argument is invalid.
    InvalidInput,
    /// Unexpected reply from Redis (a bug here, or nonsense returned by a custom kind's rule).
    Protocol,
    /// The timeout expired in a call that does not return an `Option`. (A server that does not reply in time is
    /// `Unavailable` instead.)
    Timeout,
}

words!(ErrorKind::text: Cancelled "cancelled", LeaseLost "lease lost", NotOwner "not the owner",
    WouldDeadlock "would deadlock", Deadlock "deadlock", QueueFull "queue full", WrongType "wrong type", Refused "refused", Broken "broken",
    Conflict "conflict", NotReplicated "not replicated", Unavailable "unavailable", OutcomeUnknown "outcome unknown",
    Forked "used after a fork", Closed "client closed", InvalidInput "invalid input", Protocol "protocol error",
    Timeout "timed out");

impl ErrorKind {
    /// Returns the error of this kind, about no lock yet, with the reason.
    pub(crate) fn because(self, detail: impl Into<String>) -> Error {
        Error::new(self, "").because(detail)
    }
}

/// Any error of this crate: a [kind](Error::kind), the lock's name, what exactly happened, and the error that
/// caused it ([`source`](StdError::source)).
///
/// A lock that another caller holds is not an error: the result is `Ok(None)`.
///
/// Control characters in what Redis or another process wrote are printed escaped.
///
/// `{}` prints this error alone, so that a reporter that walks the chain of sources prints each once. `{:#}`
/// and `{:?}` print it with its sources on one line, for a log. Predicates exist for what programs commonly
/// ask; for the rest compare the [kind](Error::kind).
///
/// ```
/// use redis_concurrent::{Error, ErrorKind};
///
/// // Public, so that a fake lock in a test can return what a real one would.
/// let io = std::io::Error::other("connection reset");
/// let e = Error::new(ErrorKind::Unavailable, "stock:42").because("no answer").caused_by(io);
/// assert!(e.is_unavailable() && e.is_retryable());
/// assert_eq!(e.to_string(), "\"stock:42\": unavailable: no answer");
/// assert_eq!(format!("{e:#}"), "\"stock:42\": unavailable: no answer: connection reset");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    name: String,
    detail: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
    /// Redis would reject the same call again.
    permanent: bool,
}

impl Error {
    /// An error of this kind about the lock `name` (empty for none in particular).
    pub fn new(kind: ErrorKind, name: &str) -> Self {
        let (name, detail) = (name.to_owned(), String::new());
        Error(Arc::new(Inner { kind, name, detail, source: None, permanent: false }))
    }

    /// The same error, with a description of what exactly happened.
    #[must_use]
    pub fn because(self, detail: impl Into<String>) -> Self {
        Error(Arc::new(Inner { detail: detail.into(), ..(*self.0).clone() }))
    }

    /// The same error with its source. An error of the crate `redis` prints its own sources: it is the last of
    /// the chain.
    #[must_use]
    pub fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        let source: Box<dyn StdError + Send + Sync> = Box::new(source);
        let source: Arc<dyn StdError + Send + Sync> = match source.downcast() {
            Ok(redis) => Arc::new(OfRedis(*redis)),
            Err(source) => source.into(),
        };
        Error(Arc::new(Inner { source: Some(source), ..(*self.0).clone() }))
    }

    /// The same error with its source, if that is known.
    pub(crate) fn perhaps_by(self, source: Option<Error>) -> Self {
        match source {
            Some(source) => self.caused_by(source),
            None => self,
        }
    }

    /// The source, if it is an error of the crate `redis`.
    pub(crate) fn of_redis(&self) -> Option<&RedisError> {
        Some(&self.source()?.downcast_ref::<OfRedis>()?.0)
    }

    /// The same error of what Redis would reject again.
    pub(crate) fn permanent(self) -> Self {
        Error(Arc::new(Inner { permanent: true, ..(*self.0).clone() }))
    }

    /// The same error about the lock `name`.
    pub(crate) fn about(self, name: &str) -> Self {
        Error(Arc::new(Inner { name: name.to_owned(), ..(*self.0).clone() }))
    }

    /// The kind of error.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The name of the lock it is about; empty if it is not about a particular one.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the same call may succeed if it is made again. For calls that acquire: what a failed one took
    /// is given back.
    ///
    /// - [`Unavailable`](ErrorKind::Unavailable): Redis may be reachable again. Not if it rejected this user (a
    ///   wrong password, a missing right), or does not have a command.
    /// - [`Timeout`](ErrorKind::Timeout): the lock may be free.
    /// - [`NotReplicated`](ErrorKind::NotReplicated): the replicas may have caught up.
    ///
    /// This does not apply after a wait for a [condition](crate::Condition) (`NotReplicated`: the lock is
    /// held), at a [barrier](crate::CyclicBarrier) (`Timeout` has broken it), or after `unlock`
    /// (`Unavailable`: the release continues in the background).
    ///
    /// Bound the number of retries and pause between them. No other kind counts as retryable, although a retry
    /// can make sense for two of them: after [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) the call may have
    /// taken effect, so a second one may do it twice; after [`Conflict`](ErrorKind::Conflict) the caller must
    /// first look at what was changed.
    pub fn is_retryable(&self) -> bool {
        let may_pass = [ErrorKind::Unavailable, ErrorKind::Timeout, ErrorKind::NotReplicated];
        !self.0.permanent && may_pass.contains(&self.kind())
    }

    /// Whether the call's token was cancelled ([`Cancelled`](ErrorKind::Cancelled)).
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Whether the hold ended before it was released ([`LeaseLost`](ErrorKind::LeaseLost)).
    pub fn is_lease_lost(&self) -> bool {
        self.kind() == ErrorKind::LeaseLost
    }

    /// Whether Redis could not be reached, cannot serve requests now, or rejects this user
    /// ([`Unavailable`](ErrorKind::Unavailable)). A call that acquires keeps nothing that it took; an
    /// `unlock` continues in the background.
    pub fn is_unavailable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// Whether the request may have taken effect without a reply
    /// ([`OutcomeUnknown`](ErrorKind::OutcomeUnknown)).
    pub fn is_outcome_unknown(&self) -> bool {
        self.kind() == ErrorKind::OutcomeUnknown
    }
}

/// Escapes the characters of `text` that a terminal would obey, or would show in another order: names and reasons are
/// other programs' words.
#[must_use]
pub fn printable(text: &str) -> String {
    let obeyed = |c: char| {
        let turns = "\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}";
        c.is_control() || turns.contains(c)
    };
    let escaped = |c: char| if obeyed(c) { c.escape_unicode().to_string() } else { c.to_string() };
    if text.contains(obeyed) { text.chars().map(escaped).collect() } else { text.to_owned() }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, name, detail, .. } = &*self.0;
        if !name.is_empty() {
            write!(f, "{name:?}: ")?;
        }
        f.write_str(kind.text())?;
        if !detail.is_empty() {
            write!(f, ": {}", printable(detail))?;
        }
        if f.alternate() {
            for source in successors(self.source(), |&error| error.source()) {
                write!(f, ": {}", printable(&source.to_string()))?;
            }
        }
        Ok(())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {self:#})", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}

/// An error that prints its sources, so it names none.
#[derive(Debug)]
struct OfRedis(RedisError);

impl StdError for OfRedis {}

impl fmt::Display for OfRedis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
#[path = "../verify/unit/error.rs"]
mod tests;
