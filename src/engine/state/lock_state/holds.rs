//! A lock state's holds and grants, and how each is found when there are very many of them.

use std::collections::BTreeSet;

use super::{Acquired, Grant, HolderId, Ticket};
use crate::clock::Moment;
use crate::engine::state::table::{Numbered, Table};
use crate::observe::AcquiredVia;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct OurHold {
    pub(super) ticket: Ticket,
    pub(super) holder: HolderId,
    pub(super) owner: u64,
    /// How many guards it has.
    pub(super) count: u32,
    pub(super) via: AcquiredVia,
    /// When its thread learned that it has the lock.
    pub(super) since: Option<Moment>,
}

/// The tickets of holds, each with its thread, and each with the owner of its grant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Tickets {
    threads: BTreeSet<(u64, Ticket)>,
    owners: BTreeSet<(u64, Ticket)>,
}

impl OurHold {
    pub(super) fn guards(&self) -> usize {
        self.count as usize
    }

    /// As its caller gets it; `grant` is the one that it is a hold of.
    pub(super) fn acquired(&self, grant: Option<&Grant>) -> Acquired {
        let OurHold { ticket, owner, via, .. } = *self;
        let (token, value) = grant.map_or((0, 0), |grant| (grant.token(), grant.value));
        Acquired { ticket, owner, token, value, via, count: self.guards() }
    }
}

impl Numbered for OurHold {
    type Index = Tickets;

    fn key(&self) -> u64 {
        self.ticket
    }

    fn note(&self, index: &mut Tickets) {
        if let HolderId::Thread(thread) = self.holder {
            index.threads.insert((thread.get(), self.ticket));
        }
        index.owners.insert((self.owner, self.ticket));
    }

    fn strike(&self, index: &mut Tickets) {
        if let HolderId::Thread(thread) = self.holder {
            index.threads.remove(&(thread.get(), self.ticket));
        }
        index.owners.remove(&(self.owner, self.ticket));
    }
}

impl Table<OurHold> {
    /// Adds a hold on this grant.
    pub(super) fn take(
        &mut self,
        grant: &mut Grant,
        ticket: Ticket,
        holder: HolderId,
        via: AcquiredVia,
    ) -> Acquired {
        grant.holds += 1;
        let (owner, token, value) = (grant.owner, grant.token(), grant.value);
        self.insert(OurHold { ticket, holder, owner, count: 1, via, since: None });
        Acquired { ticket, owner, token, value, via, count: 1 }
    }

    /// Returns the holds of this thread.
    pub(super) fn of_thread(&self, thread: u64) -> impl Iterator<Item = &OurHold> {
        let thread = HolderId::number(thread);
        let few = self.few().iter().filter(move |h| h.holder == HolderId::Thread(thread));
        few.chain(self.many().into_iter().flat_map(move |many| {
            let tickets = many.index.threads.range((thread.get(), 0)..=(thread.get(), Ticket::MAX));
            tickets.filter_map(|(_, ticket)| many.items.get(ticket))
        }))
    }

    /// Returns the holds on the grant of this owner.
    pub(super) fn of_owner(&self, owner: u64) -> impl Iterator<Item = &OurHold> {
        let few = self.few().iter().filter(move |h| h.owner == owner);
        few.chain(self.many().into_iter().flat_map(move |many| {
            let tickets = many.index.owners.range((owner, 0)..=(owner, Ticket::MAX));
            tickets.filter_map(|(_, ticket)| many.items.get(ticket))
        }))
    }
}

impl Numbered for Grant {
    type Index = ();

    fn key(&self) -> u64 {
        self.owner
    }
}
