//! Many readers, or one writer, which may read as well: `lua/read_write.lua`.

use super::{Holder, Mode, PendingAcquire, Rule};

/// How far the clock advances from one script to the next: further than the numbers that one script assigns.
const SCRIPT: u64 = 32;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct ReadWrite {
    /// By owner.
    holders: Vec<Holder>,
    /// When the first of them may expire at the earliest.
    soon: u64,
    /// The highest number of any owner, while anybody is inside.
    recent: u64,
    /// The server's clock: it advances between two scripts that assign numbers, unlike the time here.
    clock: u64,
    /// Whether this script has read the clock, which then stands still until its end.
    read: bool,
}

impl ReadWrite {
    fn writer(&self) -> Option<u64> {
        self.holders.iter().find(|holder| holder.mode == Mode::Write).map(|holder| holder.owner)
    }

    /// Keeps nothing once nobody is inside.
    fn forget(&mut self) {
        if self.holders.is_empty() {
            (self.holders, self.soon, self.recent) = (Vec::new(), 0, 0);
        }
    }
}

impl Rule for ReadWrite {
    fn lapse(&mut self, now: u64) {
        self.read = false;
        if self.soon <= now && !self.holders.is_empty() {
            self.holders.retain(|holder| holder.end > now);
            self.soon = self.holders.iter().map(|holder| holder.end).min().unwrap_or(0);
            self.forget();
        }
    }

    fn holders(&self) -> &[Holder] {
        &self.holders
    }

    fn try_acquire(&mut self, ask: &PendingAcquire, fence: &mut u64, now: u64) -> bool {
        let writes = ask.mode == Mode::Write;
        let writer = self.writer();
        if if writes { !self.holders.is_empty() } else { writer.is_some() && writer != ask.from } {
            return false;
        }
        if !self.read {
            (self.clock, self.read) = ((self.clock + SCRIPT).max(now), true);
        }
        let (owner, mode, end) = (ask.owner, ask.mode, now + ask.lease);
        let value = if writes { 0 } else { *fence };
        let number = if writes {
            *fence = self.clock.max(*fence + 1);
            *fence
        } else {
            self.clock.max(value + 1)
        };
        let first = self.holders.is_empty() || end < self.soon;
        self.soon = if first { end } else { self.soon };
        self.recent = self.recent.max(number);
        let instead = ask.from.filter(|_| ask.instead && writer.is_some());
        // An owner that has a position and sends a mere try may be admitted twice.
        self.holders.retain(|holder| holder.owner != owner);
        let at = self.holders.partition_point(|holder| holder.owner < owner);
        self.holders.reserve_exact(1);
        self.holders.insert(at, Holder { owner, number, end, mode, value, instead });
        true
    }

    fn release(&mut self, owner: u64) -> bool {
        let before = self.holders.len();
        self.holders.retain(|holder| holder.owner != owner);
        let inside = self.holders.len() < before;
        self.forget();
        inside
    }

    fn renew(&mut self, owner: u64, lease: u64, now: u64) -> bool {
        let holder = self.holders.iter_mut().find(|holder| holder.owner == owner && holder.end > now);
        let Some(holder) = holder else { return false };
        if now + lease < holder.end {
            self.soon = self.soon.min(now + lease);
        }
        holder.end = now + lease;
        true
    }

    fn next_expiry(&self) -> Option<u64> {
        (!self.holders.is_empty()).then_some(self.soon)
    }

    fn is_full(&self) -> bool {
        self.writer().is_some()
    }

    fn class(&self, mode: Mode) -> u64 {
        u64::from(mode == Mode::Read)
    }

    fn can_barge(&self, ask: &PendingAcquire) -> bool {
        ask.mode != Mode::Write && ask.from.is_some() && self.writer() == ask.from
    }

    fn on_wait(&self, mode: Mode) -> bool {
        mode == Mode::Write && self.writer().is_none()
    }

    fn last(&self, fence: u64, mode: Mode) -> u64 {
        if mode == Mode::Write { fence } else { self.recent.max(fence) }
    }
}
