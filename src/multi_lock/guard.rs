//! The guards of a multi-lock: holds that end together.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::Duration;

use super::MultiLock;
use crate::cancel::CancellationToken;
use crate::engine::several::Holds;
use crate::engine::{held, unheard};
use crate::error::Error;
use crate::lock::any_lock::LockGuard;

/// What the guard of a [`MultiLock`] has: a hold of each of its locks. Both guards dereference to it.
pub struct MultiHold {
    holds: Holds,
}

impl MultiHold {
    /// How long all of them are certain to last if nothing renews them: as long as the one that ends first;
    /// nothing once one is lost.
    pub fn remaining(&self) -> Duration {
        let each = self.holds.iter().map(|held| held::remaining(&held.cell, held.ticket));
        each.min().unwrap_or_default()
    }

    /// Whether one of them ended before it was released. No request.
    pub fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// A token that is cancelled when one of them is lost, as [`Hold::lost`](crate::Hold::lost) is. The
    /// others stay held, until the guard ends.
    pub fn lost(&self) -> CancellationToken {
        let any = CancellationToken::new();
        for held in self.holds.iter() {
            held::lost_token(&held.cell, held.ticket).cancels(&any);
        }
        any
    }

    /// The fencing tokens, in the order in which the locks were named; `None` for one that is not
    /// exclusive. See [`Hold::token`](crate::Hold::token).
    pub fn tokens(&self) -> Vec<Option<u64>> {
        self.holds.iter().map(|held| held.token()).collect()
    }

    /// Gives them back; returns the first error, by the order of the locks. Of the others, observers hear.
    fn release(self) -> Result<(), Error> {
        let mut errors = self.holds.release().into_iter();
        let first = errors.next();
        for (cell, error) in errors {
            unheard(&cell, &error);
        }
        first.map_or(Ok(()), |(_, error)| Err(error))
    }
}

impl fmt::Debug for MultiHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let each = self.holds.iter().map(|held| (&held.cell, held.token()));
        f.debug_list().entries(each).finish()
    }
}

/// A thread's hold of several locks: all released when dropped. It stays on its thread.
///
/// Dropping it does what [`unlock`](MultiGuard::unlock) does and tells the observers of errors.
#[must_use = "a guard that is not kept releases at once"]
pub struct MultiGuard<'a> {
    hold: MultiHold,
    // Borrows its lock, and belongs to the thread: not Send.
    lock: PhantomData<(&'a MultiLock, *const ())>,
}

impl<'a> MultiGuard<'a> {
    pub(super) fn new(_lock: &'a MultiLock, holds: Holds) -> Self {
        MultiGuard { hold: MultiHold { holds }, lock: PhantomData }
    }

    /// Gives all of them back, the last one first; those of one client and one kind together. Blocks for a
    /// request for each of these, at most the command limit each.
    ///
    /// # Errors
    /// Those of [`Guard::unlock`](crate::Guard::unlock), about the lock that it came from: the first, by the
    /// order in which they were named. The others were given back all the same.
    pub fn unlock(self) -> Result<(), Error> {
        self.hold.release()
    }
}

/// A hold of several locks of the guard itself: it may go to another thread, and releases all of them when
/// dropped, as a [`MultiGuard`] does.
#[must_use = "a guard that is not kept releases at once"]
pub struct OwnedMultiGuard {
    hold: MultiHold,
}

impl OwnedMultiGuard {
    pub(super) fn new(holds: Holds) -> Self {
        OwnedMultiGuard { hold: MultiHold { holds } }
    }

    /// Gives all of them back. Blocks and errs as [`MultiGuard::unlock`] does.
    ///
    /// # Errors
    /// See that method.
    pub fn unlock(self) -> Result<(), Error> {
        self.hold.release()
    }
}

impl Deref for MultiGuard<'_> {
    type Target = MultiHold;

    fn deref(&self) -> &MultiHold {
        &self.hold
    }
}

impl Deref for OwnedMultiGuard {
    type Target = MultiHold;

    fn deref(&self) -> &MultiHold {
        &self.hold
    }
}

impl fmt::Debug for MultiGuard<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}

impl fmt::Debug for OwnedMultiGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}

impl LockGuard for MultiGuard<'_> {
    /// None: there is one for each lock, see [`tokens`](MultiHold::tokens).
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
