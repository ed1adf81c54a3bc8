//! What must hold of a history through failovers.

use std::fmt;

use crate::failover::worker::PERMITS;
use crate::history::holds::{History, Hold, Wait};
use crate::history::log::{Event, Line};
use crate::history::times::{Span, length, merged, outside};

/// For how long nobody may hold what a thread waits for, while nothing is wrong: three heartbeats, each with two requests,
/// by which a waiter asks and comes in. Many hand-offs that are slow may together take longer.
const HEARTBEATS: u64 = 3;
const HEARTBEAT: u64 = 1_000_000;
const REQUESTS: u64 = 2;

/// How many may come in before a thread that waits, while nothing is wrong: each of the others four times.
const MOST_AHEAD: usize = 4 * 12;

/// A failover, from its cause on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failover {
    /// From the cause until both servers have had time to tell what they know.
    pub unsettled: Span,
    /// Until what it has cost is made good: a lease for what was released and is held again.
    pub costs: Span,
    /// Whether clients were with two primaries meanwhile, and held by turns.
    pub parts: bool,
    pub what: String,
}

/// All that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub history: History,
    pub failovers: Vec<Failover>,
    /// When the machine stood still, and a while after that.
    pub stalls: Vec<Span>,
}

/// What was counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub holds: usize,
    pub failovers: usize,
    /// Holds beside another that excludes them.
    pub double_holds: usize,
    /// Of these, those that no failover explains, and those that were not seen by both: by the earlier holder, as it is
    /// told of its loss, and by what the later one does under a higher token.
    pub untold: usize,
    pub lost_wakeups: usize,
    pub longest_wait_ms: u64,
}

impl Counts {
    /// A line of JSON.
    pub fn json(&self, kind: &str, seed: u64, seconds: u64) -> String {
        let Counts { holds, failovers, double_holds, untold, lost_wakeups, longest_wait_ms } = self;
        format!(
            "{{\"kind\":\"{kind}\",\"seed\":{seed},\"seconds\":{seconds},\"holds\":{holds},\"failovers\":{failovers},\
             \"double_holds\":{double_holds},\"untold\":{untold},\"lost_wakeups\":{lost_wakeups},\
             \"longest_wait_ms\":{longest_wait_ms}}}"
        )
    }
}

impl fmt::Display for Failover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} {:?} {}", self.unsettled, self.costs, self.what)
    }
}

/// What was counted, and what is wrong, in words.
pub fn check(evidence: &Evidence) -> (Counts, Vec<String>) {
    let Evidence { history, failovers, .. } = evidence;
    let mut wrong = Vec::new();
    let mut counts = Counts { failovers: failovers.len(), holds: history.holds.len(), ..Counts::default() };
    for (beside, hold) in doubles(history) {
        counts.double_holds += 1;
        if let Some(why) = untold(evidence, &beside, hold) {
            counts.untold += 1;
            let beside: Vec<_> = beside.iter().map(|it| format!("{it:?}")).collect();
            wrong.push(format!("two valid holds at once, {why}:\n  {}\n  {hold:?}", beside.join("\n  ")));
        }
    }
    let most_unexplained = HEARTBEATS * (HEARTBEAT + REQUESTS * slow_request(history));
    for wait in &history.waits {
        if let Some(why) = forgotten(evidence, wait, most_unexplained) {
            counts.lost_wakeups += 1;
            wrong.push(format!("{why}:\n  {wait:?}"));
        }
        let how = wait.how.split(' ').next().unwrap_or_default();
        let known = [
            "held",
            "open",
            "none",
            "ok",
            "woken",
            "timeout",
            "Unavailable",
            "NotReplicated",
            "OutcomeUnknown",
            "LeaseLost",
        ];
        if !known.contains(&how) {
            wrong.push(format!("must not end so:\n  {wait:?}"));
        }
    }
    let longest = history.waits.iter().filter(|it| it.how == "held").map(|it| it.ended - it.called).max();
    counts.longest_wait_ms = longest.unwrap_or(0) / 1000;
    (counts, wrong)
}

/// What excludes what: the name of the lock, in which all modes are one.
fn lock(name: &str) -> &str {
    name.split('/').next().unwrap_or_default()
}

/// Holds that were valid although others beside them, which come first, exclude them.
fn doubles(history: &History) -> Vec<(Vec<&Hold>, &Hold)> {
    let mut found = Vec::new();
    let mut inside: Vec<&Hold> = Vec::new();
    for hold in history.holds.iter().filter(|hold| hold.was_valid()) {
        inside.retain(|it| hold.held < it.until);
        let of_lock = inside.iter().filter(|it| lock(&it.lock) == lock(&hold.lock));
        let readers = hold.lock == "rw/read";
        let beside: Vec<&Hold> = of_lock.filter(|it| !readers || it.lock != hold.lock).copied().collect();
        if beside.len() >= most_beside(hold) {
            found.push((beside, hold));
        }
        inside.push(hold);
    }
    found
}

/// How many of those beside this hold exclude it.
fn most_beside(hold: &Hold) -> usize {
    if lock(&hold.lock) == "s" { PERMITS as usize } else { 1 }
}

/// Why two holds at once are not what replication may cost; `None` if they are.
fn untold(evidence: &Evidence, beside: &[&Hold], hold: &Hold) -> Option<&'static str> {
    let unsettled = |it: &&Failover| it.unsettled.0 <= hold.held && hold.held < it.unsettled.1;
    let Some(failover) = evidence.failovers.iter().find(unsettled) else {
        return Some("and no failover was near");
    };
    // Shared holds have none. What one primary granted may be handed on after another has granted.
    let no_higher = |it: &Hold| it.token == hold.token || it.token > hold.token && !failover.parts;
    if beside.iter().any(|it| it.token > 0 && hold.token > 0 && no_higher(it)) {
        return Some("and the later one has no higher token");
    }
    let limit = failover.unsettled.1;
    // Clients that are cut off are not told of what is over when they reach the others again.
    let notified =
        |it: &Hold| was_notified(&evidence.history, it, limit) || failover.parts && it.until <= limit;
    let (notified_before, too_many) =
        (beside.iter().filter(|it| notified(it)).count(), beside.len() + 1 - most_beside(hold));
    // (And they may be the later ones.)
    if notified_before >= too_many || failover.parts && notified(hold) {
        None
    } else if notified(hold) {
        Some("and only the later one was told")
    } else {
        Some("and neither of them was told")
    }
}

/// Whether its process learned, up to `limit`, that the hold may not have been its own.
fn was_notified(history: &History, hold: &Hold, limit: u64) -> bool {
    // An outcome that is not known is no promise that nobody else was there.
    let unsure = |it: &Hold| it.released.as_ref().is_some_and(|(_, how)| how != "ok");
    // What was handed on within a process ends once for all threads that had it.
    let same = |it: &&Hold| {
        let process = it.who.process == hold.who.process && it.lock == hold.lock;
        process && hold.token > 0 && it.grant() == hold.grant()
    };
    let lost = |line: &Line| {
        let named = matches!(&line.event, Event::Lost { lock: it, .. } if it == lock(&hold.lock));
        named && line.who.process == hold.who.process && (hold.held..limit.max(hold.until)).contains(&line.at)
    };
    unsure(hold) || history.holds.iter().filter(same).any(unsure) || history.lines.iter().any(lost)
}

/// How long a request takes, or longer, in one of ten cases: on a machine that has more to do than it can, everything takes
/// as much longer, although threads that only sleep are woken in time. An unlock is a request that waits for nobody.
fn slow_request(history: &History) -> u64 {
    // (The release by a thread that then waits is written down when it has waited.)
    let unlocks = history.holds.iter().filter(|it| lock(&it.lock) != "q");
    let took =
        |it: &Hold| Some(it.released.as_ref().filter(|(_, how)| how == "ok")?.0.saturating_sub(it.until));
    let mut took: Vec<u64> = unlocks.filter_map(took).collect();
    took.sort_unstable();
    took.get(took.len() * 9 / 10).copied().unwrap_or(0)
}

/// Why a wait was too long; `None` if it was not.
fn forgotten(evidence: &Evidence, wait: &Wait, most_unexplained: u64) -> Option<String> {
    let history = &evidence.history;
    let of_lock = || history.holds.iter().filter(|it| lock(&it.lock) == lock(&wait.lock));
    let costs = || evidence.failovers.iter().map(|it| it.costs).chain(evidence.stalls.iter().copied());
    if wait.form == "signal" {
        return None;
    }
    let mut from = wait.called;
    if wait.form == "await" {
        // Until it is signalled, it has no reason to come back.
        let signals = history.waits.iter().filter(|it| it.form == "signal" && it.how == "ok");
        // It waits for certain when it has let go of the lock, under which the signal was given.
        from = signals.map(|it| it.called).filter(|at| *at > wait.called + 1_000_000).min()?;
    }
    if wait.ended <= from + most_unexplained {
        return None;
    }
    let span = (from, wait.ended);
    let held = of_lock().filter(|it| it.held < span.1 && span.0 < it.until).map(|it| (it.held, it.until));
    let free = outside(span, &merged(costs().chain(held).collect()));
    let rest = free.iter().map(|it| length(&[*it])).max().unwrap_or(0);
    if rest > most_unexplained {
        let most = most_unexplained / 1000;
        return Some(format!("waited for {} ms, more than {most} ms, without a reason", rest / 1000));
    }
    // Sharers come in beside each other, and ahead of no waiter.
    let calm = outside(span, &merged(costs().collect()));
    let exclusive = ["a", "b", "q"].contains(&wait.lock.as_str()) && wait.form == "lock";
    let ahead = of_lock().filter(|it| calm.iter().any(|calm| calm.0 < it.held && it.held < calm.1)).count();
    (exclusive && ahead > MOST_AHEAD).then(|| format!("passed by {ahead} others"))
}
