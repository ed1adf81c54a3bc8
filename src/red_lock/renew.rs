//! Sets a lease at its holder's request: all requests are written before any reply is waited for.

use std::time::Duration;

use super::holding::Holding;
use super::post::ask_all;
use crate::clock::Moment;
use crate::engine::call::held;
use crate::engine::operations::commands;
use crate::engine::operations::replies::Renewed;
use crate::error::{Error, ErrorKind};

/// Sets the lease of a hold to end `lease` from now, on the servers that granted it. Servers that are down
/// keep their current lease.
pub(super) fn renew(holding: &Holding, lease: Duration) -> Result<(), Error> {
    let lost = || Error::new(ErrorKind::LeaseLost, holding.name());
    let members = holding.members()?;
    if holding.remaining().is_zero() {
        return Err(lost());
    }
    let sent = Moment::now();
    let deadline = sent.after(holding.limit);
    let mut asked = Vec::with_capacity(members.len());
    let mut failed = None;
    for member in members.iter().filter(|m| m.node.away().is_none()) {
        match held::renewing(&member.entry, member.ticket, sent) {
            Ok(owner) => {
                let command = commands::renew(&member.entry, owner, lease);
                asked.push(((&member.entry, owner), &member.node, command));
            }
            Err(error) => failed = Some(error),
        }
    }
    let mut renewed = 0;
    for ((entry, owner), reply) in ask_all(asked, sent, deadline) {
        match held::renewed(entry, owner, sent, lease, Renewed::of(reply)) {
            Ok(()) => renewed += 1,
            Err(error) => failed = Some(error),
        }
    }
    if renewed >= holding.majority() {
        return Ok(());
    }
    let error = if holding.remaining().is_zero() {
        lost()
    } else {
        let why = format!("renewed on {renewed} servers, {} are needed", holding.majority());
        Error::new(ErrorKind::OutcomeUnknown, holding.name()).because(why)
    };
    Err(match failed {
        Some(source) => error.caused_by(source),
        None => error,
    })
}
