//! The state of a model.

use std::time::Duration;

use super::lock_states::LockStates;
use super::lock_states::WRITES;
use super::modes::{OtherMode, Role};
use super::signals::Signals;
use super::{LEASE, TICK, World, at};
use crate::clock::Moment;
use crate::engine::small_redis::{Message, Mode, Op, Reply, SmallRedis, millis};
use crate::engine::state::lock_state::{Asking, LockState, PendingRelease, Shape, Terms, Ticket};
use crate::kind::{Reentrancy, Sharing};

/// The thread that renews: it is not one of the callers.
pub(super) const RENEWER: u8 = u8::MAX;
/// Whichever thread reads the reply that a dropped guard did not wait for.
pub(super) const READER: u8 = u8::MAX - 1;

/// A set that takes little memory: millions of states are stored.
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

/// A request in flight, or one that its sender gave up on and that may still run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Packet {
    pub(super) process: u8,
    /// The thread that waits for the reply.
    pub(super) thread: Option<u8>,
    pub(super) op: Op,
    /// For a renewal, the tick of its sending, which the lock state does not know.
    pub(super) sent: u8,
    /// It was sent twice: the other copy may run as well.
    pub(super) resent: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Thread {
    Idle,
    /// In the waiting loop, about to take its turn.
    Awake(Ticket),
    Parked(Ticket, Moment),
    /// Waits for a reply. `later`: the request was sent without an inbox, and is not repeated at once.
    Asking {
        ticket: Ticket,
        owner: u64,
        later: bool,
    },
    Confirming(Ticket, u64),
    Holding(Ticket),
    /// Holds, and waits to learn whether later callers may share its grant.
    AskingAhead(Ticket, u64),
    /// Holds, and waits for the reply to its signal.
    Signalling(Ticket, u64),
    /// Waits for the reply to the leave of its hold.
    Releasing(PendingRelease, Option<Asking>),
    /// Waits for the reply to the leave of a kept grant, and to its own request that was sent with it.
    Making(Ticket, PendingRelease, Asking),
    /// Waits for the reply to a leave of the queue; then it waits on for the lock, if it has a ticket.
    LeavingQueue(PendingRelease, Option<Ticket>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Caller {
    pub(super) thread: Thread,
    /// The lock state that it is using.
    pub(super) lock_state: u8,
    /// Its hold on the other lock state meanwhile.
    pub(super) kept: Option<(u8, Ticket)>,
    pub(super) other_mode: OtherMode,
    /// How many steps of its plan are done.
    pub(super) done: u8,
    /// How often it will still acquire the lock.
    pub(super) rounds: u8,
    /// It makes a single attempt.
    pub(super) once: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Process {
    pub(super) alive: bool,
    pub(super) inbox: bool,
    /// Its inbox is at the former primary, and receives by replication what the present one publishes.
    pub(super) elsewhere: bool,
    pub(super) lock_states: LockStates,
    pub(super) callers: Vec<Caller>,
    pub(super) sequence: u64,
    /// A leave whose reply no thread waits for.
    pub(super) unread: Option<PendingRelease>,
    /// The owner whose request was sent behind that leave, on the same connection.
    pub(super) behind: Option<u64>,
    /// While it waits in Redis, how many grants each other process may get before it: one if that process was
    /// ahead of it.
    pub(super) turns_before: Option<Vec<u8>>,
    /// If silent positions are dropped: the last owner to which its arrival was reported, and that arrival.
    pub(super) came: Option<(u64, u64)>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    pub(super) tick: u8,
    pub(super) redis: SmallRedis,
    pub(super) processes: Vec<Process>,
    pub(super) packets: Bag<Packet>,
    /// Replies in flight, by process and thread.
    pub(super) replies: Vec<(Packet, Reply)>,
    pub(super) messages: Bag<Message>,
    pub(super) signals: Signals,
    pub(super) highest: u64,
    /// A token was not higher than the previous one.
    pub(super) fell: bool,
    /// An owner was admitted past a position that was ahead of it.
    pub(super) jumped: bool,
    /// A waiting process was passed by more often than allowed.
    pub(super) bypassed: bool,
    /// A waiter that learns of its grant only by a message was admitted for longer than a silent position
    /// lives.
    pub(super) trusted: bool,
    /// A downgrade that had not failed was reported as failed.
    pub(super) robbed: bool,
    /// A waiter that lost its position came back to a different one.
    pub(super) fell_back: bool,
    /// After its hand-off period, a grant was handed on, or joined past a waiting writer.
    pub(super) overstayed: bool,
    /// A wait for a condition reported that it has the lock, but it had not.
    pub(super) empty_handed: bool,
    /// The owners that know that their kept lock is wanted and, if `counts`, the shares that nobody else may
    /// join.
    pub(super) notified: Bag<u64>,
    /// If `counts`, the waiting writers, each with the tick since which it waits.
    pub(super) writers: Vec<(u64, u8)>,
    /// A request of a process arrived before a release that the same process had sent.
    pub(super) passed: bool,
    /// Redis has lost its data.
    pub(super) flushed: bool,
    pub(super) left: Faults,
}

/// How many faults of each kind may still happen.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Faults {
    pub(super) crashes: u8,
    /// A process dies while its connections stay open.
    pub(super) vanishes: u8,
    /// A waiting thread times out, or its token is cancelled.
    pub(super) time_outs: u8,
    /// A request, a reply or a message is lost or late, or arrives twice.
    pub(super) lost: u8,
    /// An inbox loses its connection.
    pub(super) breaks: u8,
    /// The primary fails over to a replica and lives on as a replica itself: its subscribers stay.
    pub(super) moves: u8,
    /// Redis loses its data.
    pub(super) flushes: u8,
    /// A thread makes a single attempt.
    pub(super) tries: u8,
    /// A guard is dropped, and does not wait for its reply.
    pub(super) drops: u8,
    pub(super) renewals: u8,
    /// An administrator ends the renewals of a hold.
    pub(super) revocations: u8,
}

/// Returns the process that an owner number belongs to.
pub(super) fn process_of(owner: u64) -> usize {
    (owner % 8) as usize
}

impl World {
    pub(super) fn shape(&self) -> Shape {
        let (sharing, reentrancy) = match self.permits {
            0 => (Sharing::Exclusive, Reentrancy::Counted),
            _ => (Sharing::Shared, Reentrancy::Independent),
        };
        let first_lease = Duration::from_millis(self.waiter_timeout.max(1_000));
        Shape { sharing, reentrancy, local_handoff: self.local_handoff, heartbeat: TICK, first_lease }
    }

    pub(super) fn lock_states(&self) -> LockStates {
        let second = Shape { sharing: Sharing::SharedPerProcess, ..self.shape() };
        LockStates::of(LockState::new(self.shape()), (!self.roles.is_empty()).then(|| LockState::new(second)))
    }

    /// Returns how many threads the `p`th process has.
    fn callers(&self, p: u8) -> u8 {
        self.plans.get(usize::from(p)).map_or(self.threads, |plans| plans.len() as u8)
    }

    pub(super) fn role(&self, p: u8, t: u8) -> Option<Role> {
        self.roles.get(usize::from(p * self.threads + t)).copied()
    }

    /// Returns the terms on which the `t`th thread of a process acquires through its lock state `g`.
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
        let priority = if self.priorities { [0, 1, -1][usize::from(t % 3)] } else { 0 };
        Terms { fixed: other, fair: self.fair, linger, priority, ..Terms::new(lease, mode.args()) }
    }

    /// Returns a Redis that is empty except for the last number, unless that is 0.
    pub(super) fn redis(&self, fence: u64) -> SmallRedis {
        if self.permits > 0 {
            return SmallRedis::semaphore(self.permits, self.waiter_timeout, fence);
        }
        let of = if self.roles.is_empty() { SmallRedis::new } else { SmallRedis::read_write };
        let mut redis = of(self.waiter_timeout, fence);
        // So that waiters grow old in a model in which time hardly passes.
        if self.never_silent() {
            redis.step = 2;
        }
        redis
    }

    pub(super) fn beginning(&self) -> State {
        let (thread, lock_state, kept, other_mode, done) =
            (Thread::Idle, WRITES, None, OtherMode::Nothing, 0);
        let caller = Caller { thread, lock_state, kept, other_mode, done, rounds: self.rounds, once: false };
        let process = |p| Process {
            alive: true,
            inbox: true,
            elsewhere: false,
            lock_states: self.lock_states(),
            callers: vec![caller.clone(); self.callers(p).into()],
            sequence: 0,
            unread: None,
            behind: None,
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
            notified: Bag::default(),
            writers: Vec::new(),
            passed: false,
            flushed: false,
            left: self.faults.clone(),
        }
    }
}

impl State {
    pub(super) fn now(&self) -> Moment {
        at(self.tick)
    }

    /// Returns the same time as Redis counts it.
    pub(super) fn millis(&self) -> u64 {
        millis(TICK) * u64::from(self.tick)
    }

    /// Whether the leave of this process that nobody waits for, or its reply, is in flight.
    pub(super) fn unread(&self, p: u8) -> bool {
        let mine = |packet: &Packet| (packet.process, packet.thread) == (p, Some(READER));
        self.packets.iter().any(mine) || self.replies.iter().any(|(packet, _)| mine(packet))
    }

    /// Whether this request comes behind one on the same connection that has not arrived yet.
    pub(super) fn is_behind(&self, packet: &Packet) -> bool {
        let first = |it: &Packet| (it.process, it.thread) == (packet.process, Some(READER));
        let behind = self.processes[packet.process as usize].behind;
        matches!(&packet.op, Op::Acquire(ask) if packet.thread.is_some() && behind == Some(ask.owner))
            && self.packets.iter().any(first)
    }

    /// Whether nothing is in flight.
    pub(super) fn quiet(&self) -> bool {
        self.packets.is_empty() && self.replies.is_empty() && self.messages.is_empty()
    }

    pub(super) fn live(&self) -> impl Iterator<Item = &Process> {
        self.processes.iter().filter(|p| p.alive)
    }

    /// Whether this owner's process can hear a message, at whichever server.
    pub(super) fn hears(&self, owner: u64) -> bool {
        self.processes.get(process_of(owner)).is_some_and(|p| p.inbox)
    }

    /// Whether it listens at this server.
    pub(super) fn listens(&self, owner: u64) -> bool {
        self.processes.get(process_of(owner)).is_some_and(|p| p.inbox && !p.elsewhere)
    }
}
