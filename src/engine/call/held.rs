//! What a guard can ask or do while the lock is held: the remaining lease, whether the hold is lost, a lease of the
//! caller's choice, and an update of the kind's state. Releasing it is in `release.rs`.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::call::lost;
use crate::engine::call::outcomes::{failed, lost_as, revoked};
use crate::engine::call::warning::{HoldKey, TimeLeft, until};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::effects::{carry_out, lock, lock_at};
use crate::engine::operations::replies::Renewed;
use crate::engine::operations::requests;
use crate::engine::redis::resp::number;
use crate::engine::state::grant::Grant;
use crate::engine::state::lock_state::{Renewal, Terms, Ticket};
use crate::error::{Error, ErrorKind};
use crate::observe::LossReason;
use crate::wait::Wait;

/// Returns the lease that remains of the hold at `now`, which the caller has just read; zero once it is lost.
pub(crate) fn remaining(entry: &LockEntry, ticket: Ticket, now: Moment) -> Duration {
    // A forked child does not hold what its parent holds.
    let Ok(core) = lock_at(entry, now) else { return Duration::ZERO };
    core.lock_state.grant_of(ticket).map_or(Duration::ZERO, |grant| left(grant, now))
}

fn left(grant: &Grant, now: Moment) -> Duration {
    if grant.loss(now).is_none() { grant.validity.until.since(now) } else { Duration::ZERO }
}

/// Returns the hold's token, if the hold exists.
pub(crate) fn token(entry: &LockEntry, ticket: Ticket) -> Option<u64> {
    Some(lock(entry).ok()?.lock_state.grant_of(ticket)?.token())
}

/// Returns the terms on which the hold began, if it exists.
pub(crate) fn terms(entry: &LockEntry, ticket: Ticket) -> Option<Terms> {
    Some(lock(entry).ok()?.lock_state.grant_of(ticket)?.terms.clone())
}

/// Returns the owner number under which the hold is valid, or an error if it is lost.
pub(crate) fn owner(entry: &LockEntry, ticket: Ticket, now: Moment) -> Result<u64, Error> {
    let core = lock_at(entry, now)?;
    valid(core.lock_state.grant_of(ticket), now).map(|grant| grant.owner).map_err(|e| entry.error(e))
}

/// Returns the grant if it is valid, or an error that says how it was lost.
pub(super) fn valid(grant: Option<&Grant>, now: Moment) -> Result<&Grant, Error> {
    let Some(grant) = grant else { return Err(lost(LossReason::Revoked)) };
    grant.loss(now).map_or(Ok(grant), |loss| Err(lost_as(loss, grant.reason())))
}

/// Returns the hold's key among the warnings, and a function from a margin to the time until less than that
/// remains of it. A first lease is renewed soon and may be shorter than the margin, so the margin counts as
/// half of it at most.
pub(crate) fn time_left(entry: &Arc<LockEntry>, ticket: Ticket) -> (HoldKey, TimeLeft) {
    let key = (Arc::as_ptr(entry).addr(), ticket);
    let entry = Arc::downgrade(entry);
    let left = move |margin: Duration| {
        let entry = entry.upgrade()?;
        let core = lock(&entry).ok()?;
        let grant = core.lock_state.grant_of(ticket)?;
        let margin =
            if grant.is_first() { margin.min(Duration::from(grant.validity.first) / 2) } else { margin };
        Some(until(left(grant, Moment::now()), margin))
    };
    (key, Arc::new(left))
}

/// Returns why the hold is lost, if it is.
pub(crate) fn loss(entry: &LockEntry, ticket: Ticket) -> Option<Error> {
    owner(entry, ticket, Moment::now()).err()
}

/// Returns a token that is cancelled when the hold is lost. Makes the client listen for messages about it.
pub(crate) fn lost_token(entry: &LockEntry, ticket: Ticket, now: Moment) -> CancellationToken {
    let Ok(mut core) = lock_at(entry, now) else {
        let token = CancellationToken::new();
        token.cancel();
        return token;
    };
    let grant = core.lock_state.grant_of(ticket);
    let is_lost = grant.is_none_or(|t| t.loss(now).is_some());
    let owner = grant.map(|t| t.owner);
    let token = owner.map(|owner| core.loss_token(owner)).unwrap_or_default();
    drop(core);
    if is_lost {
        token.cancel();
    } else {
        entry.will_listen(|| true);
    }
    token
}

/// Returns whether the thread of this hold has no other guard of it.
pub(crate) fn is_last(entry: &LockEntry, ticket: Ticket) -> bool {
    lock(entry).is_ok_and(|core| core.lock_state.count(ticket) == 1)
}

/// Sets the hold's lease to end `lease` from now; by default the lease for which it was acquired. Blocks for
/// the command timeout at most, and no longer than `wait` allows.
pub(crate) fn renew(
    entry: &Arc<LockEntry>,
    ticket: Ticket,
    lease: Option<Duration>,
    wait: &Wait<'_>,
) -> Result<(), Error> {
    let shared = &entry.shared;
    let sent = Moment::now();
    let owner = owner(entry, ticket, sent)?;
    let lease = lease.or_else(|| Some(terms(entry, ticket)?.lease)).unwrap_or(shared.config.lease);
    let answer = requests::renew(entry, owner, lease, wait.limit(sent, shared.config.command_timeout));
    renewed(entry, owner, sent, lease, answer)
}

/// The other half of [`renew`]: applies the outcome of the request that was sent at `sent`.
pub(crate) fn renewed(
    entry: &Arc<LockEntry>,
    owner: u64,
    sent: Moment,
    lease: Duration,
    answer: Renewed,
) -> Result<(), Error> {
    let shared = &entry.shared;
    let mut core = entry.core.lock();
    let now = Moment::now();
    let then = core.lock_state.renewed(owner, sent, answer.renewal, now);
    if answer.resent || answer.renewal == Renewal::Unanswered {
        core.lock_state.doubt(owner, sent, lease);
    }
    if matches!(answer.renewal, Renewal::Left(_)) {
        core.lock_state.must_last(owner, sent.after(lease));
    }
    let due = valid(core.lock_state.grant(owner), now);
    let due = due.map(|grant| grant.due(now, shared.config.renew_every.min(lease / 3)));
    let watched = due.and_then(|due| shared.renewer.plan(entry, &mut core, owner, now, due));
    carry_out(entry, core, then);
    watched.map_err(|e| entry.error(e))?;
    match answer.error {
        None => Ok(()),
        Some(e) if answer.renewal == Renewal::Unanswered => {
            let error = ErrorKind::OutcomeUnknown.because("the lease may or may not have been set");
            Err(entry.error(error.caused_by(e)))
        }
        Some(error) => Err(entry.error(error)),
    }
}

/// What is said of an update without a reply.
pub(crate) const UNKNOWN: &str = "the change may or may not have been made";

/// Updates the state by `what`, the name of an update followed by its arguments for the rule. Returns the
/// rule's reply. Blocks for the command timeout at most.
///
/// # Errors
/// `OutcomeUnknown` if Redis did not reply, or stopped the script halfway: the update may have been applied, or may
/// still be.
pub(crate) fn update(entry: &Arc<LockEntry>, what: &[&str]) -> Result<Vec<Value>, Error> {
    let shared = &entry.shared;
    shared.usable().map_err(|e| entry.error(e))?;
    let limit = Moment::now().after(shared.config.command_timeout);
    requests::update(entry, entry.fresh(), what, limit).map_err(|e| entry.error(failed(e, UNKNOWN)))
}

/// Updates the state of the hold `ticket` by `what`, with the number `n` and the hold's owner id. Blocks for
/// the command timeout at most.
///
/// # Errors
/// `LeaseLost` or `Closed` if the hold is lost, also if the rule replies that there is none; else see
/// [`update`].
pub(crate) fn update_hold(entry: &Arc<LockEntry>, ticket: Ticket, what: &str, n: &str) -> Result<(), Error> {
    let owner = owner(entry, ticket, Moment::now())?;
    let reply = update(entry, &[what, n, &entry.owner_id(owner)])?;
    if number(reply.first()) == Some(1) {
        return Ok(());
    }
    Err(revoked(entry, owner))
}
