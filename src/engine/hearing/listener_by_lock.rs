//! Listening at a node of a cluster: to a channel for each lock that a thread of this client waits for there,
//! or about which it wants messages. The channel carries the lock's hash tag, and is sharded if the server
//! supports that, so a message stays in the shard that grants. When a slot moves away, the server ends the
//! subscriptions to its channels, and the waiters ask the slot's new server at once. A channel that the
//! server refuses affects its lock only: the connection continues to serve the others.

use std::time::Duration;

use redis::{RedisError, RedisResult};

use crate::clock::Moment;
use crate::engine::entries::runtime::Shared;
use crate::engine::hearing::listener::{Listener, PING_AFTER, TICK, not_subscribed};
use crate::engine::hearing::messages::{ask_again, dispatch, missed};
use crate::engine::hearing::notices::Notices;
use crate::engine::redis::subscriber::{Pushed, Subscriber};
use crate::engine::redis::wire::Connection;
use crate::names::{channel, stem_of};

/// How often the listener looks for channels that are no longer needed.
const SWEEP: Duration = Duration::from_secs(5);

impl Listener {
    /// Receives messages until the client ends, the server has no more slots, or the connection fails.
    pub(crate) fn listen_by_lock(
        &self,
        connection: Connection,
        notices: &mut Notices,
        came_up: impl FnOnce(),
    ) {
        let mut line = Subscriber::new(connection, &self.channel);
        let resumed = notices.resume(&mut line);
        came_up();
        // An error here means that the connection has failed: it is dropped.
        let _ = resumed.and_then(|()| self.follow(&mut line, notices));
    }

    fn follow(&self, line: &mut Subscriber, notices: &mut Notices) -> RedisResult<()> {
        let began = Moment::now();
        let (mut latest, mut needed, mut swept) = (began, began, began);
        while self.goes_on() && !self.is_elsewhere() {
            let Some((shared, _)) = self.client() else { break };
            let now = Moment::now();
            if SWEEP < now.since(swept) {
                self.sweep(line, &shared, now)?;
                swept = now;
            }
            if TICK < now.since(needed) {
                if !self.is_needed() {
                    break;
                }
                needed = now;
            }
            let requested = self.inbox.channels.take_requested();
            line.ask(requested.iter().map(|stem| channel(stem, &shared.uuid)).collect())?;
            let awaits = line.awaits();
            line.limit_reads_to(if awaits { PING_AFTER } else { TICK })?;
            // Not held while the thread waits for a message: it would keep a client alive that has no other
            // user.
            drop(shared);
            let message = line.next();
            let Some((shared, _)) = self.client() else { break };
            match message {
                // Messages of a former primary no longer count.
                Ok(_) if self.is_elsewhere() => break,
                Ok(message) => {
                    latest = self.hears();
                    self.on_message(message, &shared, line, notices)?;
                }
                Err(e) if e.is_timeout() && !awaits => {
                    if PING_AFTER <= Moment::now().since(latest) {
                        line.ping()?;
                    }
                }
                Err(e) => return Err(e),
            }
            notices.expire(line, Moment::now())?;
        }
        Ok(())
    }

    fn on_message(
        &self,
        message: Pushed,
        shared: &Shared,
        line: &mut Subscriber,
        notices: &mut Notices,
    ) -> RedisResult<()> {
        let channels = &self.inbox.channels;
        match message {
            Pushed::Message { channel, text } => {
                if let Some(entries) = notices.on_message(&channel) {
                    entries.iter().for_each(ask_again);
                } else if !self.on_listen(&text, line, notices)? {
                    dispatch(shared, &text);
                }
            }
            // Something may have been announced before on the channel of another program.
            Pushed::Confirmed(channel) => match notices.on_message(&channel) {
                Some(entries) => entries.iter().for_each(ask_again),
                None => missed(shared, &channels.confirmed(&stem(shared, &channel))),
            },
            // The waiters' requests go to the server that has the slot now, and they listen there.
            Pushed::Ended(channel) => missed(shared, &channels.ended(&stem(shared, &channel))),
            Pushed::Refused(channel, why) => self.refused(shared, &channel, why),
            Pushed::Nothing => {}
        }
        Ok(())
    }

    /// The server has refused this channel. If its slot is elsewhere, the waiters ask there. If the client
    /// may not listen to it, the waiters of this lock get an error. Otherwise they want the channel again
    /// soon.
    fn refused(&self, shared: &Shared, channel: &str, why: RedisError) {
        let (channels, stem) = (&self.inbox.channels, stem(shared, channel));
        let failure = not_subscribed(channel, why);
        if failure.is_final() {
            return missed(shared, &channels.denied(&stem, failure));
        }
        let owners = channels.refused(&stem);
        if self.client().is_some_and(|(_, server)| shared.route.learn(&server, &failure)) {
            missed(shared, &owners);
        }
    }

    /// Unsubscribes from the channels that are no longer needed.
    fn sweep(&self, line: &mut Subscriber, shared: &Shared, now: Moment) -> RedisResult<()> {
        let needs = |owner| {
            let entry = shared.entries.lock().of_owner(owner);
            entry.is_some_and(|entry| entry.core.lock().lock_state.is_in_use())
        };
        for stem in self.inbox.channels.take_idle(now, needs) {
            line.give_up(&channel(&stem, &shared.uuid))?;
        }
        Ok(())
    }
}

/// Returns the stem of the lock that this channel is for.
fn stem(shared: &Shared, channel: &str) -> String {
    stem_of(channel, &shared.uuid).map(str::to_owned).unwrap_or_default()
}
