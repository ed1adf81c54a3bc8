//! A campaign: waits until a term has begun, or the time is up.

use std::time::Duration;

use super::kind::Candidate;
use super::term::Term;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::lock::RedisLock;
use crate::wait::Wait;

/// How long a candidate whose lease was not renewed, or whose term is over, leaves the leadership to others.
pub(super) const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two campaigns of a candidate that fail.
pub(super) const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether a candidate that got this error may lead later.
pub(super) fn may_pass(error: ErrorKind) -> bool {
    use ErrorKind::{Cancelled, LeaseLost, NotReplicated, OutcomeUnknown, Unavailable};
    matches!(error, Cancelled | LeaseLost | NotReplicated | OutcomeUnknown | Unavailable)
}

/// Campaigns as `wait` says, for a leader whose work is to stop `margin` before the end of its term. `None`
/// if the time is up.
///
/// # Errors
/// `Unavailable` if the lease was lost, or could not be renewed, before the term had begun, and there is no
/// time left for another attempt. Those of the lock.
pub(super) fn campaign(
    client: &Client,
    lock: &RedisLock<Candidate>,
    margin: Duration,
    wait: &Wait<'_>,
) -> Result<Option<Term>, Error> {
    // That the lock can be acquired does not show that its lease can be renewed, so the time of failed
    // renewals is added up here and counts towards the unreachable timeout.
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
        if failed && !wait.once {
            client.pause(PAUSE, wait);
            in_vain += Moment::now().since(granted);
        }
        let over = match wait.deadline {
            Some(deadline) => deadline <= Moment::now(),
            None => wait.once || in_vain >= client.config().unreachable_timeout,
        };
        // (If it was cancelled, the lock returns that error in the next round.)
        if over && !wait.is_cancelled() {
            return Err(not_begun(lock.name(), error));
        }
    }
}

/// The error of a candidate whose lease was lost, or not renewed: its term has not begun.
fn not_begun(name: &str, error: Error) -> Error {
    let why = match error.kind() {
        ErrorKind::LeaseLost => "the lease of the term was lost before it began",
        ErrorKind::OutcomeUnknown => "the lease of the term could not be renewed, and is given back",
        _ => return error,
    };
    Error::new(ErrorKind::Unavailable, name).because(why).caused_by(error)
}
