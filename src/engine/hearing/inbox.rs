//! Whether a client receives what a server publishes for it: the [listener](crate::engine::hearing::listener) as the rest of
//! the client sees it.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::life::Life;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, RandomState};

/// How long a listener stays connected to a server that may not be the primary.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The listener as the rest of the client sees it.
#[derive(Default)]
pub(crate) struct Inbox {
    /// Whether the subscription is confirmed.
    up: AtomicBool,
    state: Mutex<State>,
    /// The listener's thread.
    pub(crate) life: Life,
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

    /// Reports that the server, asked at `requested`, has no subscriber for this client. If the listener was up
    /// before that, it is connected to another server: it reconnects within a tick.
    pub(crate) fn is_deaf(&self, requested: Moment) {
        let mut state = self.state.lock();
        state.elsewhere |= self.is_up() && state.since < requested;
    }

    /// Returns whether the listener must reconnect. `moved` is when another server was last found to be the
    /// primary, and `refused` when a server last said that it is not the primary. After such a refusal the
    /// listener reconnects once a second until it is connected to a primary, as a host name may lead to the
    /// former one for long.
    pub(crate) fn is_elsewhere(&self, moved: Moment, refused: Moment) -> bool {
        let state = self.state.lock();
        let doubted = refused > Moment::BEGINNING && (state.at_replica || state.dialled < refused);
        state.elsewhere || state.dialled < moved || (doubted && LOOK_AGAIN < Moment::now().since(state.since))
    }

    pub(crate) fn came_up(&self, dialled: Moment, at_replica: bool) {
        *self.state.lock() = State { since: Moment::now(), dialled, at_replica, ..State::default() };
        self.up.store(true, Ordering::Release);
    }

    pub(crate) fn went_down(&self) {
        self.up.store(false, Ordering::Release);
        self.channels.went_down();
    }

    pub(crate) fn failed(&self, failure: Failure) {
        self.state.lock().failure = Some(failure);
    }
}

/// How long a channel is kept once no thread needs it.
const IDLE: Duration = Duration::from_secs(30);
/// How long the client waits before it asks again for a channel that it may not listen to.
const DENIED: Duration = Duration::from_secs(1);

/// The channels, by their locks' [stems](crate::names::Names::stem).
#[derive(Default)]
pub(crate) struct Channels(Mutex<ChannelTable>);

#[derive(Default)]
struct ChannelTable {
    all: HashMap<Box<str>, Channel, RandomState>,
    /// Whether the listener has been called since it last looked.
    called: bool,
}

struct Channel {
    phase: Stage,
    /// When a thread last requested the channel, or was found to need it.
    used: Moment,
    /// The lock's entries that want it, each by an owner number, which leads to the entry without keeping it
    /// alive.
    owners: Vec<u64>,
}

enum Stage {
    /// The listener has not seen the request yet.
    Requested,
    /// The listener has asked the server for it.
    Sent,
    /// Subscribed since then.
    Subscribed(Moment),
    /// The server denied it to the client, at that time.
    Denied(Moment, Failure),
}

impl Channels {
    /// Returns whether a message published on the channel now will be received.
    pub(crate) fn is_subscribed(&self, stem: &str) -> bool {
        self.subscribed_since(stem).is_some()
    }

    /// Returns since when the channel has been subscribed, if it is.
    pub(crate) fn subscribed_since(&self, stem: &str) -> Option<Moment> {
        match self.0.lock().all.get(stem)?.phase {
            Stage::Subscribed(since) => Some(since),
            _ => None,
        }
    }

    /// Records that the entry of this owner number wants the channel. Returns whether the listener has yet to
    /// see that.
    pub(crate) fn request(&self, stem: &str, owner: u64, now: Moment) -> bool {
        let mut state = self.0.lock();
        let fresh = || Channel { phase: Stage::Requested, used: now, owners: Vec::new() };
        let channel = match state.all.get_mut(stem) {
            Some(channel) => channel,
            None => state.all.entry(stem.into()).or_insert_with(fresh),
        };
        channel.used = now;
        if matches!(channel.phase, Stage::Denied(since, _) if DENIED < now.since(since)) {
            channel.phase = Stage::Requested;
        }
        if !channel.owners.contains(&owner) {
            channel.owners.push(owner);
        }
        matches!(channel.phase, Stage::Requested)
    }

    /// Returns the server's error, if the client may not listen to the channel.
    pub(crate) fn denial(&self, stem: &str) -> Option<Failure> {
        match &self.0.lock().all.get(stem)?.phase {
            Stage::Denied(_, why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Marks the listener as called. Returns `None` if it has been called already since it last looked;
    /// otherwise the stem of a channel that it is subscribed to, if there is one.
    pub(crate) fn calls(&self) -> Option<Option<Box<str>>> {
        let mut state = self.0.lock();
        if std::mem::replace(&mut state.called, true) {
            return None;
        }
        let subscribed = state.all.iter().find(|(_, channel)| matches!(channel.phase, Stage::Subscribed(_)));
        Some(subscribed.map(|(stem, _)| stem.clone()))
    }

    // ---- for the listener

    /// Returns the channels to ask the server for, which count as asked for from now on.
    pub(crate) fn take_requested(&self) -> Vec<Box<str>> {
        let mut state = self.0.lock();
        state.called = false;
        let requested = state.all.iter_mut().filter(|(_, channel)| matches!(channel.phase, Stage::Requested));
        let sent = requested.map(|(stem, channel)| {
            channel.phase = Stage::Sent;
            stem.clone()
        });
        sent.collect()
    }

    /// The server has confirmed the channel. Calls `tell` with the owner numbers of the entries that requested it, which
    /// it returns: with each before the channel counts as subscribed.
    pub(crate) fn confirmed(&self, stem: &str, tell: impl Fn(&[u64])) -> Vec<u64> {
        let mut told = 0;
        loop {
            let mut state = self.0.lock();
            let Some(channel) = state.all.get_mut(stem) else { return Vec::new() };
            let owners = channel.owners.clone();
            if owners.len() == told {
                channel.phase = Stage::Subscribed(Moment::now());
                return owners;
            }
            // Entries are looked at outside this mutex. Meanwhile there may be more owners, but not fewer.
            drop(state);
            tell(&owners[told..]);
            told = owners.len();
        }
    }

    /// The server has denied the channel to the client, as it will again. Returns the owner numbers of the entries that
    /// requested it.
    pub(crate) fn denied(&self, stem: &str, why: Failure) -> Vec<u64> {
        let mut state = self.0.lock();
        let Some(channel) = state.all.get_mut(stem) else { return Vec::new() };
        channel.phase = Stage::Denied(Moment::now(), why);
        channel.owners.clone()
    }

    /// The server has ended the subscription, as the slot is elsewhere. Returns the owner numbers of the
    /// entries that can no longer be reached. (No effect if the channel was asked for again: its confirmation
    /// is yet to come.)
    pub(crate) fn ended(&self, stem: &str) -> Vec<u64> {
        if self.is_subscribed(stem) { self.refused(stem) } else { Vec::new() }
    }

    /// The server has refused the channel. Returns the owner numbers of the entries that requested it.
    pub(crate) fn refused(&self, stem: &str) -> Vec<u64> {
        self.0.lock().all.remove(stem).map(|channel| channel.owners).unwrap_or_default()
    }

    /// The connection is gone: the listener asks for all channels on the next one.
    pub(crate) fn went_down(&self) {
        for channel in self.0.lock().all.values_mut() {
            channel.phase = Stage::Requested;
        }
    }

    /// Forgets all channels: none is requested at this node any more.
    pub(crate) fn clear(&self) {
        self.0.lock().all.clear();
    }

    /// Removes the channels that have not been requested for a while and that none of their entries `needs`.
    /// Returns those that the server knows.
    pub(crate) fn take_idle(&self, now: Moment, needs: impl Fn(u64) -> bool) -> Vec<Box<str>> {
        let old = |channel: &Channel| now.since(channel.used) > IDLE;
        let state = self.0.lock();
        let candidates = state.all.iter().filter(|(_, channel)| old(channel));
        let candidates: Vec<_> = candidates.map(|(stem, it)| (stem.clone(), it.owners.clone())).collect();
        // Entries are looked at outside this mutex: other threads lock it while they hold an entry's.
        drop(state);
        let mut idle = Vec::new();
        for (stem, mut owners) in candidates {
            owners.retain(|owner| needs(*owner));
            let mut state = self.0.lock();
            let Some(channel) = state.all.get_mut(&stem).filter(|channel| old(channel)) else { continue };
            if !owners.is_empty() {
                (channel.used, channel.owners) = (now, owners);
            } else if let Some(Channel { phase: Stage::Sent | Stage::Subscribed(_), .. }) =
                state.all.remove(&stem)
            {
                idle.push(stem);
            }
        }
        idle
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/hearing/channels.rs"]
mod tests;
