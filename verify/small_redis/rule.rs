//! What a kind of lock is for the small Redis.

use std::ops::{Deref, DerefMut};

use super::exclusive::Exclusive;
use super::permits::Permits;
use super::read_write::ReadWrite;
use super::words::{Holder, Mode, PendingAcquire};

/// A kind of lock, as in `lua/README.md`. What has expired is removed before any other call.
pub(in crate::engine) trait Rule {
    /// Removes what has expired by itself.
    fn lapse(&mut self, now: u64);
    /// Returns the owners inside.
    fn holders(&self) -> &[Holder];
    /// Admits a request, if the rule allows it. Nobody is ahead of it.
    fn try_acquire(&mut self, ask: &PendingAcquire, fence: &mut u64, now: u64) -> bool;
    /// Removes the owner; returns whether it was inside.
    fn release(&mut self, owner: u64) -> bool;
    /// Renews a hold; never creates one.
    fn renew(&mut self, owner: u64, lease: u64, now: u64) -> bool;
    /// Returns when the next holder expires.
    fn next_expiry(&self) -> Option<u64>;
    /// Whether no request at all can be admitted.
    fn is_full(&self) -> bool;

    fn class(&self, _mode: Mode) -> u64 {
        0
    }

    /// Whether the request may pass the queue.
    fn can_barge(&self, _ask: &PendingAcquire) -> bool {
        false
    }

    /// Whether the owners inside are notified that a request of this mode waits.
    fn on_wait(&self, _mode: Mode) -> bool {
        false
    }

    /// Returns the last number, as it is reported to requests of this mode.
    fn last(&self, fence: u64, _mode: Mode) -> u64 {
        fence
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Kind {
    Exclusive(Exclusive),
    ReadWrite(ReadWrite),
    Permits(Permits),
}

impl Deref for Kind {
    type Target = dyn Rule;

    fn deref(&self) -> &Self::Target {
        match self {
            Kind::Exclusive(rule) => rule,
            Kind::ReadWrite(rule) => rule,
            Kind::Permits(rule) => rule,
        }
    }
}

impl DerefMut for Kind {
    fn deref_mut(&mut self) -> &mut Self::Target {
        match self {
            Kind::Exclusive(rule) => rule,
            Kind::ReadWrite(rule) => rule,
            Kind::Permits(rule) => rule,
        }
    }
}
