//! The gate and the queue's protocol, model-checked.
//!
//! The gates are the real ones; the threads that drive them, Redis and the network are modelled
//! here. Anything may happen at any moment: a message or a reply is late or lost, a request runs
//! after its sender gave up on it, a waiting thread's time is up, a lease lapses, a process dies,
//! an inbox breaks. Time goes in ticks of a second, a few in all; a lease lasts two.
//!
//! What is checked: never two valid holders; tokens rise; nobody sleeps without something that
//! will wake it; when all is over nothing is left, neither in Redis nor in the gates.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use stateright::{Checker, Model, Property};

use super::gate::{
    Answer, Asking, Entered, Exit, Gate, GaveUp, How, Leaving, Renewal, Request, Shape, Taker, Terms, Then,
    Ticket, Turn,
};
use crate::clock::Moment;
use crate::kind::{Reentry, Sharing};

const TICK: Duration = Duration::from_secs(1);
const LEASE: u8 = 2;

type Owner = u64;

/// How large a model is, and what may go wrong in it.
#[derive(Clone, Debug)]
struct World {
    processes: u8,
    threads: u8,
    /// How often each thread takes the lock.
    rounds: u8,
    /// How far time goes.
    ticks: u8,
    slice: Duration,
    /// How many of each may happen in one run.
    crashes: u8,
    time_outs: u8,
    lost: u8,
    breaks: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Op {
    Acquire { owner: Owner, how: u8, known: bool },
    Leave { owner: Owner, unsettled: bool, next: Option<Owner> },
    Renew { owner: Owner },
}

/// A request on its way, or what is left of one whose sender gave up on it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Packet {
    process: u8,
    /// Who waits for the reply.
    thread: Option<u8>,
    op: Op,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Reply {
    Answer(Answer),
    Left { inside: bool, next: Option<Answer> },
    Renewed(Renewal),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Thread {
    Idle,
    /// In the waiting loop, about to take its turn.
    Awake(Ticket),
    Parked(Ticket, Moment),
    /// Waits for a reply.
    Asking(Ticket, Owner),
    Confirming(Ticket, Owner),
    Holding(Ticket),
    /// Waits for the reply to the leave of its hold.
    Releasing(Leaving, Option<Asking>),
    /// Waits for the reply to a leave of the queue; then goes on waiting, if it did.
    LeavingQueue(Option<Ticket>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Process {
    alive: bool,
    inbox: bool,
    gate: Gate,
    threads: Vec<(Thread, u8)>,
    sequence: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
struct Redis {
    /// Owner and the tick at which it lapses.
    holder: Option<(Owner, u8)>,
    number: u64,
    queue: Vec<Owner>,
    gone: BTreeSet<Owner>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct State {
    tick: u8,
    redis: Redis,
    processes: Vec<Process>,
    packets: BTreeSet<Packet>,
    replies: Vec<(u8, u8, Reply)>,
    messages: BTreeSet<(Owner, u64)>,
    highest: u64,
    /// A token was not higher than the one before.
    fell: bool,
    crashes: u8,
    time_outs: u8,
    lost: u8,
    breaks: u8,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Enter(u8, u8),
    Turn(u8, u8),
    GiveUp(u8, u8),
    Timer(u8, u8),
    Unlock(u8, u8),
    Run(Packet),
    /// The request ran, its reply was lost; or the sender's patience ended first, and it runs later.
    LoseReply(Packet),
    Overtake(Packet),
    Hear(u8, u8),
    Deliver(Owner, u64),
    Tick,
    Crash(u8),
    Break(u8),
    Mend(u8),
}

/// An owner number leads back to its process.
fn process_of(owner: Owner) -> usize {
    (owner % 8) as usize
}

impl Redis {
    fn lapse(&mut self, tick: u8) {
        self.holder.take_if(|(_, until)| *until <= tick);
    }

    /// The loop that ends every script: who may come in does, and is told if it is there.
    fn settle(
        &mut self,
        tick: u8,
        me: Option<Owner>,
        there: impl Fn(Owner) -> bool,
        told: &mut BTreeSet<(Owner, u64)>,
    ) -> Option<Answer> {
        while self.holder.is_none() && !self.queue.is_empty() {
            let head = self.queue.remove(0);
            self.number += 1;
            self.holder = Some((head, tick + LEASE));
            if Some(head) == me {
                return Some(Answer::In { number: self.number, left: TICK * LEASE.into() });
            }
            if there(head) {
                told.insert((head, self.number));
            } else {
                self.holder = None;
            }
        }
        None
    }

    fn ask(
        &mut self,
        tick: u8,
        owner: Owner,
        how: u8,
        there: impl Fn(Owner) -> bool,
        told: &mut BTreeSet<(Owner, u64)>,
    ) -> Answer {
        if self.gone.contains(&owner) {
            return Answer::Refused("over".into());
        }
        if let Some((holder, until)) = self.holder
            && holder == owner
        {
            return Answer::In { number: self.number, left: TICK * (until - tick).into() };
        }
        let queued = self.queue.contains(&owner);
        if how == 2 && !queued {
            self.settle(tick, None, there, told);
            return Answer::Gone;
        }
        if how == 0 {
            self.settle(tick, None, there, told);
            if self.queue.is_empty() && self.holder.is_none() {
                self.queue.push(owner);
                if let Some(answer) = self.settle(tick, Some(owner), |_| true, told) {
                    return answer;
                }
            }
        } else {
            if !queued {
                self.queue.push(owner);
            }
            if let Some(answer) = self.settle(tick, Some(owner), there, told) {
                return answer;
            }
        }
        let arrival = if self.queue.contains(&owner) { "1".to_owned() } else { String::new() };
        Answer::Busy { floor: self.number, again: TICK - Duration::from_millis(2), arrival }
    }
}

impl State {
    fn now(&self) -> Moment {
        Moment::default().after(TICK * u32::from(self.tick))
    }

    fn run(&mut self, packet: &Packet) -> Reply {
        let tick = self.tick;
        self.redis.lapse(tick);
        let there: Vec<bool> = self.processes.iter().map(|p| p.alive && p.inbox).collect();
        let there = |owner: Owner| there.get(process_of(owner)).copied().unwrap_or(false);
        let (redis, told) = (&mut self.redis, &mut self.messages);
        match &packet.op {
            Op::Acquire { owner, how, .. } => Reply::Answer(redis.ask(tick, *owner, *how, there, told)),
            Op::Leave { owner, unsettled, next } => {
                let inside = redis.holder.is_some_and(|(h, _)| h == *owner);
                if inside {
                    redis.holder = None;
                }
                redis.queue.retain(|o| o != owner);
                if *unsettled {
                    redis.gone.insert(*owner);
                }
                redis.settle(tick, None, there, told);
                let next = next.map(|n| redis.ask(tick, n, 1, there, told));
                Reply::Left { inside, next }
            }
            Op::Renew { owner } => match &mut redis.holder {
                Some((holder, until)) if holder == owner => {
                    *until = tick + LEASE;
                    Reply::Renewed(Renewal::Left(TICK * LEASE.into()))
                }
                _ => Reply::Renewed(Renewal::NotInside),
            },
        }
    }

    /// What [`super::carry_out`] does.
    fn carry_out(&mut self, p: u8, then: Then) -> Option<Leaving> {
        if let Some(ticket) = then.wake {
            self.wake(p, ticket);
        }
        if let Some(leaving) = then.background {
            self.background(p, &leaving);
        }
        then.leave
    }

    fn wake(&mut self, p: u8, ticket: Ticket) {
        for (thread, _) in &mut self.processes[p as usize].threads {
            if let Thread::Parked(t, _) = thread
                && *t == ticket
            {
                *thread = Thread::Awake(ticket);
            }
        }
    }

    fn background(&mut self, p: u8, leaving: &Leaving) {
        let op = Op::Leave { owner: leaving.owner, unsettled: true, next: None };
        self.packets.insert(Packet { process: p, thread: None, op });
    }

    fn set(&mut self, p: u8, t: u8, thread: Thread) {
        self.processes[p as usize].threads[t as usize].0 = thread;
    }

    fn send(&mut self, p: u8, t: u8, op: Op) {
        self.packets.insert(Packet { process: p, thread: Some(t), op });
    }

    /// A thread leaves the queue for an owner that nobody wants, then is `after`.
    fn leave_queue(&mut self, p: u8, t: u8, leaving: Leaving, after: Option<Ticket>) {
        if leaving.unsettled {
            self.background(p, &leaving);
            let then = self.processes[p as usize].gate.left();
            self.set(p, t, after.map_or(Thread::Idle, Thread::Awake));
            self.carry_out(p, then);
        } else {
            self.send(p, t, Op::Leave { owner: leaving.owner, unsettled: false, next: None });
            self.set(p, t, Thread::LeavingQueue(after));
        }
    }

    /// A thread that is through with Redis for now, with what its event asks for.
    fn go_on(&mut self, p: u8, t: u8, then: Then, after: Option<Ticket>) {
        self.set(p, t, after.map_or(Thread::Idle, Thread::Awake));
        if let Some(leaving) = self.carry_out(p, then) {
            self.leave_queue(p, t, leaving, after);
        }
    }

    fn fresh(process: &mut Process, p: u8) -> Owner {
        process.sequence += 1;
        process.sequence * 8 + u64::from(p)
    }

    fn turn(&mut self, p: u8, t: u8, over: bool) {
        let now = self.now();
        let process = &mut self.processes[p as usize];
        let (Thread::Awake(ticket) | Thread::Parked(ticket, _)) = process.threads[t as usize].0 else {
            return;
        };
        let inbox = process.inbox;
        let mut gate = process.gate.clone();
        let turn = gate.turn(ticket, now, inbox, over, || Self::fresh(process, p));
        process.gate = gate;
        match turn {
            Turn::In(grip, next) => {
                let valid = process.gate.look(grip.owner).is_some_and(|t| t.loss(now).is_none());
                self.fell |= valid && grip.token <= self.highest;
                self.highest = self.highest.max(grip.token);
                self.set(p, t, Thread::Holding(ticket));
                if let Some(next) = next {
                    self.wake(p, next);
                }
            }
            Turn::Ask(asking) if asking.enqueues && !inbox => {
                process.gate.postponed(asking.owner, now.after(TICK));
                self.set(p, t, Thread::Awake(ticket));
            }
            Turn::Ask(asking) => {
                let how = match asking.how {
                    How::Try => 0,
                    How::Wait => 1,
                    How::Keep => 2,
                };
                let known = !asking.arrival.is_empty();
                self.send(p, t, Op::Acquire { owner: asking.owner, how, known });
                self.set(p, t, Thread::Asking(ticket, asking.owner));
            }
            Turn::Confirm(owner, _) => {
                self.send(p, t, Op::Renew { owner });
                self.set(p, t, Thread::Confirming(ticket, owner));
            }
            Turn::Leave(leaving) => self.leave_queue(p, t, leaving, Some(ticket)),
            Turn::Park(until) => self.set(p, t, Thread::Parked(ticket, until)),
            Turn::Busy | Turn::Over | Turn::Refused(_) | Turn::Closed => {
                match process.gate.give_up(ticket, now) {
                    GaveUp::In(grip) => self.set(p, t, Thread::Holding(grip.ticket)),
                    GaveUp::Out(then) => self.go_on(p, t, then, None),
                }
            }
        }
    }

    fn unlock(&mut self, p: u8, t: u8) {
        let now = self.now();
        let process = &mut self.processes[p as usize];
        let Thread::Holding(ticket) = process.threads[t as usize].0 else { return };
        let inbox = process.inbox;
        let mut gate = process.gate.clone();
        let exit = gate.exit(ticket, now, inbox, || Self::fresh(process, p));
        process.gate = gate;
        match exit {
            Exit::Held => self.set(p, t, Thread::Idle),
            Exit::HandedOn(next) => {
                self.set(p, t, Thread::Idle);
                self.wake(p, next);
            }
            Exit::Lost(_, then) => self.go_on(p, t, then, None),
            Exit::Leave(leaving, next) => {
                let op = Op::Leave {
                    owner: leaving.owner,
                    unsettled: leaving.unsettled,
                    next: next.as_ref().map(|n| n.owner),
                };
                self.send(p, t, op);
                self.set(p, t, Thread::Releasing(leaving, next));
            }
        }
    }

    /// A reply, or `None` when there will be none, for the thread that waits for it.
    fn hear(&mut self, p: u8, t: u8, reply: Option<Reply>) {
        let now = self.now();
        let process = &mut self.processes[p as usize];
        match process.threads[t as usize].0.clone() {
            Thread::Asking(ticket, owner) => {
                let answer = match reply {
                    Some(Reply::Answer(answer)) => answer,
                    _ => Answer::Unanswered,
                };
                let then = process.gate.answered(owner, answer, now);
                self.go_on(p, t, then, Some(ticket));
            }
            Thread::Confirming(ticket, owner) => {
                let renewal = match reply {
                    Some(Reply::Renewed(renewal)) => renewal,
                    _ => Renewal::Unanswered,
                };
                let then = process.gate.confirmed(owner, renewal, now);
                self.go_on(p, t, then, Some(ticket));
            }
            Thread::Releasing(leaving, next) => {
                let (then, heard) = match (&reply, next) {
                    (Some(Reply::Left { next: answer, .. }), Some(next)) => {
                        let answer = answer.clone().unwrap_or(Answer::Failed);
                        (process.gate.answered(next.owner, answer, now), true)
                    }
                    (None, Some(next)) => (process.gate.answered(next.owner, Answer::Unanswered, now), false),
                    (reply, None) => (Then::default(), reply.is_some()),
                    _ => (Then::default(), true),
                };
                let left = process.gate.left();
                if !heard {
                    self.background(p, &leaving);
                }
                self.carry_out(p, left);
                self.go_on(p, t, then, None);
            }
            Thread::LeavingQueue(after) => {
                let then = process.gate.left();
                self.go_on(p, t, then, after);
            }
            _ => {}
        }
    }

    /// Holds that their process believes valid.
    fn valid_holders(&self) -> usize {
        let now = self.now();
        let mut valid = 0;
        for process in self.processes.iter().filter(|p| p.alive) {
            valid += process
                .threads
                .iter()
                .filter(|(t, _)| match t {
                    Thread::Holding(ticket) => process.gate.holds_valid(*ticket, now),
                    _ => false,
                })
                .count();
        }
        valid
    }

    fn quiet(&self) -> bool {
        self.packets.is_empty() && self.replies.is_empty() && self.messages.is_empty()
    }
}

impl Model for World {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let shape =
            Shape { sharing: Sharing::Exclusive, reentry: Reentry::Count, slice: self.slice, beat: TICK };
        let process = Process {
            alive: true,
            inbox: true,
            gate: Gate::new(shape),
            threads: vec![(Thread::Idle, self.rounds); self.threads.into()],
            sequence: 0,
        };
        vec![State {
            tick: 0,
            redis: Redis::default(),
            processes: vec![process; self.processes.into()],
            packets: BTreeSet::new(),
            replies: Vec::new(),
            messages: BTreeSet::new(),
            highest: 0,
            fell: false,
            crashes: self.crashes,
            time_outs: self.time_outs,
            lost: self.lost,
            breaks: self.breaks,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let now = state.now();
        for (p, process) in (0..).zip(&state.processes) {
            if !process.alive {
                continue;
            }
            for (t, (thread, rounds)) in (0..).zip(&process.threads) {
                match thread {
                    Thread::Idle if *rounds > 0 => steps.push(Step::Enter(p, t)),
                    Thread::Awake(_) => steps.push(Step::Turn(p, t)),
                    Thread::Parked(_, until) => {
                        if *until <= now {
                            steps.push(Step::Timer(p, t));
                        }
                        if state.time_outs > 0 {
                            steps.push(Step::GiveUp(p, t));
                        }
                    }
                    Thread::Holding(_) => steps.push(Step::Unlock(p, t)),
                    _ => {}
                }
            }
            if state.crashes > 0 {
                steps.push(Step::Crash(p));
            }
            if process.inbox && state.breaks > 0 {
                steps.push(Step::Break(p));
            }
            if !process.inbox {
                steps.push(Step::Mend(p));
            }
        }
        for packet in &state.packets {
            steps.push(Step::Run(packet.clone()));
            if state.lost > 0 && packet.thread.is_some() {
                steps.push(Step::LoseReply(packet.clone()));
                steps.push(Step::Overtake(packet.clone()));
            }
        }
        for (p, t, _) in &state.replies {
            steps.push(Step::Hear(*p, *t));
        }
        for (owner, number) in &state.messages {
            steps.push(Step::Deliver(*owner, *number));
        }
        if state.tick < self.ticks {
            steps.push(Step::Tick);
        }
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        let now = state.now();
        match step {
            Step::Enter(p, t) => {
                let terms =
                    Terms { lease: TICK * LEASE.into(), fixed: false, fair: false, args: Arc::from("") };
                let thread = u64::from(t);
                let request = Request { taker: Taker::Thread(thread), thread, terms, once: false };
                let process = &mut state.processes[p as usize];
                process.threads[t as usize].1 -= 1;
                match process.gate.enter(request, now) {
                    Ok(Entered::Waits(ticket)) => process.threads[t as usize].0 = Thread::Awake(ticket),
                    _ => return None,
                }
                state.turn(p, t, false);
            }
            Step::Turn(p, t) | Step::Timer(p, t) => state.turn(p, t, false),
            Step::GiveUp(p, t) => {
                state.time_outs -= 1;
                state.turn(p, t, true);
            }
            Step::Unlock(p, t) => state.unlock(p, t),
            Step::Run(packet) => {
                state.packets.remove(&packet);
                let reply = state.run(&packet);
                if let Some(t) = packet.thread {
                    state.replies.push((packet.process, t, reply));
                    state.replies.sort_by_key(|(p, t, _)| (*p, *t));
                }
            }
            Step::LoseReply(packet) => {
                state.lost -= 1;
                state.packets.remove(&packet);
                state.run(&packet);
                state.hear(packet.process, packet.thread?, None);
            }
            Step::Overtake(packet) => {
                state.lost -= 1;
                state.packets.remove(&packet);
                state.packets.insert(Packet { thread: None, ..packet.clone() });
                state.hear(packet.process, packet.thread?, None);
            }
            Step::Hear(p, t) => {
                let i = state.replies.iter().position(|r| (r.0, r.1) == (p, t))?;
                let (_, _, reply) = state.replies.remove(i);
                state.hear(p, t, Some(reply));
            }
            Step::Deliver(owner, number) => {
                state.messages.remove(&(owner, number));
                let p = process_of(owner);
                let process = &mut state.processes[p];
                if process.alive && process.inbox {
                    let then = process.gate.granted(owner, number, TICK * LEASE.into());
                    state.carry_out(p as u8, then);
                }
            }
            Step::Tick => {
                state.tick += 1;
                state.redis.lapse(state.tick);
                let now = state.now();
                for p in 0..state.processes.len() {
                    let owners = state.processes[p].gate.owners();
                    for owner in owners {
                        let then = state.processes[p].gate.expire(owner, now);
                        state.carry_out(p as u8, then);
                    }
                }
            }
            Step::Crash(p) => {
                state.crashes -= 1;
                let process = &mut state.processes[p as usize];
                process.alive = false;
                process.gate = Gate::new(Shape {
                    sharing: Sharing::Exclusive,
                    reentry: Reentry::Count,
                    slice: self.slice,
                    beat: TICK,
                });
                process.threads.clear();
                state.replies.retain(|r| r.0 != p);
                state.messages.retain(|(owner, _)| process_of(*owner) != p as usize);
                // What it had sent may still run.
                let packets = std::mem::take(&mut state.packets);
                state.packets = packets
                    .into_iter()
                    .map(
                        |packet| if packet.process == p { Packet { thread: None, ..packet } } else { packet },
                    )
                    .collect();
            }
            Step::Break(p) => {
                state.breaks -= 1;
                state.processes[p as usize].inbox = false;
                state.messages.retain(|(owner, _)| process_of(*owner) != p as usize);
            }
            Step::Mend(p) => {
                let process = &mut state.processes[p as usize];
                process.inbox = true;
                let then = process.gate.ask_again(now);
                state.carry_out(p, then);
            }
        }
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one owner within validity", |_, s: &State| s.valid_holders() <= 1),
            Property::always("tokens rise", |_, s: &State| !s.fell),
            Property::always("no live waiter is stuck", |_, s: &State| {
                let parked = |t: &Thread| matches!(t, Thread::Parked(_, until) if *until == Moment::NEVER);
                let stuck =
                    s.processes.iter().filter(|p| p.alive).flat_map(|p| &p.threads).any(|(t, _)| parked(t));
                !(stuck && s.quiet())
            }),
            Property::always("nothing is left behind", |_, s: &State| {
                let done = |p: &Process| {
                    !p.alive || p.threads.iter().all(|(t, left)| *t == Thread::Idle && *left == 0)
                };
                let over = s.quiet() && s.processes.iter().all(done);
                let live = |owner: Owner| s.processes[process_of(owner)].alive;
                !over
                    || (s.processes.iter().all(|p| p.gate.is_idle())
                        && !s.redis.queue.iter().any(|o| live(*o))
                        && !s.redis.holder.is_some_and(|(o, until)| live(o) && until > s.tick))
            }),
            Property::sometimes("all is done", |_, s: &State| {
                s.quiet()
                    && s.processes
                        .iter()
                        .all(|p| p.threads.iter().all(|(t, left)| *t == Thread::Idle && *left == 0))
            }),
        ]
    }
}

/// Explores `small`, or with `MODELS=large` (`make models`) `large`, breadth first: what it finds
/// is the shortest way to it.
fn check(small: World, large: World) {
    let is_large = std::env::var("MODELS").is_ok_and(|v| v == "large");
    let world = if is_large { large } else { small };
    let most = if is_large { 60_000_000 } else { 1_200_000 };
    let checker = world.clone().checker().threads(2).target_state_count(most).spawn_bfs().join();
    println!(
        "{world:?}: {} states, {} of them different",
        checker.state_count(),
        checker.unique_state_count()
    );
    assert!(checker.discovery("all is done").is_some(), "the model gets nowhere");
    for (property, path) in checker.discoveries() {
        assert!(property == "all is done", "{property}: {path}");
    }
}

fn world() -> World {
    World {
        processes: 2,
        threads: 1,
        rounds: 1,
        ticks: 3,
        slice: Duration::ZERO,
        crashes: 0,
        time_outs: 0,
        lost: 0,
        breaks: 0,
    }
}

#[test]
fn replies_are_lost_and_requests_come_late() {
    let small = World { lost: 1, ..world() };
    check(small.clone(), World { lost: 2, ticks: 4, ..small });
}

#[test]
fn a_process_dies_and_an_inbox_breaks() {
    let small = World { crashes: 1, breaks: 1, ..world() };
    check(small.clone(), World { breaks: 2, lost: 1, ..small });
}

#[test]
fn waiting_threads_give_up() {
    let small = World { time_outs: 1, rounds: 2, ticks: 2, ..world() };
    check(small.clone(), World { time_outs: 2, lost: 1, ..small });
}

#[test]
fn threads_hand_over() {
    let small = World { threads: 2, slice: TICK, ticks: 1, ..world() };
    check(small.clone(), World { time_outs: 1, ticks: 2, ..small });
}

#[test]
fn the_lead_is_passed_on() {
    let small = World { threads: 2, ticks: 1, time_outs: 1, ..world() };
    check(small.clone(), World { lost: 1, ..small });
}

#[test]
fn three_processes() {
    let small = World { processes: 3, ticks: 1, lost: 1, ..world() };
    check(small.clone(), World { ticks: 2, crashes: 1, ..small });
}
