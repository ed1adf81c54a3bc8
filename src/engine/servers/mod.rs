//! The servers of a cluster, and which of them has which slot. Every request reads this, without a lock.

pub(crate) mod cluster;
pub(crate) mod route;
pub(crate) mod server;

use std::sync::{Arc, OnceLock};

use crate::engine::redis::slots::{SLOTS, Slot};
use crate::engine::servers::server::Server;
use crate::sync::atomic::{AtomicU32, Ordering};

/// Each part has twice as many places as the one before, so a server in one of them never moves.
const PARTS: usize = 16;

/// Places, each filled once.
type Part = Box<[OnceLock<Arc<Server>>]>;

/// Servers are added and never removed.
pub(crate) struct Servers {
    first: Arc<Server>,
    parts: [OnceLock<Part>; PARTS],
    /// For each slot, the number of the server that has it.
    slots: Box<[AtomicU32]>,
}

impl Servers {
    /// Creates the table. The first server has all slots until the map is known.
    pub(crate) fn new(first: Arc<Server>) -> Servers {
        let slots = (0..SLOTS).map(|_| AtomicU32::new(0)).collect();
        let servers = Servers { first: first.clone(), parts: Default::default(), slots };
        servers.add(first);
        servers
    }

    fn place(&self, n: u32) -> Option<&OnceLock<Arc<Server>>> {
        let part = (n + 1).ilog2();
        let size = 1usize << part;
        let part = self.parts.get(part as usize)?;
        part.get_or_init(|| (0..size).map(|_| OnceLock::new()).collect()).get(n as usize + 1 - size)
    }

    /// Adds a server, and returns its number. Returns `None` if there is no room, which there is for 65,535
    /// servers. One thread adds at a time.
    pub(crate) fn add(&self, server: Arc<Server>) -> Option<u32> {
        let n = self.all().count() as u32;
        self.place(n)?.set(server).ok()?;
        Some(n)
    }

    /// Returns the number of the first server of which this is true.
    pub(crate) fn number(&self, is: impl Fn(&Server) -> bool) -> Option<u32> {
        self.all().position(|server| is(server)).map(|n| n as u32)
    }

    fn get(&self, n: u32) -> Option<&Arc<Server>> {
        self.place(n)?.get()
    }

    /// Returns the server of this slot.
    pub(crate) fn of(&self, slot: Slot) -> &Arc<Server> {
        self.get(self.slots[slot.index()].load(Ordering::Acquire)).unwrap_or(&self.first)
    }

    /// Moves the slot with this index to the server `n`. Returns whether it was at another before.
    pub(crate) fn set(&self, slot: usize, n: u32) -> bool {
        self.slots[slot].swap(n, Ordering::AcqRel) != n
    }

    /// Returns whether the server `n` has any slot.
    pub(crate) fn has_slots(&self, n: u32) -> bool {
        self.slots.iter().any(|slot| slot.load(Ordering::Acquire) == n)
    }

    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<Server>> {
        (0..).map_while(|n| self.get(n))
    }
}
