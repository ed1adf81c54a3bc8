//! Releasing: a hold is handed on in this process, or leaves Redis, with the next thread's request in the
//! same round trip. A release has two halves, so that several holds can leave by one request.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::call::lost;
use crate::engine::call::outcomes::lost_as;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands;
use crate::engine::operations::effects::{carry_out, has_left, lock, lock_at};
use crate::engine::operations::replies::Left;
use crate::engine::operations::requests::{self, Fate, Known};
use crate::engine::redis::connection::Unread;
use crate::engine::redis::failure::Failure;
use crate::engine::state::grant::Grant;
use crate::engine::state::lock_state::{Asking, Exit, LockState, PendingRelease, Ticket};
use crate::error::{Error, ErrorKind};
use crate::observe::LossReason;
use crate::settings::check_stay;

/// How long a released hold stays in Redis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stay {
    /// For the rest of its minimum hold time, if it has one.
    Agreed,
    /// Not at all, whatever its terms.
    No,
    /// For that long from now.
    For(Duration),
}

impl Stay {
    /// Returns a stay of `rest`.
    ///
    /// # Errors
    /// `InvalidInput`, about `name`, if no hold may stay for that long.
    pub(crate) fn for_rest(rest: Duration, name: &str) -> Result<Self, Error> {
        if rest.is_zero() {
            return Ok(Stay::No);
        }
        check_stay("the rest", rest).map_err(|why| Error::new(ErrorKind::InvalidInput, name).because(why))?;
        Ok(Stay::For(rest))
    }

    /// Called before the hold ends. Makes sure that its grant is not kept, or not handed on in this process, if
    /// this stay rules that out.
    fn closes(self, lock_state: &mut LockState, ticket: Ticket, now: Moment) {
        match self {
            Stay::Agreed => {}
            // A hold that was of no use is not kept for the next one.
            Stay::No => lock_state.not_to_be_kept(ticket, now),
            // A hold that stays is not handed to another thread here.
            Stay::For(_) => lock_state.ends_with(ticket),
        }
    }

    /// Returns until when a hold that ends now stays in Redis; `agreed` is the time by its own terms.
    fn until(self, agreed: Moment, now: Moment) -> Moment {
        match self {
            Stay::Agreed => agreed,
            Stay::No => Moment::default(),
            Stay::For(rest) => now.after(rest),
        }
    }
}

/// A hold that has ended here, and whose leave must be sent. It must be [answered](OngoingRelease::answered):
/// until then no thread of this lock state may ask Redis.
pub(crate) struct OngoingRelease<'a> {
    pub(crate) entry: &'a Arc<LockEntry>,
    pub(crate) leaving: PendingRelease,
    /// The request that goes with it, for the next head. Boxed, as there is mostly none, and this is moved a few times.
    pub(crate) next: Option<Box<Asking>>,
    /// Until when the reply is waited for.
    pub(crate) limit: Moment,
    /// Whether it is part of a call that ends at `limit`, as opposed to a release by the holder.
    bounded: bool,
    grant: Known,
    held: Option<Duration>,
    lost: Option<CancellationToken>,
}

/// The first half of a release. Returns `None` if no request is needed.
pub(crate) fn begin_release(
    entry: &Arc<LockEntry>,
    ticket: Ticket,
    stay: Stay,
) -> Result<Option<OngoingRelease<'_>>, Error> {
    let shared = &entry.shared;
    let now = Moment::now();
    // An error in a forked child, which must not release its parent's holds.
    let mut core = lock_at(entry, now)?;
    if stay == Stay::Agreed && core.lock_state.ends_inner(ticket, now) {
        return Ok(None);
    }
    stay.closes(&mut core.lock_state, ticket, now);
    // No request goes with a hold that stays.
    let inbox = !matches!(stay, Stay::For(_)) && entry.hears();
    let held = core.lock_state.held(ticket, now);
    let ending = core.lock_state.grant_of(ticket);
    let reason = ending.and_then(Grant::reason).map(str::to_owned);
    let lingers = ending.is_some_and(|grant| grant.terms.lingers());
    let grant = Known::of(entry, ending, now);
    let exit = core.lock_state.exit(ticket, now, inbox, || entry.fresh());
    let stays_here = match exit {
        Exit::Held => return Ok(None),
        Exit::Shared => Ok(()),
        Exit::HandedOn(next) => {
            core.wake(Some(next));
            Ok(())
        }
        // The renewer must look at it when its time is over, at the latest.
        Exit::Kept(owner, until) => match core.due(owner) {
            Some(due) if due > until => shared.renewer.plan(entry, &mut core, owner, now, until),
            _ => Ok(()),
        },
        Exit::Lost(loss, mut then) => {
            if let Some(leaving) = &mut then.leave {
                leaving.stays_until = stay.until(leaving.stays_until, now);
            }
            carry_out(entry, core, then);
            return Err(entry.error(lost_as(loss, reason.as_deref())));
        }
        Exit::Leave(mut leaving, next) => {
            let next = next.map(|next| Box::new(Asking { thread: core.name_of_head(), ..next }));
            leaving.stays_until = stay.until(leaving.stays_until, now);
            if lingers && !inbox {
                // A grant is kept only where a message that another caller wants it would be received.
                entry.will_listen(|| true);
            }
            let lost = core.requested_loss_token(leaving.owner);
            core.ends(entry, leaving.owner);
            core.add_leave(&leaving);
            let limit = now.after(shared.config.command_timeout);
            let release = OngoingRelease { entry, leaving, next, limit, bounded: false, grant, held, lost };
            return Ok(Some(release));
        }
    };
    drop(core);
    released(entry, held);
    stays_here.map(|()| None).map_err(|e| entry.error(e))
}

/// Reports a released hold, unless its beginning was not reported either.
pub(super) fn released(entry: &LockEntry, held: Option<Duration>) {
    if let Some(held) = held {
        entry.shared.observers.tell_often(|o| o.released(entry.observed(), held));
    }
}

impl OngoingRelease<'_> {
    /// Limits the wait for the reply to `limit`.
    pub(crate) fn within(&mut self, limit: Moment) {
        self.limit = self.limit.min(limit);
        self.bounded = true;
    }

    /// Sends the leave by itself, and applies the reply.
    pub(crate) fn sent(self) -> Result<(), Error> {
        if self.is_late() {
            return self.deferred();
        }
        let outcome = requests::leave(self.entry, &self.leaving, self.next.as_deref(), self.limit);
        self.answered(outcome)
    }

    /// Sends the leave, but waits for its reply only if a thread of this process waits for the lock, or if no
    /// connection is idle. Otherwise the reply is applied by whichever thread reads it.
    pub(crate) fn unread(self) -> Result<(), Error> {
        let server = self.entry.server();
        let alone = self.next.is_none() && self.leaving.rest(Moment::now).is_none();
        let Some(connection) = alone.then(|| server.backend.idle()).flatten() else { return self.sent() };
        if !self.entry.core.lock().lock_state.leaves_unread() {
            drop(connection);
            return self.sent();
        }
        let OngoingRelease { entry, leaving, limit, grant, held, lost, .. } = self;
        let command = commands::leave(entry, &leaving, None);
        let (lock, dialled) = (entry.clone(), connection.by().dialled);
        let on_reply = move |reply| {
            // In a forked child, the parent reads it.
            if lock.shared.same_process().is_err() {
                return;
            }
            let (entry, next, bounded) = (&lock, None, false);
            let release = OngoingRelease { entry, leaving, next, limit, bounded, grant, held, lost };
            if let Err(error) = release.answered(requests::left_unread(entry, reply, dialled)) {
                unlock_failed(entry, &error);
            }
        };
        server.backend.send(
            connection,
            &command,
            Unread { about: entry.number(), limit, on_reply: Some(Box::new(on_reply)) },
        );
        // A thread that came meanwhile did not find the connection.
        let core = entry.core.lock();
        core.wake(core.lock_state.head());
        Ok(())
    }

    /// Returns whether the call has no time left to send the leave. A release by the holder is always sent.
    pub(crate) fn is_late(&self) -> bool {
        self.bounded && self.limit <= Moment::now()
    }

    /// Leaves the release to the renewal thread.
    pub(crate) fn deferred(self) -> Result<(), Error> {
        let later = ErrorKind::Unavailable.because("left to the renewal thread");
        self.answered(Err(Failure::Unsent(later)))
    }

    /// The second half of a release: applies the outcome of the leave.
    pub(crate) fn answered(self, outcome: Result<Left, Failure>) -> Result<(), Error> {
        let OngoingRelease { entry, leaving, next, limit, grant, held, lost: token, .. } = self;
        let shared = &entry.shared;
        has_left(entry, &leaving, next.as_deref(), &outcome);
        let was_lost = || {
            token.iter().for_each(CancellationToken::cancel);
            shared.observers.tell(|o| o.lost(entry.observed(), LossReason::Revoked));
        };
        match outcome {
            Ok(left) if left.inside => {
                released(entry, held);
                Ok(())
            }
            // The thread that closed the client sent this leave as well, perhaps before we did.
            outcome if shared.is_closed() => {
                shared.observers.tell(|o| o.lost(entry.observed(), LossReason::Closed));
                Err(entry.error(lost(LossReason::Closed).perhaps_by(outcome.err().map(Failure::error))))
            }
            Ok(left) => match left.resent.map_or(Fate::Lost, |by| grant.fate(entry, by, limit)) {
                Fate::Released => {
                    released(entry, held);
                    Ok(())
                }
                Fate::Lost => {
                    was_lost();
                    Err(entry.error(lost(LossReason::Revoked)))
                }
                Fate::Unknown => {
                    was_lost();
                    let why = "it is no longer held: this call released it, or it had ended before";
                    Err(entry.error(ErrorKind::OutcomeUnknown.because(why)))
                }
            },
            Err(Failure::WrongKind(e)) => {
                was_lost();
                Err(entry.error(lost(LossReason::Revoked).caused_by(e)))
            }
            Err(failure) => {
                if let Some(held) = held {
                    shared.observers.tell(|o| o.release_deferred(entry.observed(), held));
                }
                Err(entry.error(continues(failure)))
            }
        }
    }
}

/// Returns the error of a release that the renewer continues.
fn continues(failure: Failure) -> Error {
    let kind = if failure.may_have_run() { ErrorKind::OutcomeUnknown } else { ErrorKind::Unavailable };
    kind.because("the release continues in the background").caused_by(failure.error())
}

/// Ends the hold `ticket` here. In Redis it ends by another request: an update, or one for the lock's other
/// mode.
///
/// # Errors
/// `LeaseLost` or `Closed` if it was over before.
pub(crate) fn replaced(entry: &Arc<LockEntry>, ticket: Ticket) -> Result<(), Error> {
    let mut core = lock(entry)?;
    let now = Moment::now();
    let held = core.lock_state.held(ticket, now);
    // The grant is shut, so that it is not handed to another thread here; and no request goes with a leave
    // that is not sent.
    let leaving = match core.lock_state.exit(ticket, now, false, || entry.fresh()) {
        Exit::Leave(leaving, _) => leaving,
        Exit::Lost(loss, then) => {
            carry_out(entry, core, then);
            return Err(entry.error(lost(loss)));
        }
        Exit::Held | Exit::Shared | Exit::HandedOn(_) | Exit::Kept(..) => return Ok(()),
    };
    core.ends(entry, leaving.owner);
    if leaving.maybe_in_flight {
        entry.shared.renewer.leave(entry, &mut core, leaving);
    }
    let then = core.lock_state.left();
    carry_out(entry, core, then);
    released(entry, held);
    Ok(())
}

/// Reports the error of a release to the observer, except in a forked child, which releases nothing.
pub(crate) fn unlock_failed(entry: &LockEntry, error: &Error) {
    if error.kind() != ErrorKind::Forked {
        entry.shared.observers.tell(|o| o.unlock_failed(entry.observed(), error));
    }
}
