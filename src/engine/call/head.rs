//! What the head of a lock's waiting threads asks of Redis, and how it reports the replies to the lock state.

use std::time::Duration;

use crate::clock::Moment;
use crate::engine::call::waiter::{Position, Waiter};
use crate::engine::operations::effects::carry_out;
use crate::engine::operations::requests;
use crate::engine::redis::failure::Failure;
use crate::engine::state::lock_state::{AcquireMode, Answer, Asking};
use crate::error::Error;

/// How long a head waits for the inbox before it checks again, if it is not woken.
const INBOX_TIMEOUT: Duration = Duration::from_millis(250);

impl Waiter<'_> {
    /// Sends a request for the head, and reports the outcome to the lock state.
    pub(in crate::engine) fn ask(&mut self, mut asking: Asking, limit: Moment) -> Result<(), Error> {
        let entry = self.entry;
        let owner = asking.owner;
        let behind = self.behind.take();
        let deaf = asking.enqueues() && !entry.hears();
        if deaf {
            if self.awaits_inbox(owner)? {
                return Ok(());
            }
            // No queue position, as the grant would not be received; but the lock may be free now.
            asking.how = AcquireMode::Try;
        }
        let queues = matches!(asking.how, AcquireMode::Wait | AcquireMode::Keep);
        if queues {
            asking.blocked = self.suspicion.record(entry);
        }
        self.position = Position::Asking { owner, sent: true };
        self.learn(owner, requests::acquire(entry, &asking, behind, limit))?;
        if deaf {
            entry.core.lock().lock_state.try_later(owner, Moment::now().after(INBOX_TIMEOUT));
        } else if queues && !entry.hears() {
            // The queue position may be at another server now, where the client does not listen yet.
            entry.listens().map_err(|e| entry.error(e))?;
        }
        Ok(())
    }

    /// Makes the inbox come up, which must be there before a queue position is taken, as a grant is announced
    /// only once. Returns `false` if that has failed, and the request may be sent as a mere try.
    fn awaits_inbox(&mut self, owner: u64) -> Result<bool, Error> {
        let entry = self.entry;
        entry.listens().map_err(|e| entry.error(e))?;
        match entry.deafness() {
            Some(failure) if failure.is_final() => return Err(entry.error(failure.error())),
            // A wait for a condition cannot begin with a mere try.
            Some(failure) if entry.condition.is_some() => {
                let mut core = entry.core.lock();
                let then = core.lock_state.answered(owner, Answer::Failed, Moment::now());
                core.trouble = Some(failure.error());
                carry_out(entry, core, then);
            }
            None => {
                // Checked under the mutex: if the inbox comes up after this, it makes the entry ask again; if
                // it came up before, that went unnoticed.
                let mut core = entry.core.lock();
                let now = Moment::now();
                let again_at = if entry.hears() { now } else { now.after(INBOX_TIMEOUT) };
                core.lock_state.postponed(owner, again_at);
            }
            Some(_) => return Ok(false),
        }
        self.position = Position::Waiting;
        Ok(true)
    }

    /// Reports the outcome of a request to the lock state. Returns an error only if the call makes a single
    /// attempt, or the error is final.
    pub(in crate::engine) fn learn(
        &mut self,
        owner: u64,
        outcome: Result<(Answer, bool), Failure>,
    ) -> Result<(), Error> {
        let entry = self.entry;
        let mut core = entry.core.lock();
        self.position = Position::Waiting;
        let (then, error) = core.learn(owner, outcome);
        carry_out(entry, core, then);
        match error {
            Some((error, never)) if never || self.wait.once => Err(entry.error(error)),
            _ => Ok(()),
        }
    }
}
