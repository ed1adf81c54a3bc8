//! The one error type: opaque, cheap to clone, with a kind to match on.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// What went wrong, in one word. New kinds may come: match with a wildcard arm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call's cancellation token was cancelled.
    Cancelled,
    /// The hold ended before it was released: its lease ran out, or somebody took it away.
    LeaseLost,
    /// The caller does not hold what it tried to use.
    NotOwner,
    /// Waiting could never end: this thread already holds the lock.
    WouldDeadlock,
    /// The key is in use by another kind of lock, or by something that is none of ours.
    WrongKind,
    /// The kind's rule, or Redis in the midst of an update, said never (for instance more permits than there
    /// are).
    Refused,
    /// The synchronizer was broken while we waited.
    Broken,
    /// Somebody else changed what this call was to change, or did before what it was to do.
    Conflict,
    /// Too few replicas acknowledged the grant.
    NotReplicated,
    /// Redis could not be reached, or cannot serve us now.
    Unavailable,
    /// The request left, no answer came: it may have taken effect, or do so yet.
    Unknown,
    /// The client was made before this process was forked.
    Forked,
    /// The client was closed.
    Closed,
    /// A setting, a name or a lease that cannot work.
    Config,
    /// Redis answered what it should never answer.
    Protocol,
    /// The time was up, where no `Option` can say so.
    Timeout,
}

impl ErrorKind {
    pub(crate) fn text(self) -> &'static str {
        match self {
            ErrorKind::Cancelled => "cancelled",
            ErrorKind::LeaseLost => "lease lost",
            ErrorKind::NotOwner => "not the owner",
            ErrorKind::WouldDeadlock => "would deadlock",
            ErrorKind::WrongKind => "wrong kind",
            ErrorKind::Refused => "refused",
            ErrorKind::Broken => "broken",
            ErrorKind::Conflict => "conflict",
            ErrorKind::NotReplicated => "not replicated",
            ErrorKind::Unavailable => "unavailable",
            ErrorKind::Unknown => "outcome unknown",
            ErrorKind::Forked => "used after a fork",
            ErrorKind::Closed => "client closed",
            ErrorKind::Config => "bad configuration",
            ErrorKind::Protocol => "protocol error",
            ErrorKind::Timeout => "timed out",
        }
    }
}

/// Any error of this crate: a [kind](Error::kind), the lock's name, what exactly happened, and
/// the error underneath ([`source`](StdError::source)).
///
/// Busy is never an error: a lock that somebody else holds is `Ok(None)`.
///
/// ```
/// use redis_concurrent::{Error, ErrorKind};
///
/// // Public, so that a fake lock in a test can say what a real one would.
/// let e = Error::new(ErrorKind::LeaseLost, "stock:42").because("paused for too long");
/// assert!(e.is_lease_lost());
/// assert_eq!(e.to_string(), "\"stock:42\": lease lost: paused for too long");
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    name: String,
    detail: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

impl Error {
    /// An error of this kind about the lock `name` (empty for none in particular).
    pub fn new(kind: ErrorKind, name: &str) -> Self {
        Error(Arc::new(Inner { kind, name: name.to_owned(), detail: String::new(), source: None }))
    }

    /// The same error, saying what exactly happened.
    #[must_use]
    pub fn because(self, detail: impl Into<String>) -> Self {
        Error(Arc::new(Inner { detail: detail.into(), ..(*self.0).clone() }))
    }

    /// The same error with the one underneath.
    #[must_use]
    pub fn caused_by(self, source: impl StdError + Send + Sync + 'static) -> Self {
        Error(Arc::new(Inner { source: Some(Arc::new(source)), ..(*self.0).clone() }))
    }

    /// The same error about the lock `name`.
    pub(crate) fn about(self, name: &str) -> Self {
        Error(Arc::new(Inner { name: name.to_owned(), ..(*self.0).clone() }))
    }

    /// What went wrong, in one word.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The name of the lock it is about; empty when it is about none in particular.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// Whether the call's token was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.kind() == ErrorKind::Cancelled
    }

    /// Whether the hold ended before it was released.
    pub fn is_lease_lost(&self) -> bool {
        self.kind() == ErrorKind::LeaseLost
    }

    /// Whether Redis could not be reached, or cannot serve us now. The call had no effect that
    /// lasts: whatever may have been taken is given back.
    pub fn is_unavailable(&self) -> bool {
        self.kind() == ErrorKind::Unavailable
    }

    /// Whether the request may have taken effect without an answer.
    pub fn is_unknown(&self) -> bool {
        self.kind() == ErrorKind::Unknown
    }

    /// Whether the client was closed.
    pub fn is_closed(&self) -> bool {
        self.kind() == ErrorKind::Closed
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { kind, name, detail, source } = &*self.0;
        if !name.is_empty() {
            write!(f, "{name:?}: ")?;
        }
        f.write_str(kind.text())?;
        if !detail.is_empty() {
            write!(f, ": {detail}")?;
        }
        match source {
            Some(source) => write!(f, ": {source}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Error({:?}, {self})", self.0.kind)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as &(dyn StdError + 'static))
    }
}
