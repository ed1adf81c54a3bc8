//! Whether a client receives what a server publishes for it: the [listener](crate::engine::hearing::listener) as the rest of
//! the client sees it.

use std::sync::Arc;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::hearing::channels::Channels;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::life::Life;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};

/// How long a listener stays connected to a server that may not be the primary.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The listener as the rest of the client sees it.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Whether the subscription is confirmed.
    up: AtomicBool,
    state: Mutex<State>,
    /// The listener's thread.
    pub(crate) life: Arc<Life>,
    /// At a node of a cluster: the channels of single locks.
    pub(crate) channels: Channels,
}

#[derive(Default)]
struct State {
    /// When it last came up.
    since: Moment,
    /// A time before its connection was made: if the primary moved after that, the connection may lead to the
    /// former one.
    dialled: Moment,
    /// Whether it is up, but connected to the wrong server: it must reconnect.
    elsewhere: bool,
    /// Whether its server says that it is a replica.
    at_replica: bool,
    failure: Option<Failure>,
}

impl Inbox {
    /// Returns whether a message published now will be received; at a node of a cluster, on the client's own
    /// channel.
    pub(crate) fn is_up(&self) -> bool {
        self.up.load(Ordering::Acquire)
    }

    /// Returns the error of the last attempt to come up, if that failed.
    pub(crate) fn failure(&self) -> Option<Failure> {
        self.state.lock().failure.clone()
    }

    /// Reports that the server, asked at `asked`, has no subscriber for this client. If the listener was up
    /// before that, it is connected to another server: it reconnects within a tick.
    pub(crate) fn is_deaf(&self, requested: Moment) {
        let mut state = self.state.lock();
        state.elsewhere |= self.is_up() && state.since < requested;
    }

    /// The same for the channel of one lock, at a node of a cluster.
    pub(crate) fn is_deaf_to(&self, stem: &str, requested: Moment) {
        if self.channels.subscribed_since(stem).is_some_and(|since| since < requested) {
            self.is_deaf(requested);
        }
    }

    /// Returns whether the listener must reconnect. `moved` is when another server was last found to be the
    /// primary, and `refused` when a server last said that it is not the primary. After such a refusal the
    /// listener reconnects once a second until it is connected to a primary, as a host name may lead to the
    /// former one for long.
    pub(in crate::engine) fn is_elsewhere(&self, moved: Moment, refused: Option<Moment>) -> bool {
        let state = self.state.lock();
        let doubted = refused.is_some_and(|refused| state.at_replica || state.dialled < refused);
        state.elsewhere || state.dialled < moved || (doubted && LOOK_AGAIN < Moment::now().since(state.since))
    }

    pub(in crate::engine) fn came_up(&self, dialled: Moment, at_replica: bool) {
        let mut state = self.state.lock();
        state.at_replica = at_replica;
        (state.failure, state.elsewhere, state.since) = (None, false, Moment::now());
        state.dialled = dialled;
        self.up.store(true, Ordering::Release);
    }

    pub(in crate::engine) fn went_down(&self) {
        self.up.store(false, Ordering::Release);
        self.channels.went_down();
    }

    pub(in crate::engine) fn failed(&self, failure: Failure) {
        self.state.lock().failure = Some(failure);
    }
}
