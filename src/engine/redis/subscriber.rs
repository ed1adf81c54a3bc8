//! A connection that listens to the channels of single locks, at a node of a cluster.
//!
//! The channels are sharded if the server supports that, which it shows by accepting the first of them;
//! otherwise they are classic. The connection uses RESP3, in which messages can be told apart from the replies, of
//! which each request gets one: a confirmation, or the error by which the server refuses it.

use std::collections::VecDeque;
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
    Nothing,
}

pub(crate) struct Subscriber {
    connection: Connection,
    /// The client's own channel: a message on it calls the listener, and its confirmation shows that the
    /// connection is alive.
    own: String,
    sharded: bool,
    /// The requests without a reply so far, in the order in which they were sent: the command, and the channel if it
    /// is for that of a lock.
    sent: VecDeque<(&'static str, Option<String>)>,
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
        // One request each: the channels of a single one must be of one slot.
        let packed: Vec<_> = channels.iter().flat_map(|it| cmd(verb).arg(it).get_packed_command()).collect();
        self.sent.extend(channels.into_iter().map(|channel| (verb, Some(channel))));
        if packed.is_empty() { Ok(()) } else { self.connection.send_packed_command(&packed) }
    }

    /// Makes the server show that it is alive, by confirming the own channel.
    pub(crate) fn ping(&mut self) -> RedisResult<()> {
        let own = self.own.clone();
        self.send(&["SUBSCRIBE"], &own)
    }

    /// Unsubscribes from the channel of a lock.
    pub(crate) fn give_up(&mut self, channel: &str) -> RedisResult<()> {
        self.send(&[if self.sharded { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" }], channel)
    }

    /// Subscribes to a channel on which another program publishes: to the classic and the sharded one of this
    /// name, as the program may use either. A channel that is refused is not received.
    pub(crate) fn ask_foreign(&mut self, channel: &str) -> RedisResult<()> {
        self.send(if self.sharded { &["SUBSCRIBE", "SSUBSCRIBE"] } else { &["SUBSCRIBE"] }, channel)
    }

    /// Unsubscribes from a channel on which another program publishes: all that
    /// [`ask_foreign`](Self::ask_foreign) subscribed to.
    pub(crate) fn give_up_foreign(&mut self, channel: &str) -> RedisResult<()> {
        self.send(if self.sharded { &["UNSUBSCRIBE", "SUNSUBSCRIBE"] } else { &["UNSUBSCRIBE"] }, channel)
    }

    /// In one write, so that no message comes between the commands.
    fn send(&mut self, verbs: &[&'static str], channel: &str) -> RedisResult<()> {
        self.sent.extend(verbs.iter().map(|verb| (*verb, None)));
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
            PushKind::Subscribe | PushKind::SSubscribe => {
                self.sent.pop_front();
                if channel == self.own { Pushed::Nothing } else { Pushed::Confirmed(channel) }
            }
            PushKind::Unsubscribe | PushKind::SUnsubscribe => {
                // The server also ends a subscription by itself.
                if self.sent.front().is_some_and(|(verb, _)| verb.ends_with("UNSUBSCRIBE")) {
                    self.sent.pop_front();
                }
                if kind == PushKind::SUnsubscribe { Pushed::Ended(channel) } else { Pushed::Nothing }
            }
            _ => Pushed::Nothing,
        })
    }

    /// An error reply belongs to the first request without a reply.
    fn refused(&mut self, why: RedisError) -> RedisResult<Pushed> {
        let (verb, channel) = self.sent.pop_front().unwrap_or_default();
        let no_shards = verb == "SSUBSCRIBE" && is_unknown(&why);
        self.sharded &= !no_shards;
        Ok(match channel {
            Some(channel) if no_shards => self.ask(vec![channel]).map(|()| Pushed::Nothing)?,
            Some(channel) => Pushed::Refused(channel, why),
            None => Pushed::Nothing,
        })
    }
}
