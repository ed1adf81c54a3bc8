//! Receipts: a hold leaves this process without being released, and another process adopts it.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::call::outcomes::{failed, of_refusal};
use crate::engine::call::release::released;
use crate::engine::call::{held, waiter};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::effects::{carry_out, lock};
use crate::engine::operations::{commands, replies};
use crate::engine::state::grant::{Doubt, Grant, Validity, ends_at};
use crate::engine::state::lock_state::{Acquired, Answer, PendingRelease, Terms, Ticket};
use crate::error::{Error, ErrorKind};
use crate::wait::Wait;

/// Returns the lease of a hold that leaves: not the shorter one of a lock that lingers here.
fn lease_of(entry: &LockEntry, terms: &Terms) -> Duration {
    if terms.lingers() { entry.shared.config.lease } else { terms.lease }
}

/// Ends the hold `ticket` here and leaves it in Redis, with a full lease. Returns its grant.
pub(crate) fn detach(entry: &Arc<LockEntry>, ticket: Ticket) -> Result<Grant, Error> {
    if entry.scripts.adopt.is_none() {
        return Err(entry.error(commands::no_rule()));
    }
    let (owner, lease) = {
        let core = lock(entry)?;
        let now = Moment::now();
        let grant = core.lock_state.may_detach(ticket, now).map_err(|it| entry.error(of_refusal(it)))?;
        (grant.owner, grant.renewal(now).max(lease_of(entry, &grant.terms)))
    };
    held::renew(entry, ticket, Some(lease), &Wait::forever())?;
    let mut core = lock(entry)?;
    let now = Moment::now();
    let held = core.lock_state.held(ticket, now);
    let (mut grant, then) =
        core.lock_state.detach(ticket, now).map_err(|stays| entry.error(of_refusal(stays)))?;
    core.ends(entry, owner);
    carry_out(entry, core, then);
    grant.terms.lease = lease_of(entry, &grant.terms);
    released(entry, held);
    Ok(grant)
}

/// Makes the hold of the owner id `from`, of another process, a hold of this one. `grant` has the terms on
/// which it continues.
pub(crate) fn adopt(entry: &Arc<LockEntry>, from: &str, grant: Grant) -> Result<Acquired, Error> {
    let shared = &entry.shared;
    let (owner, lease) = (entry.fresh(), grant.terms.lease);
    let sent = Moment::now();
    // Until it is in the lock state, a client that closes releases it like the leaves in flight: that it is not closed
    // is checked under the mutex under which it would find it.
    let (valid_until, stays_until) = (sent.after(lease), Moment::default());
    let leaving = PendingRelease { owner, maybe_in_flight: true, valid_until, lease, stays_until };
    let mut core = lock(entry)?;
    shared.not_closed().map_err(|e| entry.error(e))?;
    core.add_leave(&leaving);
    drop(core);
    let limit = sent.after(shared.config.command_timeout);
    let reply = commands::adopt(entry, owner, from, lease).and_then(|command| entry.ask(&[command], limit));
    let outcome = reply.and_then(|reply| Ok((replies::acquired(&reply.value, lease)?, reply.resent())));
    let mut core = entry.core.lock();
    core.remove_leave(owner);
    let now = Moment::now();
    let error = match outcome {
        Ok((Answer::In { number, left, value }, resent)) => {
            let mut validity = Validity::new(ends_at(sent, left), Doubt::default());
            if resent {
                validity.doubt.begins();
            }
            let grant = Grant { owner, number, value, since: now, validity, ..grant };
            let Some(acquired) = core.lock_state.adopt(grant) else {
                return Err(entry.error(Error::new(ErrorKind::Closed, "")));
            };
            return waiter::register_hold(entry, core, acquired, now, sent);
        }
        Ok((Answer::Ended, _)) => Error::new(ErrorKind::Closed, ""),
        Ok(_) => ErrorKind::NotOwner
            .because("the hold of this receipt has ended, or was adopted by another process"),
        Err(failure) if !failure.may_have_run() => failure.error(),
        Err(failure) => {
            shared.renewer.leave(entry, &mut core, leaving);
            failed(failure, "the hold may have been adopted; if so, it is released in the background")
        }
    };
    Err(entry.error(error))
}
