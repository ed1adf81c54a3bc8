//! The processes: their threads, and the real state machine of each lock in each process.

mod event;
mod keeping;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use self::event::{Event, Timed};
use super::costs::Costs;
use super::line::Line;
use super::primary::{By, Primary, Sent};
use super::scene::{Scene, What};
use super::seen::Seen;
use crate::clock::Moment;
use crate::engine::random::Rng;
use crate::engine::small_redis::{Message, Op, PendingAcquire, Reply, millis};
use crate::engine::state::lock_state::{
    Asking, Effects, Entered, Exit, HolderId, LockState, PendingRelease, Request, Shape, Step, Terms, Ticket,
};
use crate::kind::{Reentrancy, Sharing};
use crate::observe::AcquiredVia;

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

fn at(nanos: u64) -> Moment {
    Moment::default().after(Duration::from_nanos(nanos))
}

/// Returns a new owner number, from which its entry can be computed.
fn fresh(sequence: &mut u64, e: usize, entries: usize) -> u64 {
    *sequence += 1;
    *sequence * entries as u64 + e as u64
}

/// A lock in a process.
struct Entry {
    client: usize,
    lock: usize,
    state: LockState,
    sequence: u64,
    /// When its grant is renewed next.
    due: Option<Moment>,
    /// The range of its threads.
    threads: std::ops::Range<usize>,
}

struct Client {
    line: Line,
    /// Requests of its threads that have no reply yet, and the most there have been.
    out: usize,
    most_out: usize,
    /// When its inbox last heard anything, once it listens.
    last_reply: Option<u64>,
}

#[derive(Clone, Debug)]
enum Doing {
    Idle,
    Waits(Ticket),
    Asks(Ticket, u64),
    Confirms(Ticket, u64),
    LeavesQueue(Ticket),
    Holds(Ticket),
    Releases(Option<Asking>),
}

struct Thread {
    entry: usize,
    doing: Doing,
    /// The number of its next turn.
    turn: u64,
}

pub(super) struct Fleet {
    scene: Scene,
    costs: Costs,
    rng: Rng,
    now: u64,
    events: BinaryHeap<Reverse<Timed>>,
    planned: u64,
    primary: Primary,
    clients: Vec<Client>,
    entries: Vec<Entry>,
    threads: Vec<Thread>,
    seen: Seen,
}

impl Fleet {
    pub(super) fn new(scene: &Scene, costs: &Costs, seed: u64) -> Fleet {
        let shape = std::sync::Arc::new(Shape {
            sharing: Sharing::Exclusive,
            reentrancy: Reentrancy::Counted,
            local_handoff: scene.local_handoff,
            heartbeat: scene.heartbeat(),
            first_lease: scene.waiter_timeout,
        });
        let keeps = scene.what == What::Keep;
        let of_client = |client: usize| {
            // A lock for each thread, or one for all.
            let (entries, threads) = if keeps { (scene.threads, 1) } else { (1, scene.threads) };
            (0..entries).map(move |i| (client, client * entries + i, threads))
        };
        let mut from = 0;
        let all = (0..scene.clients).flat_map(of_client);
        let entries: Vec<_> = all
            .map(|(client, e, threads)| {
                let (lock, state) = (if keeps { e } else { 0 }, LockState::new(shape.clone()));
                from += threads;
                Entry { client, lock, state, sequence: 0, due: None, threads: from - threads..from }
            })
            .collect();
        let idle = |(e, entry): (usize, &Entry)| {
            entry.threads.clone().map(move |_| Thread { entry: e, doing: Doing::Idle, turn: 0 })
        };
        let threads: Vec<_> = entries.iter().enumerate().flat_map(idle).collect();
        let client = |_| Client { line: Line::default(), out: 0, most_out: 0, last_reply: None };
        let mut fleet = Fleet {
            scene: scene.clone(),
            costs: costs.clone(),
            rng: Rng(seed),
            now: 0,
            events: BinaryHeap::new(),
            planned: 0,
            primary: Primary::new(scene, costs, if keeps { entries.len() } else { 1 }),
            clients: (0..scene.clients).map(client).collect(),
            entries,
            threads,
            seen: Seen::default(),
        };
        fleet.begin();
        fleet
    }

    fn begin(&mut self) {
        for t in 0..self.threads.len() {
            let begins = match self.scene.what {
                // Spread evenly over the renewal period, taking the clients in turn.
                What::Keep => {
                    let turn = t % self.scene.threads * self.scene.clients + t / self.scene.threads;
                    nanos(self.scene.renew_every()) / self.threads.len() as u64 * turn as u64
                }
                What::Wait if t == 0 => 0,
                What::Contend | What::Wait => 1 + self.rng.below(1_000_000) as u64,
            };
            self.plan(begins, Event::Goes(t));
        }
        self.plan(nanos(self.scene.warm_up), Event::Counts);
    }

    pub(super) fn run(mut self) -> Seen {
        let end = nanos(self.scene.warm_up + self.scene.counted);
        while let Some(Reverse(Timed(at, _, event))) = self.events.pop() {
            if at >= end {
                break;
            }
            self.now = at;
            self.happens(event);
        }
        let of_client = |client: &Client| {
            client.most_out + usize::from(client.last_reply.is_some()) + usize::from(client.line.was_used())
        };
        self.seen.connections = self.clients.iter().map(of_client).max().unwrap_or(0);
        self.seen.seconds = self.scene.counted.as_secs_f64();
        self.seen
    }

    fn plan(&mut self, at: u64, event: Event) {
        self.planned += 1;
        self.events.push(Reverse(Timed(at.max(self.now), self.planned, event)));
    }

    fn happens(&mut self, event: Event) {
        match event {
            Event::Goes(t) => self.goes(t),
            Event::Turns(t, turn) if self.threads[t].turn == turn => self.turn(t),
            Event::Turns(..) => {}
            Event::Arrives(requests) => {
                let served = self.primary.serve(requests, self.now, &mut self.seen);
                let back = self.way();
                self.plan(served.at + back, Event::Answered(served.replies));
                for message in served.messages {
                    let back = self.way();
                    self.plan(served.at + back, Event::Received(message));
                }
            }
            Event::Answered(replies) => self.answered(replies),
            Event::Received(message) => self.received(message),
            Event::Due(client) => self.renews(client),
            Event::Pings(client) => self.pings(client),
            Event::Counts => self.seen = Seen::default(),
        }
    }

    /// How long the way there or back takes: up to a quarter more or less than measured.
    fn way(&mut self) -> u64 {
        let way = self.costs.way;
        way * 3 / 4 + self.rng.below(way as usize / 2 + 1) as u64
    }

    fn goes(&mut self, t: usize) {
        let (e, now) = (self.threads[t].entry, at(self.now));
        if let Doing::Holds(ticket) = self.threads[t].doing {
            let n = self.entries.len();
            let Entry { state, sequence, .. } = &mut self.entries[e];
            let exit = state.exit(ticket, now, true, || fresh(sequence, e, n));
            return self.exits(t, exit);
        }
        let terms = Terms { fair: self.scene.fair, ..Terms::new(self.scene.lease, "") };
        let (holder, thread) = (HolderId::thread(t as u64), t as u64);
        let request = Request { holder, thread, terms, once: false, from: None, instead: false, most: None };
        match self.entries[e].state.enter(&request, now) {
            Ok(Entered::Waits(ticket)) => {
                self.threads[t].doing = Doing::Waits(ticket);
                self.turn(t);
            }
            other => panic!("an exclusive lock that nobody keeps: {other:?}"),
        }
    }

    fn turn(&mut self, t: usize) {
        let Doing::Waits(ticket) = self.threads[t].doing else { return };
        self.threads[t].turn += 1;
        let (e, now, n) = (self.threads[t].entry, at(self.now), self.entries.len());
        let Entry { state, sequence, .. } = &mut self.entries[e];
        match state.turn(ticket, now, true, false, || fresh(sequence, e, n)) {
            Step::In(acquired, next) => {
                self.threads[t].doing = Doing::Holds(acquired.ticket);
                self.entries[e].state.came_in(acquired.ticket, now);
                self.seen.acquisitions += 1;
                if acquired.via != AcquiredVia::HandedOff
                    && let Some(grant) = self.entries[e].state.grant(acquired.owner)
                {
                    let due = grant.due(now, self.scene.renew_every());
                    self.renewed_at(e, acquired.owner, due);
                }
                if let Some(next) = next {
                    self.wakes(e, next);
                }
                let for_good = match self.scene.what {
                    What::Keep => true,
                    What::Wait => t == 0,
                    What::Contend => false,
                };
                if !for_good {
                    self.plan(self.now + nanos(self.scene.hold), Event::Goes(t));
                }
            }
            Step::Ask(asking) => {
                if asking.enqueues() {
                    self.listens(e);
                }
                self.threads[t].doing = Doing::Asks(ticket, asking.owner);
                self.sends(t, Op::Acquire(PendingAcquire::from(&asking)));
            }
            Step::Confirm(owner, lease) => {
                self.threads[t].doing = Doing::Confirms(ticket, owner);
                self.sends(t, Op::Renew { owner, lease: millis(lease) });
            }
            Step::Leave(leaving) => {
                self.threads[t].doing = Doing::LeavesQueue(ticket);
                let PendingRelease { owner, maybe_in_flight, .. } = leaving;
                self.sends(t, Op::Leave { owner, maybe_in_flight, next: None });
            }
            Step::Park(until) => {
                let turn = self.threads[t].turn;
                let pause = nanos(until.since(now));
                self.plan(self.now + pause, Event::Turns(t, turn));
            }
            other => panic!("no thread gives up here: {other:?}"),
        }
    }

    fn exits(&mut self, t: usize, exit: Exit) {
        let e = self.threads[t].entry;
        match exit {
            Exit::HandedOn(next) => {
                self.wakes(e, next);
                self.rests(t);
            }
            Exit::Leave(leaving, next) => {
                if let Some(due) = self.entries[e].due.take() {
                    let client = self.entries[e].client;
                    self.clients[client].line.forget(due, leaving.owner);
                }
                let PendingRelease { owner, maybe_in_flight, .. } = leaving;
                let op = Op::Leave { owner, maybe_in_flight, next: next.as_ref().map(PendingAcquire::from) };
                self.threads[t].doing = Doing::Releases(next);
                self.sends(t, op);
            }
            Exit::Lost(_, then) => {
                self.carry_out(e, then);
                self.rests(t);
            }
            other => panic!("a hold of one thread that nobody keeps: {other:?}"),
        }
    }

    /// A thread stays away for a while.
    fn rests(&mut self, t: usize) {
        self.threads[t].doing = Doing::Idle;
        let twice = 2 * nanos(self.scene.think) as usize;
        let think = self.rng.below(twice + 1) as u64;
        self.plan(self.now + think, Event::Goes(t));
    }

    fn wakes(&mut self, e: usize, ticket: Ticket) {
        let waits = |t: &usize| matches!(self.threads[*t].doing, Doing::Waits(it) if it == ticket);
        if let Some(t) = self.entries[e].threads.clone().find(waits) {
            let turn = self.threads[t].turn;
            self.plan(self.now + self.costs.wake, Event::Turns(t, turn));
        }
    }

    fn carry_out(&mut self, e: usize, then: Effects) {
        if let Some(ticket) = then.wake {
            self.wakes(e, ticket);
        }
        self.seen.lost += u64::from(then.lost.is_some());
        for leaving in then.background.into_iter().chain(then.leave) {
            let op = Op::Leave { owner: leaving.owner, maybe_in_flight: leaving.maybe_in_flight, next: None };
            self.send(vec![Sent { by: By::Entry(e), lock: self.entries[e].lock, op, at: self.now }]);
        }
    }

    fn sends(&mut self, t: usize, op: Op) {
        let Entry { client, lock, .. } = self.entries[self.threads[t].entry];
        let client = &mut self.clients[client];
        client.out += 1;
        client.most_out = client.most_out.max(client.out);
        self.send(vec![Sent { by: By::Thread(t), lock, op, at: self.now }]);
    }

    fn send(&mut self, requests: Vec<Sent>) {
        let there = self.way();
        self.plan(self.now + there, Event::Arrives(requests));
    }

    fn answered(&mut self, replies: Vec<(Sent, Reply)>) {
        for (sent, reply) in replies {
            self.seen.slowest = self.seen.slowest.max(self.now - sent.at);
            match sent.by {
                By::Thread(t) => self.hears(t, reply),
                By::Line(client) => self.renewed(client, &sent, &reply),
                By::Entry(e) => {
                    let then = self.entries[e].state.left();
                    self.carry_out(e, then);
                }
            }
        }
    }

    fn hears(&mut self, t: usize, reply: Reply) {
        let (e, now) = (self.threads[t].entry, at(self.now));
        let Entry { client, .. } = self.entries[e];
        self.clients[client].out -= 1;
        let state = &mut self.entries[e].state;
        match (self.threads[t].doing.clone(), reply) {
            (Doing::Asks(ticket, owner), Reply::Acquired(answer)) => {
                let then = state.answered(owner, answer, now);
                self.goes_on(t, ticket, then);
            }
            (Doing::Confirms(ticket, owner), Reply::Renewed(renewal)) => {
                let then = state.confirmed(owner, renewal, now);
                self.goes_on(t, ticket, then);
            }
            (Doing::LeavesQueue(ticket), _) => {
                let then = state.left();
                self.goes_on(t, ticket, then);
            }
            (Doing::Releases(next), reply) => {
                if let (Some(next), Reply::Left { next: Some(answer), .. }) = (next, reply) {
                    let then = state.answered(next.owner, answer, now);
                    self.carry_out(e, then);
                }
                let then = self.entries[e].state.left();
                self.carry_out(e, then);
                self.rests(t);
            }
            (doing, reply) => panic!("{doing:?} hears {reply:?}"),
        }
    }

    /// A waiting thread looks again.
    fn goes_on(&mut self, t: usize, ticket: Ticket, then: Effects) {
        self.threads[t].doing = Doing::Waits(ticket);
        self.carry_out(self.threads[t].entry, then);
        self.turn(t);
    }

    fn received(&mut self, message: Message) {
        let e = self.entry_of(message.owner);
        let client = self.entries[e].client;
        self.clients[client].last_reply = Some(self.now);
        let lease = Duration::from_millis(message.lease);
        let state = &mut self.entries[e].state;
        let then = state.granted(message.owner, message.number, lease, message.value, at(self.now));
        self.carry_out(e, then);
    }

    fn entry_of(&self, owner: u64) -> usize {
        (owner % self.entries.len() as u64) as usize
    }
}
