//! Models meet the scripts: walks of the model by chance, and all that reaches its small Redis is
//! said to the real Lua on a real server too. After each step both must have given the same answer,
//! told the same waiters, and hold the same: holders, numbers, queue, bars, and when each of them
//! ends.
//!
//! A number or an arrival of the one is not that of the other, since they are made from the time:
//! what must be the same is their order, and that the same is the same again. In every other walk
//! the last number is one of the future; then they are the very same.

pub(super) mod compare;
pub(super) mod real;
mod scripts;

use std::collections::BTreeMap;
use std::time::Duration;

use stateright::Model;

use self::compare::Sides;
use self::real::Real;
use super::actions::Step;
use super::modes::Role;
use super::state::{Bag, Faults, Packet, State};
use super::{TICK, World};
use crate::engine::rng::{Rng, first_seed};
use crate::engine::small_redis::{Message, Mode, Op, PendingAcquire, Place, Reply, SmallRedis, millis};
use crate::engine::state::lock_state::{AcquireMode, Answer, Renewal};
use crate::kind::Kind;
use crate::kinds::{Permits, Read, Reentrant, Simple};
use redis_concurrent_testkit::RedisServer;

/// How many walks there are of each kind.
const WALKS: u64 = 1_000;
/// How many steps of a walk reach Redis, time that passes among them.
const STEPS: usize = 30;

/// What the walks came to, all together.
#[derive(Debug, Default)]
struct Seen(BTreeMap<&'static str, usize>);

impl Seen {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }
}

struct Walk<'a> {
    rng: Rng,
    /// For so many ticks nothing happens but time.
    asleep: usize,
    world: &'a World,
    state: State,
    real: &'a mut Real,
    seen: &'a mut Seen,
    sides: Sides,
    /// Every request there was: a late copy of any may come.
    requests: Vec<Op>,
}

fn world(roles: &'static [Role], permits: u8) -> World {
    World {
        processes: 3,
        threads: 2,
        rounds: 60,
        ticks: 200,
        local_handoff: if roles.is_empty() { Duration::ZERO } else { TICK },
        // Less than the lease: what is told is told for less.
        waiter_timeout: millis(TICK) * 3 / 2,
        fair: false,
        // A share is only of those who ask for the same.
        terms_differ: roles.is_empty(),
        counts: false,
        permits,
        roles,
        prompt: false,
        behind: false,
        faults: Faults {
            crashes: 1,
            vanishes: 0,
            time_outs: 8,
            lost: 20,
            breaks: 4,
            moves: 0,
            tries: 8,
            renewals: 20,
        },
    }
}

impl Walk<'_> {
    /// Returns whether it was walked to its end: where the machine stood still for so long that
    /// leases ended, there is nothing to compare.
    fn walk(&mut self) -> bool {
        let mut steps = 0;
        while steps < STEPS {
            self.listen();
            let Some(step) = self.choose() else { return true };
            let reaches = match &step {
                Step::Run(packet) | Step::LoseReply(packet) => {
                    if !self.says_the_same(&packet.op) {
                        return false;
                    }
                    true
                }
                step => *step == Step::Tick,
            };
            let next = self.next(step);
            let before = std::mem::replace(&mut self.state, next);
            if reaches {
                steps += 1;
                self.note_time(&before.redis);
                self.real.wind(&self.state.redis, self.state.millis());
            }
        }
        true
    }

    fn next(&self, step: Step) -> State {
        self.world.next_state(&self.state, step).unwrap_or_else(|| self.state.clone())
    }

    fn choose(&mut self) -> Option<Step> {
        if !self.requests.is_empty() && self.rng.percent(5) {
            let op = self.requests[self.rng.below(self.requests.len())].clone();
            return Some(Step::Run(Packet { process: 0, thread: None, op, sent: 0, resent: false }));
        }
        let mut steps = Vec::new();
        self.world.actions(&self.state, &mut steps);
        let ticks = steps.pop_if(|step| *step == Step::Tick);
        if self.rng.percent(1) {
            self.asleep = 3 + self.rng.below(7);
        }
        if self.asleep > 0 || self.rng.percent(4) {
            self.asleep = self.asleep.saturating_sub(1);
            return ticks;
        }
        let plain = |step: &Step| {
            use Step::{Deliver, Enter, Hear, Renew, Run, Timer, Turn, Unlock};
            use Step::{Downgrade, ReadBeside, Replace, UnlockFirst};
            matches!(
                step,
                Enter(..) | Turn(..) | Timer(..) | Unlock(..) | Renew(..) | Run(_) | Hear(..) | Deliver(_)
            ) || matches!(step, Downgrade(..) | ReadBeside(..) | Replace(..) | UnlockFirst(..))
        };
        if self.rng.percent(75) && steps.iter().any(plain) {
            steps.retain(plain);
        }
        if steps.is_empty() {
            return ticks;
        }
        let i = self.rng.below(steps.len());
        Some(steps.swap_remove(i))
    }

    /// The processes that can hear now.
    fn listen(&mut self) {
        for p in 0..self.state.processes.len() {
            self.real.set_hearing(p, self.state.listens(p as u64));
        }
    }

    /// Has both run a request, and compares all that came of it. Not if the machine stood still.
    fn says_the_same(&mut self, op: &Op) -> bool {
        self.requests.push(op.clone());
        let mut then = State { messages: Bag::default(), ..self.state.clone() };
        let expected = then.run(self.world, op);
        let told: Vec<Message> = then.messages.iter().copied().collect();
        let arrival = match op {
            Op::Acquire(ask) => ask.arrival.map(|a| self.sides.arrivals.0[&a]),
            _ => None,
        };
        let reply = self.real.run(op, arrival);
        let view = self.real.view();
        self.sides.drift = self.real.drift();
        if self.sides.drift > TICK / 2 {
            return false;
        }
        self.note(op, &self.state.redis.clone(), &then.redis, &expected, &told);
        self.sides.compare_replies(op, &expected, &reply);
        self.sides.compare(&then.redis, self.state.millis(), &told, &view);
        true
    }

    fn note(&mut self, op: &Op, before: &SmallRedis, then: &SmallRedis, reply: &Reply, told: &[Message]) {
        let (Reply::Acquired(answer) | Reply::Left { next: Some(answer), .. }) = reply else {
            return self.seen.count(match reply {
                Reply::Left { inside: true, .. } => "left the lock",
                Reply::Left { .. } => "left from outside",
                Reply::Renewed(Renewal::Left(_)) => "renewed",
                _ => "not renewed",
            });
        };
        self.seen.count(match answer {
            Answer::In { .. } => "in",
            Answer::Busy { .. } => "busy",
            Answer::Gone => "no place to keep",
            Answer::Over => "barred",
            Answer::Refused(_) => "no hold to exchange",
            other => panic!("{other:?}"),
        });
        let now = self.state.millis();
        let silent = |p: &&Place| now - p.beat > self.world.waiter_timeout;
        let own = |o: u64| match op {
            Op::Acquire(ask) => ask.owner == o,
            Op::Leave { owner, .. } | Op::Renew { owner, .. } => *owner == o,
        };
        let is_out = |o: u64| then.arrival(o).is_none() && then.holder(o).is_none();
        let permits = |redis: &SmallRedis| redis.holders().iter().map(|h| h.mode.permits()).sum::<u8>();
        let dropped = before.queue.values().filter(silent).any(|p| then.arrival(p.owner).is_none());
        let whats = [
            ("told", told.iter().any(Message::is_grant)),
            ("told to yield", !told.iter().all(Message::is_grant)),
            ("read together", then.holders().iter().filter(|h| h.mode != Mode::Write).count() > 1),
            (
                "read beside its write",
                then.holders().iter().any(|h| h.mode == Mode::Write) && then.holders().len() > 1,
            ),
            ("permits are out together", permits(then) > 0 && then.holders().len() > 1),
            (
                "some permits, and too few",
                matches!(answer, Answer::Busy { .. }) && permits(then) < self.world.permits,
            ),
            ("exchanged", then.holders().iter().any(|h| h.instead.is_some())),
            (
                "may share",
                matches!(
                    (op, answer),
                    (Op::Acquire(PendingAcquire { how: AcquireMode::Share, .. }), Answer::In { .. })
                ),
            ),
            (
                "may not share",
                matches!(
                    (op, answer),
                    (Op::Acquire(PendingAcquire { how: AcquireMode::Share, .. }), Answer::Busy { .. })
                ),
            ),
            ("unheard", before.queue.values().any(|p| !silent(&p) && !own(p.owner) && is_out(p.owner))),
            ("a silent place was dropped", dropped),
            (
                "a place was given back",
                match op {
                    Op::Acquire(ask) => {
                        let told = ask.arrival.map(|arrival| then.place_of(ask.mode, arrival));
                        told.is_some()
                            && then.arrival(ask.owner) == told
                            && before.arrival(ask.owner).is_none()
                    }
                    _ => false,
                },
            ),
        ];
        whats.into_iter().filter(|w| w.1).for_each(|w| self.seen.count(w.0));
    }

    fn note_time(&mut self, before: &SmallRedis) {
        // Where each holder has an end of its own.
        if !self.world.roles.is_empty() || self.world.permits > 0 {
            let over = before.holders().iter().filter(|h| h.end <= self.state.millis());
            self.sides.lapsed.extend(over.map(|h| h.owner));
        }
        let (then, now) = (&self.state.redis, self.state.millis());
        let lapsed = |end: u64| end <= now && end + millis(TICK) > now;
        let whats = [
            (
                "a lease lapsed",
                before.holders().iter().any(|h| lapsed(h.end) && then.holder(h.owner).is_none()),
            ),
            (
                "a queue fell silent",
                !before.queue.is_empty() && then.queue.is_empty() && lapsed(before.queue_ends),
            ),
            ("bars ended", !before.gone.is_empty() && then.gone.is_empty()),
        ];
        whats.into_iter().filter(|w| w.1).for_each(|w| self.seen.count(w.0));
    }
}

/// All that the walks are to come to, so that they compare something.
const ALL: [&str; 15] = [
    "in",
    "busy",
    "no place to keep",
    "barred",
    "left the lock",
    "left from outside",
    "renewed",
    "not renewed",
    "told",
    "unheard",
    "a silent place was dropped",
    "a place was given back",
    "a lease lapsed",
    "a queue fell silent",
    "bars ended",
];

/// And those of a read/write lock.
const OF_TWO_MODES: [&str; 7] = [
    "told to yield",
    "read together",
    "read beside its write",
    "exchanged",
    "no hold to exchange",
    "may share",
    "may not share",
];

/// And those of a semaphore.
const OF_PERMITS: [&str; 2] = ["permits are out together", "some permits, and too few"];

fn walk_on(kind: &str, rule: &str, world: &World, also: &[&str]) {
    let server = RedisServer::start().unwrap();
    let mut real = Real::new(&server, rule, kind, world.processes, world.waiter_timeout);
    let mut seen = Seen::default();
    let (mut walked, mut seed) = (0, first_seed());
    while walked < WALKS {
        println!("{kind}: SEED={seed}");
        let fence = if seed % 2 == 0 { real.now() + 3_600_000_000 } else { 0 };
        real.begin(fence, world.permits);
        let mut state = world.beginning();
        state.redis = world.redis(fence);
        let (rng, seen, sides) = (Rng(seed), &mut seen, Sides::new(world.waiter_timeout, world.permits > 0));
        let mut walk =
            Walk { rng, asleep: 0, world, state, real: &mut real, seen, sides, requests: Vec::new() };
        walked += u64::from(walk.walk());
        seed += 1;
        if fence > 0 {
            assert!(
                walk.sides.numbers.0.iter().all(|(small, real)| small == real),
                "{:?}",
                walk.sides.numbers.0
            );
        }
    }
    println!("{kind}: {WALKS} walks, {} left half-way: {:?}", seed - first_seed() - WALKS, seen.0);
    let missing: Vec<_> = ALL.iter().chain(also).filter(|what| !seen.0.contains_key(**what)).collect();
    assert!(missing.is_empty(), "never seen: {missing:?}");
}

#[test]
fn the_simple_lock_says_what_the_models_redis_says() {
    walk_on("simple", Simple::RULE, &world(&[], 0), &[]);
}

#[test]
fn the_reentrant_lock_says_what_the_models_redis_says() {
    walk_on("reentrant", Reentrant::RULE, &world(&[], 0), &[]);
}

#[test]
fn the_read_write_lock_says_what_the_models_redis_says() {
    use Role::{Downgrades, Reads, ReadsBeside, ReadsInOrder};
    let roles = &[Reads, Reads, Downgrades, Reads, ReadsBeside, ReadsInOrder];
    walk_on("read-write", Read::RULE, &world(roles, 0), &OF_TWO_MODES);
}

/// One thread of each process asks for one permit, the other for two of the three.
#[test]
fn the_semaphore_says_what_the_models_redis_says() {
    walk_on("semaphore", Permits::RULE, &world(&[], 3), &OF_PERMITS);
}
