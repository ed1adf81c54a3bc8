//! Whether a thread of a client runs, and whether it has been told to end.

use std::time::Duration;

use crate::clock::Moment;
use crate::error::Error;
use crate::sync::{Condvar, Mutex, spawn};

/// Returns how long a thread waits before it connects again, if its connection has `lived` for this long, and one before
/// was followed by the pause `before`: each that ends as soon as it is there doubles the pause, up to `longest`.
pub(in crate::engine) fn pause_after(lived: Duration, before: Duration, longest: Duration) -> Duration {
    if longest < lived { Duration::ZERO } else { longest.min(before * 2) }
}

/// The state of a thread, as the rest of the client sees it.
#[derive(Default)]
pub(crate) struct Life {
    state: Mutex<State>,
    /// Notified when the state changes or the thread is to wake.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: bool,
    stop: bool,
}

impl Life {
    /// Starts the thread, unless it runs or has been told to end. `prepare` returns what it is to run.
    ///
    /// # Errors
    /// `Unavailable` if this process cannot start a thread.
    pub(in crate::engine) fn start<R: FnOnce() + Send + 'static>(
        &self,
        name: &str,
        prepare: impl FnOnce() -> R,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.running || state.stop {
            return Ok(());
        }
        spawn(name, prepare())?;
        state.running = true;
        Ok(())
    }

    /// Tells the thread to end, which it does within a tick.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Waits for the thread to end, until `limit` at most. Returns whether it has ended.
    pub(crate) fn wait_for_end(&self, limit: Moment) -> bool {
        let mut state = self.state.lock();
        while state.running && Moment::now() < limit {
            limit.wait_on(&self.changed, &mut state);
        }
        !state.running
    }

    pub(in crate::engine) fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Makes the thread sleep for `pause`, or until it is told to end or is woken.
    pub(in crate::engine) fn sleep(&self, pause: Duration) {
        let mut state = self.state.lock();
        if !state.stop {
            self.changed.wait_for(&mut state, pause);
        }
    }

    /// Ends a [sleep](Self::sleep).
    pub(in crate::engine) fn wake(&self) {
        self.changed.notify_all();
    }

    /// Records that the thread has ended.
    pub(in crate::engine) fn ended(&self) {
        self.state.lock().running = false;
        self.changed.notify_all();
    }
}
