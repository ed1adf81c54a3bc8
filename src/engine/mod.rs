//! The engine: how a thread gets in and out, written once for every kind of lock.
//!
//! It keeps these invariants; each has tests of its name in `tests/invariants.rs`:
//!
//! 1. *one-owner*: never two holds of an exclusive lock that are valid at once; tokens rise in the
//!    order of the grants.
//! 2. *validity-from-before-send*: a hold is valid until what was left of its lease, less a drift,
//!    after the moment before the request was sent that got it.
//! 3. *no-sleep-before-subscribed*: known to the gate, inbox confirmed, in the queue, then asleep.
//! 4. *parks-are-bounded*: by the deadline, the holder's lease, the heartbeat.
//! 5. *a-grant-is-never-dropped*: who is granted the lock in the instant it gives up passes it on.
//! 6. *unknown-is-settled*: a request without an answer is asked again under the same id, or
//!    released.
//! 7. *renewal-never-creates, lost-is-final*.
//! 8. *no-connection-while-parked, renewal-never-waits-for-the-pool*.
//! 9. *one-deadline* a call.
//! 10. *nothing-left-behind*.
//! 11. *only-the-process-that-acquired-releases*, also after a fork.
//! 12. *bounded-bypass*: a process that waits in Redis gets in after at most one slice and one
//!     critical section of each process ahead of it.
//!
//! A call goes `lock.rs → engine → backend.rs → script.rs → lua/`; nothing calls back up, and nothing
//! here names what a user sees (`tests/imports.rs` reads the paths). What all locks of a client share
//! is [`runtime::Shared`]. The waiting is in [`acquire`]; the decisions are in [`gate`], in the words of
//! [`asking`], about what [`tenure`] keeps; and while a thread talks to Redis it holds no lock of ours.

mod acquire;
pub(crate) mod answers;
mod asking;
pub(crate) mod attempt;
pub(crate) mod backend;
pub(crate) mod backoff;
pub(crate) mod cell;
pub(crate) mod change;
mod conclude;
pub(crate) mod connection;
mod dice;
pub(crate) mod failure;
pub(crate) mod gate;
pub(crate) mod held;
pub(crate) mod inbox;
pub(crate) mod inspect;
mod link;
pub(crate) mod modes;
pub(crate) mod pause;
pub(crate) mod posted;
pub(crate) mod receipt;
pub(crate) mod refusal;
pub(crate) mod release;
pub(crate) mod renewer;
pub(crate) mod replicas;
pub(crate) mod requests;
mod resent;
pub(crate) mod resp;
pub(crate) mod room;
pub(crate) mod runtime;
pub(crate) mod server_info;
pub(crate) mod several;
mod table;
pub(crate) mod tenure;
pub(crate) mod watching;
pub(crate) mod wire;
mod young;

#[cfg(all(test, not(shuttle)))]
mod gate_tests;
#[cfg(all(test, shuttle))]
mod interleavings;
#[cfg(all(test, not(shuttle)))]
mod model;
#[cfg(all(test, not(shuttle)))]
mod small_redis;

use std::sync::Arc;
use std::time::Duration;

pub(crate) use self::acquire::acquire;
use self::cell::{Cell, Core};
pub(crate) use self::conclude::conclude;
use self::failure::Failure;
use self::gate::{Leaving, Then};
pub(crate) use self::release::{release, release_quietly, replaced, take_back, unheard};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::observe::Loss;
use crate::sync::MutexGuard;

/// How long a thread that gives up spends on leaving the queue before others do it for it.
const LEAVE_LIMIT: Duration = Duration::from_millis(100);

/// The cell's mutex; an error where it is held and this is a forked child.
pub(crate) fn lock(cell: &Cell) -> Result<MutexGuard<'_, Core>, Error> {
    cell.shared.lock(&cell.core).map_err(|e| cell.error(e))
}

fn lost(loss: Loss) -> Error {
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
fn leave_queue<'a>(
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
