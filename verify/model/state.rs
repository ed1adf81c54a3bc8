//! What a model's state is made of, and what Redis does in it.

use super::lock_states::Gates;
use super::modes::{Beside, Role, WRITES};
use super::{LEASE, TICK, World, at};
use crate::clock::Moment;
use crate::engine::small_redis::{Holder, Message, Mode, Op, Reply, SmallRedis, millis};
use crate::engine::state::lock_state::{Asking, LockState, PendingRelease, Shape, Terms, Ticket};
use crate::kind::{Reentrancy, Sharing};

/// The thread that renews: it has no seat among the others.
pub(super) const RENEWER: u8 = u8::MAX;

/// A set that takes little room: millions of states are kept.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bag<T>(Vec<T>);

impl<T> Default for Bag<T> {
    fn default() -> Self {
        Bag(Vec::new())
    }
}

impl<T: Ord> Bag<T> {
    pub(super) fn insert(&mut self, item: T) {
        if let Err(i) = self.0.binary_search(&item) {
            self.0.reserve_exact(1);
            self.0.insert(i, item);
        }
    }

    pub(super) fn remove(&mut self, item: &T) {
        self.0.retain(|it| it != item);
    }

    pub(super) fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.0.retain(keep);
    }

    pub(super) fn iter(&self) -> std::slice::Iter<'_, T> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// A request on its way, or what is left of one whose sender gave up on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Packet {
    pub(super) process: u8,
    /// The thread that waits for the reply.
    pub(super) thread: Option<u8>,
    pub(super) op: Op,
    /// The tick, where the gate does not know it: of a renewal.
    pub(super) sent: u8,
    /// Sent twice: another copy may run as well.
    pub(super) resent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Thread {
    Idle,
    /// In the waiting loop, about to take its turn.
    Awake(Ticket),
    Parked(Ticket, Moment),
    /// Waits for a reply; `later`: it asks without an inbox, and not again at once.
    Asking {
        ticket: Ticket,
        owner: u64,
        later: bool,
    },
    Confirming(Ticket, u64),
    Holding(Ticket),
    /// It holds, and waits for the reply to what it asks for those who come later.
    AskingAhead(Ticket, u64),
    /// Waits for the reply to the leave of its hold.
    Releasing(PendingRelease, Option<Asking>),
    /// Waits for the reply to a leave of the queue; then goes on waiting, if it did.
    LeavingQueue(PendingRelease, Option<Ticket>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    pub(super) thread: Thread,
    /// The gate that this is about.
    pub(super) lock_state: u8,
    /// What it holds of the other gate meanwhile.
    pub(super) kept: Option<(u8, Ticket)>,
    pub(super) beside: Beside,
    /// How often it will still take the lock.
    pub(super) rounds: u8,
    /// The number of threads of this process that wait for permits. No request.
    pub(super) once: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) alive: bool,
    pub(super) inbox: bool,
    /// Its inbox is at a server that was the primary, and hears what this one says by replication.
    pub(super) elsewhere: bool,
    pub(super) lock_states: Gates,
    pub(super) seats: Vec<Seat>,
    pub(super) sequence: u64,
    /// While it waits in Redis, how many tenures each other process may be granted before it: one
    /// if that one was ahead.
    pub(super) turns_before: Option<Vec<u8>>,
    /// Of a queue that forgets, the last owner that was told its arrival, and that.
    pub(super) came: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) tick: u8,
    pub(super) redis: SmallRedis,
    pub(super) processes: Vec<Process>,
    pub(super) packets: Bag<Packet>,
    /// Replies on their way, by process and thread.
    pub(super) replies: Vec<(Packet, Reply)>,
    pub(super) messages: Bag<Message>,
    pub(super) highest: u64,
    /// A token was not higher than the one before.
    pub(super) fell: bool,
    /// Somebody was let in past a place that was ahead of it.
    pub(super) jumped: bool,
    /// A process that waited was passed by more often than it may be.
    pub(super) bypassed: bool,
    /// A waiter that only a message tells was let in for longer than a silent position lives.
    pub(super) trusted: bool,
    /// A downgrade was said to have failed that had not.
    pub(super) robbed: bool,
    /// A waiter that lost its position came back to another.
    pub(super) fell_back: bool,
    /// A tenure was handed on, or took others in past a writer that waited, after its slice.
    pub(super) overstayed: bool,
    /// Where that counts, the shares that were told to take nobody else in.
    pub(super) told: Bag<u64>,
    /// And the writers that wait, and since which tick.
    pub(super) writers: Vec<(u64, u8)>,
    pub(super) left: Faults,
}

/// How many of each may happen yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    pub(super) crashes: u8,
    /// A process dies, and its connections stay open.
    pub(super) vanishes: u8,
    /// A waiting thread's time is up, or its token is cancelled.
    pub(super) time_outs: u8,
    /// A request, a reply or a message is lost, late, or comes twice.
    pub(super) lost: u8,
    /// An inbox loses its connection.
    pub(super) breaks: u8,
    /// The primary goes over to a replica, and lives on as one: its listeners stay.
    pub(super) moves: u8,
    /// A thread makes one attempt.
    pub(super) tries: u8,
    pub(super) renewals: u8,
}

/// An owner number leads back to its process.
pub(super) fn process_of(owner: u64) -> usize {
    (owner % 8) as usize
}

impl World {
    pub(super) fn lock_states(&self) -> Gates {
        let (sharing, reentrancy) = match self.permits {
            0 => (Sharing::Exclusive, Reentrancy::Counted),
            _ => (Sharing::Shared, Reentrancy::Independent),
        };
        let shape = Shape { sharing, reentrancy, local_handoff: self.local_handoff, beat: TICK };
        let second = Shape { sharing: Sharing::SharedPerProcess, ..shape.clone() };
        let second = (!self.roles.is_empty()).then(|| Box::new(LockState::new(second)));
        Gates(LockState::new(shape), second)
    }

    pub(super) fn role(&self, p: u8, t: u8) -> Option<Role> {
        self.roles.get(usize::from(p * self.threads + t)).copied()
    }

    /// On what terms the `t`th thread of a process asks its gate `g`.
    pub(super) fn terms(&self, p: u8, t: u8, g: u8) -> Terms {
        let mode = match self.role(p, t) {
            None if self.permits > 0 => Mode::Permits(1 + t),
            None => Mode::Plain,
            Some(_) if g == WRITES => Mode::Write,
            Some(Role::ReadsInOrder) => Mode::InOrder,
            Some(_) => Mode::Read,
        };
        let other = self.terms_differ && t == 1;
        let lease = if other { TICK } else { TICK * LEASE };
        Terms { fixed: other, fair: self.fair, ..Terms::new(lease, mode.args()) }
    }

    /// A Redis with nothing in it but, unless it is 0, the last number.
    pub(super) fn redis(&self, fence: u64) -> SmallRedis {
        if self.permits > 0 {
            return SmallRedis::semaphore(self.permits, self.waiter_timeout, fence);
        }
        let of = if self.roles.is_empty() { SmallRedis::new } else { SmallRedis::read_write };
        of(self.waiter_timeout, fence)
    }

    pub(super) fn beginning(&self) -> State {
        let (thread, lock_state, kept, beside) = (Thread::Idle, WRITES, None, Beside::Nothing);
        let seat = Seat { thread, lock_state, kept, beside, rounds: self.rounds, once: false };
        let process = Process {
            alive: true,
            inbox: true,
            elsewhere: false,
            lock_states: self.lock_states(),
            seats: vec![seat; self.threads.into()],
            sequence: 0,
            turns_before: None,
            came: None,
        };
        let mut processes = vec![process; self.processes.into()];
        for (p, process) in (0..).zip(&mut processes) {
            for (t, seat) in (0..).zip(&mut process.seats) {
                if self.role(p, t) == Some(Role::Away) {
                    seat.rounds = 0;
                }
            }
        }
        State {
            tick: 0,
            redis: self.redis(if self.behind { millis(TICK) << 16 } else { 0 }),
            processes,
            packets: Bag::default(),
            replies: Vec::new(),
            messages: Bag::default(),
            highest: 0,
            fell: false,
            jumped: false,
            bypassed: false,
            trusted: false,
            robbed: false,
            fell_back: false,
            overstayed: false,
            told: Bag::default(),
            writers: Vec::new(),
            left: self.faults.clone(),
        }
    }
}

impl State {
    pub(super) fn now(&self) -> Moment {
        at(self.tick)
    }

    /// The same, as Redis counts it.
    pub(super) fn millis(&self) -> u64 {
        millis(TICK) * u64::from(self.tick)
    }

    /// Nothing is on its way.
    pub(super) fn quiet(&self) -> bool {
        self.packets.is_empty() && self.replies.is_empty() && self.messages.is_empty()
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|p| p.alive)
    }

    /// The process of this owner is there to hear a message, at whatever server.
    pub(super) fn hears(&self, owner: u64) -> bool {
        self.processes.get(process_of(owner)).is_some_and(|p| p.inbox)
    }

    /// It listens at this server.
    pub(super) fn listens(&self, owner: u64) -> bool {
        self.processes.get(process_of(owner)).is_some_and(|p| p.inbox && !p.elsewhere)
    }

    /// Redis runs a request.
    pub(super) fn run(&mut self, world: &World, op: &Op) -> Reply {
        let now = self.millis();
        let before = self.redis.clone();
        let mut redis = self.redis.clone();
        let mut told = Vec::new();
        let listens = |owner| self.listens(owner);
        let reply = redis.run(op, now, &mut (listens, |message| told.push(message)));
        let end = now.saturating_add(world.waiter_timeout);
        let lasts = |m: &Message| m.is_grant() && redis.holder(m.owner).is_some_and(|h| h.end > end);
        self.trusted |= told.iter().any(lasts);
        let heard = |message: &Message| self.hears(message.owner);
        told.retain(heard);
        told.into_iter().for_each(|message| self.messages.insert(message));
        if world.never_silent() {
            redis.forget_when();
        }
        self.redis = redis;
        let known = |h: &Holder| before.holder(h.owner).is_some_and(|b| b.number == h.number);
        let came: Vec<Holder> = self.redis.holders().iter().filter(|h| !known(h)).copied().collect();
        for holder in came.iter().filter(|h| !op.passes(h.owner, &before)) {
            self.let_in(holder, op, &before);
        }
        if world.counts {
            self.count_from_here();
        }
        reply
    }

    /// Counts whom the grant to a newcomer, by `op`, passed by: of those who waited `before` and wait
    /// still.
    fn let_in(&mut self, newcomer: &Holder, op: &Op, before: &SmallRedis) {
        let Holder { owner, mode, .. } = *newcomer;
        let came = before.arrival(owner).unwrap_or_else(|| op.came(owner, before));
        let waits = |o: &u64| before.arrival(*o).is_some();
        let still: Vec<u64> = self.redis.waiting().filter(waits).collect();
        self.jumped |= still.iter().any(|o| self.redis.arrival(*o).is_some_and(|a| a < came));
        // Whatever the queue looks like: writers come first.
        let writes = |o: &u64| self.redis.queue.values().any(|p| p.owner == *o && p.mode == Mode::Write);
        self.jumped |= mode == Mode::Read && still.iter().any(writes);
        if mode != Mode::Plain {
            // A process has two places then, and one may pass the other.
            return;
        }
        let turns = self.processes.iter_mut().enumerate().filter(|(p, _)| *p != process_of(owner));
        for (_, process) in turns.filter(|(p, _)| still.iter().any(|o| process_of(*o) == *p)) {
            if let Some(left) = process.turns_before.as_mut().map(|turns| &mut turns[process_of(owner)]) {
                self.bypassed |= *left == 0;
                *left = left.saturating_sub(1);
            }
        }
    }

    /// A waiter that has a position now and had none counts from here.
    fn count_from_here(&mut self) {
        let waiting: Vec<usize> = self.redis.waiting().map(process_of).collect();
        let processes = self.processes.len();
        for (i, p) in waiting.iter().enumerate() {
            let ahead = (0..processes).map(|q| waiting[..i].contains(&q).into()).collect();
            self.processes[*p].turns_before.get_or_insert(ahead);
        }
        let queue = &self.redis.queue;
        self.writers.retain(|(owner, _)| queue.values().any(|p| p.owner == *owner));
        for place in queue.values().filter(|p| p.mode == Mode::Write) {
            if self.writers.iter().all(|(owner, _)| *owner != place.owner) {
                self.writers.push((place.owner, self.tick));
            }
        }
    }
}
