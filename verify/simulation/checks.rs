//! What must always hold, and what must sometimes happen.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::faults::{Fault, Plan, Weather};
use super::net;
use crate::sync::time;

/// What a lock with one owner has, of which a reader takes one.
pub(super) const WHOLE: u32 = 1_000;
/// How long a free lock may stay free while somebody waits for it and nothing goes wrong.
const SOON: Duration = Duration::from_millis(50);

/// The situations that the runs of a night must reach.
pub(super) const SITUATIONS: &[&str] = &[
    "a call is told that its outcome is unknown",
    "a call is told that Redis is unavailable",
    "a hold is lost",
    "a hold outlives a failover",
    "a hold is passed on by a receipt",
    "a message reaches nobody",
    "a reader joins readers",
    "a reply comes too late",
    "a request arrives whose sender has given up",
    "a request is refused for want of memory",
    "a script is unknown",
    "a wait ends by its timeout",
    "a waiter for a condition is signalled",
    "a writer waits for readers",
    "two locks are held at once",
    "two permits are in use",
];

/// One hold, as its process sees it.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    lock: &'static str,
    /// Shown when a check fails.
    #[allow(dead_code)]
    process: usize,
    /// How much of the lock's capacity it takes.
    weight: u32,
    of: u32,
    token: Option<u64>,
    asked: Duration,
    began: Duration,
    /// When it was last known to be valid.
    last: Duration,
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

thread_local!(static CHECKS: RefCell<Checks> = RefCell::default());

fn with<R>(f: impl FnOnce(&mut Checks) -> R) -> R {
    CHECKS.with_borrow_mut(f)
}

/// Begins a run; what was seen in others is kept.
pub(super) fn begin() {
    with(|checks| {
        checks.holds.clear();
        checks.trace = 0;
    });
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
    debug_assert!(SITUATIONS.contains(&what), "{what}: not listed");
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
    lock: &'static str,
    process: usize,
    (weight, of): (u32, u32),
    token: Option<u64>,
    asked: Duration,
) -> usize {
    let now = time::elapsed();
    let hold =
        Hold { lock, process, weight, of, token, asked, began: now, last: now, ended: None, released: None };
    with(|checks| {
        checks.holds.push(hold);
        checks.holds.len() - 1
    })
}

/// The hold is valid now.
pub(super) fn valid(hold: usize) {
    let now = time::elapsed();
    with(|checks| checks.holds[hold].last = now);
}

pub(super) fn ends(hold: usize) {
    let now = time::elapsed();
    with(|checks| checks.holds[hold].ended = Some(now));
}

pub(super) fn released(hold: usize) {
    let now = time::elapsed();
    with(|checks| checks.holds[hold].released = Some(now));
}

/// Checks a run that has ended.
pub(super) fn finish(weather: Weather, plan: &Plan, lease: Duration) {
    let holds = with(|checks| checks.holds.clone());
    let locks: BTreeSet<&str> = holds.iter().map(|hold| hold.lock).collect();
    for lock in locks {
        let mut of_it: Vec<&Hold> = holds.iter().filter(|hold| hold.lock == lock).collect();
        of_it.sort_by_key(|hold| hold.began);
        // In a storm that loses writes, Redis may forget a hold that its process still has.
        if weather != Weather::Lossy {
            one_owner(&of_it);
            tokens_grow(&of_it);
        }
        // Who waits for two locks at once leaves each while the other is not free.
        if weather == Weather::Calm && !["left", "right"].contains(&lock) {
            none_waits_for_what_is_free(&of_it);
        }
        losses_are_told(&of_it, plan, lease);
        situations(&of_it, plan);
    }
}

/// one-owner: at no time are there valid holds of more than the lock has.
fn one_owner(holds: &[&Hold]) {
    for hold in holds {
        // The number changes only when a hold begins.
        let then = hold.began;
        let inside: Vec<_> = holds.iter().filter(|it| it.began <= then && then < it.last).collect();
        let sum: u32 = inside.iter().map(|it| it.weight).sum();
        assert!(sum <= hold.of, "one-owner: at {then:?} there are {sum} of {}: {inside:#?}", hold.of);
    }
}

/// tokens-grow: a later hold has a higher token.
fn tokens_grow(holds: &[&Hold]) {
    let with_tokens: Vec<_> = holds.iter().filter(|hold| hold.token.is_some()).collect();
    for pair in with_tokens.windows(2) {
        assert!(pair[0].token < pair[1].token, "tokens-grow: {pair:#?}");
    }
}

/// no-lost-wake-up: while somebody waits, the lock is not free.
fn none_waits_for_what_is_free(holds: &[&Hold]) {
    for hold in holds.iter().filter(|hold| hold.weight == hold.of) {
        let before = holds.iter().filter(|it| it.began < hold.began).filter_map(|it| it.released).max();
        let free = before.unwrap_or_default().max(hold.asked);
        let waited = hold.began.saturating_sub(free);
        assert!(waited <= SOON, "no-lost-wake-up: free for {waited:?}: {hold:#?}");
    }
}

/// a-loss-is-told: where all data was lost, no hold from before is valid for longer than its lease, unless a replica that
/// still had it became the primary.
fn losses_are_told(holds: &[&Hold], plan: &Plan, lease: Duration) {
    let is_undone = |lost: &Duration| {
        let undoes = |(at, fault): &(Duration, Fault)| matches!(fault, Fault::Failover(lag) if (*lost..=*lost + *lag + net::EACH).contains(at));
        plan.faults.iter().any(undoes)
    };
    let lost = plan.faults.iter().filter(|(_, fault)| matches!(fault, Fault::Empty(_)));
    for (at, _) in lost.filter(|(at, _)| !is_undone(at)) {
        let untold = holds.iter().find(|hold| hold.began < *at && hold.last > *at + lease);
        assert!(untold.is_none(), "a-loss-is-told: all was lost at {at:?}: {untold:#?}");
    }
}

fn situations(holds: &[&Hold], plan: &Plan) {
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
        let outlives = |(at, fault): &(Duration, Fault)| {
            matches!(fault, Fault::Failover(_))
                && hold.began < *at
                && *at + Duration::from_secs(12) < hold.last
        };
        if plan.faults.iter().any(outlives) {
            sometimes("a hold outlives a failover");
        }
    }
}
