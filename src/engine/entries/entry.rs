//! The entry of a lock: its lock state with the mutex around it, the condvars of its threads, its keys and
//! scripts; and the table of a client's entries, by kind and name and by owner number. The operations on a
//! lock are in the files whose functions take an entry.

use std::any::TypeId;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::entries::runtime::{SEQUENCE_BITS, Shared};
use crate::engine::redis::exchange::{Command, Reply};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::resp::unsigned;
use crate::engine::redis::slots::Slot;
use crate::engine::servers::server::Server;
use crate::engine::state::grant::KEEPS;
use crate::engine::state::lock_state::{LockState, PendingRelease, Shape, Ticket};
use crate::engine::state::table::{Numbered, Table, push};
use crate::error::{Error, ErrorKind};
use crate::kind::{Kind, Sharing};
use crate::names::Names;
use crate::observe::LockInfo;
use crate::script::Scripts;
use crate::sync::{Condvar, Mutex};

/// One lock of one client, shared by its handles and guards.
pub(crate) struct LockEntry {
    pub(crate) shared: Arc<Shared>,
    kind: KindId,
    pub(crate) names: Names,
    pub(crate) scripts: Arc<Scripts>,
    /// `Some` if this is the entry of one thread's wait for a condition of the lock, and not of the lock
    /// itself.
    pub(crate) condition: Option<Box<AwaitedCondition>>,
    slot: u32,
    /// The slot of its keys in a cluster.
    pub(crate) hash_slot: Slot,
    pub(crate) shape: Arc<Shape>,
    pub(crate) core: Mutex<Core>,
}

/// The condition that a thread waits for.
pub(crate) struct AwaitedCondition {
    /// The condition's name in Redis.
    pub(crate) name: String,
    /// The entry of its lock, to which a grant moves at the end of the wait.
    pub(crate) lock: Weak<LockEntry>,
}

/// What the entry's mutex protects.
pub(crate) struct Core {
    pub(crate) lock_state: LockState,
    sides: Table<Side>,
    /// The threads that sleep.
    parked: Vec<Parked>,
    /// The leaves without a reply so far, which threads are sending or the renewer repeats. A client that closes sends
    /// them again, since it closes the connections that they are on.
    pub(crate) leaves: Vec<PendingRelease>,
    /// When a call gave up that other calls are queued behind, and since when Redis had not replied. Boxed, as it is
    /// rare.
    gave_up: Option<Box<(Moment, Moment)>>,
    /// The error of the head's last request, if it failed.
    pub(crate) trouble: Option<Error>,
}

/// A sleeping thread, and the condvar that wakes it.
struct Parked {
    ticket: Ticket,
    condvar: Arc<Condvar>,
    thread: std::thread::Thread,
    /// What it holds, and who of this process waits for that, as a waiter's record tells it.
    blocked: Option<Arc<str>>,
}

/// What the engine keeps of a grant beside the lock state.
struct Side {
    owner: u64,
    /// When the renewer will look at it: its key in the schedule.
    due: Moment,
    /// The token that reports the loss, created on first use.
    lost: Option<CancellationToken>,
    /// The entry that the owner number leads to, if that is not this one: the grant was made to a wait for a
    /// condition. Kept alive for later messages about the grant.
    #[expect(dead_code, reason = "while it is here, its slot is no other entry's")]
    granted_to: Option<Arc<LockEntry>>,
}

impl Numbered for Side {
    type Index = ();

    fn key(&self) -> u64 {
        self.owner
    }
}

/// The kind of an entry.
#[derive(Clone, Copy)]
pub(crate) struct KindId {
    /// Distinguishes kinds in the table of entries.
    id: TypeId,
    name: &'static str,
}

/// The parts of an entry: its kind, its keys, its scripts, its shape.
type Made = (KindId, Names, Arc<Scripts>, Arc<Shape>);

/// In the table of entries, the kind of the locks of kind `K` that are at user-chosen keys: such a key may be
/// the name of another lock.
struct AtKey<K>(PhantomData<fn() -> K>);

impl LockEntry {
    pub(crate) fn error(&self, error: Error) -> Error {
        self.shared.explained(error).about(self.name())
    }

    pub(crate) fn name(&self) -> &str {
        self.names.name()
    }

    /// Returns what observers are given about this lock.
    pub(crate) fn observed(&self) -> LockInfo<'_> {
        // A grant may also be passed through.
        let is_held = self.shape.sharing != Sharing::PassThrough;
        LockInfo { kind: self.kind.name, name: self.name(), is_held }
    }

    /// Returns the scripts of its conditions.
    pub(crate) fn condition_scripts(&self) -> Result<&Arc<Scripts>, Error> {
        let why = |why| format!("the rule of the {}: {why}", self.kind.name);
        self.scripts.conditions().map_err(|it| self.error(ErrorKind::InvalidInput.because(why(it))))
    }

    /// Returns the server that has its keys now. Callers must not keep it: see [`route`](crate::engine::servers::route).
    pub(crate) fn server(&self) -> &Arc<Server> {
        self.shared.route.to(self.hash_slot)
    }

    /// Sends commands about this lock to that server, until `limit` at most.
    pub(crate) fn ask(&self, commands: &[Command<'_>], limit: Moment) -> Result<Reply, Failure> {
        self.shared.route.ask(self.hash_slot, commands, None, limit)
    }

    pub(crate) fn owner_id(&self, owner: u64) -> String {
        self.owner_id_parts(owner, &mut itoa::Buffer::new()).concat()
    }

    /// The parts of an owner id, of which the number is put into `digits`.
    pub(crate) fn owner_id_parts<'a>(&'a self, owner: u64, digits: &'a mut itoa::Buffer) -> [&'a str; 4] {
        let keeps = if owner & KEEPS == 0 { "" } else { "~" };
        [&self.shared.uuid, ":", digits.format(owner & !KEEPS), keeps]
    }

    /// Returns whether this owner id belongs to this entry's lock state.
    pub(crate) fn is_mine(&self, owner: &str) -> bool {
        let number = owner.strip_prefix(&self.shared.uuid).and_then(|rest| rest.strip_prefix(':'));
        let number = number.and_then(owner_number);
        number.is_some_and(|number| number & (SLOTS as u64 - 1) == u64::from(self.slot))
    }

    /// Returns whether both are about the same key of the [same](Server::is_same) server, whatever the kind,
    /// the mode and the client.
    pub(crate) fn is_same_key(&self, other: &LockEntry) -> bool {
        self.names == other.names && self.server().is_same(other.server())
    }

    /// Returns an owner number that leads back here.
    pub(crate) fn number(&self) -> u64 {
        u64::from(self.slot)
    }

    /// Returns a new owner number: this client has never used it before, and it leads back here.
    pub(crate) fn fresh(&self) -> u64 {
        self.shared.sequence() << SLOT_BITS | u64::from(self.slot)
    }
}

impl fmt::Debug for LockEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.kind.name, self.name())
    }
}

impl Drop for LockEntry {
    fn drop(&mut self) {
        // In a forked child it stays in the table.
        if let Ok(mut entries) = self.shared.entries() {
            entries.remove(self.slot, self.kind.id, self.name());
        }
    }
}

impl Core {
    /// Wakes the thread with this ticket if it is parked. A thread that is not looks at the state before it
    /// sleeps.
    pub(crate) fn wake(&self, ticket: Option<Ticket>) {
        if let Some(parked) = self.parked.iter().find(|parked| Some(parked.ticket) == ticket) {
            parked.condvar.notify_one();
        }
    }

    /// Returns the name of the head's thread, for a request that another thread sends on its behalf. `None`
    /// if the head is not parked yet: Redis then learns its name with its next heartbeat.
    pub(crate) fn name_of_head(&self) -> Option<Arc<str>> {
        let head = self.lock_state.head()?;
        self.parked.iter().find(|parked| parked.ticket == head)?.thread.name().map(Arc::from)
    }

    pub(crate) fn wake_all(&self) {
        self.parked.iter().for_each(|parked| _ = parked.condvar.notify_one());
    }

    /// A call gives up that others may be queued behind: records for them since when Redis has not replied.
    pub(crate) fn pass_trouble_on(&mut self, now: Moment) {
        if let Some(since) = self.lock_state.trouble() {
            self.gave_up = Some(Box::new((now, since)));
        }
    }

    /// A call begins that was queued since `arrived`, perhaps behind one that gave up.
    pub(crate) fn take_trouble_on(&mut self, arrived: Moment) {
        let gave_up = self.gave_up.take();
        // For a call that was queued later, it is not known whether Redis replied in between.
        if let Some((_, since)) = gave_up.map(|it| *it).filter(|(at, _)| arrived <= *at) {
            self.lock_state.in_trouble_since(since);
        }
    }

    /// Records that this thread is about to sleep on `condvar`, and what it publishes of deadlocks.
    pub(crate) fn park(&mut self, ticket: Ticket, condvar: Arc<Condvar>, blocked: Option<Arc<str>>) {
        self.parked.push(Parked { ticket, condvar, thread: std::thread::current(), blocked });
    }

    /// What its sleeping threads publish of deadlocks.
    pub(crate) fn blocked(&self) -> Vec<Arc<str>> {
        self.parked.iter().filter_map(|parked| parked.blocked.clone()).collect()
    }

    pub(crate) fn unpark(&mut self, ticket: Ticket) {
        self.parked.retain(|parked| parked.ticket != ticket);
    }

    /// Returns when the renewer will look at this grant.
    pub(crate) fn due(&self, owner: u64) -> Option<Moment> {
        self.sides.get(owner).map(|side| side.due)
    }

    /// Records that the renewer will look at this grant at `due`. Returns when it would have otherwise.
    pub(crate) fn set_due(&mut self, owner: u64, due: Moment) -> Option<Moment> {
        match self.sides.get_mut(owner) {
            Some(side) => Some(std::mem::replace(&mut side.due, due)),
            None => {
                self.sides.insert(Side { owner, due, lost: None, granted_to: None });
                None
            }
        }
    }

    /// Records a grant that comes back from a wait for a condition: a new one, or the one from before. The
    /// token that reports its loss stays the same.
    pub(crate) fn take_over(
        &mut self,
        owner: u64,
        due: Moment,
        lost: Option<CancellationToken>,
        granted_to: Option<Arc<LockEntry>>,
    ) {
        self.sides.insert(Side { owner, due, lost, granted_to });
    }

    /// Moves the renewer's look at this grant from `old` to `new`. Returns `false`, and moves nothing, if the
    /// look is no longer the one at `old`: a `renew_for` has planned another, and two would renew forever.
    pub(crate) fn move_due(&mut self, owner: u64, old: Moment, new: Moment) -> bool {
        let side = self.sides.get_mut(owner).filter(|s| s.due == old);
        side.map(|side| side.due = new).is_some()
    }

    /// The grant is over. Returns when the renewer would have looked at it.
    pub(crate) fn forget(&mut self, owner: u64) -> Option<Moment> {
        Some(self.sides.remove(owner)?.due)
    }

    /// Records a leave that is about to be sent, or is the renewer's task now.
    pub(crate) fn add_leave(&mut self, leaving: &PendingRelease) {
        push(&mut self.leaves, leaving.clone());
    }

    /// Removes the leave of `owner`, which was answered or given up.
    pub(crate) fn remove_leave(&mut self, owner: u64) {
        self.leaves.retain(|leaving| leaving.owner != owner);
    }

    /// Returns the token that reports the grant's loss, which is created if there is none.
    pub(crate) fn loss_token(&mut self, owner: u64) -> CancellationToken {
        match self.sides.get_mut(owner) {
            Some(side) => side.lost.get_or_insert_default().clone(),
            None => CancellationToken::default(),
        }
    }

    /// Returns whether this process needs messages about this grant: that it is lost, or that another caller
    /// wants it.
    pub(crate) fn needs_messages(&self, owner: u64) -> bool {
        let lingers = || self.lock_state.grant(owner).is_some_and(|grant| grant.terms.lingers());
        self.requested_loss_token(owner).is_some() || lingers()
    }

    /// Returns the token that reports the grant's loss, if a caller asked for it.
    pub(crate) fn requested_loss_token(&self, owner: u64) -> Option<CancellationToken> {
        self.sides.get(owner)?.lost.clone()
    }
}

/// Parses the number in an owner id: `<n>`, or `<n>~` if the process may keep the grant.
pub(crate) fn owner_number(text: &str) -> Option<u64> {
    match text.as_bytes() {
        [digits @ .., b'~'] => unsigned(digits).map(|n| n | KEEPS),
        digits => unsigned(digits),
    }
}

/// The low bits of an owner number are its entry's slot, so that a message finds its entry without a table of
/// all grants.
const SLOT_BITS: u32 = 22;
const SLOTS: usize = 1 << SLOT_BITS;
const _: () = assert!(1 << (SEQUENCE_BITS + SLOT_BITS) == KEEPS, "all its bits are used");

/// The entries of a client.
#[derive(Default)]
pub(crate) struct LockEntries {
    /// The slots by kind and name.
    by_name: HashMap<TypeId, HashMap<Box<str>, u32>>,
    slots: Vec<Option<Weak<LockEntry>>>,
    free: Vec<u32>,
}

impl LockEntries {
    /// Returns the entry of this kind and name, or `at_key`: at the user-chosen key `name`. It is created if there is
    /// none. Returns an error if there are too many entries.
    pub(crate) fn get<K: Kind>(
        shared: &Arc<Shared>,
        name: &str,
        at_key: bool,
    ) -> Result<Arc<LockEntry>, Error> {
        let id = if at_key { TypeId::of::<AtKey<K>>() } else { TypeId::of::<K>() };
        let mut entries = shared.entries().map_err(|e| e.about(name))?;
        let known = entries.by_name.get(&id).and_then(|slots| slots.get(name));
        // It may be being dropped.
        if let Some(entry) = known.and_then(|slot| entries.at(*slot)) {
            return Ok(entry);
        }
        let (scripts, shape) = shared.kind::<K>().map_err(|e| e.about(name))?;
        let names = if at_key { Names::at_key } else { Names::new };
        let names = names(&shared.config.namespace, name)?;
        let entry = entries.add(shared, (KindId { id, name: K::NAME }, names, scripts, shape), None)?;
        entries.by_name.entry(id).or_default().insert(name.into(), entry.slot);
        Ok(entry)
    }

    /// Creates an entry for one thread's wait, beside `entry`, which is the one found by name: for kinds in
    /// which each thread has a queue position of its own in Redis, and for the wait for a condition.
    pub(crate) fn alone(entry: &Arc<LockEntry>, condition: Option<&str>) -> Result<Arc<LockEntry>, Error> {
        let shared = &entry.shared;
        let scripts = if condition.is_some() { entry.condition_scripts()? } else { &entry.scripts }.clone();
        let awaited = condition
            .map(|name| Box::new(AwaitedCondition { name: name.to_owned(), lock: Arc::downgrade(entry) }));
        let mut entries = shared.entries().map_err(|e| entry.error(e))?;
        entries.add(shared, (entry.kind, entry.names.clone(), scripts, entry.shape.clone()), awaited)
    }

    /// Returns all entries of this kind and name: this one, and those of single threads' waits.
    pub(crate) fn all_of(entry: &LockEntry) -> Vec<Arc<LockEntry>> {
        // The others are dropped here, outside the mutex: dropping the last reference to an entry locks it.
        let all = entry.shared.entries().map_or_else(|_| Vec::new(), |entries| entries.all());
        let same = |other: &Arc<LockEntry>| other.kind.id == entry.kind.id && other.name() == entry.name();
        all.into_iter().filter(same).collect()
    }

    fn add(
        &mut self,
        shared: &Arc<Shared>,
        made: Made,
        condition: Option<Box<AwaitedCondition>>,
    ) -> Result<Arc<LockEntry>, Error> {
        let (kind, names, scripts, shape) = made;
        let slot = match self.free.pop() {
            Some(slot) => slot,
            None if self.slots.len() < SLOTS => {
                self.slots.push(None);
                (self.slots.len() - 1) as u32
            }
            None => {
                let error = Error::new(ErrorKind::InvalidInput, names.name());
                return Err(error.because(format!("a client can have at most {SLOTS} locks at a time")));
            }
        };
        let core = Core {
            lock_state: if condition.is_some() {
                LockState::of_condition_waiter(shape.clone())
            } else {
                LockState::new(shape.clone())
            },
            sides: Table::new(),
            parked: Vec::new(),
            leaves: Vec::new(),
            gave_up: None,
            trouble: None,
        };
        let entry = Arc::new(LockEntry {
            shared: shared.clone(),
            hash_slot: shared.route.slot(names.key().as_bytes()),
            kind,
            names,
            scripts,
            condition,
            slot,
            shape,
            core: Mutex::new(core),
        });
        self.slots[slot as usize] = Some(Arc::downgrade(&entry));
        Ok(entry)
    }

    fn at(&self, slot: u32) -> Option<Arc<LockEntry>> {
        self.slots.get(slot as usize)?.as_ref()?.upgrade()
    }

    /// Returns the entry that an owner number leads to. The slot may have been reused: the lock state of the
    /// new entry does not know the owner.
    pub(crate) fn of_owner(&self, owner: u64) -> Option<Arc<LockEntry>> {
        self.at((owner & (SLOTS as u64 - 1)) as u32)
    }

    pub(crate) fn all(&self) -> Vec<Arc<LockEntry>> {
        self.slots.iter().flatten().filter_map(Weak::upgrade).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn remove(&mut self, slot: u32, type_id: TypeId, name: &str) {
        let slots = self.by_name.get_mut(&type_id);
        // Not that of another entry of this name, made while this one was being dropped.
        if let Some(slots) = slots.filter(|slots| slots.get(name) == Some(&slot)) {
            slots.remove(name);
        }
        self.slots[slot as usize] = None;
        self.free.push(slot);
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/entries/entry.rs"]
mod tests;
