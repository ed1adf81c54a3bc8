//! What the gate said is to be done, carried out.

use std::sync::Arc;
use std::time::Duration;

use super::entry::{Cell, Core};
use super::redis::failure::Failure;
use super::redis::requests;
use super::state::lock_state::{Leaving, Then};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::observe::Loss;
use crate::sync::MutexGuard;

/// How long a thread that gives up spends on leaving the queue before others do it for it.
pub(super) const LEAVE_LIMIT: Duration = Duration::from_millis(100);

/// The cell's mutex; an error where it is held and this is a forked child.
pub(crate) fn lock(cell: &Cell) -> Result<MutexGuard<'_, Core>, Error> {
    cell.shared.lock(&cell.core).map_err(|e| cell.error(e))
}

pub(super) fn lost(loss: Loss) -> Error {
    let kind = if loss == Loss::Closed { ErrorKind::Closed } else { ErrorKind::LeaseLost };
    Error::new(kind, "").because(loss.text())
}

/// Does what the gate said is to be done, outside the lock where it must be.
pub(crate) fn carry_out<'a>(
    cell: &'a Arc<Cell>,
    mut core: MutexGuard<'a, Core>,
    then: Then,
) -> MutexGuard<'a, Core> {
    core.wake(then.wake);
    if let Some(leaving) = then.background {
        cell.shared.renewer.leave(cell, leaving);
    }
    if let Some((owner, loss)) = then.lost {
        // Its guards may live on: what they ask for later finds the tenure lost.
        let token = core.asked_lost(owner);
        if let Some(due) = core.forget(owner) {
            cell.shared.renewer.unwatch(cell, owner, due);
        }
        MutexGuard::unlocked(&mut core, || {
            if let Some(token) = token {
                token.cancel();
            }
            cell.shared.watch.tell(|o| o.lost(cell.observed(), loss));
        });
    }
    match then.leave {
        Some(leaving) => leave_queue(cell, core, leaving),
        None => core,
    }
}

/// An owner that nobody wants any more leaves Redis: at once if Redis answers, else later.
pub(super) fn leave_queue<'a>(
    cell: &'a Arc<Cell>,
    mut core: MutexGuard<'a, Core>,
    leaving: Leaving,
) -> MutexGuard<'a, Core> {
    if leaving.unsettled {
        // Redis was silent a moment ago: the caller's time is not for trying again.
        cell.shared.renewer.leave(cell, leaving);
    } else {
        core.sets_out(&leaving);
        let owner = leaving.owner;
        MutexGuard::unlocked(&mut core, || {
            let limit = Moment::now().after(LEAVE_LIMIT);
            let same = cell.shared.same_process().map_err(Failure::Never);
            if same.and_then(|()| requests::leave(cell, &leaving, None, limit)).is_err() {
                cell.shared.renewer.leave(cell, Leaving { unsettled: true, ..leaving });
            }
        });
        core.arrived(owner);
    }
    let then = core.gate.left();
    core.wake(then.wake);
    core
}
