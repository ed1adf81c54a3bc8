//! What must always hold, and what must sometimes happen.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::faults::{Fault, Plan, Planned, Weather};
use crate::sync::time;

/// What a lock with one owner has, of which a reader takes one.
pub(super) const WHOLE: u32 = 1_000;
/// How long a free lock may stay free while somebody waits for it and nothing goes wrong.
pub(super) const SOON: Duration = Duration::from_millis(50);
/// How much later two threads of one process call at least whose order is certain.
const INSTANT: Duration = Duration::from_micros(50);
/// How much earlier a waiter counts for each step of its priority.
const STEP: Duration = Duration::from_secs(30);
/// How long one process that stops or dies may hold up those behind it, beside the lease of what it holds.
const SKIPPED: Duration = Duration::from_secs(8);

/// How long a lost message may delay a waiter, or an inbox that breaks.
const HEARTBEAT: Duration = Duration::from_millis(2_100);
/// How long a dropped guard may take to release.
const DROPPED: Duration = Duration::from_secs(12);

/// The situations that the runs of a night must reach.
pub(super) const SITUATIONS: &[&str] = &[
    "a barrier is broken",
    "a call is told that its outcome is unknown",
    "a call is told that Redis is unavailable",
    "a dead holder is succeeded",
    "a hold is lost",
    "a hold outlives a failover",
    "a hold is passed on by a receipt",
    "a hold is revoked",
    "a leader is observed",
    "a message arrives twice",
    "a message is lost",
    "a message reaches nobody",
    "a node goes on that is cut off",
    "a node is succeeded by its replica",
    "a party passes a barrier",
    "a process goes on whose lease ran out",
    "a queue is full",
    "a reader joins readers",
    "a reply comes too late",
    "a request arrives whose sender has given up",
    "a request is refused for want of memory",
    "a request is sent on to another node",
    "a script is unknown",
    "a signal passes by who stopped or died",
    "a slot has moved",
    "a wait ends by its timeout",
    "a waiter passes a latch",
    "a waiter for a condition is signalled",
    "a waiter is passed by a more urgent one",
    "a writer waits for readers",
    "an answer is another caller's",
    "an order is sold",
    "an order is there already",
    "nothing is left to reserve",
    "permits are admitted late",
    "several servers are held",
    "several servers are held by a majority",
    "the keys of a request are at two nodes",
    "two locks are held at once",
    "two permits are in use",
];

/// One hold, as its process sees it.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) lock: String,
    /// That acquired it.
    by: usize,
    /// That has it.
    process: usize,
    /// When it went there from another.
    came: Option<Duration>,
    /// How much of the lock's capacity it takes.
    pub(super) weight: u32,
    of: u32,
    token: Option<u64>,
    asked: Duration,
    pub(super) began: Duration,
    /// When it was last known to be valid.
    pub(super) last: Duration,
    /// When its release began.
    ended: Option<Duration>,
    /// When its release returned.
    released: Option<Duration>,
    /// That returned `Ok`.
    well: bool,
    /// How urgent it was.
    priority: i8,
}

impl Hold {
    /// Where it comes in the order of arrival, if it arrived then.
    fn rank(&self, arrived: Duration) -> Duration {
        // From far enough for the least urgent.
        arrived + Duration::from_secs(200) - STEP * (i32::from(self.priority) + 3) as u32
    }
}

#[derive(Default)]
pub(super) struct Checks {
    holds: Vec<Hold>,
    /// Waits that ended without.
    vain: Vec<Hold>,
    /// When a process was told that a hold of a lock was lost.
    losses: Vec<(String, usize, Duration)>,
    /// How many threads of a process are about a lock, and when one was last.
    about: BTreeMap<(String, usize), (usize, Duration)>,
    seen: BTreeMap<&'static str, u64>,
    /// How often each fault began, and how much was done in all.
    drawn: BTreeMap<String, u64>,
    trace: u64,
}

thread_local! {
    static CHECKS: RefCell<Checks> = RefCell::default();
    static OVER: Cell<bool> = const { Cell::new(false) };
}

fn with<R>(f: impl FnOnce(&mut Checks) -> R) -> R {
    CHECKS.with_borrow_mut(f)
}

/// Takes what this OS thread has noted, for another one.
pub(super) fn take() -> Checks {
    CHECKS.take()
}

pub(super) fn put(checks: Checks) {
    CHECKS.set(checks);
}

/// Begins a run; what was seen in others is kept.
pub(super) fn begin() {
    with(|checks| {
        *checks.drawn.entry("calls that took a hold".to_owned()).or_default() += checks.holds.len() as u64;
        checks.holds.clear();
        checks.vain.clear();
        checks.losses.clear();
        checks.about.clear();
        checks.trace = 0;
    });
    OVER.set(false);
}

/// The run is over: what the threads of dead processes do from now on has no meaning.
pub(super) fn is_over() -> bool {
    OVER.get()
}

pub(super) fn over() {
    OVER.set(true);
}

/// What must hold at all times, by its name.
pub(super) fn always(what: &str, holds: bool, says: impl FnOnce() -> String) {
    assert!(holds || is_over(), "{what}: {}", says());
}

/// Counts a fault that begins, or a request.
pub(super) fn drawn(what: &str) {
    with(|checks| match checks.drawn.get_mut(what) {
        Some(times) => *times += 1,
        None => drop(checks.drawn.insert(what.to_owned(), 1)),
    });
}

pub(super) fn all_drawn() -> BTreeMap<String, u64> {
    with(|checks| checks.drawn.clone())
}

/// Notes what happens, so that two runs can be compared.
pub(super) fn happens(what: u64) {
    let now = time::elapsed().as_nanos() as u64;
    with(|checks| checks.trace = (checks.trace ^ what ^ now).wrapping_mul(0x0100_0000_01b3).rotate_left(17));
}

/// What the run was, in one number.
pub(super) fn trace() -> u64 {
    with(|checks| checks.trace)
}

pub(super) fn sometimes(what: &'static str) {
    if is_over() {
        return;
    }
    assert!(SITUATIONS.contains(&what), "{what}: not listed");
    with(|checks| *checks.seen.entry(what).or_default() += 1);
}

/// How often each situation was seen.
pub(super) fn seen() -> Vec<(&'static str, u64)> {
    with(|checks| {
        SITUATIONS.iter().map(|what| (*what, checks.seen.get(what).copied().unwrap_or(0))).collect()
    })
}

impl Hold {
    fn now(lock: &str, process: usize, (weight, of): (u32, u32), asked: Duration) -> Hold {
        let (lock, now) = (lock.to_owned(), time::elapsed());
        let (came, token, ended, released, well, priority) = (None, None, None, None, false, 0);
        let (began, last) = (now, now);
        Hold {
            lock,
            by: process,
            process,
            came,
            weight,
            of,
            token,
            asked,
            began,
            last,
            ended,
            released,
            well,
            priority,
        }
    }
}

/// Records a hold that begins now; returns its number.
pub(super) fn held(
    lock: &str,
    process: usize,
    takes: (u32, u32),
    token: Option<u64>,
    asked: Duration,
) -> usize {
    let hold = Hold { token, ..Hold::now(lock, process, takes, asked) };
    with(|checks| {
        checks.holds.push(hold);
        checks.holds.len() - 1
    })
}

/// A wait ends now without a hold.
pub(super) fn in_vain(lock: &str, process: usize, takes: (u32, u32), asked: Duration) {
    sometimes("a wait ends by its timeout");
    let wait = Hold::now(lock, process, takes, asked);
    with(|checks| checks.vain.push(wait));
}

/// How urgent a hold was.
pub(super) fn is_urgent(hold: usize, priority: i8) {
    with(|checks| checks.holds[hold].priority = priority);
}

/// A process is told that a hold of a lock was lost.
pub(super) fn told_lost(lock: &str, process: usize) {
    let now = time::elapsed();
    with(|checks| checks.losses.push((lock.to_owned(), process, now)));
}

/// A thread of a process asks for a lock, has it, or releases it, until this is dropped.
pub(super) struct About(String, usize);

pub(super) fn about(lock: &str, process: usize) -> About {
    with(|checks| checks.about.entry((lock.to_owned(), process)).or_default().0 += 1);
    About(lock.to_owned(), process)
}

impl Drop for About {
    fn drop(&mut self) {
        let now = time::elapsed();
        with(|checks| {
            let about = checks.about.entry((std::mem::take(&mut self.0), self.1)).or_default();
            *about = (about.0.saturating_sub(1), now);
        });
    }
}

/// Since when no thread of a process has been about a lock, if one was before.
pub(super) fn left_alone(lock: &str, process: usize) -> Option<Duration> {
    let about = with(|checks| checks.about.get(&(lock.to_owned(), process)).copied());
    about.and_then(|(threads, last)| (threads == 0).then_some(last))
}

/// The lock of a hold, and the process that has it.
pub(super) fn of(hold: usize) -> (String, usize) {
    with(|checks| (checks.holds[hold].lock.clone(), checks.holds[hold].process))
}

/// The hold was valid then.
pub(super) fn valid(hold: usize, now: Duration) {
    with(|checks| checks.holds[hold].last = now);
}

/// A hold that is valid as long as another one is.
pub(super) fn same(hold: usize, other: usize) {
    with(|checks| checks.holds[hold].last = checks.holds[other].last);
}

/// A hold goes to another process.
pub(super) fn goes(hold: usize, process: usize) {
    let now = time::elapsed();
    with(|checks| (checks.holds[hold].process, checks.holds[hold].came) = (process, Some(now)));
}

/// It had not ended: what was to end it has not begun.
pub(super) fn goes_on(hold: usize) {
    with(|checks| (checks.holds[hold].ended, checks.holds[hold].released) = (None, None));
}

pub(super) fn ends(hold: usize) {
    let now = time::elapsed();
    with(|checks| checks.holds[hold].ended = Some(now));
}

/// Its release has returned, and `Ok` if `well`.
pub(super) fn released(hold: usize, well: bool) {
    let now = time::elapsed();
    with(|checks| (checks.holds[hold].released, checks.holds[hold].well) = (Some(now), well));
}

/// The valid holds at the time when this one begins: their number changes only when a hold begins.
pub(super) fn inside<'a>(hold: &Hold, others: &[&'a Hold]) -> Vec<&'a Hold> {
    others.iter().copied().filter(|it| it.began <= hold.began && hold.began < it.last).collect()
}

/// The holds of a lock so far.
pub(super) fn holds(lock: &str) -> Vec<Hold> {
    with(|checks| checks.holds.iter().filter(|hold| hold.lock == lock).cloned().collect())
}

/// For how long none of these holds, sorted by their beginning, was there between two times, as far as their processes
/// know.
pub(super) fn free(holds: &[Hold], from: Duration, until: Duration) -> Duration {
    let (mut free, mut at) = (Duration::ZERO, from);
    for hold in holds.iter().filter(|it| it.began < until) {
        free += hold.began.saturating_sub(at);
        at = at.max(hold.released.unwrap_or(hold.last));
    }
    free + until.saturating_sub(at)
}

/// What a run was like.
pub(super) struct Run<'a> {
    pub(super) weather: Weather,
    pub(super) plan: &'a Plan,
    /// When each server lost what it had for good.
    pub(super) lost: &'a [Vec<Duration>],
    /// That of each process.
    pub(super) leases: &'a [Duration],
    /// The longest.
    pub(super) lease: Duration,
    /// How long the locks that linger do.
    pub(super) linger: Duration,
    /// Each process has a single thread.
    pub(super) single: bool,
}

/// Checks a run that has ended.
pub(super) fn finish(run: &Run<'_>) {
    let (holds, vain, losses) =
        with(|checks| (checks.holds.clone(), checks.vain.clone(), checks.losses.clone()));
    let locks: BTreeSet<&str> = holds.iter().map(|hold| hold.lock.as_str()).collect();
    for lock in locks {
        let of =
            |all: &'_ [Hold]| -> Vec<Hold> { all.iter().filter(|hold| hold.lock == lock).cloned().collect() };
        let (mut of_it, vain) = (of(&holds), of(&vain));
        of_it.sort_by_key(|hold| hold.began);
        let of_it: Vec<&Hold> = of_it.iter().collect();
        // In a storm that loses writes, Redis may forget a hold that its process still has.
        if run.weather != Weather::Lossy || lock == "red" {
            one_owner(&of_it);
            tokens_grow(&of_it);
        } else {
            // But not for longer than for a lease: who has it still has renewed it where the others ask.
            let settled = run.plan.settled() + run.lease;
            let later = |it: &&Hold| it.began > settled && !lock.starts_with("order");
            one_owner(&of_it.iter().copied().filter(later).collect::<Vec<_>>());
        }
        // Who waits for several at once leaves each while another is not free, and tries again.
        let queues = !["left", "right", "red"].contains(&lock) && !lock.starts_with("order");
        if queues && run.weather != Weather::Lossy {
            none_waits_for_what_is_free(&of_it, &vain, run);
        }
        // Who was signalled has been there for longer than is known.
        if queues && run.weather == Weather::Calm && lock != "exchange" {
            in_order_of_arrival(&of_it, run.single);
        }
        if let [lost] = run.lost {
            losses_are_told(&of_it, lost, run.leases);
            releases_tell(&of_it, run.plan);
        }
        situations(&of_it, run.plan, run.lease);
    }
    losses_are_of_holds(holds, losses.iter().filter(|(lock, ..)| lock == "reentrant"), run.plan);
}

/// one-owner: at no time are there valid holds of more than the lock has.
fn one_owner(holds: &[&Hold]) {
    for hold in holds {
        let inside = inside(hold, holds);
        let sum: u32 = inside.iter().map(|it| it.weight).sum();
        assert!(sum <= hold.of, "one-owner: {sum} of {} at {:?}: {inside:#?}", hold.of, hold.began);
    }
}

/// tokens-grow: a later hold has a higher token.
fn tokens_grow(holds: &[&Hold]) {
    // One that was over before its process knew of it may come late.
    let with_tokens: Vec<_> =
        holds.iter().filter(|hold| hold.token.is_some() && hold.began < hold.last).collect();
    for pair in with_tokens.windows(2) {
        assert!(pair[0].token < pair[1].token, "tokens-grow: {pair:#?}");
    }
}

/// no-lost-wake-up: while somebody waits, the lock is not free; a dead holder has it for a lease.
fn none_waits_for_what_is_free(holds: &[&Hold], vain: &[Hold], run: &Run<'_>) {
    let (plan, lease) = (run.plan, run.lease);
    let rough = run.weather == Weather::Rough;
    let lapses = |it: &Hold| plan.death(it.process).map_or(it.last, |at| at.max(it.last)) + lease;
    let freed = |it: &&Hold| {
        let ended = it.released.unwrap_or_else(|| lapses(it));
        // A process that stops or dies while it keeps the lock of its last hold keeps it for its lease.
        let mut stops = plan.stops_at(it.process);
        stops.find(|at| (ended..ended + run.linger).contains(at)).map_or(ended, |at| at + lease)
    };
    let waits = holds.iter().copied().chain(vain);
    for wait in waits.filter(|it| it.weight == it.of && !plan.stops(it.by)) {
        let before = holds.iter().filter(|it| it.began < wait.began).map(freed).max();
        let disturbed = if rough { plan.disturbed(wait.began, lease) } else { Duration::ZERO };
        let free = before.unwrap_or_default().max(wait.asked).max(disturbed);
        let waited = wait.began.saturating_sub(free);
        let most =
            SOON + SKIPPED * plan.skipped(free, wait.began) + if rough { HEARTBEAT } else { Duration::ZERO };
        assert!(waited <= most, "no-lost-wake-up: free for {waited:?}: {wait:#?}");
        if before.is_some() && holds.iter().any(|it| it.released.is_none() && it.last < wait.began) {
            sometimes("a dead holder is succeeded");
        }
    }
}

/// in-order: where nothing goes wrong, nobody comes in before who was there first, or is more urgent: in a process, and,
/// as only the first of its threads is known to the others, among processes of one thread. Each candidate of an election
/// has a position of its own, and competes like a process; so does each caller of a once.
fn in_order_of_arrival(holds: &[&Hold], single: bool) {
    let each = holds.iter().all(|it| it.lock == "election" || it.lock.starts_with("once-"));
    // Who waits for a hold that came to its own process is known to the others from its end.
    let arrived = |it: &Hold| {
        let waits_for = |other: &&&Hold| {
            other.process == it.by
                && other.by != it.by
                && other.came.is_some_and(|came| came < it.asked + SOON)
        };
        let ends = holds.iter().filter(waits_for).filter_map(|other| other.released);
        ends.filter(|end| *end < it.began).fold(it.asked, Duration::max)
    };
    for hold in holds {
        let same = |it: &Hold| it.by == hold.by && !each;
        let slack = |it: &Hold| if same(it) && it.priority == hold.priority { INSTANT } else { SOON };
        // Readers and writers come in by turns, those of one process in whatever order.
        let turned = |it: &Hold| {
            let between = |other: &&Hold| {
                other.weight == other.of && it.asked < other.began && other.began < hold.began
            };
            it.weight != hold.weight && holds.iter().any(|other| between(other))
        };
        // A writer passes readers.
        let behind = |it: &&Hold| {
            (if same(it) { it.weight == hold.weight } else { (single || each) && it.weight >= hold.weight })
                && hold.began + slack(it) < it.began
                && it.asked + slack(it) < hold.began
                && !turned(it)
        };
        for other in holds.iter().copied().filter(behind) {
            let arrived = if same(other) { other.asked } else { arrived(other) };
            let fits = hold.rank(hold.asked) <= other.rank(arrived) + slack(other);
            assert!(fits, "in-order: {hold:#?} came before {other:#?}");
        }
        if holds
            .iter()
            .any(|it| it.asked < hold.asked && hold.began < it.began && it.priority < hold.priority)
        {
            sometimes("a waiter is passed by a more urgent one");
        }
    }
}

/// a-release-tells: it is not `Ok` where another had the lock before it began, and still when it had returned.
fn releases_tell(holds: &[&Hold], plan: &Plan) {
    if plan.fails_over() {
        return;
    }
    for hold in holds.iter().filter(|it| it.well && it.weight == it.of) {
        let (ended, released) = (hold.ended.expect("it was"), hold.released.expect("it was"));
        let others = |it: &&&Hold| hold.began < it.began && it.began < ended && released < it.last;
        let other = holds.iter().find(others);
        assert!(other.is_none(), "a-release-tells: {hold:#?} was fine, beside {other:#?}");
    }
}

/// a-loss-is-told: where all data was lost for good, no hold from before is valid for longer than its lease.
fn losses_are_told(holds: &[&Hold], lost: &[Duration], leases: &[Duration]) {
    for at in lost {
        let untold = |hold: &&&Hold| hold.began < *at && hold.last > *at + leases[hold.process];
        let untold = holds.iter().find(untold);
        assert!(untold.is_none(), "a-loss-is-told: all was lost at {at:?}: {untold:#?}");
    }
}

/// a-loss-is-a-hold's: each that is told is that of another hold, which was not released by then, or was dropped shortly
/// before.
fn losses_are_of_holds<'a>(
    mut holds: Vec<Hold>,
    losses: impl Iterator<Item = &'a (String, usize, Duration)>,
    plan: &Plan,
) {
    holds.retain(|hold| !hold.well);
    for (lock, process, at) in losses {
        let until = |it: &Hold| match it.released {
            Some(end) if !plan.stops(*process) => end + DROPPED,
            _ => Duration::MAX,
        };
        let may =
            |it: &Hold| it.lock == *lock && it.process == *process && it.asked <= *at && *at <= until(it);
        let first = (0..holds.len()).filter(|i| may(&holds[*i])).min_by_key(|i| until(&holds[*i]));
        let first = first.unwrap_or_else(|| panic!("a-loss-is-a-hold's: of {lock} in {process} at {at:?}"));
        holds.swap_remove(first);
    }
}

fn situations(holds: &[&Hold], plan: &Plan, lease: Duration) {
    for hold in holds {
        let meets = |other: &&&Hold| other.began < hold.began && hold.began < other.last;
        let others: Vec<_> = holds.iter().filter(meets).collect();
        if hold.of == WHOLE && hold.weight == 1 && others.iter().any(|it| it.weight == 1) {
            sometimes("a reader joins readers");
        }
        if hold.of == 2 && others.iter().any(|it| it.weight == 1) {
            sometimes("two permits are in use");
        }
        let waited_for = |it: &&Hold| it.weight == 1 && it.last > hold.asked && it.began < hold.began;
        if hold.of == WHOLE && hold.weight == WHOLE && holds.iter().any(|it| waited_for(it)) {
            sometimes("a writer waits for readers");
        }
        let outlives = |(at, _, fault): &Planned| {
            matches!(fault, Fault::Failover(_) | Fault::Promoted(..) | Fault::Isolated(_))
                && hold.began < *at
                && *at + lease < hold.last
        };
        if plan.faults.iter().any(outlives) {
            sometimes("a hold outlives a failover");
        }
    }
}
