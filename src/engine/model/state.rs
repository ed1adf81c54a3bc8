//! What a model's state is made of, and what Redis does in it.

use super::{LEASE, TICK, World, at};
use crate::clock::Moment;
use crate::engine::gate::{Asking, Gate, Leaving, Shape, Terms, Ticket};
use crate::engine::small_redis::{Message, Op, Reply, SmallRedis, millis};
use crate::kind::{Reentry, Sharing};

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
    /// Who waits for the reply.
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
    /// Waits for the reply to the leave of its hold.
    Releasing(Leaving, Option<Asking>),
    /// Waits for the reply to a leave of the queue; then goes on waiting, if it did.
    LeavingQueue(Leaving, Option<Ticket>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    pub(super) thread: Thread,
    /// How often it will still take the lock.
    pub(super) rounds: u8,
    /// It makes one attempt.
    pub(super) once: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) alive: bool,
    pub(super) inbox: bool,
    pub(super) gate: Gate,
    pub(super) seats: Vec<Seat>,
    pub(super) sequence: u64,
    /// While it waits in Redis, how many tenures each other process may be granted before it: one
    /// if that one was ahead.
    pub(super) turns_before: Option<Vec<u8>>,
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
    /// A tenure was handed on after its slice.
    pub(super) overstayed: bool,
    pub(super) left: Faults,
}

/// How many of each may happen yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    pub(super) crashes: u8,
    /// A waiting thread's time is up, or its token is cancelled.
    pub(super) time_outs: u8,
    /// A request, a reply or a message is lost, late, or comes twice.
    pub(super) lost: u8,
    /// An inbox loses its connection.
    pub(super) breaks: u8,
    /// A thread makes one attempt.
    pub(super) tries: u8,
    pub(super) renewals: u8,
}

/// An owner number leads back to its process.
pub(super) fn process_of(owner: u64) -> usize {
    (owner % 8) as usize
}

impl World {
    pub(super) fn gate(&self) -> Gate {
        let (sharing, reentry) = (Sharing::Exclusive, Reentry::Count);
        Gate::new(Shape { sharing, reentry, slice: self.slice, beat: TICK })
    }

    /// On what terms the `t`th thread of a process asks.
    pub(super) fn terms(&self, t: u8) -> Terms {
        let other = self.terms_differ && t == 1;
        let lease = if other { TICK } else { TICK * LEASE };
        Terms { lease, fixed: other, fair: self.fair, args: "".into() }
    }

    pub(super) fn beginning(&self) -> State {
        let seat = Seat { thread: Thread::Idle, rounds: self.rounds, once: false };
        let process = Process {
            alive: true,
            inbox: true,
            gate: self.gate(),
            seats: vec![seat; self.threads.into()],
            sequence: 0,
            turns_before: None,
        };
        State {
            tick: 0,
            redis: SmallRedis::new(self.window, 0),
            processes: vec![process; self.processes.into()],
            packets: Bag::default(),
            replies: Vec::new(),
            messages: Bag::default(),
            highest: 0,
            fell: false,
            jumped: false,
            bypassed: false,
            overstayed: false,
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

    /// The process of this owner is there to hear a message.
    pub(super) fn hears(&self, owner: u64) -> bool {
        self.processes.get(process_of(owner)).is_some_and(|p| p.alive && p.inbox)
    }

    /// Redis runs a request.
    pub(super) fn run(&mut self, world: &World, op: &Op) -> Reply {
        let now = self.millis();
        let before = self.redis.clone();
        let mut redis = self.redis.clone();
        let mut told = Vec::new();
        let reply = redis.run(op, now, &mut |message| {
            let heard = self.hears(message.owner);
            if heard {
                told.push(message);
            }
            heard
        });
        told.into_iter().for_each(|message| self.messages.insert(message));
        if world.never_silent() {
            redis.forget_when();
        }
        self.redis = redis;
        if let Some(holder) = self.redis.holder.filter(|h| h.number > before.fence) {
            let came = before.arrival(holder.owner).or(op.arrival(holder.owner)).unwrap_or(u64::MAX);
            self.let_in(holder.owner, came, &before);
        }
        if world.counts {
            self.count_from_here();
        }
        reply
    }

    /// Counts whom the grant to `owner`, who `came` then, passed by: of those who waited `before`
    /// and wait still.
    fn let_in(&mut self, owner: u64, came: u64, before: &SmallRedis) {
        let waits = |o: &u64| before.arrival(*o).is_some();
        let still: Vec<u64> = self.redis.waiting().filter(waits).collect();
        self.jumped |= still.iter().any(|o| self.redis.arrival(*o).is_some_and(|a| a < came));
        let turns = self.processes.iter_mut().enumerate().filter(|(p, _)| *p != process_of(owner));
        for (_, process) in turns.filter(|(p, _)| still.iter().any(|o| process_of(*o) == *p)) {
            if let Some(left) = process.turns_before.as_mut().map(|turns| &mut turns[process_of(owner)]) {
                self.bypassed |= *left == 0;
                *left = left.saturating_sub(1);
            }
        }
    }

    /// Who has a place now and had none counts from here.
    fn count_from_here(&mut self) {
        let waiting: Vec<usize> = self.redis.waiting().map(process_of).collect();
        let processes = self.processes.len();
        for (i, p) in waiting.iter().enumerate() {
            let ahead = (0..processes).map(|q| waiting[..i].contains(&q).into()).collect();
            self.processes[*p].turns_before.get_or_insert(ahead);
        }
    }
}
