//! Coming in: a call's way from its first look at the gate to its hold, or to the end of its time.

use std::sync::Arc;

use super::entry::LockEntry;
use super::state::lock_state::{Grip, Request};
use super::waiter::{MayPark, Place, Progress, Waiter};
use super::{held, take_back};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::observe::AcquiredVia;
use crate::wait::Wait;

/// Gets `request` in, within `wait`: a hold, or `None` where it is busy and the time is up. `other` is the lock's
/// other mode, where that is to [stand behind](super::modes::tie) it.
pub(crate) fn acquire(
    cell: &Arc<LockEntry>,
    other: Option<&Arc<LockEntry>>,
    request: Request,
    wait: &Wait<'_>,
) -> Result<Option<Grip>, Error> {
    let entered = Moment::now();
    let outcome = wait_for(cell, other, request, wait, entered);
    let forked = matches!(&outcome, Err(error) if error.kind() == ErrorKind::Forked);
    if !forked && !matches!(outcome, Ok(Some(_))) && cell.shared.watch.is_on() {
        let waited = Moment::now().since(entered);
        cell.shared.watch.tell(|o| o.not_acquired(cell.observed(), waited, outcome.as_ref().err()));
    }
    outcome
}

/// Takes a place in the gate, and asks Redis whenever it is this thread's turn to.
fn wait_for(
    cell: &Arc<LockEntry>,
    other: Option<&Arc<LockEntry>>,
    request: Request,
    wait: &Wait<'_>,
    entered: Moment,
) -> Result<Option<Grip>, Error> {
    if wait.is_cancelled() {
        return Err(cell.error(Error::new(ErrorKind::Cancelled, "")));
    }
    loop {
        let grip = match Waiter::enter(cell, other, request.clone(), *wait, entered)? {
            Place::In(grip) => grip,
            Place::Busy => return Ok(None),
            Place::Waits(mut waiter) => {
                let _registered = wait.cancel.map(|token| token.on_cancel(waiter.waker()));
                loop {
                    match waiter.advance(MayPark::Yes)? {
                        Progress::In(grip) => break grip,
                        Progress::Over => return Ok(None),
                        Progress::Ask(asking, limit) => waiter.ask(asking, limit)?,
                    }
                }
            }
        };
        // Handed on while it was valid, but this thread may have woken too late for it.
        let handed_on = matches!(grip.way, AcquiredVia::HandedOver | AcquiredVia::Joined);
        if !handed_on || !held::remaining(cell, grip.ticket).is_zero() {
            return Ok(Some(grip));
        }
        take_back(cell, grip.ticket, wait.limit(Moment::now(), cell.shared.config.command_timeout));
    }
}
