//! What the threads of a process do with the decisions of their lock state: the engine's loops, in small.

use std::time::Duration;

use super::lock_states::{READS, WRITES, is_own};
use super::state::{Packet, READER, RENEWER, State, Thread, process_of};
use super::{TICK, World, at};
use crate::engine::small_redis::{Op, PendingAcquire, Reply, millis};
use crate::engine::state::lock_state::{
    AcquireMode, Answer, Asking, Effects, Exit, GaveUp, LockState, PendingRelease, Renewal, Step, Ticket,
};
use crate::observe::{AcquiredVia, LossReason};

/// The outcome of a request, as its sender sees it.
pub(super) enum Outcome {
    Reply(Reply),
    /// It may have run, or may run later.
    Unanswered,
    /// Redis did not accept it.
    Failed,
}

fn answer(outcome: Outcome) -> Answer {
    match outcome {
        Outcome::Reply(Reply::Acquired(answer)) => answer,
        Outcome::Failed => Answer::Failed,
        _ => Answer::Unanswered,
    }
}

fn renewal(outcome: Outcome) -> Renewal {
    match outcome {
        Outcome::Reply(Reply::Renewed(renewal)) => renewal,
        Outcome::Failed => Renewal::Failed,
        _ => Renewal::Unanswered,
    }
}

fn fresh(sequence: &mut u64, p: u8) -> u64 {
    *sequence += 1;
    *sequence * 8 + u64::from(p)
}

impl State {
    /// Does what [`crate::engine::operations::effects::carry_out`] does.
    pub(super) fn carry_out(&mut self, p: u8, g: u8, then: Effects) -> Option<PendingRelease> {
        if let Some(ticket) = then.wake {
            self.wake(p, g, ticket);
        }
        if let Some(leaving) = then.background {
            self.background(p, g, &leaving);
        }
        then.leave
    }

    pub(super) fn wake(&mut self, p: u8, g: u8, ticket: Ticket) {
        for caller in self.processes[p as usize].callers.iter_mut().filter(|caller| caller.lock_state == g) {
            if let Thread::Parked(t, _) = caller.thread
                && t == ticket
            {
                caller.thread = Thread::Awake(ticket);
            }
        }
    }

    /// Returns a leave from this lock state, without a request for a next owner.
    fn leave(&self, p: u8, g: u8, owner: u64, maybe_in_flight: bool) -> Op {
        match self.processes[p as usize].lock_states.wait(g) {
            Some(wait) => Op::Quit { owner, condition: wait.condition, maybe_in_flight },
            None => Op::Leave { owner, maybe_in_flight, next: None },
        }
    }

    /// Sends a leave in the background: the renewal thread repeats it until it is answered.
    pub(super) fn background(&mut self, p: u8, g: u8, leaving: &PendingRelease) {
        let op = self.leave(p, g, leaving.owner, true);
        self.packets.insert(Packet { process: p, thread: None, op, sent: 0, resent: false });
    }

    /// Sends the leave of a kept grant, as the listener or a reader does. No thread waits for the reply; in
    /// this model, a thread of the process may send a request before it arrives.
    pub(super) fn let_go(&mut self, p: u8, g: u8, leaving: &PendingRelease) {
        let op = self.leave(p, g, leaving.owner, leaving.maybe_in_flight);
        self.packets.insert(Packet { process: p, thread: None, op, sent: 0, resent: false });
        let then = self.lock_state(p, g).left();
        self.carry_out(p, g, then);
    }

    /// The inbox of a process breaks, and everything that it had not read is lost.
    pub(super) fn inbox_breaks(&mut self, p: u8) {
        let now = self.now();
        self.processes[p as usize].inbox = false;
        self.messages.retain(|message| process_of(message.owner) != p as usize);
        for g in self.processes[p as usize].lock_states.numbers() {
            let then = self.lock_state(p, g).deaf(now);
            self.carry_out(p, g, then);
        }
    }

    pub(super) fn set(&mut self, p: u8, t: u8, thread: Thread) {
        self.processes[p as usize].callers[t as usize].thread = thread;
    }

    fn lock_state(&mut self, p: u8, g: u8) -> &mut LockState {
        &mut self.processes[p as usize].lock_states[g]
    }

    pub(super) fn send(&mut self, p: u8, t: u8, op: Op) {
        let sent = if matches!(op, Op::Renew { .. }) { self.tick } else { 0 };
        self.packets.insert(Packet { process: p, thread: Some(t), op, sent, resent: false });
    }

    /// A thread leaves the queue for an owner that nobody needs, and then continues as `after`.
    fn leave_queue(&mut self, p: u8, t: u8, leaving: PendingRelease, after: Option<Ticket>) {
        let g = self.gate_of(p, t);
        if leaving.maybe_in_flight {
            self.background(p, g, &leaving);
            let then = self.lock_state(p, g).left();
            self.go_on(p, t, then, after);
        } else {
            self.send(p, t, self.leave(p, g, leaving.owner, false));
            self.set(p, t, Thread::LeavingQueue(leaving, after));
        }
    }

    /// A thread is done with Redis for now, and carries out the effects of its event.
    fn go_on(&mut self, p: u8, t: u8, then: Effects, after: Option<Ticket>) {
        let g = self.gate_of(p, t);
        self.set(p, t, after.map_or(Thread::Idle, Thread::Awake));
        match self.carry_out(p, g, then) {
            Some(leaving) => self.leave_queue(p, t, leaving, after),
            None if after.is_none() => self.rest(p, t),
            None => {}
        }
    }

    /// Returns the lock state that a thread is using.
    pub(super) fn gate_of(&self, p: u8, t: u8) -> u8 {
        self.processes[p as usize].callers[t as usize].lock_state
    }

    fn give_up(&mut self, p: u8, t: u8, ticket: Ticket) {
        let (now, g) = (self.now(), self.gate_of(p, t));
        match self.lock_state(p, g).give_up(ticket, now) {
            GaveUp::In(acquired) if is_own(g) => self.returns(p, t, Some(acquired.ticket)),
            GaveUp::In(acquired) => self.set(p, t, Thread::Holding(acquired.ticket)),
            GaveUp::Out(then) => self.go_on(p, t, then, None),
        }
    }

    /// Redis stays unreachable for good: what was granted meanwhile is given up, like everything else.
    pub(super) fn despair(&mut self, p: u8, t: u8) {
        if let Thread::Awake(ticket) | Thread::Parked(ticket, _) =
            self.processes[p as usize].callers[t as usize].thread
        {
            self.give_up(p, t, ticket);
        }
    }

    /// Takes a turn of the waiting loop. `over`: the thread's timeout has passed. `failing`: without an
    /// inbox, it makes an attempt instead of waiting for one.
    pub(super) fn turn(&mut self, world: &World, p: u8, t: u8, mut over: bool, failing: bool) {
        let (now, g) = (self.now(), self.gate_of(p, t));
        let process = &mut self.processes[p as usize];
        let (Thread::Awake(ticket) | Thread::Parked(ticket, _)) = process.callers[t as usize].thread else {
            return;
        };
        let (inbox, mut sequence) = (process.inbox, process.sequence);
        let lock_state = &mut process.lock_states[g];
        // A thread that was waiting for a condition goes on to wait for the lock.
        let turns_back = over && lock_state.turns_back(now);
        over &= !turns_back;
        let mut turn = lock_state.turn(ticket, now, inbox, over, || fresh(&mut sequence, p));
        if let Step::Behind(until) = turn {
            // The second thread of a process finds the connection in use by another thread.
            turn = if process.unread.is_some() && t == 0 {
                lock_state.goes_behind();
                let turn = lock_state.turn(ticket, now, inbox, over, || fresh(&mut sequence, p));
                process.behind = if let Step::Ask(asking) = &turn { Some(asking.owner) } else { None };
                turn
            } else {
                Step::Park(until)
            };
        }
        if let Step::Ask(Asking { from: None, .. }) = turn
            && g == READS
            && sequence > process.sequence
        {
            self.overstayed |= process.lock_states[WRITES].waits_unknown(now);
        }
        process.sequence = sequence;
        if let Some(wait) = process.lock_states.wait_mut(g) {
            wait.over |= turns_back;
        }
        match turn {
            Step::In(acquired, None) if is_own(g) => self.returns(p, t, Some(acquired.ticket)),
            Step::In(acquired, next) => {
                (process.turns_before, process.came) = (None, None);
                let valid =
                    process.lock_states[g].grant(acquired.owner).is_some_and(|t| t.loss(now).is_none());
                // Several permits can be acquired at once, and the later grant may become known sooner.
                if valid && acquired.ticket == ticket && g == WRITES && world.permits == 0 {
                    self.rises(acquired.token, acquired.via == AcquiredVia::HandedOff);
                }
                self.holds(world, p, t, &acquired);
                if let Some(next) = next {
                    self.wake(p, g, next);
                }
            }
            Step::Ask(asking) if asking.enqueues() && !inbox && !failing => {
                process.lock_states[g].postponed(asking.owner, now.after(TICK));
                self.set(p, t, Thread::Awake(ticket));
            }
            Step::Ask(asking) => {
                let later = asking.enqueues() && !inbox;
                let how = if later { AcquireMode::Try } else { asking.how };
                let ask = PendingAcquire { how, ..PendingAcquire::from(&asking) };
                let op = match process.lock_states.wait(g) {
                    Some(wait) => {
                        Op::Await { ask: PendingAcquire { arrival: None, ..ask }, condition: wait.condition }
                    }
                    None => Op::Acquire(ask),
                };
                self.send(p, t, op);
                self.set(p, t, Thread::Asking { ticket, owner: asking.owner, later });
            }
            Step::Confirm(owner, lease) => {
                self.send(p, t, Op::Renew { owner, lease: millis(lease) });
                self.set(p, t, Thread::Confirming(ticket, owner));
            }
            Step::Leave(leaving) => self.leave_queue(p, t, leaving, Some(ticket)),
            Step::LeaveAndAsk(leaving, next) => {
                let (owner, maybe_in_flight) = (leaving.owner, leaving.maybe_in_flight);
                self.send(p, t, Op::Leave { owner, maybe_in_flight, next: Some((&next).into()) });
                self.set(p, t, Thread::Making(ticket, leaving, next));
            }
            Step::Park(until) | Step::Behind(until) => self.set(p, t, Thread::Parked(ticket, until)),
            Step::Busy | Step::GiveUp | Step::Refused(_) | Step::Closed => self.give_up(p, t, ticket),
        }
    }

    /// A thread that has joined a share asks whether others may, and waits for the reply.
    pub(super) fn asks_ahead(&mut self, p: u8, t: u8, ticket: Ticket, asking: &Asking) {
        self.send(p, t, Op::Acquire(PendingAcquire::from(asking)));
        self.set(p, t, Thread::AskingAhead(ticket, asking.owner));
    }

    /// A hold begins. The token of a hold that was handed off began when its predecessor ended.
    pub(super) fn rises(&mut self, token: u64, known: bool) {
        // A kept grant begins holds until its process notices that Redis has lost its data, as tokens show.
        let fell = if known { token < self.highest } else { token <= self.highest };
        self.fell |= fell && !self.flushed;
        self.highest = self.highest.max(token);
    }

    /// `drops`: nobody waits for the reply, if nobody has to.
    pub(super) fn unlock(&mut self, world: &World, p: u8, t: u8, drops: bool) {
        let (now, g) = (self.now(), self.gate_of(p, t));
        let process = &mut self.processes[p as usize];
        let Thread::Holding(ticket) = process.callers[t as usize].thread else { return };
        let (inbox, mut sequence) = (process.inbox, process.sequence);
        process.callers[t as usize].done = 0;
        let lock_state = &mut process.lock_states[g];
        let grant = lock_state
            .owners()
            .into_iter()
            .find_map(|o| lock_state.grant(o).filter(|t| t.lost().is_none()).cloned());
        let exit = lock_state.exit(ticket, now, inbox, || fresh(&mut sequence, p));
        process.sequence = sequence;
        match exit {
            Exit::Held | Exit::Shared | Exit::Kept(..) => self.rest(p, t),
            Exit::HandedOn(next) => {
                if let Some(grant) = grant {
                    // A kept grant has its hand-off period from the moment at which it was wanted, and none
                    // before.
                    let since = grant.keep().map_or(grant.since, |keep| keep.wanted.unwrap_or(now));
                    let since = since.max(grant.since);
                    let over = now.since(since) >= world.local_handoff && since != now;
                    self.overstayed |= over || world.fair;
                    let token = process.lock_states[g].grant(grant.owner).map_or(0, |t| t.token());
                    self.rises(token, false);
                }
                self.rest(p, t);
                self.wake(p, g, next);
            }
            Exit::Lost(_, then) => self.go_on(p, t, then, None),
            Exit::Leave(leaving, None) if drops && process.lock_states[g].leaves_unread() => {
                let op = self.leave(p, g, leaving.owner, leaving.maybe_in_flight);
                self.send(p, READER, op);
                self.processes[p as usize].unread = Some(leaving);
                self.rest(p, t);
            }
            Exit::Leave(leaving, next) => {
                let (owner, maybe_in_flight) = (leaving.owner, leaving.maybe_in_flight);
                self.send(
                    p,
                    t,
                    Op::Leave { owner, maybe_in_flight, next: next.as_ref().map(PendingAcquire::from) },
                );
                self.set(p, t, Thread::Releasing(leaving, next));
            }
        }
    }

    /// Delivers the outcome of `packet` to the thread that waits for it.
    pub(super) fn hear(&mut self, world: &World, packet: &Packet, outcome: Outcome) {
        let (p, now) = (packet.process, self.now());
        let Some(t) = packet.thread else { return };
        if t == RENEWER {
            return self.hear_renewal(packet, outcome);
        }
        if t == READER {
            return self.hear_unread(p, outcome);
        }
        let g = self.gate_of(p, t);
        let process = &mut self.processes[p as usize];
        let once = process.callers[t as usize].once;
        match process.callers[t as usize].thread.clone() {
            Thread::Asking { ticket, owner, later } => {
                let answer = answer(outcome);
                if process.behind == Some(owner) {
                    process.behind = None;
                }
                if packet.resent {
                    process.lock_states[g].unsettle(owner);
                }
                let counts = self.redis.forgets() && !world.has_conditions();
                if let (true, Answer::Busy { arrival, .. }) = (counts, &answer)
                    && let Ok(arrival) = arrival.parse()
                {
                    let before = process.came.replace((owner, arrival));
                    self.fell_back |= before.is_some_and(|(o, a)| o == owner && a != arrival);
                }
                let failed = matches!(answer, Answer::Unanswered | Answer::Failed);
                let then = process.lock_states[g].answered(owner, answer, now);
                self.go_on(p, t, then, Some(ticket));
                if failed && once {
                    self.give_up(p, t, ticket);
                } else if later {
                    self.lock_state(p, g).try_later(owner, now.after(TICK));
                }
            }
            Thread::AskingAhead(ticket, owner) => {
                let then = process.lock_states[g].answered(owner, answer(outcome), now);
                self.set(p, t, Thread::Holding(ticket));
                self.carry_out(p, g, then);
            }
            Thread::Signalling(ticket, owner) => {
                let then = match outcome {
                    Outcome::Reply(Reply::Signalled(None)) => {
                        process.lock_states[g].lose(owner, LossReason::Revoked, now)
                    }
                    _ => Effects::default(),
                };
                self.set(p, t, Thread::Holding(ticket));
                self.carry_out(p, g, then);
            }
            Thread::Confirming(ticket, owner) => {
                let renewal = renewal(outcome);
                if packet.resent {
                    self.doubt(packet);
                }
                let then = self.lock_state(p, g).confirmed(owner, renewal, now);
                self.go_on(p, t, then, Some(ticket));
            }
            Thread::Making(ticket, leaving, next) => {
                let replied = matches!(outcome, Outcome::Reply(_));
                let then = self.left_with_next(packet, outcome, &next);
                if !replied {
                    self.background(p, g, &leaving);
                }
                self.go_on(p, t, then, Some(ticket));
            }
            Thread::Releasing(leaving, next) => {
                let replied = matches!(outcome, Outcome::Reply(_));
                let then = match next {
                    Some(next) => self.left_with_next(packet, outcome, &next),
                    None => self.lock_state(p, g).left(),
                };
                if !replied {
                    self.background(p, g, &leaving);
                }
                self.go_on(p, t, then, None);
            }
            Thread::LeavingQueue(leaving, after) => {
                if !matches!(outcome, Outcome::Reply(_)) {
                    self.background(p, g, &leaving);
                }
                let then = self.lock_state(p, g).left();
                self.go_on(p, t, then, after);
            }
            _ => {}
        }
    }

    /// The reply that a dropped guard did not wait for was read, or did not come.
    fn hear_unread(&mut self, p: u8, outcome: Outcome) {
        let Some(leaving) = self.processes[p as usize].unread.take() else { return };
        if !matches!(outcome, Outcome::Reply(_)) {
            self.background(p, WRITES, &leaving);
        }
        let then = self.lock_state(p, WRITES).left();
        self.carry_out(p, WRITES, then);
    }

    /// A leave and the request sent with it were answered, or were not.
    fn left_with_next(&mut self, packet: &Packet, outcome: Outcome, next: &Asking) -> Effects {
        let (p, now) = (packet.process, self.now());
        let g = packet.thread.map_or(0, |t| self.gate_of(p, t));
        let answer = match outcome {
            Outcome::Reply(Reply::Left { next: Some(answer), .. }) => answer,
            Outcome::Unanswered => Answer::Unanswered,
            _ => Answer::Failed,
        };
        if packet.resent {
            self.lock_state(p, g).unsettle(next.owner);
        }
        let then = self.lock_state(p, g).answered(next.owner, answer, now);
        let left = self.lock_state(p, g).left();
        self.carry_out(p, g, left);
        then
    }

    /// The renewal thread renews the grant of `owner`.
    pub(super) fn renew(&mut self, p: u8, owner: u64) {
        let now = self.now();
        let lock_states = &self.processes[p as usize].lock_states;
        let Some(grant) = lock_states.iter().find_map(|lock_state| lock_state.grant(owner)) else { return };
        let lease = millis(grant.renewal(now));
        self.send(p, RENEWER, Op::Renew { owner, lease });
    }

    fn hear_renewal(&mut self, packet: &Packet, outcome: Outcome) {
        let (p, now) = (packet.process, self.now());
        let Op::Renew { owner, .. } = packet.op else { return };
        let (sent, renewal) = (at(packet.sent), renewal(outcome));
        let Some(g) = self.processes[p as usize].lock_states.of_owner(owner) else { return };
        let then = self.lock_state(p, g).renewed(owner, sent, renewal, now);
        if renewal == Renewal::Unanswered {
            self.doubt(packet);
        }
        self.carry_out(p, g, then);
    }

    fn doubt(&mut self, packet: &Packet) {
        if let Op::Renew { owner, lease } = packet.op {
            let lease = Duration::from_millis(lease);
            let lock_states = &mut self.processes[packet.process as usize].lock_states;
            for g in lock_states.numbers() {
                lock_states[g].doubt(owner, at(packet.sent), lease);
            }
        }
    }
}
