//! A connection that listens to the channels of single locks, at a node of a cluster.
//!
//! The channels are sharded if the server supports that, which it shows by accepting the first of them;
//! otherwise they are classic. The connection uses RESP3, in which confirmations and messages can be told
//! apart from replies. An error is a reply, and the `redis` crate skips a reply that arrives after a read has
//! timed out. So behind each request the client's own channel is subscribed once more, and a channel that is
//! not confirmed by then was refused. The server gives the reason on another connection, which is made for
//! that.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use redis::{PushKind, RedisError, RedisResult, Value, cmd};

use crate::engine::redis::refusal::is_unknown;
use crate::engine::redis::resp::text;
use crate::engine::redis::wire::Connection;

/// What the server has sent.
#[derive(Debug)]
pub(crate) enum Pushed {
    Message {
        channel: String,
        text: String,
    },
    /// From here on, messages on this channel are received.
    Confirmed(String),
    /// No more messages on this channel are received: its slot is elsewhere.
    Ended(String),
    /// The request for this channel was refused.
    Refused(String, RedisError),
    /// The requests for these channels were refused, too; the reasons were skipped.
    Unconfirmed(Vec<String>),
    Nothing,
}

pub(crate) struct Subscriber {
    connection: Connection,
    /// The client's own channel: a message on it calls the listener, and its confirmation shows that the
    /// connection is alive.
    own: String,
    sharded: bool,
    /// The requests without a reply so far, in the order in which they were sent.
    sent: VecDeque<Sent>,
}

enum Sent {
    /// For the channel of a lock.
    Channel(String),
    /// For a channel of another program.
    Foreign(String),
    /// For the own channel.
    Own,
}

impl Sent {
    fn channel(self) -> Option<String> {
        match self {
            Sent::Channel(channel) => Some(channel),
            Sent::Foreign(_) | Sent::Own => None,
        }
    }
}

impl Subscriber {
    /// Wraps a connection on which `own` is subscribed already.
    pub(crate) fn new(connection: Connection, own: &str) -> Self {
        Subscriber { connection, own: own.to_owned(), sharded: true, sent: VecDeque::new() }
    }

    /// Whether a reply is outstanding.
    pub(crate) fn awaits(&self) -> bool {
        !self.sent.is_empty()
    }

    pub(crate) fn limit_reads_to(&self, limit: Duration) -> RedisResult<()> {
        self.connection.set_read_timeout(Some(limit))
    }

    /// Subscribes to these channels of locks.
    pub(crate) fn ask(&mut self, channels: Vec<String>) -> RedisResult<()> {
        let verb = if self.sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        if channels.is_empty() {
            return Ok(());
        }
        // One request each: the channels of a single one must be of one slot.
        let packed: Vec<_> = channels.iter().flat_map(|it| cmd(verb).arg(it).get_packed_command()).collect();
        self.connection.send_packed_command(&packed)?;
        self.sent.extend(channels.into_iter().map(Sent::Channel));
        self.ping()
    }

    /// Returns why the server refuses these channels of locks: they are asked for on this other connection,
    /// on which no read has timed out. `None` for a channel that is accepted there; about a missing one
    /// nothing is known.
    pub(crate) fn reasons(
        &mut self,
        connection: Connection,
        channels: &[String],
    ) -> HashMap<String, Option<RedisError>> {
        let mut apart = Subscriber::new(connection, &self.own);
        apart.sharded = self.sharded;
        let mut reasons = HashMap::new();
        let mut went = apart.ask(channels.to_vec());
        while went.is_ok() && apart.awaits() {
            went = apart.next().map(|pushed| {
                let (channel, why) = match pushed {
                    Pushed::Refused(channel, why) => (channel, Some(why)),
                    Pushed::Confirmed(channel) => (channel, None),
                    _ => return,
                };
                reasons.insert(channel, why);
            });
        }
        // The reply that sharded channels are unknown may have been skipped, too.
        self.sharded = apart.sharded;
        reasons
    }

    /// Makes the server show that it is alive, by confirming the own channel.
    pub(crate) fn ping(&mut self) -> RedisResult<()> {
        self.sent.push_back(Sent::Own);
        let own = cmd("SUBSCRIBE").arg(&self.own).get_packed_command();
        self.connection.send_packed_command(&own)
    }

    /// Unsubscribes from the channel of a lock.
    pub(crate) fn give_up(&mut self, channel: &str) -> RedisResult<()> {
        self.send(&[if self.sharded { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" }], channel)
    }

    /// Subscribes to a channel on which another program publishes: to the classic and the sharded one of this
    /// name, as the program may use either. A channel that is refused is not received.
    pub(crate) fn ask_foreign(&mut self, channel: &str) -> RedisResult<()> {
        let verbs: &[&str] = if self.sharded { &["SUBSCRIBE", "SSUBSCRIBE"] } else { &["SUBSCRIBE"] };
        self.sent.extend(verbs.iter().map(|_| Sent::Foreign(channel.to_owned())));
        self.send(verbs, channel)?;
        self.ping()
    }

    /// Unsubscribes from a channel on which another program publishes: all that
    /// [`ask_foreign`](Self::ask_foreign) subscribed to.
    pub(crate) fn give_up_foreign(&mut self, channel: &str) -> RedisResult<()> {
        let verbs: &[&str] = if self.sharded { &["UNSUBSCRIBE", "SUNSUBSCRIBE"] } else { &["UNSUBSCRIBE"] };
        self.send(verbs, channel)
    }

    /// In one write, so that no message comes between the commands.
    fn send(&mut self, verbs: &[&str], channel: &str) -> RedisResult<()> {
        let packed: Vec<_> =
            verbs.iter().flat_map(|verb| cmd(verb).arg(channel).get_packed_command()).collect();
        self.connection.send_packed_command(&packed)
    }

    /// Returns what the server sends next, waiting until the [limit](Self::limit_reads_to).
    pub(crate) fn next(&mut self) -> RedisResult<Pushed> {
        let (kind, data) = match self.connection.recv_response()? {
            Value::Push { kind, data } => (kind, data),
            Value::ServerError(e) => return self.refused(e.into()),
            _ => return Ok(Pushed::Nothing),
        };
        let channel = text(data.first()).unwrap_or_default();
        Ok(match kind {
            PushKind::Message | PushKind::SMessage => {
                Pushed::Message { channel, text: text(data.get(1)).unwrap_or_default() }
            }
            PushKind::Subscribe if channel == self.own => {
                let until = self.sent.iter().position(|sent| matches!(sent, Sent::Own));
                let before = self.sent.drain(..until.map_or(0, |own| own + 1));
                Pushed::Unconfirmed(before.filter_map(Sent::channel).collect())
            }
            PushKind::Subscribe | PushKind::SSubscribe => {
                self.sent.retain(|sent| !matches!(sent, Sent::Channel(requested) if *requested == channel));
                let foreign = |sent: &Sent| matches!(sent, Sent::Foreign(requested) if *requested == channel);
                if let Some(at) = self.sent.iter().position(foreign) {
                    self.sent.remove(at);
                }
                Pushed::Confirmed(channel)
            }
            PushKind::SUnsubscribe => Pushed::Ended(channel),
            _ => Pushed::Nothing,
        })
    }

    /// An error reply belongs to the first request without a reply that is not for the own channel.
    fn refused(&mut self, why: RedisError) -> RedisResult<Pushed> {
        if is_unknown(&why) {
            if std::mem::take(&mut self.sharded) {
                // All sharded requests get this reply. They are sent again as classic ones before they count
                // as refused.
                let sent = std::mem::take(&mut self.sent).into_iter();
                let (requested, others): (VecDeque<_>, _) =
                    sent.partition(|sent| matches!(sent, Sent::Channel(_)));
                self.sent = others;
                self.ask(requested.into_iter().filter_map(Sent::channel).collect())?;
            }
            return Ok(Pushed::Nothing);
        }
        let first = self.sent.iter().position(|sent| !matches!(sent, Sent::Own));
        Ok(match first.and_then(|first| self.sent.remove(first)) {
            Some(Sent::Channel(channel)) => Pushed::Refused(channel, why),
            _ => Pushed::Nothing,
        })
    }
}
