//! What a kind of lock is to the small Redis.

use std::ops::{Deref, DerefMut};

use super::exclusive::Exclusive;
use super::permits::Permits;
use super::read_write::ReadWrite;
use super::words::{Holder, Mode, PendingAcquire};

/// What a kind of lock is, as in `lua/README.md`. What lapsed is gone before anything is asked.
pub(in crate::engine) trait Rule {
    /// What ends by itself.
    fn lapse(&mut self, now: u64);
    /// The owners inside.
    fn holders(&self) -> &[Holder];
    /// Nobody is ahead: may it come in? Installs it.
    fn try_acquire(&mut self, ask: &PendingAcquire, fence: &mut u64, now: u64) -> bool;
    /// Takes it out.
    fn release(&mut self, owner: u64) -> bool;
    /// Never creates.
    fn renew(&mut self, owner: u64, lease: u64, now: u64) -> bool;
    /// When the next holder lapses.
    fn next_expiry(&self) -> Option<u64>;
    /// No one can come in at all.
    fn is_full(&self) -> bool;

    fn class(&self, _mode: Mode) -> u64 {
        0
    }

    /// May it pass the queue?
    fn can_barge(&self, _ask: &PendingAcquire) -> bool {
        false
    }

    /// Whether those inside are told that it waits.
    fn on_wait(&self, _mode: Mode) -> bool {
        false
    }

    /// The last number, as requests for that mode are told it.
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
