//! The hold of a lock over several servers, as its guard has it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::holding::Holding;
use super::renew::renew;
use crate::cancel::CancellationToken;
use crate::engine::warning::{TimeLeft, until};
use crate::error::Error;
use crate::guard::sealed::Hold;
use crate::observe::{LockInfo, Span};

/// What a majority granted, released when dropped.
pub struct QuorumHold {
    holding: Arc<Holding>,
    released: bool,
    _span: Option<Span>,
}

impl QuorumHold {
    pub(super) fn new(holding: Arc<Holding>) -> Self {
        let span = Span::hold(|| LockInfo { kind: "red lock", name: holding.name(), is_held: true });
        QuorumHold { holding, released: false, _span: span }
    }

    pub(super) fn servers(&self) -> usize {
        self.holding.servers()
    }
}

impl Hold for QuorumHold {
    fn name(&self) -> &str {
        self.holding.name()
    }

    /// There is none: the servers do not know each other's numbers.
    fn token(&self) -> Option<u64> {
        None
    }

    fn remaining(&self) -> Duration {
        self.holding.remaining()
    }

    fn lost(&self) -> CancellationToken {
        self.holding.lost()
    }

    fn renew(&self, lease: Option<Duration>) -> Result<(), Error> {
        renew(&self.holding, lease.unwrap_or(self.holding.lease))
    }

    fn loss(&self) -> Option<Error> {
        self.holding.loss()
    }

    fn time_left(&self) -> TimeLeft {
        let holding = Arc::downgrade(&self.holding);
        Box::new(move |margin| Some(until(holding.upgrade()?.left()?, margin)))
    }

    fn release(mut self) -> Result<(), Error> {
        self.released = true;
        self.holding.end()
    }
}

impl fmt::Debug for QuorumHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard").field("lock", &self.name()).finish_non_exhaustive()
    }
}

impl Drop for QuorumHold {
    fn drop(&mut self) {
        if !self.released
            && let Err(error) = self.holding.end()
        {
            self.holding.unheard(&error);
        }
    }
}
