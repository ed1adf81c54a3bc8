//! What a model's state is made of.

use super::lock_states::LockStates;
use super::lock_states::WRITES;
use super::modes::{Beside, Role};
use super::signals::Signals;
use super::{LEASE, TICK, World, at};
use crate::clock::Moment;
use crate::engine::small_redis::{Message, Mode, Op, Reply, SmallRedis, millis};
use crate::engine::state::lock_state::{Asking, LockState, PendingRelease, Shape, Terms, Ticket};
use crate::kind::{Reentrancy, Sharing};

/// The thread that renews: it is none of the callers.
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
    /// The tick, where the lock state does not know it: of a renewal.
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
    /// It holds, and waits for the reply to what it asks for later callers.
    AskingAhead(Ticket, u64),
    /// It holds, and waits for the reply to its signal.
    Signalling(Ticket, u64),
    /// Waits for the reply to the leave of its hold.
    Releasing(PendingRelease, Option<Asking>),
    /// Waits for the reply to the leave of what was kept, and to its own request that went with it.
    Making(Ticket, PendingRelease, Asking),
    /// Waits for the reply to a leave of the queue; then goes on waiting, if it did.
    LeavingQueue(PendingRelease, Option<Ticket>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub(super) thread: Thread,
    /// The lock state that this is about.
    pub(super) lock_state: u8,
    /// What it holds of the other lock state meanwhile.
    pub(super) kept: Option<(u8, Ticket)>,
    pub(super) beside: Beside,
    /// How much of its plan is done.
    pub(super) done: u8,
    /// How often it will still take the lock.
    pub(super) rounds: u8,
    /// It makes one attempt.
    pub(super) once: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) alive: bool,
    pub(super) inbox: bool,
    /// Its inbox is at a server that was the primary, and hears what this one says by replication.
    pub(super) elsewhere: bool,
    pub(super) lock_states: LockStates,
    pub(super) callers: Vec<Caller>,
    pub(super) sequence: u64,
    /// While it waits in Redis, how many grants each other process may get before it: one
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
    pub(super) signals: Signals,
    pub(super) highest: u64,
    /// A token was not higher than the one before.
    pub(super) fell: bool,
    /// Somebody was let in past a position that was ahead of it.
    pub(super) jumped: bool,
    /// A process that waited was passed by more often than it may be.
    pub(super) bypassed: bool,
    /// A waiter that only a message tells was let in for longer than a silent position lives.
    pub(super) trusted: bool,
    /// A downgrade was said to have failed that had not.
    pub(super) robbed: bool,
    /// A waiter that lost its position came back to another.
    pub(super) fell_back: bool,
    /// A grant was handed on, or took others in past a writer that waited, after its hand-off period.
    pub(super) overstayed: bool,
    /// A wait for a condition said that it has the lock, and had not.
    pub(super) empty_handed: bool,
    /// Where that counts, the shares that were told to take nobody else in.
    pub(super) told: Bag<u64>,
    /// And the writers that wait, and since which tick.
    pub(super) writers: Vec<(u64, u8)>,
    /// Redis has lost its data.
    pub(super) flushed: bool,
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
    /// Redis loses its data.
    pub(super) flushes: u8,
    /// A thread makes one attempt.
    pub(super) tries: u8,
    pub(super) renewals: u8,
}

/// An owner number leads back to its process.
pub(super) fn process_of(owner: u64) -> usize {
    (owner % 8) as usize
}

impl World {
    pub(super) fn shape(&self) -> Shape {
        let (sharing, reentrancy) = match self.permits {
            0 => (Sharing::Exclusive, Reentrancy::Counted),
            _ => (Sharing::Shared, Reentrancy::Independent),
        };
        Shape { sharing, reentrancy, local_handoff: self.local_handoff, heartbeat: TICK }
    }

    pub(super) fn lock_states(&self) -> LockStates {
        let second = Shape { sharing: Sharing::SharedPerProcess, ..self.shape() };
        LockStates::of(LockState::new(self.shape()), (!self.roles.is_empty()).then(|| LockState::new(second)))
    }

    /// How many threads the `p`th process has.
    fn callers(&self, p: u8) -> u8 {
        self.plans.get(usize::from(p)).map_or(self.threads, |plans| plans.len() as u8)
    }

    pub(super) fn role(&self, p: u8, t: u8) -> Option<Role> {
        self.roles.get(usize::from(p * self.threads + t)).copied()
    }

    /// On what terms the `t`th thread of a process asks its lock state `g`.
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
        let linger = (TICK * u32::from(self.linger)).into();
        Terms { fixed: other, fair: self.fair, linger, ..Terms::new(lease, mode.args()) }
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
        let (thread, lock_state, kept, beside, done) = (Thread::Idle, WRITES, None, Beside::Nothing, 0);
        let caller = Caller { thread, lock_state, kept, beside, done, rounds: self.rounds, once: false };
        let process = |p| Process {
            alive: true,
            inbox: true,
            elsewhere: false,
            lock_states: self.lock_states(),
            callers: vec![caller.clone(); self.callers(p).into()],
            sequence: 0,
            turns_before: None,
            came: None,
        };
        let mut processes: Vec<Process> = (0..self.processes).map(process).collect();
        for (p, process) in (0..).zip(&mut processes) {
            for (t, caller) in (0..).zip(&mut process.callers) {
                if self.others_once && p > 0 {
                    caller.rounds = 1;
                }
                if self.role(p, t) == Some(Role::Away) {
                    caller.rounds = 0;
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
            signals: Signals::default(),
            highest: 0,
            fell: false,
            jumped: false,
            bypassed: false,
            trusted: false,
            robbed: false,
            fell_back: false,
            overstayed: false,
            empty_handed: false,
            told: Bag::default(),
            writers: Vec::new(),
            flushed: false,
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
}
