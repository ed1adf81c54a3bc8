//! The channels of single locks that a client listens to at one node of a cluster: which ones its threads
//! want, and which are subscribed.
//!
//! The [listener](crate::engine::hearing::listener) of that node subscribes to the channels that are requested here, and records
//! the outcome.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Moment;
use crate::engine::redis::failure::Failure;
use crate::sync::Mutex;

/// How long a channel is kept once no thread needs it.
const IDLE: Duration = Duration::from_secs(30);
/// How long the client waits before it asks again for a channel that it may not listen to.
const DENIED: Duration = Duration::from_secs(1);

/// The channels, by their locks' [stems](crate::names::Names::stem).
#[derive(Default)]
pub(crate) struct Channels(Mutex<State>);

#[derive(Default)]
struct State {
    all: HashMap<Box<str>, Channel>,
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
    pub(in crate::engine) fn take_requested(&self) -> Vec<Box<str>> {
        let mut state = self.0.lock();
        state.called = false;
        let requested = state.all.iter_mut().filter(|(_, channel)| matches!(channel.phase, Stage::Requested));
        let sent = requested.map(|(stem, channel)| {
            channel.phase = Stage::Sent;
            stem.clone()
        });
        sent.collect()
    }

    /// The server has confirmed the channel. Returns the owner numbers of the entries that can now be reached
    /// on it.
    pub(in crate::engine) fn confirmed(&self, stem: &str) -> Vec<u64> {
        let mut state = self.0.lock();
        let Some(channel) = state.all.get_mut(stem) else { return Vec::new() };
        channel.phase = Stage::Subscribed(Moment::now());
        channel.owners.clone()
    }

    /// The server has ended the subscription, as the slot is elsewhere. Returns the owner numbers of the
    /// entries that can no longer be reached. (No effect if the channel was asked for again: its confirmation
    /// is yet to come.)
    pub(in crate::engine) fn ended(&self, stem: &str) -> Vec<u64> {
        let mut state = self.0.lock();
        match state.all.get(stem) {
            Some(channel) if matches!(channel.phase, Stage::Subscribed(_)) => {}
            _ => return Vec::new(),
        }
        state.all.remove(stem).map(|channel| channel.owners).unwrap_or_default()
    }

    /// The server has refused the channel. Returns the owner numbers of the entries that requested it.
    pub(in crate::engine) fn refused(&self, stem: &str) -> Vec<u64> {
        self.0.lock().all.remove(stem).map(|channel| channel.owners).unwrap_or_default()
    }

    /// The server has denied the channel to the client, and will again. Returns the owner numbers of the
    /// entries that requested it.
    pub(in crate::engine) fn denied(&self, stem: &str, why: Failure) -> Vec<u64> {
        let mut state = self.0.lock();
        let Some(channel) = state.all.get_mut(stem) else { return Vec::new() };
        channel.phase = Stage::Denied(Moment::now(), why);
        channel.owners.clone()
    }

    /// The connection is gone: the listener asks for all channels on the next one.
    pub(in crate::engine) fn went_down(&self) {
        for channel in self.0.lock().all.values_mut() {
            channel.phase = Stage::Requested;
        }
    }

    /// Forgets all channels: none is requested at this node any more.
    pub(in crate::engine) fn clear(&self) {
        self.0.lock().all.clear();
    }

    /// Removes the channels that have not been requested for a while and that none of their entries `needs`.
    /// Returns those that the server knows.
    pub(in crate::engine) fn take_idle(&self, now: Moment, needs: impl Fn(u64) -> bool) -> Vec<Box<str>> {
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
