//! Whether a thread of a client runs, and whether it is to end.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::Error;
use crate::sync::{Condvar, Mutex};

/// As the rest of the client sees it.
#[derive(Default)]
pub(crate) struct Life {
    state: Mutex<State>,
    /// Something in the state changed, or the thread is wanted.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: bool,
    stop: bool,
}

impl Life {
    /// Has `start` start the thread, unless it runs or is to end.
    pub(super) fn start(&self, start: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.running || state.stop {
            return Ok(());
        }
        start()?;
        state.running = true;
        Ok(())
    }

    /// Tells the thread to end; it does within a tick.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Waits for the thread to end, until `limit` at most.
    pub(crate) fn wait_for_end(&self, limit: Moment) -> bool {
        let mut state = self.state.lock();
        while state.running && Moment::now() < limit {
            let Some(instant) = limit.instant() else { return false };
            self.changed.wait_until(&mut state, instant);
        }
        !state.running
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// The thread waits for `pause`, or until it is to stop, or is woken.
    pub(super) fn sleep(&self, pause: Duration) {
        let mut state = self.state.lock();
        if !state.stop {
            self.changed.wait_for(&mut state, pause);
        }
    }

    /// Ends a [sleep](Self::sleep).
    pub(super) fn wake(&self) {
        self.changed.notify_all();
    }

    /// The thread has ended.
    pub(super) fn ended(&self) {
        self.state.lock().running = false;
        self.changed.notify_all();
    }
}
