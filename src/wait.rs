//! How long one call may take: its one deadline and its one token, made at the public edge and
//! passed everywhere.

use std::time::{Duration, Instant};

use crate::cancel::CancellationToken;
use crate::clock::Moment;

/// A request still waits this long for its answer when the call's deadline is nearer: giving up
/// earlier would only turn a late answer into an open question.
const GRACE: Duration = Duration::from_millis(100);

/// The limits of one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wait<'a> {
    /// When the call must be over; `None`: no deadline.
    pub(crate) deadline: Option<Moment>,
    pub(crate) cancel: Option<&'a CancellationToken>,
    /// One attempt, no queueing.
    pub(crate) once: bool,
}

impl<'a> Wait<'a> {
    pub(crate) fn forever() -> Self {
        Wait { deadline: None, cancel: None, once: false }
    }

    pub(crate) fn once() -> Self {
        Wait { deadline: None, cancel: None, once: true }
    }

    /// At most `limit` from now; nothing at all means one attempt.
    pub(crate) fn for_at_most(limit: Duration) -> Self {
        if limit.is_zero() { Wait::once() } else { Wait::until_moment(Moment::now().after(limit)) }
    }

    /// Until `deadline`; one that has passed means one attempt.
    pub(crate) fn until(deadline: Instant) -> Self {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() { Wait::once() } else { Wait::until_moment(Moment::at(deadline)) }
    }

    /// Until `deadline`, and longer than one attempt even if that has passed.
    pub(crate) fn until_moment(deadline: Moment) -> Self {
        Wait { deadline: (deadline < Moment::NEVER).then_some(deadline), cancel: None, once: false }
    }

    pub(crate) fn with(mut self, cancel: &'a CancellationToken) -> Self {
        self.cancel = Some(cancel);
        self
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(CancellationToken::is_cancelled)
    }

    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.deadline.is_some_and(|d| d <= now) || self.is_cancelled()
    }

    /// When a request sent now must be over, if one may take `limit`. What is sent after the deadline, to give
    /// something back, has a grace of its own, but only one for the whole call.
    pub(crate) fn limit(&self, now: Moment, limit: Duration) -> Moment {
        let longest = now.after(limit);
        match self.deadline {
            Some(d) => longest.min(d.max(now).after(GRACE)).min(d.after(2 * GRACE)),
            None => longest,
        }
    }

    /// The same without its token: it may outlive the call.
    pub(crate) fn uncancelled(&self) -> Wait<'static> {
        Wait { deadline: self.deadline, cancel: None, once: self.once }
    }
}
