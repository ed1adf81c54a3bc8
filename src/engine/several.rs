//! Several locks at once, as C++'s `std::lock` takes them: a thread waits for one of them, and only tries the
//! rest. When one of those is busy it gives all back and waits for that one. So it never waits for one
//! lock while it holds another by this call, and no order of the locks can make a deadlock of it.
//!
//! Locks of one client and one kind are tried, and left, in one request. What it holds are ordinary holds.

use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Attempt, Begun, begin};
use super::backend::Failure;
use super::cell::Cell;
use super::gate::{Answer, Grip, How, Request, Taker, Terms, Ticket};
use super::release::{Departure, depart};
use super::{acquire, held, lock, modes, requests};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;
use crate::wait::Wait;

/// A lock among several.
/// A lock among several.
#[derive(Clone, Debug)]
pub struct Part {
    pub(crate) cell: Arc<Cell>,
    /// The same lock in its other mode.
    pub(crate) other: Option<Arc<Cell>>,
    pub(crate) sharing: Sharing,
    pub(crate) terms: Terms,
}

impl Part {
    fn request(&self, taker: Taker, thread: u64, once: bool) -> Result<Request, Error> {
        let terms = self.terms.clone();
        let mut request = Request { taker, thread, terms, once, from: None, instead: false };
        if let Some(other) = &self.other {
            modes::mind(&self.cell, other, self.sharing, &mut request)?;
        }
        Ok(request)
    }

    /// Whether this thread holds it.
    pub(crate) fn is_held_by(&self, thread: u64) -> bool {
        lock(&self.cell).is_ok_and(|core| core.gate.hold_count(thread, Moment::now()) > 0)
    }

    /// Locks that may go by the same request.
    fn goes_with(&self, other: &Part) -> bool {
        goes_with(&self.cell, &other.cell)
    }
}

/// Of one client and one kind, and so with the same scripts.
fn goes_with(a: &Cell, b: &Cell) -> bool {
    Arc::ptr_eq(&a.scripts, &b.scripts)
}

/// Gets all of `parts` in, within `wait`; `None` where one is busy and the time is up. An error is about the
/// lock that it came from; nothing is held then.
pub(crate) fn acquire_all(
    parts: &[Part],
    taker: Taker,
    thread: u64,
    wait: &Wait<'_>,
) -> Result<Option<Holds>, Error> {
    if wait.is_cancelled() {
        return Err(Error::new(ErrorKind::Cancelled, ""));
    }
    let mut awaited: Option<usize> = None;
    loop {
        let mut holds = Holds::default();
        if let Some(i) = awaited {
            let request = parts[i].request(taker, thread, false)?;
            let Some(grip) = acquire(&parts[i].cell, request, wait)? else { return Ok(None) };
            holds.add(parts, i, grip);
        }
        let out = try_all(parts, taker, thread, wait, &mut holds);
        let Some(Out { part, error }) = out.or_else(|| holds.lost()) else { return Ok(Some(holds)) };
        // Before anything is waited for.
        drop(holds);
        // A wait that was cancelled says so by itself.
        let over = wait.once || (wait.is_over(Moment::now()) && !wait.is_cancelled());
        match error {
            Some(error) if over || !(error.is_unavailable() || error.is_lease_lost()) => return Err(error),
            None if over => return Ok(None),
            // What may pass, it waits for: it says so itself should it not.
            _ => awaited = Some(part),
        }
    }
}

/// The lock for which the others were given back.
struct Out {
    part: usize,
    error: Option<Error>,
}

/// Tries all that are not among `holds`, one client's and one kind's after the other, until one is out.
fn try_all(parts: &[Part], taker: Taker, thread: u64, wait: &Wait<'_>, holds: &mut Holds) -> Option<Out> {
    let mut rest: Vec<usize> = (0..parts.len()).filter(|i| !holds.has(*i)).collect();
    while let Some(first) = rest.first().copied() {
        let (batch, others) = rest.into_iter().partition(|i| parts[*i].goes_with(&parts[first]));
        rest = others;
        let out = Batch::new(parts, batch).run(taker, thread, wait, holds);
        if out.is_some() {
            return out;
        }
    }
    None
}

/// Locks that are tried by one request.
struct Batch<'a> {
    parts: &'a [Part],
    indices: Vec<usize>,
    limit: Moment,
}

impl<'a> Batch<'a> {
    fn new(parts: &'a [Part], indices: Vec<usize>) -> Self {
        Batch { parts, indices, limit: Moment::NEVER }
    }

    fn run(mut self, taker: Taker, thread: u64, wait: &Wait<'_>, holds: &mut Holds) -> Option<Out> {
        let mut attempts: Vec<(usize, Attempt<'a>)> = Vec::new();
        for i in std::mem::take(&mut self.indices) {
            let part = &self.parts[i];
            self.limit = wait.limit(Moment::now(), part.cell.shared.config.command_timeout);
            let request = part.request(taker, thread, true);
            let error = match request.and_then(|request| begin(&part.cell, request, self.limit)) {
                Ok(Begun::In(grip)) => {
                    holds.add(self.parts, i, grip);
                    continue;
                }
                Ok(Begun::Asks(attempt)) => {
                    attempts.push((i, attempt));
                    continue;
                }
                Ok(Begun::Busy) => None,
                Err(error) => Some(error),
            };
            // Redis need not be asked for the others.
            for (_, attempt) in attempts.into_iter().rev() {
                attempt.called_off();
            }
            return Some(Out { part: i, error });
        }
        match attempts.len() {
            0 => None,
            1 => {
                let (i, attempt) = attempts.remove(0);
                let outcome = requests::acquire(attempt.cell(), attempt.asking(), self.limit);
                self.ended(i, attempt, outcome, holds)
            }
            _ => self.ask_all(attempts, holds),
        }
    }

    fn ask_all(&self, attempts: Vec<(usize, Attempt<'a>)>, holds: &mut Holds) -> Option<Out> {
        let all: Vec<_> = attempts.iter().map(|(_, attempt)| (attempt.cell(), attempt.asking())).collect();
        let (answers, resent) = match requests::acquire_all(&all, self.limit) {
            Ok(answers) => answers,
            Err(failure) => {
                let ended = attempts.into_iter().map(|(i, a)| self.ended(i, a, Err(failure.clone()), holds));
                return first(ended);
            }
        };
        let asked = answers.len();
        let all_in = asked == attempts.len() && answers.iter().all(requests::is_in);
        let mut answers = answers.into_iter();
        let ended = attempts.into_iter().enumerate().map(|(n, (i, attempt))| {
            let Some(answer) = answers.next() else {
                // Not asked for, unless an earlier copy of the request came further.
                if !resent {
                    attempt.called_off();
                }
                return None;
            };
            let given_back = !all_in && n + 1 < asked && attempt.asking().how != How::Share;
            let answer = if given_back { answer.map(busy_again) } else { answer };
            let out = self.ended(i, attempt, answer.map(|answer| (answer, resent)), holds);
            out.filter(|_| !given_back)
        });
        first(ended)
    }

    fn ended(
        &self,
        i: usize,
        attempt: Attempt<'a>,
        outcome: Result<(Answer, bool), Failure>,
        holds: &mut Holds,
    ) -> Option<Out> {
        match attempt.answered(outcome, self.limit) {
            Ok(Some(grip)) => {
                holds.add(self.parts, i, grip);
                None
            }
            Ok(None) => Some(Out { part: i, error: None }),
            Err(error) => Some(Out { part: i, error: Some(error) }),
        }
    }
}

/// The first that is out, after all of them have ended.
fn first(ended: impl Iterator<Item = Option<Out>>) -> Option<Out> {
    ended.fold(None, Option::or)
}

/// What was given back for another lock is as good as busy; its number was given to nobody else.
fn busy_again(answer: Answer) -> Answer {
    match answer {
        Answer::In { number, .. } => {
            Answer::Busy { floor: number, again: Duration::ZERO, arrival: String::new() }
        }
        other => other,
    }
}

/// Holds of several locks, given back together.
#[derive(Default)]
pub(crate) struct Holds(Vec<Held>);

/// One of them.
pub(crate) struct Held {
    /// Which part it is of.
    part: usize,
    pub(crate) cell: Arc<Cell>,
    pub(crate) ticket: Ticket,
    /// Its token when it began, of an exclusive lock.
    first_token: Option<u64>,
}

impl Held {
    /// Its token, of an exclusive lock.
    pub(crate) fn token(&self) -> Option<u64> {
        self.first_token.map(|first| held::token(&self.cell, self.ticket).unwrap_or(first))
    }
}

impl Holds {
    fn add(&mut self, parts: &[Part], part: usize, grip: Grip) {
        let Part { cell, sharing, .. } = &parts[part];
        let first_token = (*sharing == Sharing::Exclusive).then_some(grip.token);
        let at = self.0.partition_point(|held| held.part < part);
        self.0.insert(at, Held { part, cell: cell.clone(), ticket: grip.ticket, first_token });
    }

    fn has(&self, part: usize) -> bool {
        self.0.iter().any(|held| held.part == part)
    }

    /// One that was lost before the last one was there.
    fn lost(&self) -> Option<Out> {
        let lost = self.0.iter().find(|held| held::remaining(&held.cell, held.ticket).is_zero())?;
        let error = Error::new(ErrorKind::LeaseLost, "").because("before the others were there");
        Some(Out { part: lost.part, error: Some(lost.cell.error(error)) })
    }

    /// All of them, in the order of the parts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Held> {
        self.0.iter()
    }

    /// Gives them back, the last one first, as far as they do not go together. Returns what went wrong, by
    /// the order of the parts.
    pub(crate) fn release(mut self) -> Vec<(Arc<Cell>, Error)> {
        self.give_back()
    }

    fn give_back(&mut self) -> Vec<(Arc<Cell>, Error)> {
        let mut rest = std::mem::take(&mut self.0);
        rest.reverse();
        let mut errors = Vec::new();
        while let Some(first) = rest.first().map(|held| held.cell.clone()) {
            let (batch, others): (Vec<_>, _) =
                rest.into_iter().partition(|held| goes_with(&held.cell, &first));
            rest = others;
            leave(&batch, &mut errors);
        }
        errors.sort_by_key(|(part, ..)| *part);
        errors.into_iter().map(|(_, cell, error)| (cell, error)).collect()
    }
}

/// Gives back what goes by one request.
fn leave(batch: &[Held], errors: &mut Vec<(usize, Arc<Cell>, Error)>) {
    let mut failed = |held: &Held, error| errors.push((held.part, held.cell.clone(), error));
    let mut departures: Vec<(&Held, Departure<'_>)> = Vec::new();
    for held in batch {
        match depart(&held.cell, held.ticket) {
            Ok(Some(departure)) => departures.push((held, departure)),
            Ok(None) => {}
            Err(error) => failed(held, error),
        }
    }
    let outcomes: Vec<_> = match &departures[..] {
        [] => return,
        [(_, one)] => vec![requests::leave(one.cell, &one.leaving, one.next.as_ref(), one.limit())],
        [(_, first), ..] => {
            let all: Vec<_> = departures.iter().map(|(_, d)| (d.cell, &d.leaving, d.next.as_ref())).collect();
            match requests::leave_all(&all, first.limit()) {
                Ok(outcomes) => outcomes,
                Err(failure) => departures.iter().map(|_| Err(failure.clone())).collect(),
            }
        }
    };
    for ((held, departure), outcome) in departures.into_iter().zip(outcomes) {
        if let Err(error) = departure.answered(outcome) {
            failed(held, error);
        }
    }
}

/// What fails is told to the observers, as nobody else hears of it.
impl Drop for Holds {
    fn drop(&mut self) {
        for (cell, error) in self.give_back() {
            unheard(&cell, &error);
        }
    }
}

/// Nobody but the observers hears of it.
pub(crate) fn unheard(cell: &Cell, error: &Error) {
    if error.kind() != ErrorKind::Forked {
        cell.shared.watch.tell(|o| o.unlock_failed(cell.observed(), error));
    }
}
