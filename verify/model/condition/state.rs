//! What a model's state is made of, and what Redis does in it.

use super::World;
use super::signals::Signals;
use crate::clock::Moment;
use crate::engine::model::state::{Bag, Faults, process_of};
use crate::engine::model::{LEASE, TICK, at};
use crate::engine::small_redis::{Message, Op, Reply, RoomOp, RoomReply, SmallRedis, millis};
use crate::engine::state::lock_state::{
    Asking, LockState, PendingRelease, Shape, SuspendedHold, Terms, Ticket,
};
use crate::kind::{Reentrancy, Sharing};

/// A request to the lock's scripts, or to those of its conditions.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Request {
    Lock(Op),
    Room(RoomOp),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Answered {
    Lock(Reply),
    Room(RoomReply),
}

/// A request on its way, or what is left of one whose sender gave up on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Packet {
    pub(super) process: u8,
    /// The thread that waits for the reply.
    pub(super) thread: Option<u8>,
    pub(super) request: Request,
    /// When a renewal was sent, which the gate does not know.
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
    /// Waits for the reply to its signal.
    Signalling(Ticket, u64),
    /// Waits for the reply to the leave of its hold.
    Releasing(PendingRelease, Option<Asking>),
    /// Waits for the reply to a leave of the queue; then goes on waiting, if it did.
    LeavingQueue(PendingRelease, Option<Ticket>),
}

/// A thread's wait for a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Stay {
    pub(super) lock_state: LockState,
    /// The hold that it gave up.
    pub(super) suspended: SuspendedHold,
    pub(super) hold: Ticket,
    /// Its time is over: it waits for the lock.
    pub(super) over: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Seat {
    pub(super) thread: Thread,
    pub(super) stay: Option<Box<Stay>>,
    /// How much of its plan is done.
    pub(super) done: u8,
    /// How often it will still follow it.
    pub(super) rounds: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) alive: bool,
    pub(super) inbox: bool,
    /// The lock's.
    pub(super) lock_state: LockState,
    pub(super) seats: Vec<Seat>,
    pub(super) sequence: u64,
}

impl Process {
    /// The gate that a thread is at.
    pub(super) fn gate_of(&mut self, thread: u8) -> &mut LockState {
        match &mut self.seats[thread as usize].stay {
            Some(stay) => &mut stay.lock_state,
            None => &mut self.lock_state,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) tick: u8,
    pub(super) redis: SmallRedis,
    pub(super) processes: Vec<Process>,
    pub(super) packets: Bag<Packet>,
    /// Replies on their way, by process and thread.
    pub(super) replies: Vec<(Packet, Answered)>,
    pub(super) messages: Bag<Message>,
    pub(super) signals: Signals,
    pub(super) highest: u64,
    /// A token was not higher than the one before.
    pub(super) fell: bool,
    /// Somebody was let in past a place that was ahead of it.
    pub(super) jumped: bool,
    /// A wait said that it has the lock, and had not.
    pub(super) empty_handed: bool,
    pub(super) left: Faults,
}

impl World {
    pub(super) fn shape(&self) -> Shape {
        let (sharing, reentrancy) = (Sharing::Exclusive, Reentrancy::Counted);
        Shape { sharing, reentrancy, local_handoff: self.local_handoff, beat: TICK }
    }

    pub(super) fn terms(&self) -> Terms {
        Terms::new(TICK * LEASE, "")
    }

    pub(super) fn beginning(&self) -> State {
        let seat = Seat { thread: Thread::Idle, stay: None, done: 0, rounds: self.rounds };
        let process = |plans: &super::Plans| Process {
            alive: true,
            inbox: true,
            lock_state: LockState::new(self.shape()),
            seats: vec![seat.clone(); plans.len()],
            sequence: 0,
        };
        State {
            tick: 0,
            redis: SmallRedis::new(self.waiter_timeout, 0),
            processes: self.plans.iter().map(process).collect(),
            packets: Bag::default(),
            replies: Vec::new(),
            messages: Bag::default(),
            signals: Signals::default(),
            highest: 0,
            fell: false,
            jumped: false,
            empty_handed: false,
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
        self.processes.get(process_of(owner)).is_some_and(|p| p.inbox)
    }

    /// Redis runs a request.
    pub(super) fn run(&mut self, world: &World, request: &Request) -> Answered {
        let now = self.millis();
        let before = self.redis.clone();
        let mut redis = self.redis.clone();
        let mut told = Vec::new();
        let mut tell = (|owner| self.hears(owner), |message| told.push(message));
        let answered = match request {
            Request::Lock(op) => Answered::Lock(redis.run(op, now, &mut tell)),
            Request::Room(op) => Answered::Room(redis.run_room(op, now, &mut tell)),
        };
        told.retain(|message: &Message| self.hears(message.owner));
        told.into_iter().for_each(|message| self.messages.insert(message));
        if world.never_silent() {
            redis.forget_when();
        }
        self.redis = redis;
        if let Some(holder) = self.redis.holders().first().filter(|h| h.number > before.fence) {
            self.jumped |= self.jumps(holder.owner, request, &before);
        }
        let reachable: Vec<u64> = self.reachable(&before).collect();
        self.signals.run(request, &before, &self.redis, &reachable);
        answered
    }

    /// Whether the grant to `owner` passed by any of those who waited `before` and wait still.
    fn jumps(&self, owner: u64, request: &Request, before: &SmallRedis) -> bool {
        let asked = match request {
            Request::Lock(op) => op.came(owner, before),
            Request::Room(_) => u64::MAX,
        };
        // The waiter that was signalled just now, for one that went without the lock, has the position of
        // that one.
        let waits = matches!(request, Request::Room(RoomOp::Await { ask, .. }) if ask.owner == owner);
        let inherits = waits || before.room.places.contains_key(&owner);
        let gone = before.queue.iter().find(|(_, p)| self.redis.arrival(p.owner).is_none());
        let inherited = gone.filter(|_| inherits).map(|(arrival, _)| *arrival);
        let came = before.arrival(owner).or(inherited).unwrap_or(asked);
        let mut still = self.redis.waiting().filter(|o| before.arrival(*o).is_some());
        still.any(|o| self.redis.arrival(o).is_some_and(|a| a < came))
    }

    /// The waiters that a signal could reach `before`: those in a process that hears, and not taken for dead.
    fn reachable(&self, before: &SmallRedis) -> impl Iterator<Item = u64> {
        let now = self.millis();
        self.signals.waiting().filter(move |owner| self.hears(*owner) && !before.is_dead(*owner, now))
    }
}
