//! Translates the outcome of a request for the lock state and for the caller. What an error reply means is in
//! `redis/refusal.rs`; what follows from it is in the state machine.

use std::sync::Arc;

use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::effects::report;
use crate::engine::redis::failure::Failure;
use crate::engine::state::lock_state::{NOT_INSIDE, Refusal};
use crate::error::{Error, ErrorKind};
use crate::names::unescape;
use crate::observe::LossReason;

/// Returns the error that the holder of a lost hold gets.
pub(in crate::engine) fn lost(loss: LossReason) -> Error {
    let kind = if loss == LossReason::Closed { ErrorKind::Closed } else { ErrorKind::LeaseLost };
    kind.because(loss.text())
}

/// The same, with the reason `reason` by the caller that took the hold away.
pub(in crate::engine) fn lost_as(loss: LossReason, reason: Option<&str>) -> Error {
    match reason {
        Some(reason) => lost(loss).because(format!("{}: {reason}", loss.text())),
        None => lost(loss),
    }
}

/// Redis has revoked the hold of this owner, which is therefore lost here, too. Returns the error for its caller.
pub(in crate::engine) fn revoked(entry: &Arc<LockEntry>, owner: u64) -> Error {
    report(entry, |state, now| state.lose(owner, LossReason::Revoked, now));
    entry.error(lost(LossReason::Revoked))
}

/// Returns the error of a request without a usable reply, or without any, which `may` have been executed.
pub(crate) fn failed(failure: Failure, may: &'static str) -> Error {
    let unknown = |e| ErrorKind::OutcomeUnknown.because(may).caused_by(e);
    match failure {
        Failure::Unanswered(e) => unknown(e),
        // What a script wrote before Redis stopped it stays. (An error in a rule is its author's to read.)
        Failure::Never(e) if matches!(e.kind(), ErrorKind::WrongType | ErrorKind::Unavailable) => unknown(e),
        failure => failure.error(),
    }
}

/// Returns the error for a rejection by a script: there is no hold to give up; `broken`, or `broken-<how>`,
/// if the object broke during the wait; `conflict-<with what>`; `queue-full-<n>-threads-wait`; or the rule's own
/// reason.
pub(in crate::engine) fn of_rule(why: &str) -> Error {
    if why == NOT_INSIDE {
        return lost(LossReason::Revoked);
    }
    let (kind, why) = match ["broken", "conflict-", "queue-full-"].map(|prefix| why.strip_prefix(prefix)) {
        [Some(how), ..] => (ErrorKind::Broken, how.trim_start_matches('-')),
        [_, Some(with), _] => (ErrorKind::Conflict, with),
        [.., Some(how)] => (ErrorKind::QueueFull, how),
        _ => (ErrorKind::Refused, why),
    };
    let why = why.replace('-', " ");
    // Names in the reason are escaped. If a rule writes a bare `%`, the text is used as it is.
    kind.because(unescape(&why).unwrap_or(why))
}

/// Returns the error for a rejection by the lock state.
pub(in crate::engine) fn of_refusal(refusal: Refusal) -> Error {
    match refusal {
        Refusal::Closed => Error::new(ErrorKind::Closed, ""),
        Refusal::LeaseLost(loss, reason) => lost_as(loss, reason.as_deref()),
        Refusal::Shared => ErrorKind::Refused.because("other threads of this process share the hold"),
        Refusal::WouldDeadlock => ErrorKind::WouldDeadlock.because("this thread already holds it"),
        Refusal::QueueFull(n) => ErrorKind::QueueFull.because(format!("{n} threads wait")),
    }
}
