//! One holder at a time: `lua/reentrant.lua` and `lua/simple.lua`.

use super::{Holder, PendingAcquire, Rule};

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Exclusive(Option<Holder>);

impl Rule for Exclusive {
    fn lapse(&mut self, now: u64) {
        self.0.take_if(|holder| holder.end <= now);
    }

    fn holders(&self) -> &[Holder] {
        self.0.as_slice()
    }

    fn try_acquire(&mut self, ask: &PendingAcquire, fence: &mut u64, now: u64) -> bool {
        if self.0.is_some() {
            return false;
        }
        *fence = (*fence + 1).max(now);
        let (owner, end, mode) = (ask.owner, now + ask.lease, ask.mode);
        self.0 = Some(Holder { owner, number: *fence, end, mode, value: 0, instead: None });
        true
    }

    fn release(&mut self, owner: u64) -> bool {
        self.0.take_if(|holder| holder.owner == owner).is_some()
    }

    fn renew(&mut self, owner: u64, lease: u64, now: u64) -> bool {
        let holder = self.0.as_mut().filter(|holder| holder.owner == owner);
        holder.map(|holder| holder.end = now + lease).is_some()
    }

    fn next_expiry(&self) -> Option<u64> {
        self.0.map(|holder| holder.end)
    }

    fn is_full(&self) -> bool {
        self.0.is_some()
    }
}
