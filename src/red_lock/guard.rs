//! The guards of a lock over several servers.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use super::holding::Holding;
use super::lock::QuorumLock;
use super::renew::renew;
use crate::cancel::CancellationToken;
use crate::error::Error;
use crate::lock::any_lock::LockGuard;

/// What a guard of a [`QuorumLock`] has: the hold itself. Both guards dereference to it.
pub struct QuorumHold {
    holding: Arc<Holding>,
    released: bool,
}

impl QuorumHold {
    pub(super) fn new(holding: Arc<Holding>) -> Self {
        QuorumHold { holding, released: false }
    }

    fn release(mut self) -> Result<(), Error> {
        self.released = true;
        self.holding.end()
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.holding.name()
    }

    /// How long the hold is certain to last if nothing renews it, its *validity*: for as long as the majority
    /// of its servers whose leases last longest. Nothing once it is lost. Counted here, without a request,
    /// from before those that got it, less 1% of the lease (2 ms at least).
    pub fn remaining(&self) -> Duration {
        self.holding.remaining()
    }

    /// Whether the hold ended before it was released. No request: with the servers silent it is known when
    /// the leases of a majority must have ended. Once lost it stays so.
    pub fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// A token that is cancelled when the hold is lost, also while the servers are silent: to hand to the work
    /// that is done under the lock.
    pub fn lost(&self) -> CancellationToken {
        self.holding.lost()
    }

    /// On how many servers it is held: all of them, where all are well; none once it is lost.
    pub fn servers(&self) -> usize {
        self.holding.servers()
    }

    /// Sets the lease anew on all servers that have it, to its full length from now on. For a hold with a
    /// fixed lease; others are renewed by themselves. One request to each server, at once; blocks for the node
    /// limit at most.
    ///
    /// # Errors
    /// `LeaseLost` on a lost hold, or where it turns out to be one; `Unknown` where fewer than a majority said
    /// that it is done: the hold lasts then for as long as [`remaining`](QuorumHold::remaining) says.
    pub fn renew(&self) -> Result<(), Error> {
        renew(&self.holding)
    }
}

impl fmt::Debug for QuorumHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QuorumHold").field("lock", &self.name()).finish_non_exhaustive()
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

/// A hold of a thread: released when dropped. It stays on its thread.
///
/// Dropping it does what [`unlock`](QuorumGuard::unlock) does and tells the observers of an error. Leaked by
/// `mem::forget`, it is held, and renewed, until the clients are closed.
#[must_use = "a guard that is not kept releases at once"]
pub struct QuorumGuard<'a> {
    hold: QuorumHold,
    // Borrows its lock, and like the JDK's it belongs to the thread: not Send.
    lock: PhantomData<(&'a QuorumLock, *const ())>,
}

impl QuorumGuard<'_> {
    pub(super) fn new(hold: QuorumHold) -> Self {
        QuorumGuard { hold, lock: PhantomData }
    }

    /// Gives the hold back on all servers; those that do not answer are told in the background, until they
    /// do or the lease is over. Blocks for the node limit at most.
    ///
    /// # Errors
    /// `LeaseLost` if the hold was over before, `Closed` if the clients were closed, `Unknown` if fewer than a
    /// majority answered.
    pub fn unlock(self) -> Result<(), Error> {
        self.hold.release()
    }
}

/// A hold of the guard itself: it may go to another thread, and is released when dropped, as a
/// [`QuorumGuard`] is.
#[must_use = "a guard that is not kept releases at once"]
pub struct OwnedQuorumGuard {
    hold: QuorumHold,
}

impl OwnedQuorumGuard {
    pub(super) fn new(hold: QuorumHold) -> Self {
        OwnedQuorumGuard { hold }
    }

    /// Gives the hold back. Blocks and errs as [`QuorumGuard::unlock`] does.
    ///
    /// # Errors
    /// `LeaseLost`, `Closed`, `Unknown`.
    pub fn unlock(self) -> Result<(), Error> {
        self.hold.release()
    }
}

impl Deref for QuorumGuard<'_> {
    type Target = QuorumHold;

    fn deref(&self) -> &QuorumHold {
        &self.hold
    }
}

impl Deref for OwnedQuorumGuard {
    type Target = QuorumHold;

    fn deref(&self) -> &QuorumHold {
        &self.hold
    }
}

impl fmt::Debug for QuorumGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}

impl fmt::Debug for OwnedQuorumGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}

pub(super) fn boxed(guard: QuorumGuard<'_>) -> Box<dyn LockGuard + '_> {
    Box::new(guard)
}

impl LockGuard for QuorumGuard<'_> {
    /// There is none: the servers know nothing of each other's numbers.
    fn token(&self) -> Option<u64> {
        None
    }

    fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    fn is_lost(&self) -> bool {
        self.hold.is_lost()
    }

    fn lost(&self) -> CancellationToken {
        self.hold.lost()
    }

    fn unlock(self: Box<Self>) -> Result<(), Error> {
        self.hold.release()
    }
}
