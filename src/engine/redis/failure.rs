//! The outcome of a request that got no reply, or an error reply.

use crate::error::Error;

/// The outcome of a request without a usable reply.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It was never sent.
    Unsent(Error),
    /// It may have run, or may still do so.
    Unanswered(Error),
    /// Redis rejected it for a reason that may pass: loading, busy, no longer the primary.
    Later(Error),
    /// Redis rejected it, and will again. A script that fails halfway keeps what it wrote.
    Never(Error),
    /// The key of the lock's state is not of this kind, as the script found before it wrote.
    WrongKind(Error),
    /// Redis did not even start to run it, and never will.
    Denied(Error),
}

impl Failure {
    /// Whether the outcome would be the same the next time.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Failure::Never(_) | Failure::WrongKind(_) | Failure::Denied(_))
    }

    /// Whether it may have been executed, or a part of it: what a script wrote before it failed stays.
    pub(crate) fn may_have_run(&self) -> bool {
        matches!(self, Failure::Unanswered(_) | Failure::Never(_))
    }

    pub(crate) fn error(self) -> Error {
        match self {
            Failure::Unsent(e)
            | Failure::Unanswered(e)
            | Failure::Later(e)
            | Failure::Never(e)
            | Failure::WrongKind(e)
            | Failure::Denied(e) => e,
        }
    }
}
