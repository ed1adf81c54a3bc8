//! Carries out the effects that the lock state returned: first those that need the entry's mutex, then those
//! that must run without it. The lock state decides what is to be done; a new effect is a field of `Effects`,
//! and is handled only here.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::entries::entry::{Core, LockEntry};
use crate::engine::operations::replies::{Left, of_ask};
use crate::engine::operations::requests;
use crate::engine::redis::failure::Failure;
use crate::engine::state::lock_state::{Answer, Asking, Effects, LockState, PendingRelease};
use crate::error::Error;
use crate::observe::KeptEnd;
use crate::sync::MutexGuard;

/// How long a thread that gives up tries to leave the queue before the renewal thread does it.
pub(crate) const LEAVE_TIMEOUT: Duration = Duration::from_millis(100);

/// Locks the entry's mutex. Returns an error in a forked child.
pub(crate) fn lock(entry: &LockEntry) -> Result<MutexGuard<'_, Core>, Error> {
    lock_at(entry, Moment::now())
}

/// The same, for a call that has just read the clock.
pub(crate) fn lock_at(entry: &LockEntry, now: Moment) -> Result<MutexGuard<'_, Core>, Error> {
    entry.shared.lock(&entry.core, now).map_err(|e| entry.error(e))
}

/// Carries out what the lock state returned: under the mutex what needs it, the rest once it is released. A
/// caller that continues must lock it again, and look at the state again.
pub(crate) fn carry_out(entry: &Arc<LockEntry>, mut core: MutexGuard<'_, Core>, mut then: Effects) {
    core.wake(then.wake);
    if let Some(leaving) = then.background {
        entry.shared.renewer.leave(entry, &mut core, leaving);
    }
    // If Redis did not reply a moment ago, the caller's time is not spent on another try.
    if let Some(leaving) = then.leave.take_if(|it| it.maybe_in_flight) {
        entry.shared.renewer.leave(entry, &mut core, leaving);
        let left = core.lock_state.left();
        core.wake(left.wake);
    }
    if let Some(leaving) = &then.leave {
        core.add_leave(leaving);
    }
    let no_longer = then.dropped.filter(|(owner, _)| core.ends(entry, *owner)).map(|(_, why)| why);
    // The grant's guards may outlive this: their later calls find it lost.
    let lost = then.lost.map(|(owner, loss, holds)| {
        let token = core.requested_loss_token(owner);
        core.ends(entry, owner);
        (token, loss, holds)
    });
    drop(core);
    no_longer_kept(entry, no_longer);
    if let Some((token, loss, holds)) = lost {
        if let Some(token) = token {
            token.cancel();
        }
        let lock = entry.clone();
        entry.shared.observers.tell_apart(holds, move |o| o.lost(lock.observed(), loss));
    }
    if let Some(leaving) = then.leave {
        leave_queue(entry, leaving);
    }
}

/// Reports an event to the lock state, and carries out what it returns.
pub(crate) fn report(entry: &Arc<LockEntry>, event: impl FnOnce(&mut LockState, Moment) -> Effects) {
    let mut core = entry.core.lock();
    let then = event(&mut core.lock_state, Moment::now());
    carry_out(entry, core, then);
}

impl Core {
    /// Reports the outcome of a head's request to the lock state. Returns the error, too, and whether it is final.
    pub(crate) fn learn(
        &mut self,
        owner: u64,
        outcome: Result<(Answer, bool), Failure>,
    ) -> (Effects, Option<(Error, bool)>) {
        let (answer, resent, error) = of_ask(outcome);
        if resent {
            self.lock_state.unsettle(owner);
        }
        self.trouble = error.as_ref().map(|(e, _)| e.clone());
        (self.lock_state.answered(owner, answer, Moment::now()), error)
    }

    /// A grant is over: the renewer forgets it. Returns whether there was one.
    pub(crate) fn ends(&mut self, entry: &LockEntry, owner: u64) -> bool {
        let due = self.forget(owner);
        if let Some(due) = due {
            entry.shared.renewer.forget(entry, owner, due);
        }
        due.is_some()
    }
}

/// Reports the end of a kept grant, which no thread held.
pub(crate) fn no_longer_kept(entry: &Arc<LockEntry>, why: Option<KeptEnd>) {
    if let Some(why) = why {
        let lock = entry.clone();
        entry.shared.observers.tell_often_apart(move |o| o.no_longer_kept(lock.observed(), why));
    }
}

/// Makes an owner that no thread needs any more leave Redis, once its leave was [recorded](Core::add_leave):
/// at once if Redis replies, otherwise in the background.
fn leave_queue(entry: &Arc<LockEntry>, leaving: PendingRelease) {
    let until = Moment::now().after(LEAVE_TIMEOUT);
    let may = entry.shared.same_process().map_err(Failure::Never);
    let outcome = may.and_then(|()| requests::leave(entry, &leaving, None, until));
    has_left(entry, &leaving, None, &outcome);
}

/// Applies the outcome of a leave, and of the request that went with it. What was not answered is the renewer's task.
pub(crate) fn has_left(
    entry: &Arc<LockEntry>,
    leaving: &PendingRelease,
    next: Option<&Asking>,
    outcome: &Result<Left, Failure>,
) {
    let mut core = entry.core.lock();
    if matches!(outcome, Ok(_) | Err(Failure::WrongKind(_))) {
        core.remove_leave(leaving.owner);
    } else {
        let leaving = PendingRelease { maybe_in_flight: true, ..leaving.clone() };
        entry.shared.renewer.leave(entry, &mut core, leaving);
    }
    let mut then = Effects::default();
    if let Some(next) = next {
        let left = |left: &Left| (left.next.clone().unwrap_or(Answer::Failed), left.resent.is_some());
        then = core.learn(next.owner, outcome.as_ref().map(left).map_err(Clone::clone)).0;
    }
    let left = core.lock_state.left();
    core.wake(left.wake);
    carry_out(entry, core, then);
}
