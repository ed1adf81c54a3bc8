//! The reply of one server to one attempt.

use std::slice;
use std::sync::Arc;
use std::time::Duration;

use super::member::Member;
use super::node::Node;
use crate::clock::Moment;
use crate::engine::call::attempt::Attempt;
use crate::engine::operations::commands;
use crate::engine::operations::replies::acquired;
use crate::engine::redis::exchange::{Command, Posted};
use crate::engine::redis::failure::Failure;
use crate::error::Error;

/// What all the requests of an attempt have in common.
#[derive(Clone, Copy)]
pub(super) struct Asked {
    pub(super) began: Moment,
    /// Until when to wait for replies: for the node timeout, or until the call is over.
    pub(super) deadline: Moment,
    /// The node timeout.
    pub(super) limit: Duration,
    pub(super) lease: Duration,
    /// Whether recently started servers count.
    pub(super) skips_startup_delay: bool,
}

impl Asked {
    /// Whether the call is over before the node timeout: then a server that has not replied may still be
    /// healthy.
    fn is_cut_short(&self) -> bool {
        self.deadline < self.began.after(self.limit)
    }
}

/// The reply of a server.
pub(super) enum Vote {
    Yes(Member),
    Busy,
    /// Granted, but by a server that does not count yet.
    RecentlyStarted(Member, Error),
    Failed(Error),
    /// Permanent for this server.
    Never(Error),
}

/// A request that is in flight, or will be once there is a connection for it.
pub(super) struct Question<'a> {
    pub(super) at: usize,
    pub(super) node: &'a Arc<Node>,
    pub(super) attempt: Attempt<'a>,
    pub(super) posted: Option<Posted>,
}

impl Question<'_> {
    /// Writes the request if there is a connection for it by `limit`; otherwise one is being opened.
    pub(super) fn post(&mut self, limit: Moment) -> Result<(), Failure> {
        self.posted = Some(self.node.server.backend.post(slice::from_ref(&self.command()), limit)?);
        Ok(())
    }

    fn command(&self) -> Command<'_> {
        commands::acquire(self.attempt.entry(), self.attempt.asking()).identified()
    }

    /// Waits for the reply.
    pub(super) fn answer(mut self, asked: &Asked) -> Vote {
        let awaited = Moment::now();
        let posted = self.posted.take();
        let (backend, command) = (&self.node.server.backend, [self.command()]);
        let reply = posted.map_or_else(|| backend.post(&command, asked.deadline), Ok);
        let reply = reply.and_then(|posted| backend.read(posted, &command, asked.deadline));
        if !asked.is_cut_short() || reply.is_ok() {
            self.node.heard(&reply, asked.began, awaited);
        }
        let server = reply.as_ref().ok().and_then(|reply| reply.server.clone());
        drop(command);
        let Question { at, node, attempt, .. } = self;
        let entry = attempt.entry().clone();
        let lease = attempt.asking().terms.lease;
        let answer = reply.and_then(|reply| Ok((acquired(&reply.value, lease)?, reply.resent())));
        let never = answer.as_ref().is_err_and(Failure::is_final);
        let member = |ticket| Member { at, node: node.clone(), entry, ticket };
        match attempt.answered(answer, asked.deadline) {
            Ok(Some(acquired)) if asked.skips_startup_delay => Vote::Yes(member(acquired.ticket)),
            Ok(Some(acquired)) => match node.counts(server.as_deref(), asked.lease, asked.began) {
                Ok(()) => Vote::Yes(member(acquired.ticket)),
                Err(error) => Vote::RecentlyStarted(member(acquired.ticket), error),
            },
            Ok(None) => Vote::Busy,
            Err(error) if never || !error.is_unavailable() => Vote::Never(error),
            Err(error) => Vote::Failed(error),
        }
    }
}
