//! The end of a hold: by its guard, in the background of another call, or by an update of the kind's state, as
//! when reserved goods are sold.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::call::outcomes::revoked;
use crate::engine::call::release::{Stay, begin_release, replaced, unlock_failed};
use crate::engine::call::replicas::{self, Replicas};
use crate::engine::call::{backoff, held};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::effects::lock;
use crate::engine::operations::requests;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::resp::number;
use crate::engine::state::lock_state::Ticket;
use crate::error::{Error, ErrorKind};
use crate::wait::Wait;

/// The first pause after a failed request, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_millis(500));
/// The longest time for which a caller asks again. Redis remembers for a minute that the update was done;
/// later it might reply that it was not.
const LONGEST: Duration = Duration::from_secs(30);

/// How a hold ends.
pub(crate) enum How<'a> {
    /// By its guard: the next thread here has it, or it leaves Redis.
    Released(Stay),
    /// The same, by a guard that is dropped: failures are reported to the observer, as no caller gets the
    /// error. So the reply may be left `unread`.
    Dropped { unread: bool },
    /// It was of no use to the call that acquired it, which waits for the reply until then, and reports
    /// failures to the observer: it does not stay in Redis, whatever its terms.
    Unused(Moment),
    /// In Redis by another request: an update, or one for the lock's other mode.
    Replaced,
    /// By this update, which these replicas must have. The rule applies it once per owner id, however often it
    /// is sent, and never after that owner's leave.
    Updated(&'a [&'a str], Option<Replicas>),
}

/// Ends the hold `ticket` once. If Redis does not reply, the renewal thread continues.
///
/// # Errors
/// `LeaseLost` or `Closed` if the hold was over before. `Unavailable` if Redis did not execute the release,
/// and `OutcomeUnknown` if it did not reply within the command timeout, or if the hold is over and it is not
/// known whether this call released it. Of an update: see [`by_update`].
pub(crate) fn end(entry: &Arc<LockEntry>, ticket: Ticket, how: How<'_>) -> Result<(), Error> {
    let (stay, limit, quiet) = match how {
        How::Released(stay) => (stay, None, false),
        How::Dropped { .. } => (Stay::Agreed, None, true),
        How::Unused(limit) => (Stay::No, Some(limit), true),
        How::Replaced => return replaced(entry, ticket),
        How::Updated(what, replicas) => return by_update(entry, ticket, what, replicas),
    };
    let ended = match begin_release(entry, ticket, stay) {
        Ok(Some(mut release)) => {
            limit.into_iter().for_each(|limit| release.within(limit));
            let unread = matches!(how, How::Dropped { unread: true }) && !entry.shared.config.drop_waits;
            if unread { release.unread() } else { release.sent() }
        }
        Ok(None) => Ok(()),
        Err(error) => Err(error),
    };
    match ended {
        Err(error) if quiet => {
            unlock_failed(entry, &error);
            Ok(())
        }
        ended => ended,
    }
}

/// Asks again while Redis does not reply, for as long as a call without a deadline tolerates that.
///
/// # Errors
/// `LeaseLost` or `Closed` if the hold was over before. `OutcomeUnknown` if Redis did not reply, or the script
/// failed halfway: if the update was not applied, the hold is given back in the background. `Unavailable` if no
/// request was sent; the hold is given back then, too. `NotReplicated` if the update was applied, and too few
/// replicas have it.
fn by_update(
    entry: &Arc<LockEntry>,
    ticket: Ticket,
    what: &[&str],
    replicas: Option<Replicas>,
) -> Result<(), Error> {
    let shared = &entry.shared;
    let began = Moment::now();
    let owner =
        match shared.usable().map_err(|e| entry.error(e)).and_then(|()| held::owner(entry, ticket, began)) {
            Ok(owner) => owner,
            Err(error) => {
                end(entry, ticket, How::Dropped { unread: false })?;
                return Err(error);
            }
        };
    // From here on, a renewal that finds the hold gone is not a loss.
    lock(entry)?.lock_state.exchange(owner);
    let until = began.after(shared.config.unreachable_timeout.min(LONGEST));
    let wait = Wait::until_moment(until);
    let (mut pause, mut unknown) = (PAUSES.0, false);
    let failure = loop {
        let now = Moment::now();
        let answer = match replicas {
            Some(replicas) => replicas::update(entry, owner, what, replicas, &wait),
            None => {
                let limit = now.after(shared.config.command_timeout).min(until);
                requests::update(entry, owner, what, limit).map(|answer| (answer, Ok(())))
            }
        };
        let failure = match answer {
            Ok((answer, acknowledged)) if number(answer.first()) == Some(1) => {
                // The hold ends here as well. If its lease expired meanwhile, the update was still applied.
                let _ = replaced(entry, ticket);
                return acknowledged;
            }
            Ok(_) | Err(Failure::WrongKind(_)) => return Err(over(entry, ticket, owner)),
            Err(failure) => failure,
        };
        // Where Redis rejects the WAIT, the update before it was applied.
        unknown |= failure.may_have_run() || replicas.is_some() && !matches!(failure, Failure::Unsent(_));
        let now = Moment::now();
        if failure.is_final() || until <= now.after(pause) || shared.is_closed() {
            break failure;
        }
        backoff::pause(shared, now.after(pause), &wait);
        pause = PAUSES.1.min(pause * 2);
    };
    // The owner leaves in the background, with a tombstone: a copy still in flight has no effect then.
    lock(entry)?.lock_state.doubt(owner, began, shared.config.lease);
    let ended = replaced(entry, ticket);
    if unknown {
        let why =
            "the update may or may not have been applied; if not, the hold is released in the background";
        return Err(entry.error(ErrorKind::OutcomeUnknown.because(why).caused_by(failure.error())));
    }
    ended.and(Err(entry.error(failure.error())))
}

/// Ends a hold that Redis has revoked. Returns the error for its caller.
fn over(entry: &Arc<LockEntry>, ticket: Ticket, owner: u64) -> Error {
    let gone = revoked(entry, owner);
    end(entry, ticket, How::Released(Stay::Agreed)).err().unwrap_or(gone)
}
