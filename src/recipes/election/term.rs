//! A leader's term.

use std::fmt;
use std::ops::Deref;
use std::time::Duration;

use super::kind::{Candidate, check_value};
use crate::cancel::CancellationToken;
use crate::error::{Error, ErrorKind};
use crate::guard::OwnedGuard;
use crate::wait::Wait;

/// A term in which this candidate leads, until it is [resigned](Term::resign), dropped, or lost. Its lease is
/// renewed in the background. It may move to another thread, and be kept in a struct.
///
/// It dereferences to its guard: the [token](crate::Guard::token) is the number of the term, greater than that
/// of every earlier one. Let what the leader changes [reject a lower one](crate::Fenced).
#[must_use = "a term that is not kept is resigned at once"]
pub struct Term {
    guard: OwnedGuard<Candidate>,
    ending: CancellationToken,
}

impl Term {
    /// Begins a term with enough of its lease left that its work need not stop at once. Takes no longer than
    /// `wait` allows.
    ///
    /// # Errors
    /// `LeaseLost` if the lease was lost; any other error if it could not be renewed: the hold is given back.
    pub(super) fn begin(
        mut guard: OwnedGuard<Candidate>,
        margin: Duration,
        wait: &Wait<'_>,
    ) -> Result<Term, Error> {
        if guard.remaining() < 2 * margin {
            // It was waited for, and so far has only its first lease.
            guard = guard.renewed(wait)?;
        }
        let ending = guard.ends_within(margin);
        Ok(Term { guard, ending })
    }

    /// A token that is cancelled when the leader's work must stop: when less than
    /// [`stop_before`](crate::Election::stop_before) is certain to remain of the term, because renewals fail,
    /// or when it is over. All calls return the same token.
    pub fn ending(&self) -> CancellationToken {
        self.ending.clone()
    }

    /// Publishes `value` from now on, in place of the [candidate's](crate::Election::value); observers are
    /// notified. At most 4,096 bytes. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the term is over, `InvalidInput` for a longer value. `OutcomeUnknown` if
    /// Redis did not reply: others may see the new value, or may still do so. `Unavailable`, `Forked`.
    pub fn proclaim(&self, value: &str) -> Result<(), Error> {
        check_value(value).map_err(|why| Error::new(ErrorKind::InvalidInput, self.name()).because(why))?;
        self.guard.update("proclaim", value)
    }

    /// Ends the term; the next candidate leads. Blocks for one request, at most the command timeout. Dropping
    /// the term does the same, and reports an error to the observer.
    ///
    /// # Errors
    /// `LeaseLost` if the term was over before; `Closed`. `OutcomeUnknown` if Redis did not reply,
    /// `Unavailable` if it certainly did not run the request: in both cases it is sent again in the
    /// background until the lease has expired.
    pub fn resign(self) -> Result<(), Error> {
        self.guard.unlock()
    }
}

impl Deref for Term {
    type Target = OwnedGuard<Candidate>;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

impl fmt::Debug for Term {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Term").field("election", &self.name()).field("token", &self.token()).finish()
    }
}
