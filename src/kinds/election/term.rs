//! A leader's term.

use std::fmt;
use std::time::Duration;

use super::kind::{Candidate, check_value};
use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::change::change_hold;
use crate::engine::{held, warning};
use crate::error::{Error, ErrorKind};
use crate::guard::OwnedGuard;
use crate::wait::Wait;

/// A term in which this candidate leads, until it is [resigned](Term::resign), dropped, or lost. Its lease is renewed
/// in the background. It may move to another thread, and be kept in a struct.
#[must_use = "a term that is not kept is resigned at once"]
pub struct Term {
    guard: OwnedGuard<Candidate>,
    ending: CancellationToken,
    /// Dropped after the guard.
    _warned: Warned,
}

/// Lets the thread of the warnings know that a term is over, which it need not wait for then.
struct Warned;

impl Drop for Warned {
    fn drop(&mut self) {
        warning::look_again();
    }
}

impl Term {
    /// A term that begins, with so much of its lease that it is not over already for its own work; by then, as `wait` says.
    ///
    /// # Errors
    /// `LeaseLost` if that was lost; any other if it could not be renewed: it is given back.
    pub(super) fn begin(
        guard: OwnedGuard<Candidate>,
        margin: Duration,
        wait: &Wait<'_>,
    ) -> Result<Term, Error> {
        if guard.remaining() < 2 * margin {
            // It was waited for, and has only its first lease yet.
            let (entry, ticket) = (guard.hold.entry(), guard.hold.ticket());
            let limit = || wait.limit(Moment::now(), entry.shared.config.command_timeout);
            if let Err(error) = held::renew_by(entry, ticket, None, limit()) {
                let limit = limit();
                guard.hold.never_counted(limit);
                return Err(error);
            }
            warning::look_again();
        }
        let ending = guard.ends_within(margin);
        Ok(Term { guard, ending, _warned: Warned })
    }

    /// The election's name.
    pub fn name(&self) -> &str {
        self.guard.name()
    }

    /// The number of the term, greater than that of every earlier one, in any process: the fencing token of what the
    /// leader does. Let what it changes [reject a lower one](crate::Fenced).
    #[doc(alias = "token")]
    pub fn number(&self) -> u64 {
        self.guard.token()
    }

    /// A token that is cancelled when the leader's work must stop: when less than
    /// [`stop_before`](crate::Election::stop_before) is certain to remain of the term, as renewals fail, or when it is
    /// over. It is the same one for all calls.
    pub fn ending(&self) -> CancellationToken {
        self.ending.clone()
    }

    /// Whether the term ended before it was resigned. No request: while Redis is silent, it counts as over when its lease
    /// must have expired. That is final.
    pub fn is_over(&self) -> bool {
        self.guard.is_lost()
    }

    /// The remaining time for which the term is certain to last if it is not renewed; zero once it is over. Computed
    /// here, without a request.
    pub fn remaining(&self) -> Duration {
        self.guard.remaining()
    }

    /// Shows `value` to others from now on, in place of what the candidate [said of itself](crate::Election::value); an
    /// observer is notified of it. At most 4,096 bytes. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the term is over, `InvalidInput` for a longer value. `OutcomeUnknown` if Redis did not
    /// reply: others may see the new value, or may still do so. `Unavailable`, `Forked`.
    pub fn proclaim(&self, value: &str) -> Result<(), Error> {
        check_value(value).map_err(|why| Error::new(ErrorKind::InvalidInput, self.name()).because(why))?;
        change_hold(self.guard.hold.entry(), self.guard.hold.ticket(), "proclaim", value)
    }

    /// Ends the term; the next candidate leads. Blocks for one request, at most the command timeout. Dropping the term
    /// does the same, and reports an error to the observer.
    ///
    /// # Errors
    /// `LeaseLost` if the term was over before; `Closed`. `OutcomeUnknown` if Redis did not reply, `Unavailable` if it
    /// certainly has not run it: it is sent again in the background until the lease is over.
    pub fn resign(self) -> Result<(), Error> {
        let Term { guard, _warned, .. } = self;
        guard.unlock()
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("election", &self.name()).field("number", &self.number()).finish()
    }
}
