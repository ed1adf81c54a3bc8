//! The hold of a lock over several servers, as its guard owns it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::holding::Holding;
use crate::cancel::CancellationToken;
use crate::engine::call::warning::{Holds, until};
use crate::error::{Error, ErrorKind};
use crate::guard::sealed::Hold;
use crate::observe::{LockInfo, Span};

/// A hold granted by a majority, released when dropped.
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

    /// Always `None`: the servers do not know each other's grant numbers.
    fn token(&self) -> Option<u64> {
        None
    }

    fn remaining(&self) -> Duration {
        self.holding.remaining()
    }

    fn lost(&self) -> CancellationToken {
        self.holding.lost()
    }

    /// Never for longer than the lease, because a server that forgot this hold counts for others again after
    /// one lease.
    fn renew(&self, lease: Option<Duration>) -> Result<(), Error> {
        let longest = self.holding.lease;
        let lease = lease.unwrap_or(longest);
        if lease > longest {
            let why = format!(
                "a lease over several servers can be renewed for {longest:?}, its own length, at most, got {lease:?}"
            );
            return Err(Error::new(ErrorKind::InvalidInput, self.name()).because(why));
        }
        self.holding.renew(lease)
    }

    fn loss(&self) -> Option<Error> {
        self.holding.loss()
    }

    fn time_left(&self) -> Holds {
        let key = (Arc::as_ptr(&self.holding).addr(), 0);
        let holding = Arc::downgrade(&self.holding);
        vec![(key, Arc::new(move |margin| Some(until(holding.upgrade()?.left()?, margin))))]
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
