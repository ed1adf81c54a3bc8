//! Applying the outcome of a renewal, or of a release in the background.

use std::sync::Arc;
use std::time::Duration;

use redis::{ServerErrorKind, Value};

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::operations::effects::carry_out;
use crate::engine::operations::replies;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::refusal::{is_unknown_script, refused_script};
use crate::engine::renewal::renewer::Renewer;
use crate::engine::renewal::schedule::{Task, TaskKind};
use crate::engine::state::lock_state::Renewal;
use crate::error::{Error, ErrorKind};

/// The longest pause before a release is tried again.
pub(crate) const RELEASE_AGAIN: Duration = Duration::from_millis(250);
/// The shortest pause before a failed request is tried again.
pub(crate) const SOON: Duration = Duration::from_millis(5);

impl Renewer {
    /// Applies one reply, and puts the task back if there is more to do.
    pub(crate) fn finish(self: &Arc<Self>, task: Task, sent: Moment, answer: Result<Value, Failure>) {
        if answer.as_ref().is_ok_and(is_unknown_script) {
            // It is sent again at once, in full.
            return self.again(task, Moment::now());
        }
        let config = &task.entry.shared.config;
        // Soon only after a broken connection or a `MOVED`: after another error reply, the next may be an
        // error, too.
        let moved = matches!(&answer, Ok(Value::ServerError(e)) if e.kind() == Some(ServerErrorKind::Moved));
        let soon = moved || matches!(answer, Err(Failure::Unanswered(_)));
        let pause = |lease: Duration| if soon { SOON } else { SOON.max(lease / 12) };
        let scripts = &task.entry.scripts;
        let script = match &task.what {
            TaskKind::Leave(leaving) if leaving.rest(|| sent).is_none() => &scripts.leave,
            _ => &scripts.renew,
        };
        let answer = match answer {
            Ok(Value::ServerError(e)) => Err(refused_script(Some(script), e.into())),
            answer => answer,
        };
        match &task.what {
            // If the key no longer holds this kind of lock, it does not hold ours either.
            TaskKind::Leave(_) if matches!(answer, Ok(_) | Err(Failure::WrongKind(_))) => {
                task.entry.core.lock().remove_leave(task.owner)
            }
            TaskKind::Leave(leaving) => {
                // Other callers wait for the release, however long its lease is.
                let due = Moment::now().after(pause(leaving.lease.min(config.lease)).min(RELEASE_AGAIN));
                self.again(task, due);
            }
            TaskKind::Grant | TaskKind::End => {
                let (renewal, error) = replies::renewal(answer);
                self.renewed(task, sent, renewal, pause, error);
            }
        }
    }

    /// Applies the outcome of a renewal to its grant, and schedules the next one: after a failure, in the
    /// `pause` for its lease.
    fn renewed(
        self: &Arc<Self>,
        task: Task,
        sent: Moment,
        renewal: Renewal,
        pause: impl Fn(Duration) -> Duration,
        error: Option<Error>,
    ) {
        let mut core = task.entry.core.lock();
        // Read under the mutex: if another thread has seen the grant expired, so does this one.
        let now = Moment::now();
        let left = core.lock_state.grant(task.owner).map(|t| t.validity.until.since(now)).unwrap_or_default();
        let then = core.lock_state.renewed(task.owner, sent, renewal, now);
        if renewal == Renewal::Unanswered {
            core.lock_state.doubt(task.owner, sent, task.lease);
        }
        let done = matches!(renewal, Renewal::Left(_));
        let grant = core.lock_state.grant(task.owner).filter(|t| t.lost().is_none());
        let next = grant.map(|grant| {
            let (until, lease) = (grant.validity.until, grant.terms.lease);
            // A first lease is shorter, and so must the pause be.
            let pause = || pause(lease).min(SOON.max(until.since(now) / 4));
            let every = task.entry.shared.config.renew_every;
            // After a quick reply, a period after this one: for that the thread of the schedule wakes by itself.
            let from = if now.since(task.due) < every / 4 { task.due } else { now };
            let due = if done { grant.due(from, every) } else { now.after(pause()).min(until) };
            (until, due)
        });
        let next =
            next.filter(|(_, at)| self.move_look(&mut core, &task, *at, if done { *at } else { task.due }));
        carry_out(&task.entry, core, then);
        let Some((until, _)) = next else { return self.forget(&task.entry, task.owner, task.at) };
        if done {
            let lag = sent.since(task.due);
            let lock = task.entry.clone();
            task.entry.shared.observers.tell_often_apart(move |o| o.renewed(lock.observed(), lag, left));
        } else {
            tell_failure(&task.entry, until.since(now), error.unwrap_or_else(no_reply));
        }
    }
}

pub(crate) fn no_reply() -> Error {
    ErrorKind::OutcomeUnknown.because("no usable reply to a renewal")
}

pub(crate) fn tell_failure(entry: &Arc<LockEntry>, left: Duration, error: Error) {
    let error = entry.error(error);
    let lock = entry.clone();
    entry.shared.observers.tell_apart(1, move |o| o.renewal_failed(lock.observed(), left, &error));
}
