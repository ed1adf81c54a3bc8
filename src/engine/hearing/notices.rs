//! Channels of other programs. A client listens to one while one of its threads waits behind a holder of that
//! program.

use std::sync::{Arc, Weak};

use redis::RedisResult;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::redis::subscriber::Subscriber;
use crate::names;

/// The channels of one [listener](crate::engine::hearing::listener), and the locks whose waiters ask again at a message there.
#[derive(Default)]
pub(crate) struct Notices {
    channels: Vec<ForeignChannel>,
}

struct ForeignChannel {
    name: String,
    /// A second channel, to which only clients of this library listen.
    marker: String,
    /// The locks: several, if locks of several kinds are at one key.
    entries: Vec<Weak<LockEntry>>,
    /// Whether a waiter was told to listen since the last message.
    attentive: bool,
    /// When to unsubscribe, unless a waiter is told to listen again.
    until: Moment,
}

impl Notices {
    /// Makes the waiters of `entry` ask again at each message on `channel`, and once it is subscribed, unless they
    /// listen to another one already: a message must not cost more than one subscription.
    ///
    /// # Errors
    /// The connection is out of step, and must be closed.
    pub(crate) fn listen(
        &mut self,
        line: &mut Subscriber,
        entry: &Arc<LockEntry>,
        channel: &str,
        until: Moment,
    ) -> RedisResult<()> {
        let listens = |it: &ForeignChannel| it.entries.iter().any(|it| it.as_ptr() == Arc::as_ptr(entry));
        if let Some(known) = self.channels.iter_mut().find(|known| known.name == channel) {
            (known.attentive, known.until) = (true, known.until.max(until));
            known.entries.retain(|known| known.strong_count() > 0);
            if !listens(known) {
                known.entries.push(Arc::downgrade(entry));
            }
        } else if !self.channels.iter().any(listens) {
            let (name, marker) = (channel.to_owned(), names::channel(entry.channel_stem(), channel));
            let entries = vec![Arc::downgrade(entry)];
            let added = ForeignChannel { name, marker, entries, attentive: true, until };
            added.subscribe(line)?;
            self.channels.push(added);
        }
        Ok(())
    }

    /// A message came on `channel`. Returns the locks whose waiters must ask again; `None` if the channel is
    /// not one of these.
    pub(crate) fn on_message(&mut self, channel: &str) -> Option<Vec<Arc<LockEntry>>> {
        let channel = self.channels.iter_mut().find(|known| known.name == channel)?;
        if !std::mem::take(&mut channel.attentive) {
            return Some(Vec::new());
        }
        Some(channel.entries.iter().filter_map(Weak::upgrade).collect())
    }

    /// Unsubscribes from the channels whose time is over or whose locks are no longer in use.
    ///
    /// # Errors
    /// The connection is out of step, and must be closed.
    pub(crate) fn expire(&mut self, line: &mut Subscriber, now: Moment) -> RedisResult<()> {
        let in_use =
            |it: &ForeignChannel| it.until > now && it.entries.iter().any(|entry| entry.strong_count() > 0);
        while let Some(at) = self.channels.iter().position(|it| !in_use(it)) {
            let channel = self.channels.swap_remove(at);
            line.give_up_foreign(&channel.name)?;
            line.give_up_foreign(&channel.marker)?;
        }
        Ok(())
    }

    /// Subscribes to all channels on a new connection.
    ///
    /// # Errors
    /// The connection is out of step, and must be closed.
    pub(crate) fn resume(&mut self, line: &mut Subscriber) -> RedisResult<()> {
        for channel in &mut self.channels {
            channel.attentive = true;
            channel.subscribe(line)?;
        }
        Ok(())
    }
}

impl ForeignChannel {
    /// Subscribes to the channel, and to the second one, by which scripts tell this library's subscribers
    /// from those of other programs. If the server refuses a channel, the waiters ask at their heartbeats
    /// only.
    fn subscribe(&self, line: &mut Subscriber) -> RedisResult<()> {
        line.ask_foreign(&self.name)?;
        line.ask_foreign(&self.marker)
    }
}
