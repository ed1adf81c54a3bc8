//! A campaign: until a term has begun, or the time is up.

use std::time::Duration;

use super::kind::Candidate;
use super::term::Term;
use crate::clock::Moment;
use crate::engine::pause::pause;
use crate::error::{Error, ErrorKind};
use crate::lock::RedisLock;
use crate::wait::Wait;

/// How long a candidate whose lease was not renewed leaves it to the others.
const PAUSE: Duration = Duration::from_millis(100);

/// Campaigns as `wait` says, for a leader whose work is to stop `margin` before the end of its term. `None` if the time is
/// up.
///
/// # Errors
/// `Unavailable` if the term was over, or could not be made sure of, before it had begun, and there is no time left for
/// another one. Those of the lock.
pub(super) fn campaign(
    lock: &RedisLock<Candidate>,
    margin: Duration,
    wait: &Wait<'_>,
) -> Result<Option<Term>, Error> {
    // Acquiring it does not tell whether a lease can be renewed: what that takes in vain is counted here.
    let mut in_vain = Duration::ZERO;
    loop {
        let Some(guard) = lock.lock_owned_with(*wait)? else { return Ok(None) };
        let granted = Moment::now();
        let error = match Term::begin(guard, margin, wait) {
            Ok(term) => return Ok(Some(term)),
            Err(error) => error,
        };
        let failed = match error.kind() {
            ErrorKind::LeaseLost => false,
            ErrorKind::Unavailable | ErrorKind::OutcomeUnknown => true,
            _ => return Err(error),
        };
        let shared = &lock.entry()?.shared;
        if failed && !wait.once {
            pause(shared, Moment::now().after(PAUSE), wait);
            in_vain += Moment::now().since(granted);
        }
        let over = match wait.deadline {
            Some(deadline) => deadline <= Moment::now(),
            None => wait.once || in_vain >= shared.config.unreachable_timeout,
        };
        // (One that is cancelled is told so by the lock.)
        if over && !wait.is_cancelled() {
            return Err(not_begun(lock.name(), error));
        }
    }
}

/// What it is to a candidate that its lease was lost, or not renewed: its term has not begun.
fn not_begun(name: &str, error: Error) -> Error {
    let why = match error.kind() {
        ErrorKind::LeaseLost => "the lease of the term was lost before it began",
        ErrorKind::OutcomeUnknown => "the lease of the term could not be renewed, and is given back",
        _ => return error,
    };
    Error::new(ErrorKind::Unavailable, name).because(why).caused_by(error)
}
