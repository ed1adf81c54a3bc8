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
/// How long one process that stops or dies may hold up those behind it, beside the lease of what it holds.
const SKIPPED: Duration = Duration::from_secs(8);

/// The situations that the runs of a night must reach.
pub(super) const SITUATIONS: &[&str] = &[
    "a barrier is broken",
    "a call is told that its outcome is unknown",
    "a call is told that Redis is unavailable",
    "a dead holder is succeeded",
    "a hold is lost",
    "a hold outlives a failover",
    "a hold is passed on by a receipt",
    "a leader is observed",
    "a message arrives twice",
    "a message reaches nobody",
    "a party passes a barrier",
    "a process goes on whose lease ran out",
    "a reader joins readers",
    "a reply comes too late",
    "a request arrives whose sender has given up",
    "a request is refused for want of memory",
    "a script is unknown",
    "a wait ends by its timeout",
    "a waiter passes a latch",
    "a waiter for a condition is signalled",
    "a writer waits for readers",
    "an answer is another caller's",
    "an order is sold",
    "an order is there already",
    "nothing is left to reserve",
    "permits are admitted late",
    "several servers are held",
    "several servers are held by a majority",
    "two locks are held at once",
    "two permits are in use",
];

/// One hold, as its process sees it.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) lock: String,
    process: usize,
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
}

#[derive(Default)]
struct Checks {
    holds: Vec<Hold>,
    seen: BTreeMap<&'static str, u64>,
    trace: u64,
}

thread_local! {
    static CHECKS: RefCell<Checks> = RefCell::default();
    static OVER: Cell<bool> = const { Cell::new(false) };
}

fn with<R>(f: impl FnOnce(&mut Checks) -> R) -> R {
    CHECKS.with_borrow_mut(f)
}

/// Begins a run; what was seen in others is kept.
pub(super) fn begin() {
    with(|checks| {
        checks.holds.clear();
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

/// Records a hold that begins now; returns its number.
pub(super) fn held(
    lock: &str,
    process: usize,
    (weight, of): (u32, u32),
    token: Option<u64>,
    asked: Duration,
) -> usize {
    let now = time::elapsed();
    let hold = Hold {
        lock: lock.to_owned(),
        process,
        weight,
        of,
        token,
        asked,
        began: now,
        last: now,
        ended: None,
        released: None,
    };
    with(|checks| {
        checks.holds.push(hold);
        checks.holds.len() - 1
    })
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
    with(|checks| checks.holds[hold].process = process);
}

pub(super) fn ends(hold: usize) {
    let now = time::elapsed();
    with(|checks| checks.holds[hold].ended = Some(now));
}

pub(super) fn released(hold: usize) {
    let now = time::elapsed();
    with(|checks| checks.holds[hold].released = Some(now));
}

/// The valid holds at the time when this one begins: their number changes only when a hold begins.
pub(super) fn inside<'a>(hold: &Hold, others: &[&'a Hold]) -> Vec<&'a Hold> {
    others.iter().copied().filter(|it| it.began <= hold.began && hold.began < it.last).collect()
}

/// The holds of a lock so far.
pub(super) fn holds(lock: &str) -> Vec<Hold> {
    with(|checks| checks.holds.iter().filter(|hold| hold.lock == lock).cloned().collect())
}

/// Checks a run that has ended.
pub(super) fn finish(weather: Weather, plan: &Plan, lost: &[Vec<Duration>], lease: Duration) {
    let holds = with(|checks| checks.holds.clone());
    let locks: BTreeSet<&str> = holds.iter().map(|hold| hold.lock.as_str()).collect();
    for lock in locks {
        let mut of_it: Vec<&Hold> = holds.iter().filter(|hold| hold.lock == lock).collect();
        of_it.sort_by_key(|hold| hold.began);
        // In a storm that loses writes, Redis may forget a hold that its process still has.
        if weather != Weather::Lossy || lost.len() > 1 {
            one_owner(&of_it);
            tokens_grow(&of_it);
        }
        // Who waits for several at once leaves each while another is not free, and tries again.
        let queues = !["left", "right", "red"].contains(&lock) && !lock.starts_with("order");
        if matches!(weather, Weather::Calm | Weather::Deadly) && queues {
            none_waits_for_what_is_free(&of_it, plan, lease);
        }
        if let [lost] = lost {
            losses_are_told(&of_it, lost, lease);
        }
        situations(&of_it, plan, lease);
    }
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
fn none_waits_for_what_is_free(holds: &[&Hold], plan: &Plan, lease: Duration) {
    let stops = |(.., fault): &&Planned| matches!(fault, Fault::Stops(..) | Fault::Dies(_));
    let most = SOON + SKIPPED * plan.faults.iter().filter(stops).count() as u32;
    let freed =
        |it: &&&Hold| it.released.or_else(|| plan.death(it.process).map(|at| at.max(it.last) + lease));
    for hold in holds.iter().filter(|hold| hold.weight == hold.of && !plan.stops(hold.process)) {
        let before = holds.iter().filter(|it| it.began < hold.began).filter_map(|it| freed(&it)).max();
        let free = before.unwrap_or_default().max(hold.asked);
        let waited = hold.began.saturating_sub(free);
        assert!(waited <= most, "no-lost-wake-up: free for {waited:?}: {hold:#?}");
        if before.is_some() && holds.iter().any(|it| it.released.is_none() && it.last < hold.began) {
            sometimes("a dead holder is succeeded");
        }
    }
}

/// a-loss-is-told: where all data was lost for good, no hold from before is valid for longer than its lease.
fn losses_are_told(holds: &[&Hold], lost: &[Duration], lease: Duration) {
    for at in lost {
        let untold = holds.iter().find(|hold| hold.began < *at && hold.last > *at + lease);
        assert!(untold.is_none(), "a-loss-is-told: all was lost at {at:?}: {untold:#?}");
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
            matches!(fault, Fault::Failover(_)) && hold.began < *at && *at + lease < hold.last
        };
        if plan.faults.iter().any(outlives) {
            sometimes("a hold outlives a failover");
        }
    }
}
