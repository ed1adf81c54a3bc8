//! Carries out the effects that the lock state returned: what needs the mutex, then what must not have it. What is to be
//! done is decided there; a new effect is a field of `Effects`, and handled here alone.

use std::sync::Arc;
use std::time::Duration;

use super::entry::{Core, LockEntry};
use super::redis::failure::Failure;
use super::redis::requests;
use super::state::lock_state::{Effects, PendingRelease};
use crate::clock::Moment;
use crate::error::Error;
use crate::observe::KeptEnd;
use crate::sync::MutexGuard;

/// How long a thread that gives up spends on leaving the queue before that is done for it.
pub(super) const LEAVE_LIMIT: Duration = Duration::from_millis(100);

/// The entry's mutex; an error if it is held and this is a forked child.
pub(crate) fn lock(entry: &LockEntry) -> Result<MutexGuard<'_, Core>, Error> {
    entry.shared.lock(&entry.core).map_err(|e| entry.error(e))
}

/// Carries out what the lock state returned: what needs the mutex under it, the rest when it has been let go of. A
/// caller that goes on locks anew, and looks anew.
pub(crate) fn carry_out(entry: &Arc<LockEntry>, mut core: MutexGuard<'_, Core>, then: Effects) {
    core.wake(then.wake);
    if let Some(leaving) = then.background {
        entry.shared.renewer.leave(entry, leaving);
    }
    if let Some(leaving) = &then.leave {
        core.sets_out(leaving);
    }
    let no_longer = then.dropped.filter(|(owner, _)| core.ends(entry, *owner)).map(|(_, why)| why);
    // Its guards may live on: what they ask for later finds the grant lost.
    let lost = then.lost.map(|(owner, loss, holds)| {
        let token = core.asked_loss_token(owner);
        core.ends(entry, owner);
        (token, loss, holds)
    });
    drop(core);
    no_longer_kept(entry, no_longer);
    if let Some((token, loss, holds)) = lost {
        if let Some(token) = token {
            token.cancel();
        }
        entry.shared.observers.tell_of_each(holds, |o| o.lost(entry.observed(), loss));
    }
    if let Some(leaving) = then.leave {
        leave_queue(entry, leaving);
    }
}

impl Core {
    /// A grant is over: the renewer forgets it. Whether there was one.
    pub(super) fn ends(&mut self, entry: &LockEntry, owner: u64) -> bool {
        let due = self.forget(owner);
        if let Some(due) = due {
            entry.shared.renewer.forget(entry, owner, due);
        }
        due.is_some()
    }
}

/// A grant that no thread held is over, for this reason.
pub(super) fn no_longer_kept(entry: &LockEntry, why: Option<KeptEnd>) {
    if let Some(why) = why {
        entry.shared.observers.tell_often(|o| o.no_longer_kept(entry.observed(), why));
    }
}

/// An owner that nobody wants any more, and that has [set out](Core::sets_out), leaves Redis: at once if Redis
/// answers, else later.
fn leave_queue(entry: &Arc<LockEntry>, leaving: PendingRelease) {
    let owner = leaving.owner;
    // Redis was silent a moment ago: the caller's time is not for trying again.
    let left = !leaving.unsettled && {
        let limit = Moment::now().after(LEAVE_LIMIT);
        let same = entry.shared.same_process().map_err(Failure::Never);
        same.and_then(|()| requests::leave(entry, &leaving, None, limit)).is_ok()
    };
    if !left {
        entry.shared.renewer.leave(entry, PendingRelease { unsettled: true, ..leaving });
    }
    let mut core = entry.core.lock();
    core.arrived(owner);
    let then = core.lock_state.left();
    core.wake(then.wake);
}
