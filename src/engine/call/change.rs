//! Updates of a kind's state, with the errors that their callers get. An update that ends a hold is in
//! `end.rs`.

use std::sync::Arc;

use redis::Value;

use crate::clock::Moment;
use crate::engine::call::held;
use crate::engine::call::outcomes::{failed, revoked};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::requests;
use crate::engine::redis::resp::number;
use crate::engine::state::lock_state::Ticket;
use crate::error::Error;

/// What is said of an update without a reply.
pub(crate) const UNKNOWN: &str = "the change may or may not have been made";

/// Updates the state by `what`, the name of an update followed by its arguments for the rule. Returns the
/// rule's reply. Blocks for the command timeout at most.
///
/// # Errors
/// `OutcomeUnknown` if Redis did not reply: the update may have been applied, or may still be.
pub(crate) fn change(entry: &Arc<LockEntry>, what: &[&str]) -> Result<Vec<Value>, Error> {
    let shared = &entry.shared;
    shared.usable().map_err(|e| entry.error(e))?;
    let limit = Moment::now().after(shared.config.command_timeout);
    requests::change(entry, entry.fresh(), what, limit).map_err(|e| entry.error(failed(e, UNKNOWN)))
}

/// Updates the state of the hold `ticket` by `what`, with the number `n` and the hold's owner id. Blocks for
/// the command timeout at most.
///
/// # Errors
/// `LeaseLost` or `Closed` if the hold is lost, also if the rule replies that there is none; else see
/// [`change`].
pub(crate) fn change_hold(entry: &Arc<LockEntry>, ticket: Ticket, what: &str, n: &str) -> Result<(), Error> {
    let owner = held::owner(entry, ticket, Moment::now())?;
    let reply = change(entry, &[what, n, &entry.owner_id(owner)])?;
    if number(reply.first()) == Some(1) {
        return Ok(());
    }
    Err(revoked(entry, owner))
}
