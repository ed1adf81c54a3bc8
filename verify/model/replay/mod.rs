//! Checks the models against the scripts: random walks of a model, in which everything that reaches its small
//! Redis is also sent to the real Lua on a real server. After each step, both must have given the same reply,
//! notified the same waiters, and stored the same: holders, numbers, queue, tombstones, waiters for signals,
//! and when each of them expires.
//!
//! Numbers and arrivals of the two differ, since they are made from the time: what must agree is their order,
//! and which of them are equal. In every other walk without conditions, the last number is in the future;
//! then they must be identical.

mod choose;
mod compare;
mod conditions;
mod real;
mod scripts;
mod seen;

use std::time::Duration;

use stateright::Model;

use self::compare::Sides;
use self::conditions::RealAwaiting;
use self::real::Real;
use self::seen::{ALL, OF_CONDITIONS, OF_KEPT, OF_PERMITS, OF_TWO_MODES, Seen};
use super::actions::Step;
use super::modes::Role;
use super::state::{Bag, Faults, State};
use super::{TICK, World};
use crate::engine::random::{Rng, first_seed};
use crate::engine::small_redis::{Message, Op, Says, millis};
use crate::kind::Kind;
use crate::kinds::{Permits, Read, Reentrant, Simple};
use redis_concurrent_testkit::RedisServer;

/// How many walks there are of each kind, and how many steps of each reach Redis, ticks included.
const WALKS: (u64, usize) = (1_000, 30);
/// The same for walks with conditions, over all kinds together.
const WITH_CONDITIONS: (u64, usize) = (80, 100);
/// There are more walks, up to this many times as many, until everything that must be seen has been seen:
/// what is rare does not occur in every eighty walks.
const MOST: u64 = 10;
/// How many waiters one script may dispose of before it has done its share and leaves the rest to the next
/// one: `rest` in `lua/lib/queue.lua` is 30, and one that is admitted by a signal and taken back costs 5 of
/// it.
const SHARE: usize = 5;

struct Walk<'a> {
    rng: Rng,
    /// For this many ticks, only time passes.
    asleep: usize,
    /// Until there have been this many requests, what happens is not left to chance alone.
    scene: usize,
    world: &'a World,
    state: State,
    real: &'a mut Real,
    /// For a lock with conditions.
    awaiting: Option<&'a RealAwaiting>,
    seen: &'a mut Seen,
    sides: Sides,
    /// All requests so far: a late copy of any of them may arrive.
    requests: Vec<Op>,
}

fn world(roles: &'static [Role], permits: u8) -> World {
    World {
        processes: 3,
        threads: 2,
        rounds: 60,
        others_once: false,
        ticks: 200,
        local_handoff: if roles.is_empty() { Duration::ZERO } else { TICK },
        // Less than the lease, so that a grant announced by a message is shorter.
        waiter_timeout: millis(TICK) * 3 / 2,
        fair: false,
        // A read/write lock gets only requests for the same share.
        terms_differ: roles.is_empty(),
        counts: false,
        permits,
        max_waiters: Some(3),
        priorities: true,
        roles,
        plans: Vec::new(),
        conditions: 1,
        prompt: false,
        behind: false,
        linger: 2,
        faults: Faults {
            crashes: 1,
            vanishes: 0,
            time_outs: 8,
            lost: 20,
            breaks: 4,
            moves: 0,
            flushes: 0,
            tries: 8,
            drops: 0,
            renewals: 20,
            revocations: 2,
        },
    }
}

fn world_of_conditions() -> World {
    World {
        max_waiters: None,
        priorities: false,
        plans: vec![vec!["w", "w", "w"], vec!["w", "w", "s"], vec!["a", "s", "ww"]],
        conditions: 2,
        terms_differ: false,
        faults: Faults { crashes: 1, time_outs: 12, lost: 20, breaks: 8, ..Faults::default() },
        ..world(&[], 0)
    }
}

impl Walk<'_> {
    /// Returns whether the walk was completed: if the machine stalled for so long that leases expired, there
    /// is nothing to compare.
    fn walk(&mut self, most: usize) -> bool {
        let mut steps = 0;
        while steps < most {
            self.listen();
            let Some(step) = self.choose() else { return true };
            let reaches = match &step {
                Step::Run(packet) | Step::LoseReply(packet) => {
                    if !self.says_the_same(&packet.op) {
                        return false;
                    }
                    true
                }
                Step::Revoke(owner) if !self.says_the_same(&Op::Revoke { owner: *owner }) => return false,
                step => matches!(step, Step::Tick | Step::Revoke(_)),
            };
            let next = self.world.next_state(&self.state, step).unwrap_or_else(|| self.state.clone());
            let before = std::mem::replace(&mut self.state, next);
            if reaches {
                steps += 1;
                self.note_time(&before.redis);
                self.real.wind(&self.state.redis, self.state.millis());
                if let Some(awaiting) = self.awaiting {
                    awaiting.wind(self.real, &self.state.redis, self.state.millis());
                }
            }
        }
        true
    }

    /// Subscribes the processes that can hear now, and no others.
    fn listen(&mut self) {
        for p in 0..self.state.processes.len() {
            self.real.set_hearing(p, self.state.listens(p as u64));
        }
    }

    /// Has both sides run a request, and compares all effects. Returns `false` without a comparison if the
    /// machine stalled, or if the scripts leave some of the work to the next one: the small Redis does all of
    /// it at once.
    fn says_the_same(&mut self, op: &Op) -> bool {
        self.requests.push(op.clone());
        let mut then = State { messages: Bag::default(), ..self.state.clone() };
        let expected = then.run(self.world, op);
        let waiting = |state: &State| state.redis.queue.len() + state.redis.awaiting.positions.len();
        if waiting(&self.state) > waiting(&then) + SHARE {
            return false;
        }
        // A new id of a process at the place of one whose leave is still on its way: the small Redis has one at a place.
        if let Op::Acquire(ask) | Op::Leave { next: Some(ask), .. } = op
            && self.state.redis.has_another_at(ask)
        {
            return false;
        }
        let messages: Vec<Message> = then.messages.iter().copied().collect();
        let arrival = match op {
            Op::Acquire(ask) | Op::Leave { next: Some(ask), .. } => {
                ask.arrival.map(|a| self.sides.arrivals.known[&a])
            }
            _ => None,
        };
        let of_condition = self.awaiting.and_then(|awaiting| awaiting.run(self.real, op));
        let reply = of_condition.unwrap_or_else(|| self.real.run(op, arrival));
        let view = self.real.view();
        let awaiting = self.awaiting.map(|awaiting| awaiting.view(self.real));
        self.sides.drift = self.real.drift();
        if self.sides.drift > TICK / 2 {
            return false;
        }
        self.sides.compare_replies(op, &expected, &reply);
        self.sides.compare(&then.redis, self.state.millis(), &messages, &view);
        self.seen.count_if("told to ask again", messages.iter().any(|message| message.says == Says::Again));
        if let Some(awaiting) = awaiting {
            self.note_signals(op, &expected, &then.redis);
            self.sides.compare_awaiting(&then.redis, self.state.millis(), &awaiting);
        } else {
            self.note(op, &self.state.redis.clone(), &then.redis, &expected, &messages);
        }
        true
    }
}

/// Walks until everything `expected` was seen, on locks of each of these kinds in turn.
fn walk_on(
    kinds: &[(&str, &str)],
    world: &World,
    (walks, steps): (u64, usize),
    expected: &[&[&'static str]],
) {
    let server = RedisServer::start().unwrap();
    let real = |(name, rule): &(&str, &str)| {
        let real = Real::new(&server, rule, name, world.processes, world.waiter_timeout);
        let awaiting = world.has_conditions().then(|| RealAwaiting::new(rule, world.waiter_timeout));
        ((*name).to_owned(), real, awaiting)
    };
    let mut sides: Vec<_> = kinds.iter().map(real).collect();
    let mut seen = Seen::default();
    let (mut walked, mut seed) = (0, first_seed());
    let missing = |seen: &Seen| -> Vec<_> {
        expected.iter().copied().flatten().filter(|what| !seen.0.contains_key(**what)).copied().collect()
    };
    while walked < walks || walked < MOST * walks && !missing(&seen).is_empty() {
        let turn = usize::try_from(seed).unwrap_or_default() % sides.len();
        let (kind, real, awaiting) = &mut sides[turn];
        println!("{kind}: SEED={seed}");
        let ahead = seed % 2 == 0 && !world.has_conditions();
        let fence = if ahead { real.now() + 3_600_000_000 } else { 0 };
        real.begin(fence, world.permits);
        let mut state = world.beginning();
        state.redis = world.redis(fence);
        let mut walk = Walk {
            rng: Rng(seed),
            asleep: 0,
            scene: if seed % 8 < 2 { 30 } else { 0 },
            world,
            state,
            real,
            awaiting: awaiting.as_ref(),
            seen: &mut seen,
            sides: Sides::new(world.waiter_timeout, world.permits > 0),
            requests: Vec::new(),
        };
        walked += u64::from(walk.walk(steps));
        seed += 1;
        if fence > 0 {
            let numbers = &walk.sides.numbers.known;
            assert!(numbers.iter().all(|(small, real)| small == real), "{numbers:?}");
        }
    }
    println!("{walked} walks, {} left half-way: {:?}", seed - first_seed() - walked, seen.0);
    assert!(missing(&seen).is_empty(), "never seen: {:?}", missing(&seen));
}

#[test]
fn the_simple_lock_says_what_the_models_redis_says() {
    walk_on(&[("simple", Simple::RULE)], &world(&[], 0), WALKS, &[&ALL, &OF_KEPT]);
}

#[test]
fn the_reentrant_lock_says_what_the_models_redis_says() {
    walk_on(&[("reentrant", Reentrant::RULE)], &world(&[], 0), WALKS, &[&ALL, &OF_KEPT]);
}

#[test]
fn the_read_write_lock_says_what_the_models_redis_says() {
    use Role::{Downgrades, Reads, ReadsInOrder, ReadsToo};
    let roles = &[Reads, Reads, Downgrades, Reads, ReadsToo, ReadsInOrder];
    walk_on(&[("read-write", Read::RULE)], &world(roles, 0), WALKS, &[&ALL, &OF_KEPT, &OF_TWO_MODES]);
}

/// One thread of each process requests one permit, the other two of the three.
#[test]
fn the_semaphore_says_what_the_models_redis_says() {
    walk_on(&[("semaphore", Permits::RULE)], &world(&[], 3), WALKS, &[&ALL, &OF_PERMITS]);
}

#[test]
fn conditions_say_what_the_models_redis_says() {
    let kinds = [("simple", Simple::RULE), ("reentrant", Reentrant::RULE)];
    walk_on(&kinds, &world_of_conditions(), WITH_CONDITIONS, &[&OF_CONDITIONS]);
}
