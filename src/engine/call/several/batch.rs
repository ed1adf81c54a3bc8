//! Trying several locks of one client and one kind by one request: all or nothing.

use std::time::Duration;

use crate::clock::Moment;
use crate::engine::call::attempt::{OneTry, begin};
use crate::engine::call::several::{Holds, Out, SeveralCall};
use crate::engine::call::waiter::Progress;
use crate::engine::operations::{replies, several};
use crate::engine::state::lock_state::{AcquireMode, Answer};

impl SeveralCall<'_> {
    /// Tries these parts. Those that are acquired are added to `holds`, even if another one is busy.
    pub(super) fn try_batch(&self, batch: Vec<usize>, holds: &mut Holds) -> Option<Out> {
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
