//! Acquiring: a call from its first look at the lock state to its hold or its timeout.

use std::cell::LazyCell;
use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::call::waiter::{MayPark, Progress, Waiter};
use crate::engine::call::{How, end, held};
use crate::engine::entries::entry::LockEntry;
use crate::engine::state::lock_state::{Acquired, Request};
use crate::error::{Error, ErrorKind};
use crate::observe::AcquiredVia;
use crate::wait::Wait;

/// Acquires for `request`, within `wait`. Returns `None` if the lock was still busy at the timeout. `readers`
/// is the lock's read mode, if its threads must [queue behind](crate::engine::call::modes::queue_behind) this one.
pub(crate) fn acquire(
    entry: &Arc<LockEntry>,
    readers: Option<&Arc<LockEntry>>,
    request: &Request,
    wait: &Wait<'_>,
) -> Result<Option<Acquired>, Error> {
    let entered = Moment::now();
    let error = match wait_for(entry, readers, request, wait, entered) {
        Ok(Some(acquired)) => return Ok(Some(acquired)),
        Ok(None) => None,
        Err(error) if error.kind() == ErrorKind::Forked => return Err(error),
        Err(error) => Some(error),
    };
    not_acquired(entry, entered, error.as_ref());
    error.map_or(Ok(None), Err)
}

/// Reports a call, or one of its attempts, that began at `entered` and ends without a hold.
pub(super) fn not_acquired(entry: &LockEntry, entered: Moment, error: Option<&Error>) {
    let waited = LazyCell::new(|| Moment::now().since(entered));
    entry.shared.observers.tell_often(|o| o.not_acquired(entry.observed(), *waited, error));
}

/// Takes a position in the lock state, and asks Redis when it is this thread's turn.
fn wait_for(
    entry: &Arc<LockEntry>,
    readers: Option<&Arc<LockEntry>>,
    request: &Request,
    wait: &Wait<'_>,
    entered: Moment,
) -> Result<Option<Acquired>, Error> {
    if wait.is_cancelled() {
        return Err(entry.error(Error::new(ErrorKind::Cancelled, "")));
    }
    let timeout = entry.shared.config.command_timeout;
    let wait = wait.since(entered, timeout);
    loop {
        let limit = || wait.limit(entered, timeout);
        // (With a `?`, all would be copied that a wait needs.)
        let acquired = match Waiter::enter(entry, readers, request, wait, entered, limit) {
            Err(error) => return Err(error),
            // A re-entry or a kept grant was valid just now.
            Ok(Progress::In(acquired)) if acquired.via != AcquiredVia::Joined => return Ok(Some(acquired)),
            Ok(Progress::In(acquired)) => acquired,
            Ok(Progress::Out) => return Ok(None),
            Ok(Progress::Next(mut waiter)) => {
                let _registered = wait.cancel.map(|token| token.on_cancel(Arc::new(waiter.waker())));
                loop {
                    match waiter.advance(MayPark::Yes)? {
                        Progress::In(acquired) => break acquired,
                        Progress::Out => return Ok(None),
                        Progress::Next((asking, limit)) => waiter.ask(asking, limit)?,
                    }
                }
            }
        };
        // The hold was valid when it was handed on, but it may have expired before this thread woke.
        let handed_on = matches!(acquired.via, AcquiredVia::HandedOff | AcquiredVia::Joined);
        if !handed_on || !held::remaining(entry, acquired.ticket, Moment::now()).is_zero() {
            return Ok(Some(acquired));
        }
        end(entry, acquired.ticket, How::Unused(wait.limit(Moment::now(), timeout)))?;
    }
}
