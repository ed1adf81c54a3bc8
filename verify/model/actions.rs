//! The steps that may happen next, and their effects.

use stateright::{Model, Property};

use super::World;
use super::lock_states::{READS, WRITES, is_own};
use super::modes::{OtherMode, Role, mind};
use super::properties::{self, is_due};
use super::state::{Packet, READER, RENEWER, State, Thread, process_of};
use super::threads::Outcome;
use crate::engine::small_redis::{Message, Op};
use crate::engine::state::grant::Keep;
use crate::engine::state::lock_state::{Entered, HolderId, LockState, Request};
use crate::observe::AcquiredVia;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Enter(u8, u8),
    EnterOnce(u8, u8),
    Turn(u8, u8),
    /// Without an inbox, the thread makes an attempt rather than wait for one.
    TurnDeaf(u8, u8),
    /// Its timeout passes, or it is cancelled.
    TimeOut(u8, u8),
    /// Redis has not answered for so long that a wait for a condition ends without the lock.
    Despair(u8, u8),
    Timer(u8, u8),
    Unlock(u8, u8),
    /// The same, but the thread does not wait for the reply.
    Drop(u8, u8),
    /// A thread that holds both modes releases the one that it acquired first.
    UnlockFirst(u8, u8),
    /// A writing thread also reads.
    ReadToo(u8, u8),
    Downgrade(u8, u8),
    /// The end of a downgrade: the thread reads, and its write lock is over.
    Replace(u8, u8),
    /// The thread waits for its condition.
    Wait(u8, u8),
    Signal(u8, u8),
    SignalAll(u8, u8),
    Renew(u8, u64),
    Revoke(u64),
    /// A grant that has been kept for long enough leaves.
    KeptLongEnough(u8, u64),
    Run(Packet),
    /// It runs, but its reply is lost.
    LoseReply(Packet),
    /// Its sender gives up on it first, and it runs later.
    Overtake(Packet),
    /// It was sent twice, and one of the copies is answered.
    Repeat(Packet),
    /// Redis replies that it cannot run it for now.
    Fail(Packet),
    Hear(u8, u8),
    Deliver(Message),
    LoseMessage(Message),
    Crash(u8),
    Vanish(u8),
    Break(u8),
    /// From now on, its inbox is at the former primary.
    Move(u8),
    Mend(u8),
    /// Redis loses its data, and all connections.
    Flush,
    Tick,
}

impl World {
    fn steps_of_process(&self, state: &State, p: u8, steps: &mut Vec<Step>) {
        let (now, left) = (state.now(), &state.left);
        let process = &state.processes[p as usize];
        for (t, caller) in (0..).zip(&process.callers) {
            match caller.thread {
                Thread::Idle if caller.rounds > 0 => {
                    steps.push(Step::Enter(p, t));
                    if left.tries > 0 {
                        steps.push(Step::EnterOnce(p, t));
                    }
                }
                Thread::Awake(_) => {
                    steps.push(Step::Turn(p, t));
                    // A wait for a condition has no use for a single attempt.
                    if !process.inbox && !is_own(caller.lock_state) {
                        steps.push(Step::TurnDeaf(p, t));
                    }
                }
                Thread::Parked(_, until) if until <= now => steps.push(Step::Timer(p, t)),
                Thread::Holding(_) => self.steps_of_holder(state, p, t, steps),
                _ => {}
            }
            if left.time_outs > 0 && matches!(caller.thread, Thread::Awake(_) | Thread::Parked(..)) {
                let wait = process.lock_states.wait(caller.lock_state);
                // Once it waits for the lock, it has no timeout any more.
                if wait.is_none_or(|wait| !wait.over) {
                    steps.push(Step::TimeOut(p, t));
                }
                if wait.is_some_and(|wait| wait.lock_state.trouble().is_some()) {
                    steps.push(Step::Despair(p, t));
                }
            }
        }
        for owner in process.lock_states.owners() {
            let over = |k: &Keep| k.until.is_some_and(|until| until <= now);
            let mut grants = process.lock_states.iter().filter_map(|lock_state| lock_state.grant(owner));
            if grants.any(|grant| grant.is_idle() && grant.keep().is_some_and(over)) {
                steps.push(Step::KeptLongEnough(p, owner));
            }
        }
        if left.renewals > 0 {
            let renewing = |packet: &Packet| (packet.process, packet.thread) == (p, Some(RENEWER));
            let renewed = |o: &u64| {
                let mut grants = process.lock_states.iter().filter_map(|lock_state| lock_state.grant(*o));
                grants.any(|t| t.lost().is_none() && !t.terms.fixed)
                    && !state.packets.iter().any(renewing)
                    && !state.replies.iter().any(|(packet, _)| renewing(packet))
            };
            steps.extend(process.lock_states.owners().into_iter().filter(renewed).map(|o| Step::Renew(p, o)));
        }
        if !process.inbox || process.elsewhere {
            steps.push(Step::Mend(p));
        }
        if process.inbox && !process.elsewhere && left.moves > 0 {
            steps.push(Step::Move(p));
        }
        if process.inbox && left.breaks > 0 {
            steps.push(Step::Break(p));
        }
        if left.crashes > 0 {
            steps.push(Step::Crash(p));
        }
        if left.vanishes > 0 {
            steps.push(Step::Vanish(p));
        }
    }

    /// A thread begins its next round.
    fn enter(&self, state: &mut State, p: u8, t: u8, once: bool) -> Option<()> {
        let role = self.role(p, t);
        let caller = &mut state.processes[p as usize].callers[t as usize];
        caller.rounds -= 1;
        caller.once = once;
        caller.lock_state = if role.is_some_and(Role::begins_to_read) { READS } else { WRITES };
        caller.other_mode =
            if role.is_some_and(Role::does_more) { OtherMode::Yet } else { OtherMode::Nothing };
        self.come_in(state, p, t)
    }

    /// A thread enters the lock state that it is to use.
    pub(super) fn come_in(&self, state: &mut State, p: u8, t: u8) -> Option<()> {
        let now = state.now();
        let process = &mut state.processes[p as usize];
        let caller = &mut process.callers[t as usize];
        let (g, thread) = (caller.lock_state, u64::from(t));
        let (terms, instead) = (self.terms(p, t, g), caller.other_mode == OtherMode::Instead);
        let mut request = Request {
            holder: HolderId::thread(thread),
            thread,
            terms,
            once: caller.once,
            from: None,
            instead,
            most: self.max_waiters.filter(|_| !caller.once),
        };
        if process.lock_states.second.is_some()
            && let Some(leaving) = mind(&mut process.lock_states, g, &mut request, now)
        {
            state.let_go(p, WRITES, &leaving);
        }
        let process = &mut state.processes[p as usize];
        let caller = &mut process.callers[t as usize];
        // Where all are as urgent, it does not matter when each came.
        let came = process.lock_states[g].enter(&request, now).ok()?;
        if !self.priorities {
            process.lock_states[g].forget_ranks();
        }
        match came {
            Entered::Waits(ticket) => {
                caller.thread = Thread::Awake(ticket);
                state.turn(self, p, t, false, false);
            }
            Entered::Joined(acquired, _) if acquired.via == AcquiredVia::Kept => {
                state.overstayed |= state.notified.iter().any(|owner| *owner == acquired.owner);
                state.rises(acquired.token, false);
                state.holds(self, p, t, &acquired);
            }
            Entered::Joined(acquired, ahead) => {
                state.holds(self, p, t, &acquired);
                if let Some(asking) = ahead {
                    state.asks_ahead(p, t, acquired.ticket, &asking);
                }
            }
            Entered::Again(_) => {}
            Entered::Busy => return None,
        }
        Some(())
    }

    fn crash(&self, state: &mut State, p: u8, noticed: bool) {
        let process = &mut state.processes[p as usize];
        process.alive = false;
        process.inbox &= !noticed;
        process.lock_states = self.lock_states();
        process.callers.clear();
        (process.turns_before, process.came) = (None, None);
        (process.unread, process.behind) = (None, None);
        state.replies.retain(|(packet, _)| packet.process != p);
        state.messages.retain(|message| process_of(message.owner) != p as usize);
        if noticed {
            state.signals.crash(p);
        }
        // Requests that it had sent may still run.
        for packet in std::mem::take(&mut state.packets).iter() {
            let thread = packet.thread.filter(|_| packet.process != p);
            state.packets.insert(Packet { thread, ..packet.clone() });
        }
    }

    /// Redis loses its data, and every inbox breaks. Numbers still rise, since they are made from the time.
    fn flush(&self, state: &mut State) {
        state.left.flushes -= 1;
        state.flushed = true;
        state.redis = self.redis(state.redis.fence);
        for p in 0..self.processes {
            state.processes[usize::from(p)].turns_before = None;
            if state.processes[usize::from(p)].alive {
                state.inbox_breaks(p);
            }
        }
    }

    fn tick(state: &mut State) {
        state.tick += 1;
        let before = state.redis.clone();
        state.redis.lapse(state.millis());
        state.signals.lapse(&before, &state.redis);
        let now = state.now();
        for p in 0..state.processes.len() {
            for g in state.processes[p].lock_states.numbers() {
                for owner in state.processes[p].lock_states[g].owners() {
                    let then = state.processes[p].lock_states[g].expire(owner, now);
                    state.carry_out(p as u8, g, then);
                }
            }
        }
    }
}

impl Model for World {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![self.beginning()]
    }

    /// Ticks come last, so that a run that always takes the first step lets time advance only when there is
    /// nothing else to do.
    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for p in (0..self.processes).filter(|p| state.processes[*p as usize].alive) {
            self.steps_of_process(state, p, steps);
        }
        let lost = state.left.lost > 0;
        for packet in state.packets.iter() {
            if state.is_behind(packet) {
                continue;
            }
            steps.push(Step::Run(packet.clone()));
            if lost && packet.thread.is_some() {
                steps.push(Step::LoseReply(packet.clone()));
                steps.push(Step::Overtake(packet.clone()));
                steps.push(Step::Fail(packet.clone()));
                // A renewal is not sent twice, nor is what nobody waits for.
                if !packet.resent && !matches!(packet.thread, Some(RENEWER | READER)) {
                    steps.push(Step::Repeat(packet.clone()));
                }
            }
        }
        for (packet, _) in &state.replies {
            // Replies are read in the order of their requests.
            let p = packet.process;
            let later =
                |t: &u8| *t < READER && state.processes[p as usize].behind.is_some() && state.unread(p);
            steps.extend(packet.thread.filter(|t| !later(t)).map(|t| Step::Hear(p, t)));
        }
        for message in state.messages.iter() {
            steps.push(Step::Deliver(*message));
            if lost {
                steps.push(Step::LoseMessage(*message));
            }
        }
        if state.left.revocations > 0 {
            steps.extend(state.redis.holders().iter().map(|holder| Step::Revoke(holder.owner)));
        }
        if state.left.flushes > 0 {
            steps.push(Step::Flush);
        }
        // Where hand-off periods are counted in ticks, a grant's message arrives within its tick.
        let unheard = self.counts && !self.roles.is_empty() && state.messages.iter().any(Message::is_grant);
        if state.tick < self.ticks && !unheard {
            steps.push(Step::Tick);
        }
        if self.prompt && (!state.quiet() || is_due(state)) {
            use Step::{Downgrade, Drop, Enter, EnterOnce, ReadToo, Renew, Tick, Unlock, UnlockFirst};
            let comes = |step: &Step| matches!(step, Enter(..) | EnterOnce(..) | ReadToo(..) | Downgrade(..));
            let goes =
                |step: &Step| matches!(step, Unlock(..) | Drop(..) | UnlockFirst(..) | Renew(..) | Tick);
            steps.retain(|step| !comes(step) && !goes(step));
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        match step {
            Step::Enter(p, t) => self.enter(&mut state, p, t, false)?,
            Step::EnterOnce(p, t) => {
                state.left.tries -= 1;
                self.enter(&mut state, p, t, true)?;
            }
            Step::Turn(p, t) | Step::Timer(p, t) => state.turn(self, p, t, false, false),
            Step::TurnDeaf(p, t) => state.turn(self, p, t, false, true),
            Step::TimeOut(p, t) => {
                state.left.time_outs -= 1;
                state.turn(self, p, t, true, false);
            }
            Step::Despair(p, t) => {
                state.left.time_outs -= 1;
                state.despair(p, t);
            }
            Step::Wait(p, t) => state.waits(self, p, t),
            Step::Signal(p, t) => state.signals(self, p, t, false),
            Step::SignalAll(p, t) => state.signals(self, p, t, true),
            Step::Unlock(p, t) => state.unlock(self, p, t, false),
            Step::Drop(p, t) => {
                state.left.drops -= 1;
                state.unlock(self, p, t, true);
            }
            Step::UnlockFirst(p, t) => {
                state.turn_round(p, t);
                state.unlock(self, p, t, false);
            }
            Step::ReadToo(p, t) => self.other_mode(&mut state, p, t, OtherMode::Nothing)?,
            Step::Downgrade(p, t) => self.other_mode(&mut state, p, t, OtherMode::Instead)?,
            Step::Replace(p, t) => state.replaced(p, t),
            Step::KeptLongEnough(p, owner) => {
                let now = state.now();
                for g in state.processes[p as usize].lock_states.numbers() {
                    let then = state.processes[p as usize].lock_states[g].kept_long_enough(owner, now);
                    state.carry_out(p, g, then);
                }
            }
            Step::Renew(p, owner) => {
                state.left.renewals -= 1;
                state.renew(p, owner);
            }
            Step::Revoke(owner) => {
                state.left.revocations -= 1;
                state.run(self, &Op::Revoke { owner });
            }
            Step::Run(packet) => {
                state.packets.remove(&packet);
                state.passed |= matches!(packet.op, Op::Acquire(_)) && {
                    let first = |it: &Packet| (it.process, it.thread) == (packet.process, Some(READER));
                    state.packets.iter().any(first)
                };
                let reply = state.run(self, &packet.op);
                if packet.thread.is_some() {
                    state.replies.reserve_exact(1);
                    state.replies.push((packet, reply));
                    state.replies.sort_by_key(|(packet, _)| (packet.process, packet.thread));
                }
            }
            Step::LoseReply(packet) => {
                state.left.lost -= 1;
                state.packets.remove(&packet);
                state.run(self, &packet.op);
                state.hear(self, &packet, Outcome::Unanswered);
            }
            Step::Overtake(packet) => {
                state.left.lost -= 1;
                state.packets.remove(&packet);
                state.packets.insert(Packet { thread: None, ..packet.clone() });
                state.hear(self, &packet, Outcome::Unanswered);
            }
            Step::Repeat(packet) => {
                state.left.lost -= 1;
                state.packets.remove(&packet);
                state.packets.insert(Packet { thread: None, ..packet.clone() });
                state.packets.insert(Packet { resent: true, ..packet });
            }
            Step::Fail(packet) => {
                state.left.lost -= 1;
                state.packets.remove(&packet);
                state.hear(self, &packet, Outcome::Failed);
            }
            Step::Hear(p, t) => {
                let mine = |(k, _): &(Packet, _)| (k.process, k.thread) == (p, Some(t));
                let i = state.replies.iter().position(mine)?;
                let (packet, reply) = state.replies.remove(i);
                state.hear(self, &packet, Outcome::Reply(reply));
            }
            Step::Deliver(message) => {
                state.messages.remove(&message);
                if state.hears(message.owner) {
                    state.received(self, &message);
                }
            }
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
                state.inbox_breaks(p);
            }
            Step::Move(p) => {
                state.left.moves -= 1;
                state.processes[p as usize].elsewhere = true;
            }
            Step::Mend(p) => {
                let now = state.now();
                (state.processes[p as usize].inbox, state.processes[p as usize].elsewhere) = (true, false);
                for g in state.processes[p as usize].lock_states.numbers() {
                    for event in [LockState::deaf, LockState::ask_again] {
                        let then = event(&mut state.processes[p as usize].lock_states[g], now);
                        state.carry_out(p, g, then);
                    }
                }
            }
            Step::Flush => self.flush(&mut state),
            Step::Tick => World::tick(&mut state),
        }
        state.keep_readers_behind();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
