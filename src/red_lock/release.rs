//! Releasing on several servers: all requests are written before any reply is waited for.

use super::member::Member;
use super::post::ask_all;
use crate::clock::Moment;
use crate::engine::call::release::{Stay, begin_release};
use crate::engine::operations::commands;
use crate::engine::operations::replies::left;
use crate::engine::redis::failure::Failure;
use crate::error::Error;

/// Releases the members, and waits until `deadline` for the servers to confirm. If a server is down or does
/// not reply, the renewal thread releases its member.
pub(super) fn give_back(members: &[Member], deadline: Moment) -> Vec<Result<(), Error>> {
    let began = Moment::now();
    let mut outcomes = Vec::with_capacity(members.len());
    let mut leaving = Vec::with_capacity(members.len());
    for member in members {
        match begin_release(&member.entry, member.ticket, Stay::Agreed) {
            Ok(Some(release)) => match member.node.away() {
                Some(error) => outcomes.push(release.answered(Err(Failure::Unsent(error)))),
                None => {
                    let command = commands::leave(&member.entry, &release.leaving, release.next.as_ref());
                    leaving.push((release, &member.node, command));
                }
            },
            Ok(None) => outcomes.push(Ok(())),
            Err(error) => outcomes.push(Err(error)),
        }
    }
    for (release, reply) in ask_all(leaving, began, deadline) {
        let left = reply.and_then(|reply| left(&reply.value, release.next.as_ref(), reply.first_by));
        outcomes.push(release.answered(left));
    }
    outcomes
}

/// Releases a member without waiting: the renewal thread does it.
pub(super) fn defer(member: &Member) {
    if let Ok(Some(release)) = begin_release(&member.entry, member.ticket, Stay::Agreed) {
        // No thread waits for the outcome; the observer has been notified.
        let _ = release.deferred();
    }
}
