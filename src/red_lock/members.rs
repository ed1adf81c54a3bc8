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
use crate::engine::redis::exchange::{Command, Posted, Reply};
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

/// A request to a server, about `item`.
pub(super) struct Query<'a, T> {
    pub(super) item: T,
    pub(super) node: &'a Arc<Voter>,
    pub(super) command: Command<'a>,
    /// `None` as long as there was no connection for it.
    pub(super) posted: Option<Posted>,
}

impl<'a, T> Query<'a, T> {
    pub(super) fn new(item: T, node: &'a Arc<Voter>, command: Command<'a>) -> Self {
        Query { item, node, command, posted: None }
    }

    /// Writes it, if it was not yet and there is a connection for it by `limit`; otherwise one is being opened.
    pub(super) fn post(&mut self, limit: Moment) {
        let post = || self.node.server.backend.post(slice::from_ref(&self.command), limit).ok();
        self.posted = self.posted.take().or_else(post);
    }

    /// Waits for the reply until `deadline`. A server that does not reply is left out from now on, unless it
    /// `has_time`: others may wait longer.
    pub(super) fn read(self, began: Moment, deadline: Moment, has_time: bool) -> (T, Result<Reply, Failure>) {
        let Query { item, node, command, posted } = self;
        let (awaited, backend, command) = (Moment::now(), &node.server.backend, slice::from_ref(&command));
        let posted = posted.map_or_else(|| backend.post(command, deadline), Ok);
        let reply = posted.and_then(|posted| backend.read(posted, command, deadline));
        if reply.is_ok() || !has_time {
            node.record(&reply, began, awaited);
        }
        (item, reply)
    }
}

/// Sends all requests to servers that are not away: first those for which there is a connection by `began`; then,
/// by `deadline`, the others, whose connections are being opened in the meantime. Returns the replies.
pub(super) fn ask_all<T>(
    queries: Vec<Query<'_, T>>,
    began: Moment,
    deadline: Moment,
) -> Vec<(T, Result<Reply, Failure>)> {
    let mut queries: Vec<_> = queries.into_iter().map(|one| (one.node.away(), one)).collect();
    for limit in [began, deadline] {
        let there = queries.iter_mut().filter(|(away, _)| away.is_none());
        there.for_each(|(_, one)| one.post(limit));
    }
    let read = |(away, one): (Option<Error>, Query<'_, T>)| match away {
        Some(error) => (one.item, Err(Failure::Unsent(error))),
        None => one.read(began, deadline, false),
    };
    queries.into_iter().map(read).collect()
}

/// Releases the members, and waits until `deadline` for the servers to confirm. If a server is down or does
/// not reply, the renewal thread releases its member.
pub(super) fn give_back(members: &[ServerHold], deadline: Moment) -> Vec<Result<(), Error>> {
    let began = Moment::now();
    let (mut outcomes, mut leaving) = (Vec::with_capacity(members.len()), Vec::with_capacity(members.len()));
    for ServerHold { node, entry, ticket } in members {
        match begin_release(entry, *ticket, Stay::Agreed) {
            Ok(Some(release)) => {
                let command = commands::leave(entry, &release.leaving, release.next.as_ref());
                leaving.push(Query::new(release, node, command));
            }
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
