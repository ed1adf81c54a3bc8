//! Whether a lock receives the messages that Redis publishes for it. With one server it does as soon as its
//! client listens there, on one channel for all locks. In a cluster each lock has a channel of its own, with
//! its hash tag, on the primary of its slot.

pub(crate) mod inbox;
pub(crate) mod listener;
pub(crate) mod messages;
pub(crate) mod notices;

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::clock::Moment;
use crate::engine::entries::entry::LockEntry;
use crate::engine::hearing::listener::start;
use crate::engine::redis::exchange::Command;
use crate::engine::redis::failure::Failure;
use crate::engine::servers::route::Route;
use crate::engine::servers::server::Server;
use crate::error::Error;
use crate::names;

/// How long a thread that wants a channel may take to call the listener, which would see the request by
/// itself a little later.
const CALLED_WITHIN: Duration = Duration::from_millis(100);

impl LockEntry {
    /// Returns the stem of the channels for this lock: its own in a cluster, where they carry its hash tag; otherwise that
    /// of all locks.
    pub(crate) fn channel_stem(&self) -> &str {
        if self.has_a_channel() { self.names.stem() } else { &self.shared.config.namespace }
    }

    /// Returns whether a message that its server publishes for it now will be received.
    pub(crate) fn hears(&self) -> bool {
        self.holder_hears(|| true)
    }

    /// Returns why its messages are not received, if that is known.
    pub(crate) fn deafness(&self) -> Option<Failure> {
        let inbox = &self.server().inbox;
        let denial = || inbox.channels.denial(self.names.stem());
        inbox.failure().or_else(|| self.has_a_channel().then(denial).flatten())
    }

    /// Reports that its server, asked at `requested`, has no subscriber for this lock and client.
    pub(crate) fn is_deaf(&self, requested: Moment) {
        let inbox = &self.server().inbox;
        let since = || inbox.channels.subscribed_since(self.names.stem());
        if !self.has_a_channel() || since().is_some_and(|since| since < requested) {
            inbox.is_deaf(requested);
        }
    }

    /// Makes the client listen for this lock, which asks again once it does. May send a request to call the
    /// listener.
    ///
    /// # Errors
    /// `Unavailable` if the listener's thread could not be started.
    pub(crate) fn listens(&self) -> Result<(), Error> {
        let server = self.server();
        let is_news = self.requests_channel(server);
        start(&self.shared, server)?;
        if is_news && server.inbox.is_up() {
            self.call(server);
        }
        Ok(())
    }

    /// The same without calling the listener, which sees it within a tick. Does not block. A holder's client
    /// listens at the server, so that it notices when the server fails; in a cluster, it listens on the lock's
    /// own channel only if the holder has asked for messages about its hold: if that is `needed`.
    pub(crate) fn will_listen(&self, needed: impl FnOnce() -> bool) {
        let server = self.server();
        if self.has_a_channel() && needed() {
            self.requests_channel(server);
        }
        if let Err(error) = start(&self.shared, server) {
            tracing::warn!(error = %format_args!("{error:#}"), "no listener: messages are missed until the next request");
        }
    }

    /// Returns whether the client already listens as a holder needs it.
    pub(crate) fn holder_hears(&self, needed: impl FnOnce() -> bool) -> bool {
        let inbox = &self.server().inbox;
        inbox.is_up()
            && (!self.has_a_channel() || !needed() || inbox.channels.is_subscribed(self.names.stem()))
    }

    /// Publishes a message to the client `uuid`. Returns the number of subscribers that received it.
    pub(crate) fn publish(&self, uuid: &str, text: &str, limit: Moment) -> Result<Value, Failure> {
        let channel = names::channel(self.channel_stem(), uuid);
        let publish = |verb: &str| {
            let reply = self.ask(&[Command::plain(redis::cmd(verb).arg(&channel).arg(text))], limit);
            reply.map(|reply| reply.value)
        };
        if self.has_a_channel() {
            match publish("SPUBLISH") {
                // The server has no sharded channels.
                Err(Failure::Denied(_)) => {}
                published => return published,
            }
        }
        publish("PUBLISH")
    }

    fn has_a_channel(&self) -> bool {
        matches!(self.shared.route, Route::Cluster(_))
    }

    /// In a cluster, records that this server's listener needs the lock's channel. Returns whether the
    /// listener has yet to see that.
    fn requests_channel(&self, server: &Arc<Server>) -> bool {
        self.has_a_channel() && server.inbox.channels.request(self.names.stem(), self.number(), Moment::now())
    }

    /// Wakes the listener to subscribe to a new channel, by a message on one that it already receives. A
    /// lock's channel is preferred: a message on a channel that is not sharded goes to every node of the
    /// cluster.
    fn call(&self, server: &Server) {
        let shared = &self.shared;
        let Some(subscribed) = server.inbox.channels.calls() else { return };
        let limit = Moment::now().after(CALLED_WITHIN);
        let call = |verb: &str, channel: String| {
            let call = redis::cmd(verb).arg(channel).arg("wanted").clone();
            matches!(server.backend.command(&call, limit), Ok(Value::Int(1..)))
        };
        if !subscribed.is_some_and(|stem| call("SPUBLISH", names::channel(&stem, &shared.uuid))) {
            call("PUBLISH", shared.channel());
        }
    }
}
