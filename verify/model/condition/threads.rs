//! What the threads of a process do with what their gates say: the engine's loops, in small. A gate is
//! that of the lock or, while its thread waits for a condition, the thread's own.

use std::time::Duration;

use super::World;
use super::state::{Answered, Packet, Process, Request, State, Thread};
use crate::engine::model::{TICK, at};
use crate::engine::small_redis::{Op, PendingAcquire, Reply, RoomOp, RoomReply, millis};
use crate::engine::state::lock_state::{
    AcquireMode, Answer, Effects, Exit, GaveUp, PendingRelease, Renewal, Step, Ticket,
};
use crate::observe::{AcquiredVia, LossReason};

/// The result of a request for its sender.
pub(super) enum Outcome {
    Reply(Answered),
    /// It may have run, now or later.
    Unanswered,
    /// Redis did not take it.
    Failed,
}

impl Outcome {
    fn answer(self) -> Answer {
        match self {
            Outcome::Reply(Answered::Lock(Reply::Acquired(answer))) => answer,
            Outcome::Reply(Answered::Room(RoomReply::Acquired(answer))) => answer,
            Outcome::Failed => Answer::Failed,
            _ => Answer::Unanswered,
        }
    }

    fn renewal(self) -> Renewal {
        match self {
            Outcome::Reply(Answered::Lock(Reply::Renewed(renewal))) => renewal,
            Outcome::Failed => Renewal::Failed,
            _ => Renewal::Unanswered,
        }
    }
}

pub(super) fn fresh(sequence: &mut u64, p: u8) -> u64 {
    *sequence += 1;
    *sequence * 8 + u64::from(p)
}

/// A leave without a next owner. `t`: the thread at whose gate of its own it is said.
fn leave(world: &World, t: Option<u8>, owner: u64, unsettled: bool) -> Request {
    match t {
        Some(t) => Request::Room(RoomOp::Quit { owner, condition: world.condition(t), unsettled }),
        None => Request::Lock(Op::Leave { owner, unsettled, next: None }),
    }
}

impl State {
    pub(super) fn process(&mut self, p: u8) -> &mut Process {
        &mut self.processes[p as usize]
    }

    /// What [`crate::engine::carry_out`] does. `t`: the thread at whose gate it was said, if that is not
    /// the lock's.
    pub(super) fn carry_out(
        &mut self,
        world: &World,
        p: u8,
        t: Option<u8>,
        then: Effects,
    ) -> Option<PendingRelease> {
        if let Some(ticket) = then.wake {
            self.wake(p, t, ticket);
        }
        if let Some(leaving) = then.background {
            self.background(world, p, t, &leaving);
        }
        then.leave
    }

    fn wake(&mut self, p: u8, t: Option<u8>, ticket: Ticket) {
        for (i, seat) in (0..).zip(&mut self.process(p).seats) {
            let here = if seat.stay.is_some() { t == Some(i) } else { t.is_none() };
            if here && matches!(seat.thread, Thread::Parked(at, _) if at == ticket) {
                seat.thread = Thread::Awake(ticket);
            }
        }
    }

    /// The renewal thread repeats it until it is answered.
    pub(super) fn background(&mut self, world: &World, p: u8, t: Option<u8>, leaving: &PendingRelease) {
        let request = leave(world, t, leaving.owner, true);
        self.packets.insert(Packet { process: p, thread: None, request, sent: 0, resent: false });
    }

    pub(super) fn set(&mut self, p: u8, t: u8, thread: Thread) {
        self.process(p).seats[t as usize].thread = thread;
    }

    /// The thread, where it is at a gate of its own.
    pub(super) fn alone(&self, p: u8, t: u8) -> Option<u8> {
        self.processes[p as usize].seats[t as usize].stay.is_some().then_some(t)
    }

    pub(super) fn send(&mut self, p: u8, t: u8, request: Request) {
        let sent = if matches!(request, Request::Lock(Op::Renew { .. })) { self.tick } else { 0 };
        self.packets.insert(Packet { process: p, thread: Some(t), request, sent, resent: false });
    }

    /// A thread leaves the queue for an owner that nobody wants, then is `after`.
    fn leave_queue(&mut self, world: &World, p: u8, t: u8, leaving: PendingRelease, after: Option<Ticket>) {
        let (owner, room) = (leaving.owner, self.alone(p, t));
        if leaving.unsettled {
            self.background(world, p, room, &leaving);
            let then = self.process(p).gate_of(t).left();
            self.go_on(world, p, t, then, after);
        } else {
            self.send(p, t, leave(world, room, owner, false));
            self.set(p, t, Thread::LeavingQueue(leaving, after));
        }
    }

    /// A thread that is through with Redis for now, with what its event asks for.
    pub(super) fn go_on(&mut self, world: &World, p: u8, t: u8, then: Effects, after: Option<Ticket>) {
        self.set(p, t, after.map_or(Thread::Idle, Thread::Awake));
        let room = self.alone(p, t);
        match self.carry_out(world, p, room, then) {
            Some(leaving) => self.leave_queue(world, p, t, leaving, after),
            None if after.is_none() && room.is_some() => self.returns(world, p, t, None),
            None => {}
        }
    }

    pub(super) fn give_up(&mut self, world: &World, p: u8, t: u8, ticket: Ticket) {
        let now = self.now();
        match self.process(p).gate_of(t).give_up(ticket, now) {
            GaveUp::In(acquired) => self.is_in(world, p, t, acquired.ticket),
            GaveUp::Out(then) => self.go_on(world, p, t, then, None),
        }
    }

    /// Redis is out of reach for good: what was granted meanwhile goes, as all else.
    pub(super) fn despair(&mut self, world: &World, p: u8, t: u8) {
        if let Thread::Awake(ticket) | Thread::Parked(ticket, _) =
            self.processes[p as usize].seats[t as usize].thread
        {
            self.give_up(world, p, t, ticket);
        }
    }

    fn is_in(&mut self, world: &World, p: u8, t: u8, ticket: Ticket) {
        if self.alone(p, t).is_some() {
            self.returns(world, p, t, Some(ticket));
        } else {
            self.set(p, t, Thread::Holding(ticket));
        }
    }

    /// A turn of the waiting loop. `over`: the thread's time is up; `failing`: where it has no
    /// inbox, it does not wait for one but makes an attempt.
    pub(super) fn turn(&mut self, world: &World, p: u8, t: u8, mut over: bool, failing: bool) {
        let now = self.now();
        let room = self.alone(p, t);
        let process = self.process(p);
        let (Thread::Awake(ticket) | Thread::Parked(ticket, _)) = process.seats[t as usize].thread else {
            return;
        };
        let (inbox, mut sequence) = (process.inbox, process.sequence);
        let lock_state = process.gate_of(t);
        let turns_back = over && lock_state.turns_back(now);
        over &= !turns_back;
        let turn = lock_state.turn(ticket, now, inbox, over, || fresh(&mut sequence, p));
        process.sequence = sequence;
        if let Some(stay) = &mut process.seats[t as usize].stay {
            stay.over |= turns_back;
        }
        match turn {
            Step::In(acquired, next) => {
                let valid = process.lock_state.look(acquired.owner).is_some_and(|t| t.loss(now).is_none());
                if valid && room.is_none() {
                    self.rises(acquired.token, acquired.way == AcquiredVia::HandedOver);
                }
                self.is_in(world, p, t, ticket);
                if let Some(next) = next {
                    self.wake(p, room, next);
                }
            }
            Step::Ask(asking) if asking.enqueues && !inbox && !(failing && room.is_none()) => {
                process.gate_of(t).postponed(asking.owner, now.after(TICK));
                self.set(p, t, Thread::Awake(ticket));
            }
            Step::Ask(asking) => {
                let later = asking.enqueues && !inbox;
                let how = if later { AcquireMode::Try } else { asking.how };
                let ask = PendingAcquire { how, ..PendingAcquire::from(&asking) };
                let request = match room {
                    Some(_) => self.awaits(world, t, PendingAcquire { arrival: None, ..ask }),
                    None => Request::Lock(Op::Acquire(ask)),
                };
                self.send(p, t, request);
                self.set(p, t, Thread::Asking { ticket, owner: asking.owner, later });
            }
            Step::Confirm(owner, lease) => {
                self.send(p, t, Request::Lock(Op::Renew { owner, lease: millis(lease) }));
                self.set(p, t, Thread::Confirming(ticket, owner));
            }
            Step::Leave(leaving) => self.leave_queue(world, p, t, leaving, Some(ticket)),
            Step::Park(until) => self.set(p, t, Thread::Parked(ticket, until)),
            Step::Busy | Step::Over | Step::Refused(_) | Step::Closed => self.give_up(world, p, t, ticket),
        }
    }

    /// A hold begins. One that was handed over began, as a token, when its predecessor ended.
    pub(super) fn rises(&mut self, token: u64, known: bool) {
        self.fell |= if known { token < self.highest } else { token <= self.highest };
        self.highest = self.highest.max(token);
    }

    pub(super) fn unlock(&mut self, world: &World, p: u8, t: u8) {
        let now = self.now();
        let process = self.process(p);
        let Thread::Holding(ticket) = process.seats[t as usize].thread else { return };
        let (inbox, mut sequence) = (process.inbox, process.sequence);
        let owner = process.lock_state.tenure_of(ticket).map(|t| t.owner);
        let exit = process.lock_state.exit(ticket, now, inbox, || fresh(&mut sequence, p));
        process.sequence = sequence;
        process.seats[t as usize].done = 0;
        match exit {
            Exit::Held | Exit::Shared => self.set(p, t, Thread::Idle),
            Exit::HandedOn(next) => {
                let token = owner.and_then(|o| process.lock_state.look(o)).map_or(0, |t| t.token());
                debug_assert!(!world.local_handoff.is_zero(), "a slice is over at once");
                self.rises(token, false);
                self.set(p, t, Thread::Idle);
                self.wake(p, None, next);
            }
            Exit::Lost(_, then) => self.go_on(world, p, t, then, None),
            Exit::Leave(leaving, next) => {
                let (owner, unsettled) = (leaving.owner, leaving.unsettled);
                let next_ask = next.as_ref().map(PendingAcquire::from);
                self.send(p, t, Request::Lock(Op::Leave { owner, unsettled, next: next_ask }));
                self.set(p, t, Thread::Releasing(leaving, next));
            }
        }
    }

    /// What came of `packet`, for the thread that waits for it.
    pub(super) fn hear(&mut self, world: &World, packet: &Packet, outcome: Outcome) {
        let (p, now) = (packet.process, self.now());
        let Some(t) = packet.thread else { return };
        let room = self.alone(p, t);
        let process = self.process(p);
        match process.seats[t as usize].thread.clone() {
            Thread::Asking { ticket, owner, later } => {
                let lock_state = process.gate_of(t);
                if packet.resent {
                    lock_state.unsettle(owner);
                }
                let then = lock_state.answered(owner, outcome.answer(), now);
                self.go_on(world, p, t, then, Some(ticket));
                if later {
                    self.process(p).gate_of(t).try_later(owner, now.after(TICK));
                }
            }
            Thread::Confirming(ticket, owner) => {
                let Request::Lock(Op::Renew { lease, .. }) = packet.request else { return };
                let lock_state = process.gate_of(t);
                if packet.resent {
                    lock_state.doubt(owner, at(packet.sent), Duration::from_millis(lease));
                }
                let then = lock_state.confirmed(owner, outcome.renewal(), now);
                self.go_on(world, p, t, then, Some(ticket));
            }
            Thread::Signalling(ticket, owner) => {
                let then = match outcome {
                    Outcome::Reply(Answered::Room(RoomReply::Signalled(None))) => {
                        process.lock_state.lose(owner, LossReason::Revoked, now)
                    }
                    _ => Effects::default(),
                };
                self.set(p, t, Thread::Holding(ticket));
                self.carry_out(world, p, None, then);
            }
            Thread::Releasing(leaving, next) => {
                let heard = matches!(outcome, Outcome::Reply(_));
                let then = next.map_or_else(Effects::default, |next| {
                    let answer = match outcome {
                        Outcome::Reply(Answered::Lock(Reply::Left { next: Some(answer), .. })) => answer,
                        Outcome::Unanswered => Answer::Unanswered,
                        _ => Answer::Failed,
                    };
                    if packet.resent {
                        process.lock_state.unsettle(next.owner);
                    }
                    process.lock_state.answered(next.owner, answer, now)
                });
                let left = process.lock_state.left();
                if !heard {
                    self.background(world, p, None, &leaving);
                }
                self.carry_out(world, p, None, left);
                self.go_on(world, p, t, then, None);
            }
            Thread::LeavingQueue(leaving, after) => {
                if !matches!(outcome, Outcome::Reply(_)) {
                    self.background(world, p, room, &leaving);
                }
                let then = self.process(p).gate_of(t).left();
                self.go_on(world, p, t, then, after);
            }
            _ => {}
        }
    }
}
