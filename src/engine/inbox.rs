//! Whether a client hears what a server tells it: the [listener](super::listener), as everybody else sees it.

use std::sync::Arc;
use std::time::Duration;

use super::channels::Channels;
use super::life::Life;
use super::redis::failure::Failure;
use crate::clock::Moment;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// How long a listener stays with a server that may not be the primary.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The listener as the rest of the client sees it.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Subscribed, and confirmed.
    up: AtomicBool,
    state: Mutex<State>,
    /// The listener's.
    pub(crate) life: Arc<Life>,
    /// At a node of a cluster: of which locks it hears something.
    pub(crate) channels: Channels,
}

#[derive(Default)]
struct State {
    /// It is up since then.
    since: Moment,
    /// Before its connection was made: where that leads is not known from later.
    dialled: Moment,
    /// Up, but connected to the wrong server: it must reconnect.
    elsewhere: bool,
    /// That server says that it is a replica.
    at_replica: bool,
    failure: Option<Failure>,
}

impl Inbox {
    /// Whether what is published now will be received; at a node of a cluster, on the client's own channel.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Why it is not up, if it tried.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.state.lock().failure.clone()
    }

    /// The server that was asked at `asked` says that nobody listens there for this client. Where the listener
    /// was up by then, it listens at another one: it connects anew, within a tick.
    pub(crate) fn is_deaf(&self, asked: Moment) {
        let mut state = self.state.lock();
        state.elsewhere |= self.is_up() && state.since < asked;
    }

    /// The same of the channel of one lock, at a node of a cluster.
    pub(crate) fn is_deaf_to(&self, stem: &str, asked: Moment) {
        if self.channels.heard_since(stem).is_some_and(|since| since < asked) {
            self.is_deaf(asked);
        }
    }

    /// The primary was found at another server at `moved`; a server last said that it is not the primary at `refused`: then
    /// it is looked for once a second until this listens to a primary, as a host name may lead to the former one for long.
    pub(super) fn is_elsewhere(&self, moved: Moment, refused: Option<Moment>) -> bool {
        let state = self.state.lock();
        let doubted = refused.is_some_and(|refused| state.at_replica || state.dialled < refused);
        state.elsewhere || state.dialled < moved || (doubted && LOOK_AGAIN < Moment::now().since(state.since))
    }

    pub(super) fn came_up(&self, dialled: Moment, at_replica: bool) {
        let mut state = self.state.lock();
        state.at_replica = at_replica;
        (state.failure, state.elsewhere, state.since) = (None, false, Moment::now());
        state.dialled = dialled;
        self.up.store(true, Ordering::Release);
    }

    pub(super) fn went_down(&self) {
        self.up.store(false, Ordering::Release);
        self.channels.went_down();
    }

    pub(super) fn failed(&self, failure: Failure) {
        self.state.lock().failure = Some(failure);
    }
}
