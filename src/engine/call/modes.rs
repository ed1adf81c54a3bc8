//! A lock with two modes has two lock states: what a request for one mode must check in the other.

use std::sync::Arc;

use crate::clock::Moment;
use crate::engine::entries::entry::{Core, LockEntry};
use crate::engine::operations::effects::{carry_out, lock};
use crate::engine::state::lock_state::Request;
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;

/// Checks the lock's other mode for a request. Returns the readers if they must [queue behind](queue_behind) this
/// request while it waits.
///
/// # Errors
/// `WouldDeadlock` if the thread holds the lock in its shared mode and wants exclusive access: it would wait
/// for itself.
pub(crate) fn consider<'a>(
    entry: &Arc<LockEntry>,
    other_mode: &'a Arc<LockEntry>,
    request: &mut Request,
) -> Result<Option<&'a Arc<LockEntry>>, Error> {
    let now = Moment::now();
    if entry.shape.sharing != Sharing::Exclusive {
        // The thread's own exclusive hold admits it, and is then not handed on: the two holds end separately.
        let mut core = lock(other_mode)?;
        request.from = core.lock_state.held_by(request.thread, now);
        match request.from {
            Some(owner) if request.instead => core.lock_state.exchange(owner),
            Some(owner) => core.lock_state.close_to_others(owner),
            // A grant kept for the next writer would make this reader wait until a message asked for it.
            None if core.lock_state.idle().is_some() => {
                let then = core.lock_state.makes_way(now);
                carry_out(other_mode, core, then);
            }
            None => {}
        }
        return Ok(None);
    }
    if lock(entry)?.lock_state.held_by(request.thread, now).is_some() {
        return Ok(None);
    }
    may_exclude(entry, other_mode, request.thread)?;
    Ok((!request.once).then_some(other_mode))
}

/// Checks that a thread may wait for exclusive access.
///
/// # Errors
/// `WouldDeadlock` if it holds the lock in its shared mode: it would wait for itself.
pub(crate) fn may_exclude(
    entry: &Arc<LockEntry>,
    other_mode: &Arc<LockEntry>,
    thread: u64,
) -> Result<(), Error> {
    if lock(other_mode)?.lock_state.held_by(thread, Moment::now()).is_none() {
        return Ok(());
    }
    Err(entry
        .error(ErrorKind::WouldDeadlock.because("this thread holds the read lock and would wait for itself")))
}

/// Makes `readers` queue behind the waiting writers of `core` as long as only this process knows of them:
/// until Redis keeps a queue position for one of them, or there are no more waiters.
///
/// Lock order: the readers' entry is locked while the writers' is held, never the other way round.
pub(in crate::engine) fn queue_behind(core: &Core, readers: &Arc<LockEntry>) {
    let ahead = core.lock_state.waits_unknown(Moment::now());
    let mut readers = readers.core.lock();
    let next = readers.lock_state.stand_behind(ahead, core.lock_state.trouble());
    if ahead && core.trouble.is_some() {
        readers.trouble.clone_from(&core.trouble);
    }
    if next.is_some() {
        readers.wake(next);
    }
}
