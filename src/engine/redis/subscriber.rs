//! A connection that listens to channels: those of a client, of single locks, of other programs, of a sentinel.
//!
//! At a node of a cluster, the channels of locks are sharded if the server supports that, which it shows by
//! accepting the first of them; otherwise they are classic. Each request gets one reply, which is no message in either
//! protocol: a confirmation, or the error by which the server refuses it.

use std::collections::VecDeque;
use std::time::Duration;

use redis::{RedisError, RedisResult, Value, cmd};

use crate::clock::Moment;
use crate::engine::redis::refusal::is_unknown;
use crate::engine::redis::resp::into_text;
use crate::engine::redis::wire::Connection;

/// How long the connection may be silent before it is pinged, and how long the reply may take: a dead peer is
/// detected within twice this time.
pub(crate) const PING_AFTER: Duration = Duration::from_secs(1);
/// How often a silent listener checks whether it should end.
pub(crate) const TICK: Duration = Duration::from_millis(250);

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
    sharded: bool,
    /// The requests without a reply so far, in the order in which they were sent: the command, and the channel if it
    /// is for that of a lock.
    sent: VecDeque<(&'static str, Option<String>)>,
    /// When the server said something last.
    latest: Moment,
}

impl Subscriber {
    pub(crate) fn new(connection: Connection, sharded: bool) -> Self {
        Subscriber { connection, sharded, sent: VecDeque::new(), latest: Moment::now() }
    }

    /// Subscribes to these channels of locks.
    pub(crate) fn ask(&mut self, channels: Vec<String>) -> RedisResult<()> {
        let verb = if self.sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        // One request each: the channels of a single one must be of one slot.
        let packed: Vec<_> = channels.iter().flat_map(|it| cmd(verb).arg(it).get_packed_command()).collect();
        self.sent.extend(channels.into_iter().map(|channel| (verb, Some(channel))));
        if packed.is_empty() { Ok(()) } else { self.connection.send_packed_command(&packed) }
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

    /// Returns what the server sends next; `None` after a moment without anything. A server that has said nothing for
    /// long is pinged: without a reply the connection is out of step, and must be closed.
    pub(crate) fn next(&mut self) -> RedisResult<Option<Pushed>> {
        let (awaits, now) = (!self.sent.is_empty(), Moment::now());
        let until = now.after(if awaits { PING_AFTER } else { TICK });
        let value = match self.connection.recv_response(now, until) {
            Err(e) if e.is_timeout() && !awaits => {
                if PING_AFTER <= Moment::now().since(self.latest) {
                    self.sent.push_back(("PING", None));
                    self.connection.send_packed_command(&cmd("PING").get_packed_command())?;
                }
                return Ok(None);
            }
            value => value?,
        };
        self.latest = Moment::now();
        self.read(value).map(Some)
    }

    fn read(&mut self, value: Value) -> RedisResult<Pushed> {
        let (kind, data) = match value {
            Value::Array(data) => (None, data),
            Value::Push { kind, data } => (Some(kind.to_string()), data),
            Value::ServerError(e) => return self.refused(e.into()),
            // The reply to a ping, over RESP3.
            _ => (None, Vec::new()),
        };
        let mut texts = data.into_iter().map(into_text);
        let mut next = || texts.next().flatten();
        let (kind, channel) = (kind.or_else(&mut next), next().unwrap_or_default());
        Ok(match kind.as_deref().unwrap_or("pong") {
            "message" | "smessage" => Pushed::Message { channel, text: next().unwrap_or_default() },
            "subscribe" | "ssubscribe" => {
                self.sent.pop_front();
                Pushed::Confirmed(channel)
            }
            "pong" => {
                self.sent.pop_front();
                Pushed::Nothing
            }
            kind @ ("unsubscribe" | "sunsubscribe") => {
                // The server also ends a subscription by itself.
                if self.sent.front().is_some_and(|(verb, _)| verb.ends_with("UNSUBSCRIBE")) {
                    self.sent.pop_front();
                }
                if kind == "sunsubscribe" { Pushed::Ended(channel) } else { Pushed::Nothing }
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
