//! The members of a hold, and one exchange with all their servers: all commands are written before any reply is
//! waited for.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::node::Voter;
use crate::clock::Moment;
use crate::engine::call::held;
use crate::engine::call::release::{Stay, begin_release};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::commands;
use crate::engine::operations::replies::left;
use crate::engine::redis::exchange::{Command, Reply};
use crate::engine::redis::failure::Failure;
use crate::engine::state::lock_state::Ticket;
use crate::error::Error;

/// The grant of one server: an ordinary hold there, renewed like any other.
#[derive(Clone)]
pub(super) struct ServerHold {
    pub(super) node: Arc<Voter>,
    pub(super) entry: Arc<LockEntry>,
    pub(super) ticket: Ticket,
}

impl ServerHold {
    pub(super) fn remaining(&self) -> Duration {
        held::remaining(&self.entry, self.ticket)
    }

    /// Releases it without waiting: the renewal thread does it.
    pub(super) fn defer(&self) {
        if let Ok(Some(release)) = begin_release(&self.entry, self.ticket, Stay::Agreed) {
            // No thread waits for the outcome; the observer has been notified.
            let _ = release.deferred();
        }
    }
}

/// What is asked of a server, and for which item.
type ServerRequest<'a, T> = (T, &'a Arc<Voter>, Command<'a>);

/// Asks a server for each item: first those for which there is a connection by `began`; then, by `deadline`, the
/// others, whose connections are being opened in the meantime. A server that does not reply is left out from now
/// on.
pub(super) fn ask_all<T>(
    asked: Vec<ServerRequest<'_, T>>,
    began: Moment,
    deadline: Moment,
) -> Vec<(T, Result<Reply, Failure>)> {
    let post = |(_, node, command): &ServerRequest<'_, T>, limit| {
        node.server.backend.post(slice::from_ref(command), limit)
    };
    let first: Vec<_> = asked.iter().map(|one| post(one, began)).collect();
    let all = asked.iter().zip(first).map(|(one, posted)| posted.or_else(|_| post(one, deadline)));
    let posted: Vec<_> = all.collect();
    let read = |((item, node, command), posted): (ServerRequest<'_, T>, Result<_, _>)| {
        let (awaited, command) = (Moment::now(), slice::from_ref(&command));
        let reply = posted.and_then(|posted| node.server.backend.read(posted, command, deadline));
        node.heard(&reply, began, awaited);
        (item, reply)
    };
    asked.into_iter().zip(posted).map(read).collect()
}

/// Releases the members, and waits until `deadline` for the servers to confirm. If a server is down or does
/// not reply, the renewal thread releases its member.
pub(super) fn give_back(members: &[ServerHold], deadline: Moment) -> Vec<Result<(), Error>> {
    let began = Moment::now();
    let (mut outcomes, mut leaving) = (Vec::with_capacity(members.len()), Vec::with_capacity(members.len()));
    for ServerHold { node, entry, ticket } in members {
        match begin_release(entry, *ticket, Stay::Agreed) {
            Ok(Some(release)) => match node.away() {
                Some(error) => outcomes.push(release.answered(Err(Failure::Unsent(error)))),
                None => {
                    let command = commands::leave(entry, &release.leaving, release.next.as_ref());
                    leaving.push((release, node, command));
                }
            },
            over => outcomes.push(over.map(drop)),
        }
    }
    for (release, reply) in ask_all(leaving, began, deadline) {
        let left = reply.and_then(|reply| left(&reply.value, release.next.as_ref(), reply.first_by));
        outcomes.push(release.answered(left));
    }
    outcomes
}

/// The error, with its cause, if that is known.
pub(super) fn caused_by(error: Error, source: Option<Error>) -> Error {
    match source {
        Some(source) => error.caused_by(source),
        None => error,
    }
}
