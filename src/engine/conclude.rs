//! A hold ends by a change of the kind's state that is made of it: what was reserved is sold.

use std::sync::Arc;
use std::time::Duration;

use super::entry::Cell;
use super::redis::answers::number;
use super::redis::failure::Failure;
use super::redis::requests;
use super::state::lock_state::Ticket;
use super::{carry_out, held, lock, lost, pause, release, release_quietly, replaced};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::observe::LossReason;
use crate::wait::Wait;

/// The first pause after a request that came to nothing, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// Redis knows for a minute what was done. Whoever asks for longer could be told that it was not.
const LONGEST: Duration = Duration::from_secs(30);

/// Ends the hold `ticket` by `what`, which the rule does once by its owner id: as often as it may be sent, and
/// never after a leave of it. Asks again while Redis does not answer, for as long as a call without a deadline
/// bears that.
///
/// # Errors
/// `LeaseLost` or `Closed` when the hold was over before, `Unknown` when what was sent has no answer: if it was
/// not done, the hold is given back in the background. `Unavailable` when nothing was sent; then it is, too.
pub(crate) fn conclude(cell: &Arc<Cell>, ticket: Ticket, what: &str) -> Result<(), Error> {
    let shared = &cell.shared;
    let began = Moment::now();
    let owner =
        match shared.usable().map_err(|e| cell.error(e)).and_then(|()| held::owner(cell, ticket, began)) {
            Ok(owner) => owner,
            Err(error) => {
                release_quietly(cell, ticket);
                return Err(error);
            }
        };
    // From here on a renewal may find it gone, and that is no loss.
    lock(cell)?.gate.exchange(owner);
    let until = began.after(shared.config.unreachable_timeout.min(LONGEST));
    let wait = Wait::until_moment(until);
    let (mut pause, mut unanswered) = (PAUSES.0, false);
    let failure = loop {
        let now = Moment::now();
        let failure = match requests::change(cell, owner, &[what], now.after(shared.config.command_timeout)) {
            Ok(answer) if number(answer.first()) == Some(1) => {
                // Over here as well. Should its time be up meanwhile, it was done all the same.
                let _ = replaced(cell, ticket);
                return Ok(());
            }
            Ok(_) => return Err(over(cell, ticket, owner)),
            Err(failure) if failure.is_wrong_kind() => return Err(over(cell, ticket, owner)),
            Err(failure) => failure,
        };
        unanswered |= matches!(failure, Failure::Unanswered(_));
        let now = Moment::now();
        if failure.is_final() || until <= now.after(pause) || shared.is_closed() {
            break failure;
        }
        pause::pause(shared, now.after(pause), &wait);
        pause = PAUSES.1.min(pause * 2);
    };
    // It leaves in the background, and is barred: what is still on its way does nothing then.
    lock(cell)?.gate.doubt(owner, began, shared.config.lease);
    let ended = replaced(cell, ticket);
    if unanswered {
        let unknown = Error::new(ErrorKind::OutcomeUnknown, "")
            .because("it may have been done, or not: then it is given back in the background");
        return Err(cell.error(unknown.caused_by(failure.error())));
    }
    ended.and(Err(cell.error(failure.error())))
}

/// The hold is no more, by Redis's verdict.
fn over(cell: &Arc<Cell>, ticket: Ticket, owner: u64) -> Error {
    let gone = lost(if cell.shared.is_closed() { LossReason::Closed } else { LossReason::Revoked });
    let mut core = cell.core.lock();
    let then = core.gate.lose(owner, LossReason::Revoked, Moment::now());
    carry_out(cell, core, then);
    match release(cell, ticket) {
        Err(error) => error,
        Ok(()) => cell.error(gone),
    }
}
