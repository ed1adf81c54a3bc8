//! Acquiring several locks at once, in the manner of C++'s `std::lock`: a thread waits for one of them, and
//! only tries the rest. If one of those is busy, it gives all back and waits for that one. So it never waits
//! for one lock while it holds another by the same call, and no order of the locks can cause a deadlock.
//!
//! Locks of one client and one kind are tried, and released, in one request. The call's holds are ordinary
//! holds.

mod holds;

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::call::attempt::{OneTry, begin};
use crate::engine::call::backoff::Backoff;
pub(crate) use crate::engine::call::several::holds::Holds;
pub use crate::engine::call::several::holds::Part;
use crate::engine::call::several::holds::{common, together};
use crate::engine::call::waiter::Progress;
use crate::engine::call::{acquire, replicas};
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::{replies, several};
use crate::engine::renewal::successor::identified;
use crate::engine::state::lock_state::{AcquireMode, Acquired, Answer, HolderId, Request};
use crate::error::{Error, ErrorKind};
use crate::wait::Wait;

/// Why a lock cannot be wanted twice by one call.
pub(crate) const TWICE: &str = "the multi-lock contains this lock twice and would wait for itself";

/// The longest pause after a round that may have failed on a lock that it had itself.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// A call that wants all of several locks.
pub(crate) struct SeveralCall<'a> {
    pub(crate) parts: &'a [Part],
    pub(crate) holder: HolderId,
    pub(crate) thread: u64,
    pub(crate) wait: &'a Wait<'a>,
}

/// The lock that could not be acquired, for which the others are given back.
struct Out {
    part: usize,
    error: Option<Error>,
}

impl SeveralCall<'_> {
    /// Acquires all locks. Returns `None` if one was still busy at the timeout. An error names the lock that
    /// it came from; no lock is held then.
    pub(crate) fn acquire(&self) -> Result<Option<Holds>, Error> {
        let SeveralCall { parts, wait, .. } = *self;
        if wait.is_cancelled() {
            return Err(Error::new(ErrorKind::Cancelled, ""));
        }
        let mut awaited: Option<usize> = None;
        let mut backoff = Backoff::default();
        loop {
            let began = Moment::now();
            let mut holds = Holds::of(wait);
            if let Some(i) = awaited {
                let Some(acquired) = self.wait_for(i)? else { return Ok(None) };
                holds.add(parts, i, acquired);
            }
            let Some(Out { part, error }) = self.try_rest(awaited, &mut holds) else {
                self.replicate(&holds)?;
                holds.are_valid()?;
                holds.acquired_by = None;
                return Ok(Some(holds));
            };
            let entry = &parts[part].entry;
            let namesake = holds.iter().find(|held| error.is_none() && held.entry.names == entry.names);
            let namesake = namesake.map(|held| held.entry.clone());
            // All holds are given back before the thread waits.
            drop(holds);
            let may_be_own = namesake.map_or(Ok(false), |held| self.may_be_one(&held, entry))?;
            // A cancelled wait is not over here: the next acquire reports the cancellation.
            let over = wait.once || (wait.is_over(Moment::now()) && !wait.is_cancelled());
            match error {
                Some(error) if over || !error.is_unavailable() => return Err(error),
                None if over => return Ok(None),
                // Redis may be reachable again soon: the wait for that lock decides how long to tolerate that
                // it is not.
                _ => awaited = Some(part),
            }
            if may_be_own {
                backoff.pause(&entry.shared, Moment::now().since(began), LONGEST_PAUSE, wait);
            }
        }
    }

    /// Waits for this lock alone, for as long as the clients of the others are open, too.
    fn wait_for(&self, i: usize) -> Result<Option<Acquired>, Error> {
        let entry = &self.parts[i].entry;
        let (request, readers) = self.request(i, false)?;
        let entries = self.parts.iter().map(|part| &part.entry);
        let others: Vec<_> = entries.filter(|it| !Arc::ptr_eq(&it.shared, &entry.shared)).collect();
        let ends = self.wait.cancel.map(CancellationToken::child).unwrap_or_default();
        others.iter().for_each(|other| other.shared.ended.cancels(&ends));
        let outcome = acquire(entry, readers, &request, &self.wait.cancelled_by(&ends));
        let is_open = |other: &&Arc<LockEntry>| other.shared.not_closed().map_err(|e| other.error(e));
        outcome.or_else(|error| others.iter().try_for_each(is_open).and(Err(error)))
    }

    /// Returns whether the lock that was held and the one that was busy may be one lock, by two addresses of
    /// its server that were not known to be the same.
    ///
    /// # Errors
    /// `InvalidInput` if they are.
    fn may_be_one(&self, held: &LockEntry, busy: &LockEntry) -> Result<bool, Error> {
        let known = [held, busy].map(|entry| {
            let limit = self.wait.limit(Moment::now(), entry.shared.config.command_timeout);
            identified(&entry.shared, entry.server(), limit)
        });
        if held.is_same_key(busy) {
            return Err(busy.error(ErrorKind::InvalidInput.because(TWICE)));
        }
        Ok(known.contains(&false))
    }

    /// Tries all locks but the one that was waited for, in groups of one client and one kind, until one is busy.
    fn try_rest(&self, awaited: Option<usize>, holds: &mut Holds) -> Option<Out> {
        let rest = (0..self.parts.len()).filter(|i| awaited != Some(*i));
        let batches = together(rest, |i| common(&self.parts[*i].entry));
        batches.into_iter().find_map(|batch| self.try_batch(batch, holds))
    }

    /// Tries these parts. Those that are acquired are added to `holds`, even if another one is busy.
    fn try_batch(&self, batch: Vec<usize>, holds: &mut Holds) -> Option<Out> {
        let mut limit = Moment::NEVER;
        let mut attempts = Vec::new();
        for i in batch {
            let (entry, now) = (&self.parts[i].entry, Moment::now());
            limit = self.wait.limit(now, entry.shared.config.command_timeout);
            let error = match self.request(i, true).and_then(|(it, _)| begin(entry, &it, now, limit)) {
                Ok(Progress::In(acquired)) => {
                    holds.add(self.parts, i, acquired);
                    continue;
                }
                Ok(Progress::Next(attempt)) => {
                    attempts.push((i, attempt));
                    continue;
                }
                Ok(Progress::Out) => None,
                Err(error) => Some(error),
            };
            // Redis need not be asked for the others.
            attempts.into_iter().rev().for_each(|(_, attempt)| attempt.called_off());
            return Some(Out { part: i, error });
        }
        self.ask_all(attempts, limit, holds)
    }

    fn ask_all(&self, tries: Vec<(usize, OneTry)>, limit: Moment, holds: &mut Holds) -> Option<Out> {
        let all: Vec<_> = tries.iter().map(|(_, attempt)| (&attempt.entry, &attempt.asking)).collect();
        let (answers, resent) = several::acquire_all(&all, limit)
            .unwrap_or_else(|failure| (vec![Err(failure); all.len()], false));
        let all_in = answers.iter().all(replies::is_in);
        let mut answers = answers.into_iter();
        let ended = tries.into_iter().map(|(i, attempt)| {
            let Some(answer) = answers.next() else {
                // It was not tried, unless an earlier copy of the request got further.
                if !resent {
                    attempt.called_off();
                }
                return None;
            };
            let given_back = !all_in && replies::is_in(&answer) && attempt.asking.how != AcquireMode::Share;
            let answer = if given_back { answer.map(busy_again) } else { answer };
            let error = match attempt.answered(answer.map(|answer| (answer, resent)), limit) {
                Ok(Some(acquired)) => {
                    holds.add(self.parts, i, acquired);
                    return None;
                }
                outcome => outcome.err(),
            };
            (!given_back).then_some(Out { part: i, error })
        });
        // The first that is busy, after all attempts have ended.
        ended.fold(None, Option::or)
    }

    /// Waits for the replicas, for those holds that must be replicated.
    fn replicate(&self, holds: &Holds) -> Result<(), Error> {
        for (held, part) in holds.iter().zip(self.parts) {
            if let Some(replicas) = part.replicas {
                replicas::have(&held.entry, held.ticket, replicas, self.wait)?;
            }
        }
        Ok(())
    }

    /// Returns the request for this part, and the readers of this process if they must queue behind it.
    fn request(&self, part: usize, once: bool) -> Result<(Request, Option<&Arc<LockEntry>>), Error> {
        let part = &self.parts[part];
        let mut request = part.request(self.holder, self.thread, once);
        let readers = part.readers(&mut request)?;
        Ok((request, readers))
    }
}

/// Returns a busy reply in place of a grant that was given back for another lock. No other owner got its
/// number.
fn busy_again(answer: Answer) -> Answer {
    match answer {
        Answer::In { number, .. } => {
            Answer::Busy { last_number: number, again: Duration::ZERO, arrival: String::new(), others: 0 }
        }
        other => other,
    }
}
