//! One exchange with a server, for every request: commands in, one deadline, their replies out.
//!
//! What may go wrong on the way is handled here and nowhere else: a script that Redis does not know is sent in
//! full, what a former primary refused goes to its successor, and what had no reply is sent again if two copies
//! do no more than one. So the [`Failure`] that results says whether a command may have been executed, and not
//! what that means to a lock.
//!
//! An exchange has two halves, so that several servers can be asked at once: all are [written](Backend::post)
//! before the replies of any are [read](Backend::exchange).

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;
use std::{io, slice};

use redis::{Cmd, RedisError, ServerError, Value};

use crate::clock::Moment;
use crate::engine::redis::backend::Backend;
use crate::engine::redis::batch::{BatchReply, Followers, Sender};
use crate::engine::redis::connection::{By, Connection, First, Unread};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::{Aside, Given};
use crate::engine::redis::refusal::{is_unknown_script, no_primary, refused, refused_script, unanswered};
use crate::engine::redis::resp::{PackedCall, in_full};
use crate::engine::redis::server_info::ServerInfo;
use crate::error::Error;
use crate::script::Script;

/// What is sent to a server: again if there was no reply, as every operation on a lock is idempotent by its owner id.
pub(crate) struct Command<'a> {
    /// A script is called by its SHA1.
    packed: Vec<u8>,
    what: What<'a>,
    /// Two copies would do more than one.
    pub(crate) once: bool,
    first: First,
}

enum What<'a> {
    Plain,
    Script(&'a Script),
    /// Waits until so many replicas have what the command before it wrote.
    Replicated(usize, Moment),
}

impl<'a> Command<'a> {
    /// This call of a script.
    pub(crate) fn script(script: &'a Script, call: PackedCall) -> Self {
        Command { packed: call.packed(), what: What::Script(script), once: false, first: First::Nothing }
    }

    /// Any command but a script's.
    pub(crate) fn plain(cmd: &Cmd) -> Self {
        Command { packed: cmd.get_packed_command(), what: What::Plain, once: false, first: First::Nothing }
    }

    /// `WAIT`, until `until` at the latest.
    pub(crate) fn replicated(replicas: usize, until: Moment) -> Self {
        let what = What::Replicated(replicas, until);
        Command { packed: Vec::new(), what, once: false, first: First::Nothing }
    }

    /// The reply also tells which server it is from: a new connection asks for that by the same write.
    pub(crate) fn identified(self) -> Self {
        Command { first: First::Server, ..self }
    }

    /// On a new connection, a transaction goes before it, and if that is refused, so is the command.
    pub(crate) fn transacted(self) -> Self {
        Command { first: First::Transaction, ..self }
    }

    /// Whether its script must be sent in full on this connection: for the first time, if nobody would repeat a call that
    /// Redis does not know.
    fn is_first_on(&self, connection: &mut Connection) -> bool {
        let What::Script(script) = self.what else { return false };
        let first = !connection.given.contains(&script.by_sha);
        if first {
            connection.given.push(script.by_sha.clone());
        }
        first
    }

    fn pack(&self, out: &mut Vec<u8>, full: bool) {
        match self.what {
            What::Script(script) if full => in_full(out, &self.packed, script),
            What::Replicated(replicas, until) => {
                // A timeout of 0 would mean forever.
                let left = until.since(Moment::now()).max(Duration::from_millis(1)).as_millis() as u64;
                out.extend(redis::cmd("WAIT").arg(replicas).arg(left).get_packed_command());
            }
            _ => out.extend_from_slice(&self.packed),
        }
    }

    /// What became of it, by its reply; `resent`: an earlier copy had none.
    fn outcome(&self, value: Value, resent: bool) -> Result<Value, Failure> {
        let Value::ServerError(e) = value else { return Ok(value) };
        let script = if let What::Script(script) = self.what { Some(script) } else { None };
        Err(match refused_script(script, e.into()) {
            // The second copy was rejected; the first one may still run.
            Failure::Later(e) | Failure::Denied(e) if resent => Failure::Unanswered(e),
            failure => failure,
        })
    }
}

/// The replies of a server, error replies among them.
pub(crate) struct Exchanged<'a> {
    aside: &'a Aside,
    /// That to a single command; those to several are a list.
    value: Value,
    /// The connection that they came on, unless it was another thread's.
    pub(crate) connection: Option<Given>,
    sent: Moment,
    first_by: Option<Moment>,
}

/// A reply that is not an error; that of several commands is a list.
pub(crate) struct Reply {
    pub(crate) value: Value,
    /// Just before the copy was sent that this is the reply to.
    pub(crate) sent: Moment,
    /// If the request was sent twice: when the connection of the first copy was made.
    pub(crate) first_by: Option<Moment>,
    /// The server, if it was asked to [identify](Command::identified) itself.
    pub(crate) server: Option<Arc<ServerInfo>>,
}

impl Reply {
    /// Whether the request was sent twice, so that a copy may still run.
    pub(crate) fn resent(&self) -> bool {
        self.first_by.is_some()
    }
}

impl Exchanged<'_> {
    /// Returns the reply to each of so many commands.
    pub(crate) fn replies(self, commands: usize) -> Vec<Value> {
        apart(self.value, commands)
    }

    /// Returns what became of each command.
    fn each(self, commands: &[Command<'_>]) -> impl Iterator<Item = Result<Value, Failure>> {
        let resent = self.first_by.is_some();
        let values = self.replies(commands.len()).into_iter();
        values.zip(commands).map(move |(value, command)| command.outcome(value, resent))
    }

    /// Returns the reply, if no command was refused. The connection is left to the next request.
    pub(crate) fn reply(mut self, commands: &[Command<'_>]) -> Result<Reply, Failure> {
        let connection = self.connection.take();
        let server = connection.as_ref().and_then(|connection| connection.server.clone());
        connection.into_iter().for_each(|connection| self.aside.keep(connection));
        let (sent, first_by) = (self.sent, self.first_by);
        let value = match commands {
            [command] => command.outcome(self.value, first_by.is_some()),
            _ => self.each(commands).collect::<Result<_, _>>().map(Value::Array),
        };
        Ok(Reply { value: value?, sent, first_by, server })
    }
}

fn apart(value: Value, commands: usize) -> Vec<Value> {
    match value {
        Value::Array(values) if commands != 1 => values,
        single => vec![single],
    }
}

/// Commands that were written. If this is dropped unread, the connection is closed.
pub(crate) struct Posted {
    connection: Given,
    by: By,
    sent: Result<(), RedisError>,
}

impl Backend {
    /// Sends one command that may be sent twice, until `limit` at most.
    pub(crate) fn command(&self, cmd: &Cmd, limit: Moment) -> Result<Value, Failure> {
        let command = [Command::plain(cmd)];
        self.exchange(None, &command, limit)?.reply(&command).map(|reply| reply.value)
    }

    /// Sends commands that have nothing to do with each other, until `limit` or until one write has no reply, which then is
    /// the outcome of the rest. Returns the outcome of each.
    pub(crate) fn outcomes(&self, commands: &[Command<'_>], limit: Moment) -> Vec<Result<Value, Failure>> {
        const BATCH: usize = 64;
        let mut outcomes = Vec::with_capacity(commands.len());
        let sent = commands.chunks(BATCH).try_for_each(|batch| {
            outcomes.extend(self.exchange(None, batch, limit)?.each(batch));
            Ok(())
        });
        sent.unwrap_or_else(|failure| outcomes.resize(commands.len(), Err(failure)));
        outcomes
    }

    /// The first half of an exchange: waits until `limit` for a connection, and writes. `None` if there was none.
    pub(crate) fn post(&self, commands: &[Command<'_>], limit: Moment) -> Option<Posted> {
        let Ok(Sender::Own(connection, ..)) = self.sender(limit, None, false, None) else { return None };
        Some(self.post_on(connection, commands))
    }

    /// The same on this connection.
    pub(crate) fn post_on(&self, mut connection: Given, commands: &[Command<'_>]) -> Posted {
        let by = connection.by();
        let bytes = self.pack(&mut connection, commands, &Followers::default());
        let sent = connection.write(&bytes);
        // Until the replies are read, the next request would take them for its own.
        connection.broken = true;
        Posted { connection, by, sent }
    }

    /// Writes a script's call, whose reply the connection's next user reads, or a thread of the pool a moment later.
    /// The first call on a connection, which is in full, waits for the reply.
    pub(crate) fn send(&self, mut connection: Given, command: &Command<'_>, unread: Unread) {
        let mut bytes = Vec::new();
        let full = command.is_first_on(&mut connection);
        if full {
            command.pack(&mut bytes, true);
        }
        self.count(1);
        let sent = connection.write(if full { &bytes } else { &command.packed });
        let limit = unread.limit;
        connection.unread = Some(unread);
        let threads = self.pool.read().as_ref().map(|(_, threads)| threads.clone());
        if let Some(threads) = threads.filter(|_| !full && sent.is_ok()) {
            self.aside.put(connection, &threads);
        } else if sent.is_ok() {
            // So long a request may be read in pieces, between which the server hears others.
            let _ = connection.catch_up(limit);
        }
    }

    /// Makes one attempt, and returns the replies, with the connection. After an I/O error that leaves time for
    /// it, makes one more on a connection made since, if two copies do no more than one. A request that a server
    /// has not executed, as it is not the primary, does not count as a copy: it is sent once more in any case.
    ///
    /// While all connections are in use, a single command goes together with those of other threads. What was
    /// `posted` counts as the first attempt, begun by another call.
    pub(crate) fn exchange(
        &self,
        mut posted: Option<Posted>,
        commands: &[Command<'_>],
        limit: Moment,
    ) -> Result<Exchanged<'_>, Failure> {
        let once = commands.iter().any(|command| command.once);
        let mut alone = match commands {
            [only] if !once && only.first == First::Nothing => Some(&*only.packed),
            _ => None,
        };
        let mut failed: Option<(Moment, Error)> = None;
        let mut first_by = None;
        let mut moved: Option<(Moment, ServerError)> = None;
        loop {
            // What broke one connection has often broken them all. So a second attempt needs a younger one,
            // and so does a request that has no second attempt.
            let again_since = failed.as_ref().map(|(at, _)| *at).max(moved.as_ref().map(|(at, _)| *at));
            let (mut sent, mut own) = (None, None);
            let sender = match posted.take() {
                Some(Posted { mut connection, by, sent: written }) => {
                    connection.broken = false;
                    sent = Some(written);
                    Ok(Sender::Own(connection, by, Followers::default()))
                }
                None => self.sender(limit, again_since, once, alone),
            };
            let (answer, by) = match sender {
                Ok(Sender::Own(connection, by, followers)) => {
                    let connection = own.insert(connection);
                    let sent = match sent {
                        Some(sent) => sent,
                        None => {
                            let bytes = self.pack(connection, commands, &followers);
                            connection.write(&bytes)
                        }
                    };
                    let answer = sent.and_then(|()| self.receive(connection, commands, followers, limit));
                    connection.broken |= answer.is_err();
                    (answer, by)
                }
                // The script is unknown: the request was not executed.
                Ok(Sender::Leader(BatchReply { value: Ok(value), .. })) if is_unknown_script(&value) => {
                    alone = None;
                    continue;
                }
                Ok(Sender::Leader(BatchReply { value, by })) => (value, by),
                Err(e) => {
                    return Err(match (failed, moved) {
                        (Some((_, first)), _) => Failure::Unanswered(first),
                        (None, Some((_, refusal))) => refused(refusal.into()),
                        (None, None) => e,
                    });
                }
            };
            let suspect = own.as_ref().is_none_or(|connection| connection.demoted);
            match answer {
                Ok(value) if by.dialled >= self.moved.get() || suspect && no_primary(&value).is_some() => {
                    let refusal = if suspect { no_primary(&value) } else { None };
                    if let Some(refusal) = refusal.filter(|_| moved.is_none()) {
                        let at = Moment::now();
                        self.refused.put(at);
                        moved = Some((at, refusal.clone()));
                        continue;
                    }
                    if let Some((at, _)) = moved.filter(|_| refusal.is_none()) {
                        self.moved.put(at);
                    }
                    let (aside, sent) = (&self.aside, by.sent);
                    return Ok(Exchanged { aside, value, connection: own, sent, first_by });
                }
                unusable => {
                    // The server was no longer the primary, without knowing it, as one that was suspended: its successor
                    // does not know what it has granted since.
                    let e = unusable.err().unwrap_or_else(|| {
                        let moved = "the server that answered was no longer the primary";
                        io::Error::new(io::ErrorKind::ConnectionAborted, moved).into()
                    });
                    let at = Moment::now();
                    let again = !once && failed.is_none() && !e.is_timeout();
                    if !e.is_timeout() {
                        self.broke.put(at);
                    }
                    // If no copy had a reply, the error is that of the first.
                    let error =
                        failed.map_or_else(|| unanswered(e, limit.since(by.sent)), |(_, first)| first);
                    if !again {
                        return Err(Failure::Unanswered(error));
                    }
                    (failed, first_by) = (Some((at, error)), Some(by.born));
                }
            }
        }
    }

    /// An exchange on a connection that the caller keeps: nothing is sent again after an I/O error.
    pub(crate) fn exchange_on(
        &self,
        connection: &mut Connection,
        commands: &[Command<'_>],
        limit: Moment,
    ) -> Result<Vec<Value>, Failure> {
        let (sent, none) = (Moment::now(), Followers::default());
        let bytes = self.pack(connection, commands, &none);
        let value = connection.write(&bytes).and_then(|()| self.receive(connection, commands, none, limit));
        let values = value.map(|value| apart(value, commands.len()));
        values.map_err(|e| Failure::Unanswered(unanswered(e, limit.since(sent))))
    }

    /// Returns what is to be written for these commands, with those of the followers behind them.
    fn pack<'c>(
        &self,
        connection: &mut Connection,
        commands: &'c [Command<'_>],
        followers: &Followers,
    ) -> Cow<'c, [u8]> {
        connection.first = commands.first().map_or(First::Nothing, |command| connection.lacks(command.first));
        self.count(connection.first as usize + commands.len() + followers.len());
        let mut bytes = match (connection.first, commands) {
            (First::Nothing, [only]) if followers.len() == 0 => return Cow::Borrowed(&only.packed),
            (First::Nothing, _) => Vec::new(),
            (First::Server, _) => ServerInfo::request(),
            (First::Transaction, _) => {
                ["MULTI", "DISCARD"].map(|it| redis::cmd(it).get_packed_command()).concat()
            }
        };
        commands.iter().for_each(|command| command.pack(&mut bytes, false));
        followers.pack(&mut bytes);
        Cow::Owned(bytes)
    }

    /// Reads the replies to what was written. A script that Redis does not know is then sent in full, once.
    fn receive(
        &self,
        connection: &mut Connection,
        commands: &[Command<'_>],
        followers: Followers,
        limit: Moment,
    ) -> Result<Value, RedisError> {
        let first = std::mem::take(&mut connection.first);
        let told = |it: &Value| first == First::Server || matches!(it, Value::ServerError(_));
        let tried = match first {
            First::Nothing => None,
            _ => connection.read_all(first as usize, limit)?.into_iter().find(told),
        };
        let mut value = match commands {
            [_] => connection.read(limit)?,
            _ => Value::Array(connection.read_all(commands.len(), limit)?),
        };
        match (first, tried) {
            (First::Server, Some(info)) => {
                connection.server = Some(Arc::new(ServerInfo::read(&info, Moment::now())));
            }
            (First::Transaction, None) => connection.transacts = true,
            (First::Transaction, Some(refusal)) => {
                // The others may have been executed.
                connection.broken = true;
                return Ok(refusal);
            }
            _ => {}
        }
        followers.receive(connection, limit);
        let values: &mut [Value] = match &mut value {
            single if commands.len() == 1 => slice::from_mut(single),
            Value::Array(values) => values,
            _ => &mut [],
        };
        let again = |i: &usize| match commands[*i].what {
            What::Script(_) => is_unknown_script(&values[*i]),
            // It waited for nothing.
            What::Replicated(..) => *i > 0 && is_unknown_script(&values[*i - 1]),
            What::Plain => false,
        };
        let again: Vec<usize> = (0..commands.len()).filter(again).collect();
        if again.is_empty() || limit <= Moment::now() {
            return Ok(value);
        }
        if connection.broken {
            // A follower's reply did not arrive: what would be read next may be that of another request.
            return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
        }
        self.count(again.len());
        let (mut bytes, mut loaded) = (Vec::new(), Vec::new());
        for i in &again {
            let by_sha = if let What::Script(script) = commands[*i].what { &*script.by_sha } else { "" };
            commands[*i].pack(&mut bytes, !loaded.contains(&by_sha));
            loaded.push(by_sha);
        }
        connection.write(&bytes)?;
        for i in again {
            values[i] = connection.read(limit)?;
        }
        Ok(value)
    }
}

/// Writes these commands, whose replies are read later. An error shows up when they are.
pub(crate) fn write_each<'a>(connection: &mut Connection, commands: impl Iterator<Item = Command<'a>>) {
    let mut bytes = Vec::new();
    for command in commands {
        let full = command.is_first_on(connection);
        // Mostly it is one, which need not be copied.
        if bytes.is_empty() && !full { bytes = command.packed } else { command.pack(&mut bytes, full) }
    }
    let _ = connection.write(&bytes);
}
