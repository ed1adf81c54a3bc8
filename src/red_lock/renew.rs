//! Sets a lease at its holder's request: all requests are written before any reply is waited for.

use std::time::Duration;

use super::holding::Holding;
use super::member::Member;
use super::post::to_all;
use crate::clock::Moment;
use crate::engine::call::held;
use crate::engine::operations::packed::pack_renew;
use crate::engine::operations::replies::Renewed;
use crate::engine::redis::failure::Failure;
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
    let pack = |member: &Member, owner, eval| {
        let mut request = Vec::new();
        pack_renew(&mut request, &member.entry, owner, lease, eval);
        request
    };
    let post = |(member, owner): &(&Member, u64), limit| {
        member.entry.server().backend.post(&pack(member, *owner, false), limit)
    };
    let mut asked = Vec::with_capacity(members.len());
    let mut failed = None;
    for member in members.iter().filter(|m| m.node.away().is_none()) {
        match held::renewing(&member.entry, member.ticket, sent) {
            Ok(owner) => asked.push((member, owner)),
            Err(error) => failed = Some(error),
        }
    }
    let mut renewed = 0;
    for ((member, owner), posted) in to_all(asked, sent, deadline, post) {
        let backend = &member.entry.server().backend;
        let told = posted.map(|p| p.told(backend, deadline, || pack(member, owner, true)));
        let (answer, resent) = told.map_or_else(|e| (Err(e), false), |t| (t.answer, t.first_by.is_some()));
        if let Err(Failure::Unsent(e) | Failure::Unanswered(e)) = &answer {
            member.node.failed(e.clone());
        }
        match held::renewed(&member.entry, owner, sent, lease, Renewed::of(answer, resent)) {
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
