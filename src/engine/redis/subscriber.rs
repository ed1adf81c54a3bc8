//! A connection that listens to the channels of single locks, at a node of a cluster.
//!
//! The channels are sharded where the server has such, and says so by taking the first of them; otherwise they are
//! classic. It speaks RESP3, in which confirmations and messages are told apart from answers. An error is an answer,
//! and one that comes after a read has timed out is skipped by the `redis` crate: so behind what is asked for the
//! client's own channel is subscribed once more, and what is not confirmed by then was refused. Why, the server tells
//! on another connection, which is made for that.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use redis::{PushKind, RedisError, RedisResult, Value, cmd};

use super::answers::text;
use super::refusal::is_unknown;
use super::wire::Connection;

/// What the server says.
#[derive(Debug)]
pub(crate) enum Said {
    Message {
        channel: String,
        text: String,
    },
    /// From here on messages on it are received.
    Confirmed(String),
    /// There are none any more: its slot is elsewhere.
    Ended(String),
    /// It was asked for in vain.
    Refused(String, RedisError),
    /// So were they; why was skipped.
    Unconfirmed(Vec<String>),
    Nothing,
}

pub(crate) struct Subscriber {
    connection: Connection,
    /// The client's own channel, on which its listener is called, and which tells that the connection lives.
    own: String,
    sharded: bool,
    /// What is not answered yet, in the order in which it was sent.
    sent: VecDeque<Sent>,
}

enum Sent {
    /// The channel of a lock was asked for.
    Channel(String),
    /// A channel of another program's was.
    Foreign(String),
    /// The own channel was.
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
    /// On this connection `own` is subscribed already.
    pub(crate) fn new(connection: Connection, own: &str) -> Self {
        Subscriber { connection, own: own.to_owned(), sharded: true, sent: VecDeque::new() }
    }

    /// Whether the server owes an answer.
    pub(crate) fn awaits(&self) -> bool {
        !self.sent.is_empty()
    }

    pub(crate) fn limit_reads_to(&self, limit: Duration) -> RedisResult<()> {
        self.connection.set_read_timeout(Some(limit))
    }

    /// Asks for these channels of locks.
    pub(crate) fn ask(&mut self, channels: Vec<String>) -> RedisResult<()> {
        let verb = if self.sharded { "SSUBSCRIBE" } else { "SUBSCRIBE" };
        if channels.is_empty() {
            return Ok(());
        }
        // One by one: several in one request must be of one slot.
        let packed: Vec<_> = channels.iter().flat_map(|it| cmd(verb).arg(it).get_packed_command()).collect();
        self.connection.send_packed_command(&packed)?;
        self.sent.extend(channels.into_iter().map(Sent::Channel));
        self.ping()
    }

    /// Why the server refuses these channels of locks: they are asked for on this other connection, on which no read has
    /// timed out. `None` for one that it takes there; of one that is missing it says nothing.
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
            went = apart.next().map(|said| {
                let (channel, why) = match said {
                    Said::Refused(channel, why) => (channel, Some(why)),
                    Said::Confirmed(channel) => (channel, None),
                    _ => return,
                };
                reasons.insert(channel, why);
            });
        }
        // That it knows no sharded ones may have been skipped, too.
        self.sharded = apart.sharded;
        reasons
    }

    /// Has the server show that it is there, by confirming the own channel.
    pub(crate) fn ping(&mut self) -> RedisResult<()> {
        self.sent.push_back(Sent::Own);
        let own = cmd("SUBSCRIBE").arg(&self.own).get_packed_command();
        self.connection.send_packed_command(&own)
    }

    /// Gives up a channel of a lock.
    pub(crate) fn give_up(&mut self, channel: &str) -> RedisResult<()> {
        self.send(&[if self.sharded { "SUNSUBSCRIBE" } else { "UNSUBSCRIBE" }], channel)
    }

    /// Asks for a channel on which another program publishes: the classic and the sharded one of this name, as the
    /// program may use either. One that is refused is not heard.
    pub(crate) fn ask_foreign(&mut self, channel: &str) -> RedisResult<()> {
        let verbs: &[&str] = if self.sharded { &["SUBSCRIBE", "SSUBSCRIBE"] } else { &["SUBSCRIBE"] };
        self.sent.extend(verbs.iter().map(|_| Sent::Foreign(channel.to_owned())));
        self.send(verbs, channel)?;
        self.ping()
    }

    /// Gives them up.
    pub(crate) fn give_up_foreign(&mut self, channel: &str) -> RedisResult<()> {
        let verbs: &[&str] = if self.sharded { &["UNSUBSCRIBE", "SUNSUBSCRIBE"] } else { &["UNSUBSCRIBE"] };
        self.send(verbs, channel)
    }

    /// At once, so that no message comes between them.
    fn send(&mut self, verbs: &[&str], channel: &str) -> RedisResult<()> {
        let packed: Vec<_> =
            verbs.iter().flat_map(|verb| cmd(verb).arg(channel).get_packed_command()).collect();
        self.connection.send_packed_command(&packed)
    }

    /// The next that the server says, waited for until the [limit](Self::limit_reads_to).
    pub(crate) fn next(&mut self) -> RedisResult<Said> {
        let (kind, data) = match self.connection.recv_response()? {
            Value::Push { kind, data } => (kind, data),
            Value::ServerError(e) => return self.refused(e.into()),
            _ => return Ok(Said::Nothing),
        };
        let channel = text(data.first()).unwrap_or_default();
        Ok(match kind {
            PushKind::Message | PushKind::SMessage => {
                Said::Message { channel, text: text(data.get(1)).unwrap_or_default() }
            }
            PushKind::Subscribe if channel == self.own => {
                let until = self.sent.iter().position(|sent| matches!(sent, Sent::Own));
                let before = self.sent.drain(..until.map_or(0, |own| own + 1));
                Said::Unconfirmed(before.filter_map(Sent::channel).collect())
            }
            PushKind::Subscribe | PushKind::SSubscribe => {
                self.sent.retain(|sent| !matches!(sent, Sent::Channel(asked) if *asked == channel));
                let foreign = |sent: &Sent| matches!(sent, Sent::Foreign(asked) if *asked == channel);
                if let Some(at) = self.sent.iter().position(foreign) {
                    self.sent.remove(at);
                }
                Said::Confirmed(channel)
            }
            PushKind::SUnsubscribe => Said::Ended(channel),
            _ => Said::Nothing,
        })
    }

    /// An answer that is an error is that to the first request without an answer, but for the own channel.
    fn refused(&mut self, why: RedisError) -> RedisResult<Said> {
        if is_unknown(&why) {
            if std::mem::take(&mut self.sharded) {
                // The same is said of all of them. They are asked for anew, before they count as refused.
                let sent = std::mem::take(&mut self.sent).into_iter();
                let (asked, others): (VecDeque<_>, _) =
                    sent.partition(|sent| matches!(sent, Sent::Channel(_)));
                self.sent = others;
                self.ask(asked.into_iter().filter_map(Sent::channel).collect())?;
            }
            return Ok(Said::Nothing);
        }
        let first = self.sent.iter().position(|sent| !matches!(sent, Sent::Own));
        Ok(match first.and_then(|first| self.sent.remove(first)) {
            Some(Sent::Channel(channel)) => Said::Refused(channel, why),
            _ => Said::Nothing,
        })
    }
}
