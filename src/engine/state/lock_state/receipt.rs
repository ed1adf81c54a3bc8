//! A grant that moves from this process to another, without returning to Redis in between.

use super::{Acquired, Effects, HolderId, LockState, Refusal, Ticket};
use crate::clock::Moment;
use crate::engine::state::grant::{Grant, Standing};
use crate::observe::{AcquiredVia, LossReason};

impl LockState {
    /// Returns the grant of the hold `ticket` if that can go: the grant is valid, and this is its only hold.
    pub(crate) fn may_detach(&self, ticket: Ticket, now: Moment) -> Result<&Grant, Refusal> {
        let hold = self.holds.get(ticket);
        let Some((hold, grant)) = hold.and_then(|h| Some((h, self.grant(h.owner)?))) else {
            return Err(Refusal::LeaseLost(LossReason::Revoked));
        };
        match grant.loss(now) {
            Some(loss) => Err(Refusal::LeaseLost(loss)),
            None if grant.holds > 1 || hold.count > 1 => Err(Refusal::Shared),
            None => Ok(grant),
        }
    }

    /// The hold `ticket` leaves this process, with its grant. Redis does not notice. The threads that wait
    /// here then ask Redis, as they would if another process had acquired the lock.
    pub(crate) fn detach(&mut self, ticket: Ticket, now: Moment) -> Result<(Grant, Effects), Refusal> {
        let owner = self.may_detach(ticket, now)?.owner;
        let Some(grant) = self.grants.remove(owner) else {
            return Err(Refusal::LeaseLost(LossReason::Revoked));
        };
        self.holds.remove(ticket);
        Ok((grant, Effects { wake: self.head(), ..Effects::default() }))
    }

    /// Takes over, for a guard, a grant that another process had. Returns `None` if the client was closed
    /// meanwhile.
    ///
    /// The grant ends with its guard: the head may have a queue position in Redis, and must still be waiting
    /// there when it is granted the lock.
    pub(crate) fn adopt(&mut self, grant: Grant) -> Option<Acquired> {
        if self.closed {
            return None;
        }
        let mut grant = Grant { standing: Standing::ClosedToOthers, ..grant };
        let acquired = self.holds.take(&mut grant, self.line.ticket(), HolderId::Guard, AcquiredVia::Adopted);
        self.grants.insert(grant);
        Some(acquired)
    }
}
