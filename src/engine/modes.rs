//! A lock of two modes is two gates: what one has to mind of the other, before a thread comes in.

use std::sync::Arc;

use super::entry::{Cell, Core};
use super::lock;
use super::state::lock_state::Request;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;

/// Looks at the lock's other mode for a request of a `sharing` one. Returns the other mode where its threads are
/// to [stand behind](tie) this request while it waits.
///
/// # Errors
/// `WouldDeadlock` for a thread that shares and would exclude: it would wait for itself.
pub(crate) fn mind<'a>(
    cell: &Arc<Cell>,
    other: &'a Arc<Cell>,
    sharing: Sharing,
    request: &mut Request,
) -> Result<Option<&'a Arc<Cell>>, Error> {
    let now = Moment::now();
    if sharing != Sharing::Exclusive {
        // Its own exclusive hold lets it in, and is handed on to nobody: the two end one by one.
        let mut core = lock(other)?;
        request.from = core.gate.held_by(request.thread, now);
        match request.from {
            Some(owner) if request.instead => core.gate.exchange(owner),
            Some(owner) => core.gate.shut(owner),
            None => {}
        }
        return Ok(None);
    }
    if lock(cell)?.gate.held_by(request.thread, now).is_some() {
        return Ok(None);
    }
    let core = lock(other)?;
    if core.gate.held_by(request.thread, now).is_some() {
        cell.shared.same_process().map_err(|e| cell.error(e))?;
        let error = Error::new(ErrorKind::WouldDeadlock, "");
        return Err(cell.error(error.because("this thread reads, and cannot wait for itself to end")));
    }
    Ok((!request.once).then_some(other))
}

/// Has the threads of the `other` mode stand behind those that wait by `core` as long as only this process knows
/// of them: until Redis keeps a place for one of them, or nobody waits any more.
///
/// It locks the other mode's cell under this one's; nobody does so the other way round.
pub(super) fn tie(core: &Core, other: &Arc<Cell>) {
    let ahead = core.gate.waits_unknown(Moment::now());
    let mut other = other.core.lock();
    let next = other.gate.stand_behind(ahead, core.gate.trouble());
    if ahead && core.trouble.is_some() {
        other.trouble.clone_from(&core.trouble);
    }
    if next.is_some() {
        other.wake(next);
    }
}
