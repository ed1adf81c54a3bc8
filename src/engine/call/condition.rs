//! Waiting for a condition and signalling it. A wait moves a hold from its lock's state to a state of its
//! own, and back.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::call::outcomes::{failed, revoked};
use crate::engine::call::{acquire, held, lost};
use crate::engine::entries::entry::{LockEntries, LockEntry};
use crate::engine::operations::commands::{caller, over};
use crate::engine::operations::effects::{carry_out, lock};
use crate::engine::operations::replies::signalled;
use crate::engine::redis::exchange::Command;
use crate::engine::state::lock_state::{Acquired, HasGivenUp, PendingRelease, SuspendedHold, Ticket};
use crate::error::{Error, ErrorKind};
use crate::observe::LossReason;
use crate::wait::Wait;

/// Gives up the hold `ticket` of the thread entirely, waits for a signal at this condition of the lock, and
/// acquires the lock again. Returns whether the thread was signalled, as far as is known: a request without a reply
/// counts as a signal.
///
/// # Errors
/// `LeaseLost` or `Closed` if the hold was lost before or during the wait. After `Cancelled` the lock is held
/// again. After any other error the hold is lost, unless the wait had not begun.
pub(crate) fn wait(
    entry: &Arc<LockEntry>,
    condition: &str,
    ticket: Ticket,
    thread: u64,
    limits: &Wait<'_>,
) -> Result<bool, Error> {
    let shared = &entry.shared;
    shared.usable().map_err(|e| entry.error(e))?;
    let began = Moment::now();
    held::owner(entry, ticket, began)?;
    let cancelled = || Err(entry.error(Error::new(ErrorKind::Cancelled, "")));
    if limits.is_cancelled() {
        return cancelled();
    }
    let waiter = LockEntries::alone(entry, Some(condition))?;
    let given_up = give_up(entry, ticket)?;
    let via = given_up.suspended.via();
    waiter.core.lock().lock_state.gives_up(&given_up.leaving);
    let outcome = acquire(&waiter, None, &given_up.suspended.request(thread), limits);
    let unsignalled = come_back(entry, &waiter, given_up, &outcome)?;
    match outcome {
        Ok(Some(_)) if !unsignalled => Ok(true),
        Ok(Some(_)) if limits.is_cancelled() => cancelled(),
        Ok(Some(_)) => Ok(false),
        // No request of the wait was sent: the hold was never given up.
        outcome => {
            shared.observers.tell_often(|o| o.acquired(entry.observed(), Moment::now().since(began), via));
            outcome.map(|_| false)
        }
    }
}

/// A hold that its thread has given up for a wait.
struct GivenUp {
    suspended: SuspendedHold,
    /// The leave of its grant.
    leaving: PendingRelease,
    /// The token that reports its loss, if a caller asked for it.
    token: Option<CancellationToken>,
}

/// Takes the hold out of the state of its lock. The first request of the wait gives it up in Redis.
fn give_up(entry: &Arc<LockEntry>, ticket: Ticket) -> Result<GivenUp, Error> {
    let shared = &entry.shared;
    let mut core = lock(entry)?;
    let now = Moment::now();
    let held = core.lock_state.held(ticket, now).unwrap_or_default();
    let (suspended, then) = match core.lock_state.set_aside(ticket, now) {
        Ok(suspended) => suspended,
        Err(lost_before) => {
            let (loss, then) = *lost_before;
            carry_out(entry, core, then);
            return Err(entry.error(lost(loss)));
        }
    };
    let leaving = suspended.leaving(now);
    let token = core.requested_loss_token(leaving.owner);
    core.ends(entry, leaving.owner);
    // Until the wait has given it up in Redis, a client that closes has to release it.
    core.add_leave(&leaving);
    carry_out(entry, core, then);
    shared.observers.tell_often(|o| o.released(entry.observed(), held));
    Ok(GivenUp { suspended, leaving, token })
}

/// Puts the hold back into the state of its lock, with what the wait was granted. Returns whether the wait ended
/// before it was signalled, or an error if the hold is lost.
fn come_back(
    entry: &Arc<LockEntry>,
    waiter: &Arc<LockEntry>,
    given_up: GivenUp,
    outcome: &Result<Option<Acquired>, Error>,
) -> Result<bool, Error> {
    let shared = &entry.shared;
    let GivenUp { suspended, leaving, token } = given_up;
    let ((has_given_up, unsignalled), granted) = {
        let mut core = waiter.core.lock();
        let acquired = outcome.as_ref().ok().and_then(Option::as_ref);
        let granted = acquired.and_then(|acquired| core.lock_state.hand_over(acquired.ticket));
        (core.lock_state.wait_outcome(), granted)
    };
    let loss = match outcome {
        _ if has_given_up == HasGivenUp::No || granted.is_some() => None,
        Err(error) if error.kind() == ErrorKind::Closed => Some(LossReason::Closed),
        _ => Some(LossReason::Revoked),
    };
    let owner = granted.as_ref().map_or(leaving.owner, |grant| grant.owner);
    let granted_to = granted.is_some().then(|| waiter.clone());
    let now = Moment::now();
    let mut core = entry.core.lock();
    core.remove_leave(leaving.owner);
    if has_given_up != HasGivenUp::Yes && (loss.is_some() || granted.is_some() && leaving.maybe_in_flight) {
        // Redis may not have given up the hold, or a copy of one of its requests may still run.
        shared.renewer.leave(entry, &mut core, PendingRelease { maybe_in_flight: true, ..leaving });
    }
    let then = core.lock_state.put_back(suspended, granted, loss, now);
    let mut watched = Ok(());
    if let Some(grant) = core.lock_state.grant(owner).filter(|grant| grant.lost().is_none()) {
        let due = grant.due(now, shared.config.renew_every);
        core.take_over(owner, due, token.clone(), granted_to);
        watched = shared.renewer.plan(entry, &mut core, owner, now, due);
    }
    let over = held::valid(core.lock_state.grant(owner), now).err();
    carry_out(entry, core, then);
    let Some(loss) = over else { return watched.map(|()| unsignalled).map_err(|e| entry.error(e)) };
    token.iter().for_each(CancellationToken::cancel);
    Err(outcome.as_ref().err().cloned().unwrap_or_else(|| entry.error(loss)))
}

/// Signals the condition's waiters on behalf of the hold `ticket`: `one` or `all`; or only counts them
/// (`count`). Returns how many were signalled or counted. Many waiters take several requests; no other thread
/// can begin to wait in between, as that requires the lock.
///
/// # Errors
/// `LeaseLost` or `Closed` if the hold is lost; `OutcomeUnknown` if waiters may have been signalled.
pub(crate) fn signal(
    entry: &Arc<LockEntry>,
    condition: &str,
    ticket: Ticket,
    what: &str,
) -> Result<usize, Error> {
    let (shared, mut all, mut from) = (&entry.shared, 0, String::new());
    loop {
        shared.usable().map_err(|e| entry.error(e))?;
        let Some(script) = &entry.condition_scripts()?.update else { return Ok(0) };
        let now = Moment::now();
        let owner = held::owner(entry, ticket, now)?;
        let limit = now.after(shared.config.command_timeout);
        let call = caller(over(entry, script), entry, owner, Duration::ZERO).with(&[condition, what, &from]);
        let reply = entry.ask(&[Command::script(script, call)], limit);
        let piece = reply.and_then(|reply| signalled(&reply.value)).map_err(|failure| match what {
            "count" => entry.error(failure.error()),
            _ => entry.error(failed(failure, "waiters may or may not have been signalled")),
        })?;
        all += piece.how_many.ok_or_else(|| revoked(entry, owner))?;
        match piece.from {
            Some(next) => from = next,
            None => return Ok(all),
        }
    }
}
