//! The channels of single locks that a client listens to at one node of a cluster: what is wanted, and what is heard.
//!
//! The [listener](super::listener) of that node subscribes to what others want here, and says what came of it.

use std::collections::HashMap;
use std::time::Duration;

use super::redis::failure::Failure;
use crate::clock::Moment;
use crate::sync::Mutex;

/// How long a channel is kept to which no thread listens any more.
const IDLE: Duration = Duration::from_secs(30);
/// How long a channel that the client may not listen to is not asked for again.
const DENIED: Duration = Duration::from_secs(1);

/// By their locks' [stems](crate::names::Names::stem).
#[derive(Default)]
pub(crate) struct Channels(Mutex<State>);

#[derive(Default)]
struct State {
    all: HashMap<Box<str>, Channel>,
    /// The listener has been called since it last looked.
    called: bool,
}

struct Channel {
    phase: Phase,
    /// When a thread last wanted it, or was seen to need it.
    used: Moment,
    /// The entries of the lock that want it, by any of their owner numbers: what leads to an entry does not keep it.
    owners: Vec<u64>,
}

enum Phase {
    /// The listener has not seen it yet.
    Wanted,
    /// It has asked the server for it.
    Asked,
    /// It is subscribed since then.
    Heard(Moment),
    /// The server does not let the client listen to it, as it said then.
    Denied(Moment, Failure),
}

impl Channels {
    /// Whether what is published there now will be received.
    pub(crate) fn hears(&self, stem: &str) -> bool {
        self.heard_since(stem).is_some()
    }

    /// Since when it is heard, if it is.
    pub(crate) fn heard_since(&self, stem: &str) -> Option<Moment> {
        match self.0.lock().all.get(stem)?.phase {
            Phase::Heard(since) => Some(since),
            _ => None,
        }
    }

    /// The entry of this owner number wants it. Whether the listener has yet to learn of that.
    pub(crate) fn want(&self, stem: &str, owner: u64, now: Moment) -> bool {
        let mut state = self.0.lock();
        let fresh = || Channel { phase: Phase::Wanted, used: now, owners: Vec::new() };
        let channel = match state.all.get_mut(stem) {
            Some(channel) => channel,
            None => state.all.entry(stem.into()).or_insert_with(fresh),
        };
        channel.used = now;
        if matches!(channel.phase, Phase::Denied(since, _) if DENIED < now.since(since)) {
            channel.phase = Phase::Wanted;
        }
        if !channel.owners.contains(&owner) {
            channel.owners.push(owner);
        }
        matches!(channel.phase, Phase::Wanted)
    }

    /// Why it is not heard, if the client may not listen to it.
    pub(crate) fn denial(&self, stem: &str) -> Option<Failure> {
        match &self.0.lock().all.get(stem)?.phase {
            Phase::Denied(_, why) => Some(why.clone()),
            _ => None,
        }
    }

    /// Whether the listener is to be called: it has not been since it last looked; and a channel, if there is one,
    /// on which it hears that.
    pub(crate) fn calls(&self) -> Option<Option<Box<str>>> {
        let mut state = self.0.lock();
        if std::mem::replace(&mut state.called, true) {
            return None;
        }
        let heard = state.all.iter().find(|(_, channel)| matches!(channel.phase, Phase::Heard(_)));
        Some(heard.map(|(stem, _)| stem.clone()))
    }

    // ---- the listener's

    /// What it has to ask the server for.
    pub(super) fn take_wanted(&self) -> Vec<Box<str>> {
        let mut state = self.0.lock();
        state.called = false;
        let wanted = state.all.iter_mut().filter(|(_, channel)| matches!(channel.phase, Phase::Wanted));
        let asked = wanted.map(|(stem, channel)| {
            channel.phase = Phase::Asked;
            stem.clone()
        });
        asked.collect()
    }

    /// The server has confirmed it. Returns whose entries now hear.
    pub(super) fn confirmed(&self, stem: &str) -> Vec<u64> {
        let mut state = self.0.lock();
        let Some(channel) = state.all.get_mut(stem) else { return Vec::new() };
        channel.phase = Phase::Heard(Moment::now());
        channel.owners.clone()
    }

    /// The server has ended it, as its slot is elsewhere. Returns whose entries do not hear any more. (One that was
    /// asked for anew has its confirmation to come.)
    pub(super) fn ended(&self, stem: &str) -> Vec<u64> {
        let mut state = self.0.lock();
        match state.all.get(stem) {
            Some(channel) if matches!(channel.phase, Phase::Heard(_)) => {}
            _ => return Vec::new(),
        }
        state.all.remove(stem).map(|channel| channel.owners).unwrap_or_default()
    }

    /// The server has refused it. Returns whose entries wanted it.
    pub(super) fn refused(&self, stem: &str) -> Vec<u64> {
        self.0.lock().all.remove(stem).map(|channel| channel.owners).unwrap_or_default()
    }

    /// The server has refused it to the client, and will again. Returns whose entries wanted it.
    pub(super) fn denied(&self, stem: &str, why: Failure) -> Vec<u64> {
        let mut state = self.0.lock();
        let Some(channel) = state.all.get_mut(stem) else { return Vec::new() };
        channel.phase = Phase::Denied(Moment::now(), why);
        channel.owners.clone()
    }

    /// The connection is gone: on the next one the listener asks for all of them.
    pub(super) fn went_down(&self) {
        for channel in self.0.lock().all.values_mut() {
            channel.phase = Phase::Wanted;
        }
    }

    /// Nothing is wanted here any more.
    pub(super) fn clear(&self) {
        self.0.lock().all.clear();
    }

    /// Takes out those that have not been wanted for long, and of whose entries none `needs` it. Returns those that
    /// the server knows.
    pub(super) fn take_idle(&self, now: Moment, needs: impl Fn(u64) -> bool) -> Vec<Box<str>> {
        let old = |channel: &Channel| now.since(channel.used) > IDLE;
        let state = self.0.lock();
        let candidates = state.all.iter().filter(|(_, channel)| old(channel));
        let candidates: Vec<_> = candidates.map(|(stem, it)| (stem.clone(), it.owners.clone())).collect();
        // An entry is looked at outside the mutex, as others want a channel under an entry's.
        drop(state);
        let mut idle = Vec::new();
        for (stem, mut owners) in candidates {
            owners.retain(|owner| needs(*owner));
            let mut state = self.0.lock();
            let Some(channel) = state.all.get_mut(&stem).filter(|channel| old(channel)) else { continue };
            if !owners.is_empty() {
                (channel.used, channel.owners) = (now, owners);
            } else if let Some(Channel { phase: Phase::Asked | Phase::Heard(_), .. }) =
                state.all.remove(&stem)
            {
                idle.push(stem);
            }
        }
        idle
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/unit/engine/channels.rs"]
mod tests;
