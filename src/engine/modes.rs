//! A lock of two modes is two gates: what one has to mind of the other, before a thread comes in.

use std::sync::Arc;

use super::cell::Cell;
use super::gate::Request;
use super::lock;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::kind::Sharing;

/// Looks at the lock's other mode for a request of a `sharing` one.
///
/// # Errors
/// `WouldDeadlock` for a thread that shares and would exclude: it would wait for itself.
pub(crate) fn mind(
    cell: &Arc<Cell>,
    other: &Arc<Cell>,
    sharing: Sharing,
    request: &mut Request,
) -> Result<(), Error> {
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
        return Ok(());
    }
    if lock(cell)?.gate.held_by(request.thread, now).is_some() {
        return Ok(());
    }
    let mut core = lock(other)?;
    if core.gate.held_by(request.thread, now).is_some() {
        cell.shared.same_process().map_err(|e| cell.error(e))?;
        let error = Error::new(ErrorKind::WouldDeadlock, "");
        return Err(cell.error(error.because("this thread reads, and cannot wait for itself to end")));
    }
    if !request.once {
        core.gate.yields_all();
    }
    Ok(())
}
