//! The reply of one server to one attempt.

use std::sync::Arc;
use std::time::Duration;

use super::member::Member;
use super::node::Node;
use crate::clock::Moment;
use crate::engine::call::attempt::Attempt;
use crate::engine::operations::packed::pack_acquire;
use crate::engine::operations::replies::acquired;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::posted::{Posted, Told};
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
        self.posted = Some(self.write(limit)?);
        Ok(())
    }

    fn pack(&self, eval: bool) -> Vec<u8> {
        let mut request = Vec::new();
        pack_acquire(&mut request, self.attempt.entry(), self.attempt.asking(), eval);
        request
    }

    fn write(&self, limit: Moment) -> Result<Posted, Failure> {
        self.node.server.backend.post_to_known(&self.pack(false), limit, None)
    }

    /// Waits for the reply.
    pub(super) fn answer(mut self, asked: &Asked) -> Vote {
        let awaited = Moment::now();
        let told = match self.posted.take().map_or_else(|| self.write(asked.deadline), Ok) {
            Ok(posted) => posted.told(&self.node.server.backend, asked.deadline, || self.pack(true)),
            Err(failure) => Told { answer: Err(failure), server: None, first_by: None },
        };
        match &told.answer {
            Err(Failure::Unsent(_) | Failure::Unanswered(_)) if asked.is_cut_short() => {}
            Err(Failure::Unsent(e) | Failure::Unanswered(e)) => self.node.failed(e.clone()),
            _ => self.node.answered(asked.began, awaited),
        }
        let Question { at, node, attempt, .. } = self;
        let entry = attempt.entry().clone();
        let lease = attempt.asking().terms.lease;
        let answer = told.answer.and_then(|value| Ok((acquired(&value, lease)?, told.first_by.is_some())));
        let never = answer.as_ref().is_err_and(Failure::is_final);
        let member = |ticket| Member { at, node: node.clone(), entry, ticket };
        match attempt.answered(answer, asked.deadline) {
            Ok(Some(acquired)) if asked.skips_startup_delay => Vote::Yes(member(acquired.ticket)),
            Ok(Some(acquired)) => match node.counts(told.server.as_deref(), asked.lease, asked.began) {
                Ok(()) => Vote::Yes(member(acquired.ticket)),
                Err(error) => Vote::RecentlyStarted(member(acquired.ticket), error),
            },
            Ok(None) => Vote::Busy,
            Err(error) if never || !error.is_unavailable() => Vote::Never(error),
            Err(error) => Vote::Failed(error),
        }
    }
}
