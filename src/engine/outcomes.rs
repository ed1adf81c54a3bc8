//! The outcome of a request, in the words of the lock state and in those of a caller. Translations only: what an error
//! reply means is in `redis/refusal.rs`, what follows from it in the state machine.

use super::redis::failure::Failure;
use super::state::lock_state::{Answer, NOT_INSIDE, Refusal};
use crate::error::{Error, ErrorKind};
use crate::observe::LossReason;
use crate::percent::unescape;

/// What a lost hold is to its thread.
pub(super) fn lost(loss: LossReason) -> Error {
    let kind = if loss == LossReason::Closed { ErrorKind::Closed } else { ErrorKind::LeaseLost };
    Error::new(kind, "").because(loss.text())
}

/// The same, with what was said about it by the caller that took the hold away.
pub(super) fn lost_as(loss: LossReason, said: Option<&str>) -> Error {
    match said {
        Some(said) => lost(loss).because(format!("{}: {said}", loss.text())),
        None => lost(loss),
    }
}

/// What a request's outcome is to the lock state, whether it was sent twice, and what it is to the thread: an
/// error, and whether it is final.
pub(super) fn of_ask(outcome: Result<(Answer, bool), Failure>) -> (Answer, bool, Option<(Error, bool)>) {
    match outcome {
        Ok((answer, resent)) => (answer, resent, None),
        Err(Failure::Unsent(e) | Failure::Later(e)) => (Answer::Failed, false, Some((e, false))),
        Err(Failure::Unanswered(e)) => (Answer::Unanswered, false, Some((e, false))),
        Err(failure) if failure.is_wrong_kind() => (Answer::Failed, false, Some((failure.error(), true))),
        Err(Failure::Denied(e)) => (Answer::Failed, false, Some((e, true))),
        // A script that fails half-way keeps what it wrote.
        Err(Failure::Never(e)) => (Answer::Unanswered, false, Some((e, true))),
    }
}

/// What a refusal by Redis is to a caller: that there is no hold to give up for it; `broken`, or
/// `broken-` and how, of what broke while we waited; `conflict-` and what with; or the rule's own word.
pub(super) fn of_rule(why: &str) -> Error {
    if why == NOT_INSIDE {
        return lost(LossReason::Revoked);
    }
    let (kind, why) = match (why.strip_prefix("broken"), why.strip_prefix("conflict-")) {
        (Some(how), _) => (ErrorKind::Broken, how.trim_start_matches('-')),
        (_, Some(with)) => (ErrorKind::Conflict, with),
        _ => (ErrorKind::Refused, why),
    };
    let why = why.replace('-', " ");
    // Names in it are escaped; if a rule writes a bare `%`, the text is taken as it is.
    Error::new(kind, "").because(unescape(&why).unwrap_or(why))
}

/// What a rejection by the lock state is to a caller.
pub(super) fn of_refusal(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Closed => Error::new(ErrorKind::Closed, ""),
        Refusal::LeaseLost(loss) => lost(loss),
        Refusal::WouldDeadlock => {
            Error::new(ErrorKind::WouldDeadlock, "").because("this thread already holds it")
        }
        Refusal::Busy => Error::new(ErrorKind::Timeout, ""),
    }
}
