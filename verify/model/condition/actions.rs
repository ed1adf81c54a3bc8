//! What may happen next, and what becomes of it.

use std::time::Duration;

use stateright::{Model, Property};

use super::state::{Answered, Packet, Seat, State, Thread};
use super::threads::Outcome;
use super::{World, properties};
use crate::clock::Moment;
use crate::engine::model::state::process_of;
use crate::engine::small_redis::Message;
use crate::engine::state::lock_state::{Entered, HolderId, LockState, Request};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Enter(u8, u8),
    /// What is next in its plan.
    Wait(u8, u8),
    Signal(u8, u8),
    SignalAll(u8, u8),
    Turn(u8, u8),
    /// Without an inbox: it makes an attempt rather than wait for one.
    TurnDeaf(u8, u8),
    /// Its time is over, or it is cancelled.
    TimeOut(u8, u8),
    /// Redis has not answered for so long that it ends without the lock.
    Despair(u8, u8),
    Timer(u8, u8),
    Unlock(u8, u8),
    Run(Packet),
    /// It ran, its reply was lost.
    LoseReply(Packet),
    /// The sender's patience ended first, and it runs later.
    Overtake(Packet),
    /// It was sent twice: one of the two is answered.
    Repeat(Packet),
    /// Redis said that it cannot, for now.
    Fail(Packet),
    Hear(u8, u8),
    Deliver(Message),
    LoseMessage(Message),
    Crash(u8),
    /// It dies, and its connections stay open.
    Vanish(u8),
    Break(u8),
    Mend(u8),
    Tick,
}

impl World {
    fn steps_of_thread(&self, state: &State, p: u8, t: u8, seat: &Seat, steps: &mut Vec<Step>) {
        let process = &state.processes[p as usize];
        match seat.thread {
            Thread::Idle if seat.rounds > 0 => steps.push(Step::Enter(p, t)),
            Thread::Awake(_) => {
                steps.push(Step::Turn(p, t));
                // A waiter for a condition has no use for an attempt.
                if !process.inbox && seat.stay.is_none() {
                    steps.push(Step::TurnDeaf(p, t));
                }
            }
            Thread::Parked(_, until) if until <= state.now() => steps.push(Step::Timer(p, t)),
            Thread::Holding(_) => {
                let plan = self.plans[p as usize][t as usize].as_bytes();
                steps.push(match plan.get(seat.done as usize) {
                    Some(b'w') => Step::Wait(p, t),
                    Some(b's') => Step::Signal(p, t),
                    Some(_) => Step::SignalAll(p, t),
                    None => Step::Unlock(p, t),
                });
            }
            _ => {}
        }
        if state.left.time_outs == 0 || !matches!(seat.thread, Thread::Awake(_) | Thread::Parked(..)) {
            return;
        }
        // Once it waits for the lock there is no time that could be over.
        if seat.stay.as_ref().is_none_or(|stay| !stay.over) {
            steps.push(Step::TimeOut(p, t));
        }
        if seat.stay.as_ref().is_some_and(|stay| stay.lock_state.trouble().is_some()) {
            steps.push(Step::Despair(p, t));
        }
    }

    fn enter(&self, state: &mut State, p: u8, t: u8) -> Option<()> {
        let now = state.now();
        let thread = u64::from(t);
        let request = Request {
            holder: HolderId::Thread(thread),
            thread,
            terms: self.terms(),
            once: false,
            from: None,
            instead: false,
        };
        let process = &mut state.processes[p as usize];
        let seat = &mut process.seats[t as usize];
        seat.rounds -= 1;
        if let Entered::Waits(ticket) = process.lock_state.enter(request, now).ok()? {
            seat.thread = Thread::Awake(ticket);
            state.turn(self, p, t, false, false);
        }
        Some(())
    }

    fn crash(&self, state: &mut State, p: u8, heard_of: bool) {
        let process = &mut state.processes[p as usize];
        (process.alive, process.inbox) = (false, !heard_of);
        process.lock_state = LockState::new(self.shape());
        process.seats.clear();
        state.replies.retain(|(packet, _)| packet.process != p);
        state.messages.retain(|message| process_of(message.owner) != p as usize);
        if heard_of {
            state.signals.crash(p);
        }
        // What it had sent may still run.
        for packet in std::mem::take(&mut state.packets).iter() {
            let thread = packet.thread.filter(|_| packet.process != p);
            state.packets.insert(Packet { thread, ..packet.clone() });
        }
    }

    fn tick(&self, state: &mut State) {
        state.tick += 1;
        let before = state.redis.clone();
        state.redis.lapse(state.millis());
        state.signals.lapse(&before, &state.redis);
        let now = state.now();
        for p in 0..state.processes.len() {
            for owner in state.processes[p].lock_state.owners() {
                let then = state.processes[p].lock_state.expire(owner, now);
                state.carry_out(self, p as u8, None, then);
            }
        }
    }

    fn deliver(&self, state: &mut State, message: Message) {
        state.messages.remove(&message);
        let p = process_of(message.owner);
        if !state.hears(message.owner) || !state.processes[p].alive {
            return;
        }
        let lease = Duration::from_millis(message.lease);
        let granted = |lock_state: &mut LockState| {
            lock_state.granted(message.owner, message.number, lease, 0, Moment::default())
        };
        // It is for the gate that knows its owner.
        let then = granted(&mut state.processes[p].lock_state);
        state.carry_out(self, p as u8, None, then);
        for t in 0..state.processes[p].seats.len() {
            if let Some(stay) = &mut state.processes[p].seats[t].stay {
                let then = granted(&mut stay.lock_state);
                state.carry_out(self, p as u8, Some(t as u8), then);
            }
        }
    }

    fn mend(&self, state: &mut State, p: u8) {
        let now = state.now();
        state.process(p).inbox = true;
        let then = state.process(p).lock_state.ask_again(now);
        state.carry_out(self, p, None, then);
        for t in 0..state.process(p).seats.len() {
            if let Some(stay) = &mut state.process(p).seats[t].stay {
                let then = stay.lock_state.ask_again(now);
                state.carry_out(self, p, Some(t as u8), then);
            }
        }
    }

    /// What becomes of a request that is on its way.
    fn packet(&self, state: &mut State, step: &Step) {
        let (Step::Run(packet)
        | Step::LoseReply(packet)
        | Step::Overtake(packet)
        | Step::Repeat(packet)
        | Step::Fail(packet)) = step
        else {
            return;
        };
        state.packets.remove(packet);
        if let Step::Run(_) = step {
            let answered = state.run(self, &packet.request);
            if packet.thread.is_some() {
                state.replies.reserve_exact(1);
                state.replies.push((packet.clone(), answered));
                state.replies.sort_by_key(|(packet, _)| (packet.process, packet.thread));
            }
            return;
        }
        state.left.lost -= 1;
        match step {
            Step::LoseReply(_) => {
                state.run(self, &packet.request);
                state.hear(self, packet, Outcome::Unanswered);
            }
            Step::Overtake(_) => {
                state.packets.insert(Packet { thread: None, ..packet.clone() });
                state.hear(self, packet, Outcome::Unanswered);
            }
            Step::Repeat(_) => {
                state.packets.insert(Packet { thread: None, ..packet.clone() });
                state.packets.insert(Packet { resent: true, ..packet.clone() });
            }
            _ => state.hear(self, packet, Outcome::Failed),
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.beginning()]
    }

    /// Time comes last: the checker's first choice each time lets it go on only when there is nothing else to
    /// do.
    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (p, process) in (0..).zip(&state.processes).filter(|(_, process)| process.alive) {
            for (t, seat) in (0..).zip(&process.seats) {
                self.steps_of_thread(state, p, t, seat, steps);
            }
            if !process.inbox {
                steps.push(Step::Mend(p));
            } else if state.left.breaks > 0 {
                steps.push(Step::Break(p));
            }
            if state.left.crashes > 0 {
                steps.push(Step::Crash(p));
            }
            if state.left.vanishes > 0 {
                steps.push(Step::Vanish(p));
            }
        }
        let lost = state.left.lost > 0;
        for packet in state.packets.iter() {
            steps.push(Step::Run(packet.clone()));
            if lost && packet.thread.is_some() {
                steps.push(Step::LoseReply(packet.clone()));
                steps.push(Step::Overtake(packet.clone()));
                steps.push(Step::Fail(packet.clone()));
                if !packet.resent {
                    steps.push(Step::Repeat(packet.clone()));
                }
            }
        }
        for (packet, _) in &state.replies {
            steps.extend(packet.thread.map(|t| Step::Hear(packet.process, t)));
        }
        for message in state.messages.iter() {
            steps.push(Step::Deliver(*message));
            if lost {
                steps.push(Step::LoseMessage(*message));
            }
        }
        if state.tick < self.ticks {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Enter(p, t) => self.enter(&mut state, p, t)?,
            Step::Wait(p, t) => state.waits(self, p, t),
            Step::Signal(p, t) => state.signals(self, p, t, false),
            Step::SignalAll(p, t) => state.signals(self, p, t, true),
            Step::Turn(p, t) | Step::Timer(p, t) => state.turn(self, p, t, false, false),
            Step::TurnDeaf(p, t) => state.turn(self, p, t, false, true),
            Step::TimeOut(p, t) => {
                state.left.time_outs -= 1;
                state.turn(self, p, t, true, false);
            }
            Step::Despair(p, t) => {
                state.left.time_outs -= 1;
                state.despair(self, p, t);
            }
            Step::Unlock(p, t) => state.unlock(self, p, t),
            Step::Hear(p, t) => {
                let mine = |(k, _): &(Packet, Answered)| (k.process, k.thread) == (p, Some(t));
                let i = state.replies.iter().position(mine)?;
                let (packet, answered) = state.replies.remove(i);
                state.hear(self, &packet, Outcome::Reply(answered));
            }
            Step::Deliver(message) => self.deliver(&mut state, message),
            Step::LoseMessage(message) => {
                state.left.lost -= 1;
                state.messages.remove(&message);
            }
            Step::Crash(p) => {
                state.left.crashes -= 1;
                self.crash(&mut state, p, true);
            }
            Step::Vanish(p) => {
                state.left.vanishes -= 1;
                self.crash(&mut state, p, false);
            }
            Step::Break(p) => {
                state.left.breaks -= 1;
                state.process(p).inbox = false;
                state.messages.retain(|message| process_of(message.owner) != p as usize);
            }
            Step::Mend(p) => self.mend(&mut state, p),
            Step::Tick => self.tick(&mut state),
            step => self.packet(&mut state, &step),
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
