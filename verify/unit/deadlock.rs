//! Unit tests of `src/deadlock.rs`, and a model of the detector: threads that take locks in any order, give up or not,
//! and publish and read at their heartbeats, in simulated time. What is checked: there is never a victim without a circle
//! that stood, no circle has two victims, and each circle that lasts has one in time.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::*;

fn claim(name: &str, number: u64, shared: bool) -> Claim {
    Claim { stem: format!("rc:{{{name}}}"), number, shared }
}

fn blocked(thread: &str, since: u64, wants: &str, holds: &[&str]) -> Blocked {
    Blocked {
        thread: thread.to_owned(),
        who: format!("1 host client\t{thread}"),
        since,
        times: 1,
        wants: claim(wants, 0, false),
        holds: holds.iter().map(|it| claim(it, 7, false)).collect(),
    }
}

#[test]
fn what_is_published_is_read() {
    let mut it = blocked("u:1", 1_700_000_000_000, "a b\t|~,%\u{e9}", &["c", "d|e"]);
    assert_eq!(Blocked::read(&it.text()), Some(it.clone()));
    assert!(!it.text().contains('\t'));
    it.holds.clear();
    assert_eq!(Blocked::read(&it.text()), Some(it.clone()));
    for broken in ["", "a", "a b c d e", "a b 1 x e", "a b 1 2 e", "a b 1 2 x%7Ce", "a b 1 2 0%7Ce f"] {
        assert_eq!(Blocked::read(broken), None, "{broken}");
    }
    assert!(Blocked::read("a b 1 2 0%7Ce 3%7Cf").is_some());
    for claim in [claim("x", 12, true), claim("x|y~", 12, false)] {
        assert_eq!(Claim::read(&claim.text()), Some(claim));
    }
}

#[test]
fn a_circle_leads_back_to_the_first_thread() {
    let all = [
        blocked("1", 1, "b", &["a", "x"]),
        blocked("4", 9, "x", &["y"]),
        blocked("3", 3, "a", &["c"]),
        blocked("2", 2, "c", &["b"]),
    ];
    let found = circle(&all, true).unwrap();
    let threads: Vec<_> = found.iter().map(|it| &*it.thread).collect();
    assert_eq!(threads, ["1", "2", "3"], "each waits for what the next one holds");
    assert_eq!(victim(&found), Some("3"));
    let text = described(&found);
    let nameless = Blocked { who: "1 host ".to_owned(), ..found[0].clone() };
    assert!(described(&[nameless]).starts_with("1@host, which holds"));
    assert!(text.starts_with("1@host client \"1\", which holds \"a\", has waited "), "{text}");
    // Who is not in it finds none.
    let others = [all[1].clone(), all[0].clone(), all[2].clone(), all[3].clone()];
    assert_eq!(circle(&others, true), None);
    assert_eq!(circle(&[], true), None);
}

#[test]
fn a_hold_that_others_share_keeps_out_only_those_that_want_it_for_themselves() {
    let shares = |wants_all: bool| {
        let mut all = [blocked("1", 1, "b", &["a"]), blocked("2", 2, "a", &["b"])];
        (all[0].holds[0].shared, all[1].wants.shared) = (true, !wants_all);
        circle(&all, true).is_some()
    };
    assert!(shares(true) && !shares(false));
    // An operator sees both, and the threads of each circle once.
    let mut all =
        vec![blocked("3", 3, "x", &["y"]), blocked("1", 1, "b", &["a"]), blocked("2", 2, "a", &["b"])];
    all.push(all[1].clone());
    (all[1].holds[0].shared, all[2].wants.shared) = (true, true);
    let found = circles(all.clone());
    assert!(found.len() == 1 && described(&found[0]).matches("which holds").count() == 2, "{found:?}");
    // So does an observer, unless there is one of which a thread is chosen.
    let mut seen = Vec::new();
    let mut sees = |all: &[Blocked]| believed(&mut seen, all, Duration::ZERO, SECOND).map(<[_]>::to_vec);
    assert_eq!(sees(&all[1..]), None);
    all.iter_mut().for_each(|it| it.times += 1);
    let found = sees(&all[1..]).unwrap();
    assert!(found.len() == 2 && circle(&found, true).is_none());
    all[2].holds.push(claim("b", 7, false));
    (all[1].holds[0].shared, all[2].wants.shared) = (false, false);
    assert_eq!(sees(&all[1..]), None);
}

#[test]
fn a_circle_is_believed_once_all_have_published_it_again() {
    let mut all = [blocked("1", 1, "b", &["a"]), blocked("2", 2, "a", &["b"])];
    let mut seen = Vec::new();
    let mut sees = |all: &[Blocked], took| believed(&mut seen, all, took, SECOND).map(<[_]>::len);
    assert_eq!(sees(&all, Duration::ZERO), None);
    all[0].times += 1;
    assert_eq!(sees(&all, Duration::ZERO), None, "the other one may have gone on since");
    all[1].times += 1;
    assert_eq!(sees(&all, SECOND), None, "one may have gone on before the other one waited");
    assert_eq!(sees(&all, SECOND / 2), Some(2));
    // Another grant, or another wait, is another circle.
    all[1].holds[0].number = 8;
    assert_eq!(sees(&all, Duration::ZERO), None);
    assert_eq!(sees(&all[..1], Duration::ZERO), None);
    assert!(seen.is_empty());
}

const SECOND: Duration = Duration::from_secs(1);

const TIMEOUT: u64 = 1_000;
const HEARTBEAT: u64 = 1_000;
const WAITER_TIMEOUT: u64 = 3_000;

/// A thread of the model.
#[derive(Default)]
struct Thread {
    /// The locks that it holds, each with the number of its grant.
    holds: BTreeMap<usize, u64>,
    /// What it takes in this round, in this order.
    plan: VecDeque<usize>,
    /// The wait that it is in, and when that began.
    waits: Option<(usize, u64)>,
    gives_up_at: u64,
    /// How far its clock is off.
    skew: u64,
    /// When it does something next: takes a lock, releases all, sends a heartbeat.
    next: u64,
    times: u64,
    seen: Vec<Blocked>,
    /// The look that it is in: what it has read, and since when.
    looks: Option<(Vec<Blocked>, Vec<String>, u64)>,
    rounds: u32,
}

/// A circle: its threads, each with when its wait began.
type Circle = BTreeSet<(usize, u64)>;

struct World {
    now: u64,
    random: u64,
    threads: Vec<Thread>,
    /// The holder of each lock, and its queue.
    locks: Vec<(Option<usize>, VecDeque<usize>)>,
    grants: u64,
    /// What Redis has: by lock and thread, each with the time of its last heartbeat.
    records: BTreeMap<(usize, usize), (Blocked, u64)>,
    /// Every circle that ever stood, and since when.
    stood: HashMap<Circle, u64>,
    victims: BTreeSet<Circle>,
    /// How many heartbeats after the timeout a circle may last.
    patience: u64,
    /// One read of so many is slow.
    slow: u64,
}

impl World {
    fn new(seed: u64) -> World {
        let mut world = World {
            now: 1_000_000,
            random: seed,
            threads: Vec::new(),
            locks: Vec::new(),
            grants: 0,
            records: BTreeMap::new(),
            stood: HashMap::new(),
            victims: BTreeSet::new(),
            patience: 2,
            slow: 50,
        };
        let n = 2 + world.below(2) as usize;
        let locks = 2 + world.below(2) as usize;
        world.locks.resize_with(locks, Default::default);
        // In half of the worlds, the clocks differ: then the victim may be one that looked earlier.
        let skewed = world.below(2) == 1;
        world.patience += u64::from(skewed);
        world.slow = [50, 4][world.below(2) as usize];
        for _ in 0..n {
            let (next, skew) = (world.now + world.below(3_000), if skewed { world.below(60_000) } else { 0 });
            world.threads.push(Thread { next, skew, ..Thread::default() });
        }
        world
    }

    fn below(&mut self, n: u64) -> u64 {
        self.random =
            self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % n
    }

    fn grant(&mut self, lock: usize, to: usize) {
        self.grants += 1;
        let pause = 1 + self.below(400);
        let (number, now) = (self.grants, self.now);
        let it = &mut self.threads[to];
        it.holds.insert(lock, number);
        (it.waits, it.looks, it.next) = (None, None, now + pause);
        it.seen.clear();
        self.locks[lock].0 = Some(to);
        self.records.remove(&(lock, to));
    }

    /// The thread no longer waits. What Redis has of it may stay there, if its request is lost.
    fn leaves_queue(&mut self, who: usize) {
        let Some((lock, _)) = self.threads[who].waits.take() else { return };
        self.locks[lock].1.retain(|it| *it != who);
        if self.below(3) > 0 {
            self.records.remove(&(lock, who));
        }
        let pause = 1 + self.below(5_000);
        let it = &mut self.threads[who];
        it.plan.clear();
        it.seen.clear();
        (it.looks, it.next) = (None, self.now + pause);
    }

    fn releases_all(&mut self, who: usize) {
        for lock in std::mem::take(&mut self.threads[who].holds).into_keys() {
            self.locks[lock].0 = None;
            if let Some(next) = self.locks[lock].1.pop_front() {
                self.grant(lock, next);
            }
        }
        let (n, pause) = (self.locks.len(), 1 + self.below(500));
        let first = self.below(n as u64) as usize;
        let second = (first + 1 + self.below(n as u64 - 1) as usize) % n;
        let it = &mut self.threads[who];
        (it.plan, it.next) = ([first, second].into(), self.now + pause);
        it.rounds += 1;
    }

    /// The circles that stand now. Each thread waits for one lock with one holder.
    fn circles(&mut self) -> Vec<(Circle, u64)> {
        let next = |it: usize| self.threads[it].waits.and_then(|(lock, _)| self.locks[lock].0);
        let mut found = BTreeSet::new();
        for first in 0..self.threads.len() {
            let path: Vec<_> = std::iter::successors(next(first), |it| next(*it)).take(4).collect();
            if let Some(end) = path.iter().position(|it| *it == first) {
                let since = |it: &usize| (*it, self.threads[*it].waits.unwrap().1);
                found.insert(path[..=end].iter().map(since).collect::<Circle>());
            }
        }
        let now = self.now;
        let begun = found.into_iter().map(|it| (it.clone(), *self.stood.entry(it).or_insert(now)));
        begun.collect()
    }

    /// What the thread publishes now.
    fn publishes(&mut self, who: usize) -> Blocked {
        let it = &mut self.threads[who];
        it.times += 1;
        let (lock, since) = it.waits.unwrap();
        let claim = |lock: usize, number| claim(&lock.to_string(), number, false);
        let holds = it.holds.iter().map(|(lock, number)| claim(*lock, *number)).collect();
        let (thread, since, wants) = (who.to_string(), since + it.skew, claim(lock, 0));
        Blocked { thread, who: String::new(), since, times: it.times, wants, holds }
    }

    /// One thread's next step.
    fn step(&mut self) {
        let who = (0..self.threads.len()).min_by_key(|it| self.threads[*it].next).unwrap();
        self.now = self.now.max(self.threads[who].next);
        let Some((lock, since)) = self.threads[who].waits else {
            match self.threads[who].plan.pop_front() {
                Some(lock) if self.locks[lock].0.is_none() => self.grant(lock, who),
                Some(lock) => {
                    self.locks[lock].1.push_back(who);
                    let limit = if self.below(2) == 0 { u64::MAX } else { 500 + self.below(6_000) };
                    let it = &mut self.threads[who];
                    (it.waits, it.gives_up_at) = (Some((lock, self.now)), limit.saturating_add(self.now));
                    it.next = (self.now + HEARTBEAT).min(it.gives_up_at);
                }
                None => self.releases_all(who),
            }
            return;
        };
        if self.threads[who].gives_up_at <= self.now {
            return self.leaves_queue(who);
        }
        // A heartbeat publishes, and then looks: one lock after the other, while other threads go on.
        if self.threads[who].looks.is_none() {
            let me = self.publishes(who);
            if me.holds.is_empty() || self.now - since < TIMEOUT {
                let it = &mut self.threads[who];
                it.next = (self.now + HEARTBEAT).min(it.gives_up_at);
                return;
            }
            self.records.insert((lock, who), (me.clone(), self.now));
            self.threads[who].looks = Some((vec![me], Vec::new(), self.now));
        }
        let (mut all, mut read, began) = self.threads[who].looks.take().unwrap();
        if let Some(stem) = unread(&all, &read).map(str::to_owned) {
            let there = self.records.iter().filter(|((lock, _), _)| format!("rc:{{{lock}}}") == stem);
            all.extend(there.map(|(_, (it, _))| it.clone()));
            read.push(stem);
            let takes = if self.below(self.slow) == 0 { self.below(2_500) } else { self.below(4) };
            self.threads[who].looks = Some((all, read, began));
            self.threads[who].next = self.now + takes;
            return;
        }
        let jitter = self.below(5);
        self.threads[who].next = (began + HEARTBEAT + jitter).min(self.threads[who].gives_up_at);
        let [took, timeout] = [self.now - began, TIMEOUT].map(Duration::from_millis);
        let mut seen = std::mem::take(&mut self.threads[who].seen);
        let circle = believed(&mut seen, &all, took, timeout).map(<[_]>::to_vec);
        self.threads[who].seen = seen;
        let Some(circle) = circle else { return };
        if victim(&circle) == Some(&who.to_string()) {
            let its = |it: &Blocked| {
                let thread: usize = it.thread.parse().unwrap();
                (thread, it.since - self.threads[thread].skew)
            };
            let circle: Circle = circle.iter().map(its).collect();
            assert!(self.stood.contains_key(&circle), "a victim without a circle");
            assert!(self.victims.insert(circle), "two victims of one circle");
            self.leaves_queue(who);
        }
    }
}

#[test]
fn each_circle_that_lasts_has_one_victim() {
    let (mut stood, mut victims) = (0, 0);
    for seed in 0..3_000 {
        let mut world = World::new(seed);
        // Slow reads delay a look, and so do records that are left: those cases have more time.
        let most = TIMEOUT + world.patience * HEARTBEAT + 100;
        let mut slow = 0;
        while world.threads.iter().any(|it| it.rounds < 12) {
            let before = world.now;
            world.step();
            world.records.retain(|_, (_, at)| before.saturating_sub(*at) <= WAITER_TIMEOUT);
            let looks = world.threads.iter().filter_map(|it| it.looks.as_ref());
            let is_left = |((_, who), (it, _)): (&(usize, usize), &(Blocked, u64))| {
                let Thread { waits, skew, .. } = &world.threads[*who];
                waits.is_none_or(|(_, since)| since + skew != it.since)
            };
            let delayed =
                looks.map(|(.., at)| world.now - at).any(|it| it > 50) || world.records.iter().any(is_left);
            slow = if delayed { world.now } else { slow };
            for (circle, since) in world.circles() {
                let lasts = before - since.min(before);
                let late = lasts > most && since > slow;
                assert!(!late, "seed {seed}: {circle:?} lasts for {lasts} ms without a victim");
                assert!(lasts < 60_000, "seed {seed}: {circle:?} lasts");
            }
        }
        stood += world.stood.len();
        victims += world.victims.len();
    }
    println!("{stood} circles, {victims} victims");
    assert!(victims > 1_000 && victims < stood);
}
