//! Whether a lock hears what Redis tells it. On one server, as soon as its client listens there: one channel is for all
//! locks. In a cluster each lock has a channel, with its hash tag, on the primary of its slot.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::entry::LockEntry;
use super::listener::start;
use super::redis::failure::Failure;
use super::route::Route;
use super::server::Server;
use crate::clock::Moment;
use crate::error::Error;
use crate::names;

/// How long a thread that wants a channel may need to call the listener, which looks by itself a little later.
const CALLED_WITHIN: Duration = Duration::from_millis(100);

impl LockEntry {
    /// What its channels begin with; a client's uuid follows.
    pub(crate) fn inbox_prefix(&self) -> Cow<'_, str> {
        match &self.shared.route {
            Route::One(_) => Cow::Borrowed(&self.shared.inbox_prefix),
            Route::Cluster(_) => Cow::Owned(self.names.inbox_prefix()),
        }
    }

    /// Whether what its server publishes for it now will be received.
    pub(crate) fn hears(&self) -> bool {
        let inbox = &self.server().inbox;
        inbox.is_up() && (!self.has_a_channel() || inbox.channels.hears(self.names.stem()))
    }

    /// Why it does not hear, if that is known.
    pub(crate) fn deafness(&self) -> Option<Failure> {
        let inbox = &self.server().inbox;
        let denial = || inbox.channels.denial(self.names.stem());
        inbox.failure().or_else(|| self.has_a_channel().then(denial).flatten())
    }

    /// This server was asked at `asked`, and says that nobody listens there for this lock and client.
    pub(crate) fn is_deaf(&self, server: &Server, asked: Moment) {
        match self.has_a_channel() {
            false => server.inbox.is_deaf(asked),
            true => server.inbox.is_deaf_to(self.names.stem(), asked),
        }
    }

    /// Has its client listen for it, and the lock ask again when it does. May send a request to call the listener.
    ///
    /// # Errors
    /// `Unavailable` if the listener's thread could not be started.
    pub(crate) fn listens(&self) -> Result<(), Error> {
        let server = self.server();
        let is_news = self.wants(server);
        start(&self.shared, server)?;
        if is_news && server.inbox.is_up() {
            self.call(server);
        }
        Ok(())
    }

    /// The same, within a tick of the listener: waits for nothing.
    pub(crate) fn will_listen(&self) -> Result<(), Error> {
        let server = self.server();
        self.wants(server);
        if server.inbox.is_up() {
            return Ok(());
        }
        start(&self.shared, server)
    }

    /// The same for a holder: its client listens at the server, so that it notices when that fails; on a channel of
    /// its own only if the holder has `asked` to be told of its hold.
    pub(crate) fn holder_listens(&self, asked: impl FnOnce() -> bool) {
        let server = self.server();
        if self.has_a_channel() && asked() {
            self.wants(server);
        }
        if !server.inbox.is_up()
            && let Err(error) = start(&self.shared, server)
        {
            tracing::warn!(
                error = %format_args!("{error:#}"),
                "a holder cannot be told of a forced unlock before its next renewal"
            );
        }
    }

    /// Whether that is so already.
    pub(crate) fn holder_hears(&self, asked: impl FnOnce() -> bool) -> bool {
        let inbox = &self.server().inbox;
        inbox.is_up() && (!self.has_a_channel() || !asked() || inbox.channels.hears(self.names.stem()))
    }

    /// Has this server publish a message to the client `uuid`. Returns how many received it.
    pub(crate) fn publish(
        &self,
        server: &Server,
        uuid: &str,
        text: &str,
        limit: Moment,
    ) -> Result<Value, Failure> {
        let channel = format!("{}{uuid}", self.inbox_prefix());
        let publish =
            |verb: &str| server.backend.command(&redis::cmd(verb).arg(&channel).arg(text).clone(), limit);
        if self.has_a_channel() {
            match publish("SPUBLISH") {
                // A server without sharded channels.
                Err(Failure::Denied(_)) => {}
                told => return told,
            }
        }
        publish("PUBLISH")
    }

    fn has_a_channel(&self) -> bool {
        matches!(self.shared.route, Route::Cluster(_))
    }

    /// Whether its channel was not wanted at this server yet.
    fn wants(&self, server: &Arc<Server>) -> bool {
        let wanted = || server.inbox.channels.want(self.names.stem(), self.number(), Moment::now());
        self.has_a_channel() && wanted()
    }

    /// Tells the listener that something is wanted, on a channel that it hears: on that of a lock if it can be, as
    /// one that is not sharded goes to every node of the cluster.
    fn call(&self, server: &Server) {
        let shared = &self.shared;
        let Some(heard) = server.inbox.channels.calls() else { return };
        let limit = Moment::now().after(CALLED_WITHIN);
        let call = |verb: &str, channel: String| {
            let call = redis::cmd(verb).arg(channel).arg("wanted").clone();
            matches!(server.backend.command(&call, limit), Ok(Value::Int(1..)))
        };
        if !heard.is_some_and(|stem| call("SPUBLISH", names::channel(&stem, &shared.uuid))) {
            call("PUBLISH", format!("{}{}", shared.inbox_prefix, shared.uuid));
        }
    }
}
