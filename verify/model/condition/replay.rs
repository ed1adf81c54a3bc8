//! Walks of this model by chance, said to the real scripts as well: see `model/replay.rs`, which does so for
//! the lock alone. The waiters for a signal must be the same too: positions, their order, which were
//! signalled, and by what a position is in the queue.

mod real;

use std::collections::BTreeMap;
use std::time::Duration;

use stateright::Model;

use self::real::{RealRoom, RoomView};
use super::World;
use super::actions::Step;
use super::state::{Answered, Packet, Request, State};
use crate::engine::model::TICK;
use crate::engine::model::replay::compare::Sides;
use crate::engine::model::replay::real::Real;
use crate::engine::model::state::{Faults, process_of};
use crate::engine::rng::{Rng, first_seed};
use crate::engine::small_redis::{
    Message, Op, PendingAcquire, Reply, RoomOp, RoomReply, SmallRedis, Stage, millis,
};
use crate::engine::state::lock_state::{AcquireMode, Answer};
use crate::kind::Kind;
use crate::kinds::{Reentrant, Simple};
use redis_concurrent_testkit::RedisServer;

/// How many walks there are, of all kinds together; and how many at most, until everything was seen that is to
/// be: what is rare does not come in each eighty.
const WALKS: u64 = 80;
const MOST_WALKS: u64 = 10 * WALKS;
/// How many steps of a walk reach Redis, time that passes among them.
const STEPS: usize = 100;

fn world() -> World {
    World {
        plans: vec![vec!["w", "w", "w"], vec!["w", "w", "s"], vec!["a", "s", "ww"]],
        rounds: 60,
        conditions: 2,
        ticks: 200,
        local_handoff: Duration::ZERO,
        // Less than the lease: what is told is told for less.
        waiter_timeout: millis(TICK) * 3 / 2,
        faults: Faults { crashes: 1, time_outs: 12, lost: 20, breaks: 8, ..Faults::default() },
    }
}

/// What the walks came to, all together.
#[derive(Debug, Default)]
struct Seen(BTreeMap<&'static str, usize>);

impl Seen {
    fn count(&mut self, what: &'static str, is: bool) {
        if is {
            *self.0.entry(what).or_default() += 1;
        }
    }
}

/// All that the walks are to come to, so that they compare something.
const ALL: [&str; 13] = [
    "began to wait",
    "a beat",
    "back without a signal",
    "its hold was not there",
    "signalled one",
    "signalled several",
    "signalled nobody",
    "signalled from outside",
    "one was signalled in vain",
    "a signal was passed on",
    "quit the lock",
    "quit from outside",
    "a signal went on from one that was let in",
];

struct Walk<'a> {
    rng: Rng,
    /// For so many ticks nothing happens but time.
    asleep: usize,
    /// Until there were so many requests, what happens is not left to chance alone.
    scene: usize,
    world: &'a World,
    state: State,
    real: &'a mut Real,
    room: &'a RealRoom,
    seen: &'a mut Seen,
    sides: Sides,
    /// Every request there was: a late copy of any may come.
    requests: Vec<Request>,
}

impl Walk<'_> {
    /// Returns whether it was walked to its end: where the machine stood still for so long that
    /// leases ended, there is nothing to compare.
    fn walk(&mut self) -> bool {
        let mut steps = 0;
        while steps < STEPS {
            for p in 0..self.state.processes.len() {
                self.real.set_hearing(p, self.state.hears(p as u64));
            }
            let Some(step) = self.choose() else { return true };
            let reaches = match &step {
                Step::Run(packet) | Step::LoseReply(packet) => {
                    if !self.says_the_same(&packet.request) {
                        return false;
                    }
                    true
                }
                step => *step == Step::Tick,
            };
            if let Some(next) = self.world.next_state(&self.state, step) {
                self.state = next;
            }
            if reaches {
                steps += 1;
                self.real.wind(&self.state.redis, self.state.millis());
                self.room.wind(self.real, &self.state.redis, self.state.millis());
            }
        }
        true
    }

    fn choose(&mut self) -> Option<Step> {
        let request = match self.rng.below(100) {
            0..5 if !self.requests.is_empty() => {
                Some(self.requests[self.rng.below(self.requests.len())].clone())
            }
            5..8 => self.quit_of_the_holder(),
            _ => None,
        };
        if let Some(request) = request {
            return Some(Step::Run(Packet { process: 0, thread: None, request, sent: 0, resent: false }));
        }
        let first = self.requests.len() < self.scene;
        let mut steps = Vec::new();
        self.world.actions(&self.state, &mut steps);
        let ticks = steps.pop_if(|step| *step == Step::Tick);
        if self.rng.percent(1) && !first {
            self.asleep = 2 + self.rng.below(5);
        }
        if self.asleep > 0 || self.rng.percent(if first { 1 } else { 4 }) {
            self.asleep = self.asleep.saturating_sub(1);
            return ticks;
        }
        let rare =
            |step: &Step| matches!(step, Step::Break(_) | Step::Crash(_) | Step::Despair(..) | Step::Mend(_));
        let trouble = |step: &Step| {
            use Step::{Fail, LoseMessage, LoseReply, Overtake, Repeat, TimeOut};
            matches!(step, Fail(_) | LoseMessage(_) | LoseReply(_) | Overtake(_) | Repeat(_) | TimeOut(..))
        };
        match self.rng.below(100) {
            _ if first => {
                steps.retain(|step| !trouble(step));
                self.set_scene(&mut steps);
            }
            0..10 if steps.iter().any(trouble) => steps.retain(trouble),
            10..14 if steps.iter().any(rare) => steps.retain(rare),
            _ if steps.iter().all(|step| rare(step) || trouble(step)) => {}
            _ => steps.retain(|step| !rare(step) && !trouble(step)),
        }
        if steps.is_empty() {
            return ticks;
        }
        let i = self.rng.below(steps.len());
        Some(steps.swap_remove(i))
    }

    /// A wait gives up that was let in, and does not know it.
    fn quit_of_the_holder(&self) -> Option<Request> {
        let owner = self.state.redis.holders().first()?.owner;
        self.requests.iter().find_map(|request| match request {
            Request::Room(RoomOp::Await { ask, condition, .. }) if ask.owner == owner => {
                Some(Request::Room(RoomOp::Quit { owner, condition: *condition, unsettled: true }))
            }
            _ => None,
        })
    }

    /// Somebody is signalled while another waits for the same condition, and is not there to be let in:
    /// seldom by mere chance.
    fn set_scene(&self, steps: &mut Vec<Step>) {
        let redis = &self.state.redis;
        let wait = |condition| redis.room.places.values().filter(|w| w.condition == condition).count();
        let signalled = redis.queue.values().find(|p| matches!(p.stage, Stage::Signalled(c) if wait(c) > 0));
        let deaf = signalled.map(|place| Step::Break(process_of(place.owner) as u8));
        if let Some(step) = deaf.filter(|step| steps.contains(step)) {
            return *steps = vec![step];
        }
        steps.retain(|step| match step {
            Step::Enter(p, t) => match self.world.plans[usize::from(*p)][usize::from(*t)] {
                "s" => self.world.condition(*t) == 0 && signalled.is_none() && wait(0) > 1,
                "w" => self.world.condition(*t) == 0 && wait(0) < 2,
                _ => false,
            },
            Step::Break(_) | Step::Crash(_) | Step::Despair(..) | Step::Mend(_) => false,
            _ => true,
        });
    }

    /// Has both run a request, and compares all that came of it. Not if the machine stood still.
    fn says_the_same(&mut self, request: &Request) -> bool {
        self.requests.push(request.clone());
        let mut then = self.state.clone();
        let expected = then.run(self.world, request);
        let known: Vec<_> = self.state.messages.iter().collect();
        let told: Vec<Message> = then.messages.iter().filter(|m| !known.contains(m)).copied().collect();
        let answered = match request {
            Request::Lock(op) => {
                let arrival = match op {
                    Op::Acquire(ask) => ask.arrival.map(|a| self.sides.arrivals.0[&a]),
                    _ => None,
                };
                Answered::Lock(self.real.run(op, arrival))
            }
            Request::Room(op) => Answered::Room(self.room.run(self.real, op)),
        };
        let view = self.real.view();
        let room = self.room.view(self.real);
        self.sides.drift = self.real.drift();
        if self.sides.drift > TICK / 2 {
            return false;
        }
        self.note(request, &expected, &then.redis);
        match (request, &expected, &answered) {
            (Request::Lock(op), Answered::Lock(small), Answered::Lock(real)) => {
                self.sides.compare_replies(op, small, real);
            }
            (Request::Room(op), Answered::Room(small), Answered::Room(real)) => {
                self.compare_replies(op, small, real);
            }
            _ => panic!("{expected:?}, and really {answered:?}"),
        }
        let now = self.state.millis();
        self.sides.compare(&then.redis, now, &told, &view);
        self.compare_rooms(&then.redis, &room);
        true
    }

    fn compare_replies(&mut self, op: &RoomOp, small: &RoomReply, real: &RoomReply) {
        match (small, real) {
            (RoomReply::Acquired(Answer::Back(small)), RoomReply::Acquired(Answer::Back(real))) => {
                self.sides.compare_answers(op, small, real);
            }
            (RoomReply::Acquired(small), RoomReply::Acquired(real)) => {
                self.sides.compare_answers(op, small, real);
            }
            _ => assert_eq!(small, real, "{op:?}"),
        }
    }

    fn compare_rooms(&mut self, small: &SmallRedis, view: &RoomView) {
        let now = self.state.millis();
        let stages: Vec<Stage> = small.queue.values().map(|place| place.stage).collect();
        assert_eq!(stages, view.stages, "by what they are in the queue");
        let ours: Vec<_> = small.room.members.iter().map(|((c, _), owner)| (*c, *owner)).collect();
        let theirs: Vec<_> = view.members.iter().map(|(c, _, owner)| (*c, *owner)).collect();
        assert_eq!(ours, theirs, "who waits for a signal, in order");
        for ((_, since), (_, seen, _)) in small.room.members.keys().zip(&view.members) {
            self.sides.arrivals.same(*since, *seen, "arrival in a condition");
        }
        match ours.len() {
            0 => assert_eq!(view.ttl, -2, "no conditions"),
            _ => self.sides.near_end(small.room.ends, view.ttl, now, "conditions"),
        }
        let ours = small.room.signalled.map(|it| (it.owner, it.condition));
        assert_eq!(ours, view.signalled, "who was let in by a signal");
        assert_eq!(small.room.places.len(), view.waits.len(), "places beside the queue");
        for ((owner, waits), seen) in small.room.places.iter().zip(&view.waits) {
            let ours = (*owner, waits.condition, waits.lease, self.sides.waiter_timeout);
            assert_eq!(ours, (seen.owner, seen.condition, seen.lease, seen.waiter_timeout), "{seen:?}");
            self.sides.arrivals.same(waits.since, seen.since, "arrival of a place in a condition");
            self.sides.near(seen.age, now - waits.beat, "age of a place in a condition");
        }
    }

    fn note(&mut self, request: &Request, expected: &Answered, then: &SmallRedis) {
        let before = &self.state.redis;
        let signalled = |redis: &SmallRedis| -> Vec<u64> {
            let places = redis.queue.values().filter(|p| matches!(p.stage, Stage::Signalled(_)));
            places.map(|p| p.owner).collect()
        };
        let there = |owner: &u64| then.room.places.contains_key(owner);
        let (was, is) = (signalled(before), signalled(then));
        let holder = then.holders().first().map(|h| h.owner);
        let came = |o: &u64| before.room.places.contains_key(o) && (is.contains(o) || holder == Some(*o));
        let gone = was.iter().any(|o| !is.contains(o) && holder != Some(*o));
        let passed_on = gone && before.room.places.keys().any(came);
        let seen = &mut *self.seen;
        match (request, expected) {
            (Request::Room(RoomOp::Await { ask, .. }), Answered::Room(RoomReply::Acquired(answer))) => {
                let PendingAcquire { owner, how, from, .. } = ask;
                let stays = there(owner) && matches!(answer, Answer::Busy { .. });
                seen.count("began to wait", stays && from.is_some());
                seen.count("a beat", stays && *how == AcquireMode::Keep);
                seen.count("back without a signal", matches!(answer, Answer::Back(_)));
                seen.count("its hold was not there", matches!(answer, Answer::Refused(_)));
                seen.count("a signal was passed on", passed_on);
                let went = before.room.signalled.is_some() && then.room.signalled != before.room.signalled;
                let moved = |o: &u64| before.arrival(*o).is_none() && came(o);
                seen.count(
                    "a signal went on from one that was let in",
                    went && before.room.places.keys().any(moved),
                );
            }
            (Request::Room(RoomOp::Signal { .. }), Answered::Room(RoomReply::Signalled(n))) => {
                let left = before.room.places.len() - then.room.places.len();
                seen.count("signalled one", *n == Some(1));
                seen.count("signalled several", *n > Some(1));
                seen.count("signalled nobody", *n == Some(0));
                seen.count("signalled from outside", n.is_none());
                seen.count("one was signalled in vain", n.is_some_and(|n| n < left));
            }
            (Request::Room(_), Answered::Room(RoomReply::Left { inside })) => {
                seen.count("quit the lock", *inside);
                seen.count("quit from outside", !inside);
                seen.count("a signal was passed on", passed_on);
            }
            (_, Answered::Lock(Reply::Left { .. } | Reply::Acquired(_))) => {
                seen.count("a signal was passed on", passed_on);
            }
            _ => {}
        }
    }
}

#[test]
fn conditions_say_what_the_models_redis_says() {
    let server = RedisServer::start().unwrap();
    let world = world();
    let kinds = [("simple", Simple::RULE), ("reentrant", Reentrant::RULE)];
    let mut sides = kinds.map(|(kind, rule)| {
        let real = Real::new(&server, rule, kind, world.plans.len() as u8, world.waiter_timeout);
        (kind, real, RealRoom::new(rule, world.waiter_timeout))
    });
    let mut seen = Seen::default();
    let (mut walked, mut seed) = (0, first_seed());
    let all_seen = |seen: &Seen| ALL.iter().all(|what| seen.0.contains_key(*what));
    while walked < WALKS || walked < MOST_WALKS && !all_seen(&seen) {
        let (kind, real, room) = &mut sides[(seed % 2) as usize];
        println!("{kind}: SEED={seed}");
        real.begin(0, 0);
        let mut walk = Walk {
            rng: Rng(seed),
            asleep: 0,
            scene: if seed % 8 < 2 { 30 } else { 0 },
            world: &world,
            state: world.beginning(),
            real,
            room,
            seen: &mut seen,
            sides: Sides::new(world.waiter_timeout, false),
            requests: Vec::new(),
        };
        walked += u64::from(walk.walk());
        seed += 1;
    }
    println!("{walked} walks, {} left half-way: {:?}", seed - first_seed() - walked, seen.0);
    let missing: Vec<_> = ALL.iter().filter(|what| !seen.0.contains_key(**what)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}
