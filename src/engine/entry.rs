//! A lock state with what it needs to run: its mutex, the condvars of its threads, its keys and scripts; and all of a
//! client's, by kind and name, and by owner number. What happens to a lock is in the files that take its entry.

use std::any::TypeId;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Weak};

use super::by_name::ByName;
use super::cluster::Repeated;
use super::redis::backend::Idempotent;
use super::redis::failure::Failure;
use super::redis::slots::Slot;
use super::runtime::Shared;
use super::server::Server;
use super::state::grant::KEEPS;
use super::state::lock_state::{LockState, PendingRelease, Shape, Ticket};
use super::state::table::{Numbered, Table, push};
use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::error::Error;
use crate::kind::{Kind, Sharing};
use crate::names::Names;
use crate::observe::LockInfo;
use crate::script::Scripts;
use crate::sync::{Condvar, Mutex};

/// One lock of one client, shared by its handles and guards.
pub(crate) struct LockEntry {
    pub(crate) shared: Arc<Shared>,
    kind: fn() -> Sort,
    pub(crate) names: Names,
    pub(crate) scripts: Arc<Scripts>,
    /// Where it is one thread's wait for a condition of a lock, and not the lock itself.
    pub(crate) condition: Option<Box<AwaitedCondition>>,
    slot: u32,
    /// Where its keys are.
    pub(crate) hash_slot: Slot,
    /// Whether what is granted is held, and not passed.
    is_held: bool,
    pub(crate) core: Mutex<Core>,
}

/// What a thread waits for that waits for a condition.
pub(crate) struct AwaitedCondition {
    /// As Redis knows it.
    pub(crate) name: String,
    /// The entry of its lock, in which what the wait was granted goes on.
    pub(crate) lock: Weak<LockEntry>,
}

/// What the entry's mutex guards.
pub(crate) struct Core {
    pub(crate) lock_state: LockState,
    sides: Table<Side>,
    /// Since its first wait or leave: a lock that is merely held has none.
    moves: Option<Box<Moves>>,
    /// The error when Redis last failed the head.
    pub(crate) trouble: Option<Error>,
}

/// The threads that are about to acquire a lock or to leave it.
#[derive(Default)]
struct Moves {
    /// Those that sleep.
    parked: Vec<Parked>,
    /// What others are sending.
    leaves: Vec<PendingRelease>,
    /// When a call gave up behind which others wait to be made, and since when Redis had not replied.
    gave_up: Option<(Moment, Moment)>,
}

/// A thread that sleeps, and where.
struct Parked {
    ticket: Ticket,
    condvar: Arc<Condvar>,
    thread: std::thread::Thread,
}

/// What the engine keeps of a grant beside the lock state.
struct Side {
    owner: u64,
    /// Where the renewer has it.
    due: Moment,
    /// What few grants have.
    more: Option<Box<More>>,
}

#[derive(Default)]
struct More {
    /// Made on first use.
    lost: Option<CancellationToken>,
    /// The entry that its number leads to, if that is not this one: it was granted to a wait. Only kept
    /// there, for what Redis may yet say about it.
    #[expect(dead_code, reason = "while it is here, its slot is no other entry's")]
    granted_to: Option<Arc<LockEntry>>,
}

impl Numbered for Side {
    type Index = ();

    fn key(&self) -> u64 {
        self.owner
    }
}

/// What entries of a kind have in common. An entry has the function that says so, which takes less room.
pub(crate) struct Sort {
    /// What the table of entries tells kinds apart by.
    id: TypeId,
    name: &'static str,
}

/// What an entry is made of: its kind, its keys, its scripts, its shape.
type Made = (fn() -> Sort, Names, Arc<Scripts>, Arc<Shape>);

/// What an entry of kind `K` and this name is made of.
pub(crate) fn made<K: Kind>(shared: &Shared, name: &str) -> Result<Made, Error> {
    let kind = || Sort { id: TypeId::of::<K>(), name: K::NAME };
    made_with::<K>(shared, name, kind, Names::new)
}

/// What an entry of kind `K` at this user-chosen key is made of.
pub(crate) fn made_beside<K: Kind>(shared: &Shared, key: &str) -> Result<Made, Error> {
    let kind = || Sort { id: TypeId::of::<AtKey<K>>(), name: K::NAME };
    made_with::<K>(shared, key, kind, Names::beside)
}

fn made_with<K: Kind>(
    shared: &Shared,
    name: &str,
    kind: fn() -> Sort,
    names: impl FnOnce(&str, &str) -> Result<Names, Error>,
) -> Result<Made, Error> {
    let (scripts, shape) = shared.kind::<K>().map_err(|e| e.about(name))?;
    Ok((kind, names(&shared.config.namespace, name)?, scripts, shape))
}

/// In the table of entries, the kind of those locks of kind `K` that are at user-chosen keys: such a key may
/// be another lock's name.
pub(crate) struct AtKey<K>(PhantomData<fn() -> K>);

impl LockEntry {
    pub(crate) fn error(&self, error: Error) -> Error {
        error.about(self.name())
    }

    pub(crate) fn name(&self) -> &str {
        self.names.name()
    }

    fn is_of(&self, type_id: TypeId, name: &str) -> bool {
        self.type_id() == type_id && self.name() == name
    }

    fn type_id(&self) -> TypeId {
        (self.kind)().id
    }

    /// The kind that observers get.
    pub(crate) fn observed(&self) -> LockInfo<'_> {
        LockInfo { kind: (self.kind)().name, name: self.name(), is_held: self.is_held }
    }

    /// The server that has its keys now. Not to be kept: see [`route`](super::route).
    pub(crate) fn server(&self) -> &Arc<Server> {
        self.shared.route.to(self.hash_slot)
    }

    /// Has `act` send a request about it there, of which two copies do no more than one: see
    /// [`Route::follow`](super::route::Route::follow).
    pub(crate) fn follow<T: Repeated>(
        &self,
        limit: Moment,
        act: impl FnMut(&Arc<Server>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.shared.route.follow(self.hash_slot, limit, Idempotent::Yes, act)
    }

    pub(crate) fn owner_id(&self, owner: u64) -> String {
        let mut number = itoa::Buffer::new();
        let keeps = if owner & KEEPS == 0 { "" } else { "~" };
        [&self.shared.uuid, ":", number.format(owner & !KEEPS), keeps].concat()
    }

    /// Whether this owner id belongs to this entry's lock state.
    pub(crate) fn is_mine(&self, owner: &str) -> bool {
        let number = owner.strip_prefix(&self.shared.uuid).and_then(|rest| rest.strip_prefix(':'));
        let number = number.and_then(owner_number);
        number.is_some_and(|number| number & (SLOTS as u64 - 1) == u64::from(self.slot))
    }

    /// Whether both are about the same key, as far as their addresses tell: whatever the kind, the mode and
    /// the client.
    pub(crate) fn is_where(&self, other: &LockEntry) -> bool {
        self.names == other.names && self.server().manager.leads_where(&other.server().manager)
    }

    /// What all of its owner numbers lead to.
    pub(crate) fn number(&self) -> u64 {
        u64::from(self.slot)
    }

    /// A new owner number: never used before by this client, and it leads back here.
    pub(crate) fn fresh(&self) -> u64 {
        self.shared.sequence() << SLOT_BITS | u64::from(self.slot)
    }
}

impl fmt::Debug for LockEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", (self.kind)().name, self.name())
    }
}

impl Drop for LockEntry {
    fn drop(&mut self) {
        // In a forked child it may stay in the table.
        if let Ok(mut entries) = self.shared.lock(&self.shared.entries) {
            entries.remove(self.slot, self.type_id(), self.name());
        }
    }
}

impl Core {
    /// Wakes the thread with this ticket, if it is parked; otherwise it will look by itself.
    pub(crate) fn wake(&self, ticket: Option<Ticket>) {
        if let Some(parked) = self.parked().iter().find(|parked| Some(parked.ticket) == ticket) {
            parked.condvar.notify_one();
        }
    }

    /// The name of the first waiting thread, for a request that another one sends for it. Of one that is about to park it
    /// is not known yet, and comes with its next heartbeat.
    pub(crate) fn name_of_head(&self) -> Option<Arc<str>> {
        let head = self.lock_state.head()?;
        self.parked().iter().find(|parked| parked.ticket == head)?.thread.name().map(Arc::from)
    }

    pub(crate) fn wake_all(&self) {
        for parked in self.parked() {
            parked.condvar.notify_one();
        }
    }

    fn parked(&self) -> &[Parked] {
        self.moves.as_ref().map_or(&[], |moves| &moves.parked)
    }

    /// A call gives up behind which others may wait to be made: they know what it knew.
    pub(super) fn pass_trouble_on(&mut self, now: Moment) {
        if let Some(since) = self.lock_state.trouble() {
            self.moves().gave_up = Some((now, since));
        }
    }

    /// A call comes that waited to be made since `arrived`.
    pub(super) fn take_trouble_on(&mut self, arrived: Moment) {
        let gave_up = self.moves.as_mut().and_then(|moves| moves.gave_up.take());
        // Of one that came later nobody knows what was in between.
        if let Some((_, since)) = gave_up.filter(|(at, _)| arrived <= *at) {
            self.lock_state.in_trouble_since(since);
        }
    }

    fn moves(&mut self) -> &mut Moves {
        self.moves.get_or_insert_default()
    }

    /// This thread is about to sleep there.
    pub(crate) fn park(&mut self, ticket: Ticket, condvar: Arc<Condvar>) {
        self.moves().parked.push(Parked { ticket, condvar, thread: std::thread::current() });
    }

    pub(crate) fn unpark(&mut self, ticket: Ticket) {
        self.moves().parked.retain(|parked| parked.ticket != ticket);
    }

    /// When the renewer will look at this grant.
    pub(crate) fn due(&self, owner: u64) -> Option<Moment> {
        self.sides.iter().find(|s| s.owner == owner).map(|s| s.due)
    }

    /// The renewer will look at this grant at `due`. Returns when it would have otherwise.
    pub(crate) fn set_due(&mut self, owner: u64, due: Moment) -> Option<Moment> {
        match self.sides.get_mut(owner) {
            Some(side) => Some(std::mem::replace(&mut side.due, due)),
            None => {
                self.sides.insert(Side { owner, due, more: None });
                None
            }
        }
    }

    /// A grant comes from the wait that it was granted to, if it is not the one that was there before; the
    /// token that reports its loss stays the same.
    pub(crate) fn take_over(
        &mut self,
        owner: u64,
        due: Moment,
        lost: Option<CancellationToken>,
        granted_to: Option<Arc<LockEntry>>,
    ) {
        let more = (lost.is_some() || granted_to.is_some()).then(|| Box::new(More { lost, granted_to }));
        self.sides.insert(Side { owner, due, more });
    }

    /// Moves the renewer's look at this grant, if it is still the one of `old`: a `renew_for` in between has
    /// made another, and two would renew forever.
    pub(crate) fn move_due(&mut self, owner: u64, old: Moment, new: Moment) -> bool {
        match self.sides.get_mut(owner).filter(|s| s.due == old) {
            Some(side) => {
                side.due = new;
                true
            }
            None => false,
        }
    }

    /// The grant is over. Returns where the renewer has it.
    pub(crate) fn forget(&mut self, owner: u64) -> Option<Moment> {
        Some(self.sides.remove(owner)?.due)
    }

    /// A leave is about to be sent.
    pub(crate) fn sets_out(&mut self, leaving: &PendingRelease) {
        push(&mut self.moves().leaves, leaving.clone());
    }

    /// A leave was answered, or is the renewer's task now.
    pub(crate) fn arrived(&mut self, owner: u64) {
        self.moves().leaves.retain(|leaving| leaving.owner != owner);
    }

    /// Leaves that threads are sending: a client that closes sends them once more, since it closes the
    /// connections under theirs.
    pub(crate) fn under_way(&self) -> &[PendingRelease] {
        self.moves.as_ref().map_or(&[], |moves| &moves.leaves)
    }

    /// The token of the grant's loss.
    pub(crate) fn loss_token(&mut self, owner: u64) -> CancellationToken {
        match self.sides.get_mut(owner) {
            Some(side) => side.more.get_or_insert_default().lost.get_or_insert_default().clone(),
            None => CancellationToken::default(),
        }
    }

    /// Whether this grant's process wants to be told of it by messages: that it is lost, or wanted.
    pub(crate) fn is_to_be_told(&self, owner: u64) -> bool {
        let lingers = || self.lock_state.look(owner).is_some_and(|grant| grant.terms.lingers());
        self.asked_loss_token(owner).is_some() || lingers()
    }

    /// The token of the grant's loss, if any caller asked for it.
    pub(crate) fn asked_loss_token(&self, owner: u64) -> Option<CancellationToken> {
        self.sides.get(owner)?.more.as_ref()?.lost.clone()
    }
}

/// The number in the text of an owner: `<n>`, or `<n>~` of one whose process may keep its grant.
pub(crate) fn owner_number(text: &str) -> Option<u64> {
    match text.strip_suffix('~') {
        Some(text) => text.parse::<u64>().ok().map(|n| n | KEEPS),
        None => text.parse().ok(),
    }
}

/// The low bits of an owner number are its entry's slot: a message finds its entry without a table that would
/// have to be kept for each grant.
const SLOT_BITS: u32 = 22;
const SLOTS: usize = 1 << SLOT_BITS;

/// The entries of a client.
#[derive(Default)]
pub(crate) struct LockEntries {
    by_name: ByName,
    slots: Vec<Option<Weak<LockEntry>>>,
    free: Vec<u32>,
}

impl LockEntries {
    /// The entry of this kind and name, created if there is none. Returns an error if there are too many.
    pub(crate) fn get(
        shared: &Arc<Shared>,
        type_id: TypeId,
        name: &str,
        make: impl FnOnce() -> Result<Made, Error>,
    ) -> Result<Arc<LockEntry>, Error> {
        // An entry must not be dropped under the mutex.
        let mut others = Vec::new();
        let mut entries = shared.lock(&shared.entries).map_err(|e| e.about(name))?;
        for slot in entries.by_name.slots(type_id, name) {
            match entries.at(slot) {
                Some(entry) if entry.is_of(type_id, name) => return Ok(entry),
                other => others.extend(other),
            }
        }
        let entry = entries.add(shared, make()?, None)?;
        entries.by_name.insert(type_id, name, entry.slot);
        Ok(entry)
    }

    /// An entry of its own for one thread's wait, beside `entry`, the one that this name has: for kinds in
    /// which each thread has a queue position of its own in Redis.
    pub(crate) fn alone(entry: &Arc<LockEntry>) -> Result<Arc<LockEntry>, Error> {
        let shared = &entry.shared;
        let shape = shared.lock(&entry.core).map_err(|e| entry.error(e))?.lock_state.shape().clone();
        let made = (entry.kind, entry.names.clone(), entry.scripts.clone(), shape);
        let mut entries = shared.lock(&shared.entries).map_err(|e| entry.error(e))?;
        entries.add(shared, made, None)
    }

    /// All entries of this kind and name: this one, and those of single threads' waits.
    pub(crate) fn beside(entry: &LockEntry) -> Vec<Arc<LockEntry>> {
        // Others are let go here, which may be their end: not under the mutex, that an entry takes as it ends.
        let all =
            entry.shared.lock(&entry.shared.entries).map_or_else(|_| Vec::new(), |entries| entries.all());
        let same = |other: &Arc<LockEntry>| other.is_of(entry.type_id(), entry.name());
        all.into_iter().filter(same).collect()
    }

    /// An entry of its own for one thread's wait for a condition of the lock that is `lock`'s.
    pub(crate) fn for_condition(
        lock: &Arc<LockEntry>,
        condition: String,
        scripts: Arc<Scripts>,
        shape: Arc<Shape>,
    ) -> Result<Arc<LockEntry>, Error> {
        let made = (lock.kind, lock.names.clone(), scripts, shape);
        let awaited = Box::new(AwaitedCondition { name: condition, lock: Arc::downgrade(lock) });
        let mut entries = lock.shared.lock(&lock.shared.entries).map_err(|e| lock.error(e))?;
        entries.add(&lock.shared, made, Some(awaited))
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
                let error = Error::new(crate::ErrorKind::InvalidInput, names.name());
                return Err(error.because(format!("a client can have at most {SLOTS} locks at a time")));
            }
        };
        let is_held = shape.sharing != Sharing::PassThrough;
        let core = Core {
            lock_state: if condition.is_some() {
                LockState::of_condition_waiter(shape)
            } else {
                LockState::new(shape)
            },
            sides: Table::new(),
            moves: None,
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
            is_held,
            core: Mutex::new(core),
        });
        self.slots[slot as usize] = Some(Arc::downgrade(&entry));
        Ok(entry)
    }

    fn at(&self, slot: u32) -> Option<Arc<LockEntry>> {
        self.slots.get(slot as usize)?.as_ref()?.upgrade()
    }

    /// The entry that an owner number leads to. It may be another one by now: its lock state knows.
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
        self.by_name.remove(type_id, name, slot);
        self.slots[slot as usize] = None;
        self.free.push(slot);
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/unit/engine/entry.rs"]
mod tests;
