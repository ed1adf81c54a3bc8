//! Releasing on several servers: all requests are written before any reply is waited for.

use super::member::Member;
use super::post::to_all;
use crate::clock::Moment;
use crate::engine::call::release::{OngoingRelease, Stay, begin_release};
use crate::engine::operations::packed::pack_leave_for;
use crate::engine::operations::replies::left;
use crate::engine::redis::failure::Failure;
use crate::error::Error;

/// Releases the members, and waits until `deadline` for the servers to confirm. If a server is down or does
/// not reply, the renewal thread releases its member.
pub(super) fn give_back(members: &[Member], deadline: Moment) -> Vec<Result<(), Error>> {
    let began = Moment::now();
    let mut outcomes = Vec::with_capacity(members.len());
    let mut leaving: Vec<(&Member, OngoingRelease<'_>)> = Vec::with_capacity(members.len());
    for member in members {
        match begin_release(&member.entry, member.ticket, Stay::Agreed) {
            Ok(Some(release)) => match member.node.away() {
                Some(error) => outcomes.push(release.answered(Err(Failure::Unsent(error)))),
                None => leaving.push((member, release)),
            },
            Ok(None) => outcomes.push(Ok(())),
            Err(error) => outcomes.push(Err(error)),
        }
    }
    let post = |(member, release): &(&Member, OngoingRelease<'_>), limit| {
        member.entry.server().backend.post(&pack(member, release, false), limit)
    };
    for ((member, release), posted) in to_all(leaving, began, deadline, post) {
        let backend = &member.entry.server().backend;
        let awaited = Moment::now();
        let told = posted.map(|p| p.told(backend, deadline, || pack(member, &release, true)));
        let (answer, first_by) = told.map_or_else(|e| (Err(e), None), |told| (told.answer, told.first_by));
        match &answer {
            Err(Failure::Unsent(e) | Failure::Unanswered(e)) => member.node.failed(e.clone()),
            _ => member.node.answered(began, awaited),
        }
        let answer = answer.and_then(|value| left(&value, release.next.as_ref(), first_by));
        outcomes.push(release.answered(answer));
    }
    outcomes
}

fn pack(member: &Member, release: &OngoingRelease<'_>, eval: bool) -> Vec<u8> {
    let mut request = Vec::new();
    pack_leave_for(&mut request, &member.entry, &release.leaving, release.next.as_ref(), eval);
    request
}

/// Releases a member without waiting: the renewal thread does it.
pub(super) fn defer(member: &Member) {
    if let Ok(Some(release)) = begin_release(&member.entry, member.ticket, Stay::Agreed) {
        // No thread waits for the outcome; the observer has been notified.
        let _ = release.deferred();
    }
}
