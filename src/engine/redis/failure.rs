//! What becomes of a request that is not answered, or refused.

use crate::error::{Error, ErrorKind};

/// What became of a request that has no answer that could be used.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It never left.
    Unsent(Error),
    /// It may have run, or do so yet.
    Unanswered(Error),
    /// Redis refused it for a reason that may pass: loading, busy, no longer the primary.
    Later(Error),
    /// Redis refused it, and will again: a script that errs half-way keeps what it wrote.
    Never(Error),
    /// Redis would not even begin it, and never will.
    Denied(Error),
}

impl Failure {
    /// The key is not this kind's any more.
    pub(crate) fn is_wrong_kind(&self) -> bool {
        matches!(self, Failure::Never(e) if e.kind() == ErrorKind::WrongType)
    }

    /// Whether it would be the same the next time.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Failure::Never(_) | Failure::Denied(_))
    }

    pub(crate) fn error(self) -> Error {
        match self {
            Failure::Unsent(e)
            | Failure::Unanswered(e)
            | Failure::Later(e)
            | Failure::Never(e)
            | Failure::Denied(e) => e,
        }
    }
}
