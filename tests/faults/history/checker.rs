//! What must hold of every history. Each check returns what breaks it, in words.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::counter::Tally;
use crate::history::holds::{History, Hold, Wait};
use crate::history::log::Event;
use crate::history::plan::{PROCESSES, THREADS};
use crate::history::times::{Span, length, merged, outside};

/// How long a thread may wait while nobody holds the lock and no fault has its effect.
///
/// What dead holders (a lease) and dead waiters (a waiter timeout) cost falls into the shadows of the
/// faults that killed them, and what a hold takes into the hold. What is left are the hand-offs,
/// some milliseconds each and as many as threads are ahead, and at most one heartbeat of 150 ms for a
/// message that was lost. The rest of it is for a machine that has other things to do.
pub const MOST_UNEXPLAINED: u64 = 2_500_000;

/// How long a thread may be on its way into the queue.
const SETTLE: u64 = 500_000;

/// How many grants of other processes a waiting thread may see while it is calm: one of each for
/// each thread ahead of it in its own process, and once more for itself; twice that, as who
/// has just been hit by a fault comes in at the end of the queue.
const MOST_AHEAD: usize = 2 * THREADS as usize * (PROCESSES - 1);

/// How many requests may stay without an answer in the calm: on a busy machine the threads of the
/// proxies and the clients may together take longer than a command's limit, each of them for so
/// little that nobody notes it.
const MOST_UNANSWERED: usize = 3;

/// A fault, with the time over which it may have its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shadow {
    pub span: Span,
    pub what: String,
}

/// All that is known of a run.
#[derive(Clone, Debug, Default)]
pub struct Evidence {
    pub history: History,
    pub shadows: Vec<Shadow>,
    pub tallies: Vec<Tally>,
}

/// Everything that is wrong with a run; nothing if nothing is.
pub fn check(evidence: &Evidence) -> Vec<String> {
    let history = &evidence.history;
    let mut wrong = Vec::new();
    for lock in history.locks() {
        let holds: Vec<&Hold> = history.holds.iter().filter(|hold| hold.lock == lock).collect();
        wrong.extend(one_owner(&holds));
        wrong.extend(tokens_rise(&holds));
        wrong.extend(waits_are_explained(evidence, lock, &holds));
    }
    wrong.extend(promises_are_kept(history));
    wrong.extend(what_was_said(history));
    wrong.extend(answers_come(evidence));
    for tally in &evidence.tallies {
        wrong.extend(nothing_is_lost(tally));
        wrong.extend(what_was_written_is_there(history, tally));
    }
    wrong
}

/// No two holds of a lock are valid at once. `holds` are of one lock, by their beginning.
fn one_owner(holds: &[&Hold]) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut last: Option<&Hold> = None;
    for hold in holds.iter().filter(|hold| hold.was_valid()) {
        if let Some(last) = last.filter(|last| hold.held < last.until) {
            let both = last.until.min(hold.until) - hold.held;
            wrong.push(format!("two valid holds at once, for {both} µs:\n  {last:?}\n  {hold:?}"));
        }
        last = [last, Some(hold)].into_iter().flatten().max_by_key(|hold| hold.until);
    }
    wrong
}

/// Tokens rise strictly from one valid hold to the next, and no hold at all has another's.
fn tokens_rise(holds: &[&Hold]) -> Vec<String> {
    let mut wrong = Vec::new();
    let valid: Vec<&&Hold> = holds.iter().filter(|hold| hold.was_valid()).collect();
    for pair in valid.windows(2) {
        if pair[0].token >= pair[1].token {
            wrong.push(format!("the later hold has no higher token:\n  {:?}\n  {:?}", pair[0], pair[1]));
        }
    }
    let mut known: BTreeMap<u64, &Hold> = BTreeMap::new();
    for hold in holds {
        if let Some(other) = known.insert(hold.token, hold) {
            wrong.push(format!("a token was given twice:\n  {other:?}\n  {hold:?}"));
        }
    }
    wrong
}

/// No hold was told to be lost before the time that `remaining()` had promised.
fn promises_are_kept(history: &History) -> Vec<String> {
    let broken = history.holds.iter().filter(|hold| {
        let lost = hold.released.as_ref().filter(|(_, how)| how.starts_with("LeaseLost"));
        lost.is_some_and(|(at, _)| *at < hold.promised)
    });
    broken.map(|hold| format!("lost before the time that was promised:\n  {hold:?}")).collect()
}

/// No error that no fault explains, and no process saw what must not be.
fn what_was_said(history: &History) -> Vec<String> {
    let mut wrong = Vec::new();
    for wait in &history.waits {
        if !matches!(kind(&wait.how), "held" | "open" | "none" | "Cancelled" | "Unavailable") {
            wrong.push(format!("must not end so:\n  {wait:?}"));
        }
    }
    for line in &history.lines {
        let is_fine = match &line.event {
            Event::Released { how } => {
                matches!(kind(how), "ok" | "LeaseLost" | "OutcomeUnknown" | "Unavailable")
            }
            // Somebody came in behind it, and it still believed in its hold.
            Event::Refused { left } => *left == 0,
            Event::Odd { .. } => false,
            _ => true,
        };
        if !is_fine {
            wrong.push(format!("must not be:\n  {line}"));
        }
    }
    wrong
}

/// That Redis did not answer is said only in the shadow of a fault, but for a few times.
fn answers_come(evidence: &Evidence) -> Vec<String> {
    let shadows = shade(evidence);
    let is_calm = |at: u64| !outside((at, at + 1), &shadows).is_empty();
    let mut silent = Vec::new();
    for wait in &evidence.history.waits {
        // A deadline may be shorter than the way to the server.
        if kind(&wait.how) == "Unavailable" && !wait.form.contains("For") && is_calm(wait.ended) {
            silent.push(format!("no answer while it was calm:\n  {wait:?}"));
        }
    }
    for line in &evidence.history.lines {
        let unanswered = |how: &str| matches!(kind(how), "OutcomeUnknown" | "Unavailable");
        if matches!(&line.event, Event::Released { how } if unanswered(how)) && is_calm(line.at) {
            silent.push(format!("no answer while it was calm:\n  {line}"));
        }
    }
    if silent.len() > MOST_UNANSWERED { silent } else { Vec::new() }
}

fn kind(how: &str) -> &str {
    how.split(' ').next().unwrap_or_default()
}

/// Every wait is explained by holds and by the shadows of faults, but for a short rest; and nobody
/// is passed again and again. `holds` are all of this lock.
fn waits_are_explained(evidence: &Evidence, lock: &str, holds: &[&Hold]) -> Vec<String> {
    let shadows = shade(evidence);
    let held = holds.iter().map(|hold| (hold.held, hold.until));
    let explained = merged(held.chain(shadows.iter().copied()).collect());
    let mut wrong = Vec::new();
    for wait in evidence.history.waits.iter().filter(|wait| wait.lock == lock) {
        let rest = length(&outside((wait.called, wait.ended), &explained));
        if rest > MOST_UNEXPLAINED {
            wrong.push(format!("waited for {rest} µs without a reason:\n  {wait:?}"));
        }
        let ahead = ahead_of(wait, holds, &shadows);
        if ahead > MOST_AHEAD {
            wrong.push(format!("passed by {ahead} grants of others while it was calm:\n  {wait:?}"));
        }
    }
    wrong
}

/// How many grants of other processes began while this thread was surely waiting, in the calm.
fn ahead_of(wait: &Wait, holds: &[&Hold], shadows: &[Span]) -> usize {
    if wait.called + SETTLE >= wait.ended {
        return 0;
    }
    let mut grants = BTreeSet::new();
    for (from, until) in outside((wait.called + SETTLE, wait.ended), shadows) {
        let first = holds.partition_point(|hold| hold.held < from);
        let within = holds[first..].iter().take_while(|hold| hold.held < until);
        grants.extend(within.filter(|it| it.who.process != wait.who.process).map(|it| it.grant()));
    }
    grants.len()
}

/// How much of the longest unexplained wait of all there was, for the report.
pub fn longest_unexplained(evidence: &Evidence) -> u64 {
    let shadows = shade(evidence);
    let rest = |wait: &Wait| {
        let holds = evidence.history.holds.iter().filter(|hold| hold.lock == wait.lock);
        let within = holds.filter(|hold| hold.held < wait.ended && wait.called < hold.until);
        let held = within.map(|hold| (hold.held, hold.until));
        length(&outside((wait.called, wait.ended), &merged(held.chain(shadows.iter().copied()).collect())))
    };
    // Few waits are long, and only they can have a long rest.
    let mut waits: Vec<&Wait> = evidence.history.waits.iter().collect();
    waits.sort_by_key(|wait| std::cmp::Reverse(wait.ended - wait.called));
    let mut longest = 0;
    for wait in waits.into_iter().take_while(|wait| wait.ended - wait.called > 0) {
        if wait.ended - wait.called <= longest {
            break;
        }
        longest = longest.max(rest(wait));
    }
    longest
}

fn shade(evidence: &Evidence) -> Vec<Span> {
    merged(evidence.shadows.iter().map(|shadow| shadow.span).collect())
}

/// The counter stands at the number of its accepted writes, each over a value of its own.
pub fn nothing_is_lost(tally: &Tally) -> Vec<String> {
    let mut wrong = Vec::new();
    let Tally { name, value, writes } = tally;
    if *value != writes.len() as u64 {
        wrong.push(format!("counter {name}: {value} after {} accepted writes", writes.len()));
    }
    let mut read: BTreeMap<u64, u64> = BTreeMap::new();
    for (token, over) in writes {
        if let Some(other) = read.insert(*over, *token) {
            wrong.push(format!("counter {name}: {other} and {token} have both written over {over}"));
        }
    }
    wrong
}

/// What a worker was told to be written was written, under the token of its hold.
fn what_was_written_is_there(history: &History, tally: &Tally) -> Vec<String> {
    let writes: BTreeSet<(u64, u64)> = tally.writes.iter().copied().collect();
    let tokens: BTreeMap<_, u64> =
        history.holds.iter().filter(|it| it.lock == tally.name).map(|it| (it.who, it.token)).collect();
    let mut wrong = Vec::new();
    for line in &history.lines {
        if let (Event::Wrote { read }, Some(token)) = (&line.event, tokens.get(&line.who))
            && !writes.contains(&(*token, *read))
        {
            wrong.push(format!("counter {}: this write is not there:\n  {line}", tally.name));
        }
    }
    wrong
}
