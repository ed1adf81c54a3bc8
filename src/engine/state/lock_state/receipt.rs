//! A tenure that goes out of this process and comes into another, without Redis taking it back between.

use super::{Effects, Gate, Grip, HolderId, Ticket};
use crate::clock::Moment;
use crate::engine::state::grant::Tenure;
use crate::observe::{AcquiredVia, LossReason};

/// Why a hold cannot go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stays {
    Lost(LossReason),
    /// Other threads of this process have holds on the same tenure.
    Shared,
}

impl Gate {
    /// Whether the hold `ticket` can go, alone on a valid tenure: which is told.
    pub(crate) fn may_part(&self, ticket: Ticket, now: Moment) -> Result<&Tenure, Stays> {
        let hold = self.holds.get(ticket);
        let Some((hold, tenure)) = hold.and_then(|h| Some((h, self.tenure(h.owner)?))) else {
            return Err(Stays::Lost(LossReason::Revoked));
        };
        match tenure.loss(now) {
            Some(loss) => Err(Stays::Lost(loss)),
            None if tenure.holds > 1 || hold.count > 1 => Err(Stays::Shared),
            None => Ok(tenure),
        }
    }

    /// The hold `ticket` goes, with its tenure. To Redis nothing happens; the threads that wait here ask
    /// it, as they would if another process had come in.
    pub(crate) fn part(&mut self, ticket: Ticket, now: Moment) -> Result<(Tenure, Effects), Stays> {
        let owner = self.may_part(ticket, now)?.owner;
        let Some(tenure) = self.tenures.remove(owner) else {
            return Err(Stays::Lost(LossReason::Revoked));
        };
        self.holds.remove(ticket);
        Ok((tenure, Effects { wake: self.head(), ..Effects::default() }))
    }

    /// A tenure that another process had comes, for a guard. `None` where the client was closed
    /// meanwhile.
    ///
    /// It ends with its guard: the head may have a place in Redis, and what it is granted there later
    /// must find it waiting.
    pub(crate) fn adopt(&mut self, tenure: Tenure) -> Option<Grip> {
        if self.closed {
            return None;
        }
        self.tickets += 1;
        let mut tenure = Tenure { shut: true, ..tenure };
        let grip = self.holds.take(&mut tenure, self.tickets, HolderId::Guard, AcquiredVia::Adopted);
        self.tenures.insert(tenure);
        Some(grip)
    }
}
