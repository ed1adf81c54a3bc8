//! Whether a client hears what a server tells it: the [listener](super::listener), as everybody else sees it.

use std::time::Duration;

use super::redis::failure::Failure;
use crate::clock::Moment;
use crate::error::Error;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex};

/// The listener as the rest of the client sees it.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Subscribed, and confirmed.
    up: AtomicBool,
    state: Mutex<State>,
    /// Something in the state changed.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    running: bool,
    stop: bool,
    /// It is up since then.
    since: Moment,
    /// Up, but connected to the wrong server: it must reconnect.
    elsewhere: bool,
    failure: Option<Failure>,
}

impl Inbox {
    /// Whether what is published now will be received.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Why it is not up, if it tried.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.state.lock().failure.clone()
    }

    /// Has `start` start the listener, unless it runs or is to end.
    pub(super) fn start(&self, start: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let mut state = self.state.lock();
        if state.running || state.stop {
            return Ok(());
        }
        start()?;
        state.running = true;
        Ok(())
    }

    /// The server that was asked at `asked` says that nobody listens there for this client. Where the listener
    /// was up by then, it listens at another one: it connects anew, within a tick.
    pub(crate) fn is_deaf(&self, asked: Moment) {
        let mut state = self.state.lock();
        state.elsewhere |= self.is_up() && state.since < asked;
    }

    /// The primary was found at another server at `moved`.
    pub(super) fn is_elsewhere(&self, moved: Moment) -> bool {
        let state = self.state.lock();
        state.elsewhere || state.since < moved
    }

    /// Tells the listener to end; it does within a tick.
    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.changed.notify_all();
    }

    /// Waits for the listener to end, until `limit` at most.
    pub(crate) fn wait_for_end(&self, limit: Moment) -> bool {
        let mut state = self.state.lock();
        while state.running && Moment::now() < limit {
            let Some(instant) = limit.instant() else { return false };
            self.changed.wait_until(&mut state, instant);
        }
        !state.running
    }

    pub(super) fn came_up(&self) {
        let mut state = self.state.lock();
        (state.failure, state.elsewhere, state.since) = (None, false, Moment::now());
        self.up.store(true, Ordering::Release);
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    pub(super) fn went_down(&self) {
        self.up.store(false, Ordering::Release);
    }

    pub(super) fn failed(&self, failure: Failure) {
        self.state.lock().failure = Some(failure);
    }

    /// Waits for `pause`, or until it is to stop.
    pub(super) fn sleep(&self, pause: Duration) {
        let mut state = self.state.lock();
        if !state.stop {
            self.changed.wait_for(&mut state, pause);
        }
    }

    /// The listener has ended.
    pub(super) fn ended(&self) {
        self.state.lock().running = false;
        self.changed.notify_all();
    }
}
