//! A number of permits, some of which are acquired: `lua/semaphore.lua`.

use super::{Holder, PendingAcquire, Rule};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Permits {
    total: u8,
    /// By owner.
    holders: Vec<Holder>,
}

impl Permits {
    pub(super) fn of(total: u8) -> Self {
        Permits { total, holders: Vec::new() }
    }

    fn out(&self) -> u8 {
        self.holders.iter().map(|holder| holder.mode.permits()).sum()
    }
}

impl Rule for Permits {
    fn lapse(&mut self, now: u64) {
        self.holders.retain(|holder| holder.end > now);
    }

    fn holders(&self) -> &[Holder] {
        &self.holders
    }

    fn try_acquire(&mut self, ask: &PendingAcquire, fence: &mut u64, now: u64) -> bool {
        let (owner, mode, end) = (ask.owner, ask.mode, now + ask.lease);
        if self.out() + mode.permits() > self.total {
            return false;
        }
        *fence = (*fence + 1).max(now);
        let at = self.holders.partition_point(|holder| holder.owner < owner);
        let value = mode.permits().into();
        self.holders.reserve_exact(1);
        self.holders.insert(at, Holder { owner, number: *fence, end, mode, value, instead: None });
        true
    }

    fn release(&mut self, owner: u64) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.owner != owner);
        if self.holders.is_empty() {
            self.holders = Vec::new();
        }
        self.holders.len() < before
    }

    fn renew(&mut self, owner: u64, lease: u64, now: u64) -> bool {
        let holder = self.holders.iter_mut().find(|holder| holder.owner == owner && holder.end > now);
        let Some(holder) = holder else { return false };
        holder.end = now + lease;
        true
    }

    fn next_expiry(&self) -> Option<u64> {
        self.holders.iter().map(|holder| holder.end).min()
    }

    fn is_full(&self) -> bool {
        self.out() >= self.total
    }
}
