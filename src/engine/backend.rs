//! The way to Redis: the pool, one request with its retry, and what an error means.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Cmd, RedisError, ServerError, ServerErrorKind, Value};

use super::link::{Link, OpenLinks};
use super::refusal::{NO_CONNECTION_IN_TIME, is_broken_off, no_primary, not_connected, refused, unanswered};
use super::resp::call;
use super::server_info::ServerInfo;
use super::wire::{self, Pool, Pooled};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::names::Names;
use crate::script::Script;
use crate::settings::Config;
use crate::sync::{Mutex, RwLock};

/// Makes the connections of a client's pool. Only its type is public, so that an
/// [`r2d2::Builder`] can be given to [`ClientBuilder::pool`](crate::ClientBuilder::pool).
#[derive(Clone, Debug)]
pub struct ConnectionManager {
    client: redis::Client,
    connect_timeout: Duration,
    command_timeout: Duration,
    /// Those of the pool.
    links: OpenLinks,
}

/// A connection of a client's pool.
pub struct Connection {
    inner: Link,
    /// Any I/O error leaves it out of step, time-outs included: the answer may come yet, and be
    /// taken for the next request's.
    pub(super) broken: bool,
    /// It is not to go back to the pool. A broken one does: who waits there is woken by what comes back, and
    /// has another made.
    discarded: bool,
    born: Moment,
    /// The read time limit that is set, to set it only when it changes.
    limit: Duration,
    /// Whether Redis has let us begin a transaction on it.
    pub(super) transacts: bool,
    /// What the server told of itself, once it was asked.
    server: Option<Arc<ServerInfo>>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").field("broken", &self.broken).finish_non_exhaustive()
    }
}

impl ConnectionManager {
    pub(crate) fn new(client: redis::Client, config: &Config) -> Self {
        ConnectionManager {
            client,
            connect_timeout: config.connect_timeout,
            command_timeout: config.command_timeout,
            links: OpenLinks::default(),
        }
    }

    /// Whether both lead to the same data, as far as their addresses tell.
    pub(crate) fn leads_where(&self, other: &ConnectionManager) -> bool {
        let (one, other) = (self.client.get_connection_info(), other.client.get_connection_info());
        one.addr() == other.addr() && one.redis_settings().db() == other.redis_settings().db()
    }

    /// Where it leads to.
    pub(crate) fn address(&self) -> String {
        self.client.get_connection_info().addr().to_string()
    }

    /// A connection of its own, for a thread that does not share one.
    pub(crate) fn raw(&self) -> Result<wire::Connection, RedisError> {
        let connection = wire::connect(&self.client, self.connect_timeout)?;
        connection.set_read_timeout(Some(self.command_timeout))?;
        connection.set_write_timeout(Some(self.command_timeout))?;
        Ok(connection)
    }

    /// One that is none of the pool's.
    pub(super) fn apart(&self) -> Result<Connection, RedisError> {
        Ok(self.over(Link::new(Ok(self.raw()?), OpenLinks::default())))
    }

    fn over(&self, inner: Link) -> Connection {
        let (born, limit) = (Moment::now(), self.command_timeout);
        let (broken, discarded) = (false, false);
        Connection { inner, broken, discarded, born, limit, transacts: false, server: None }
    }
}

impl r2d2::ManageConnection for ConnectionManager {
    type Connection = Connection;
    type Error = RedisError;

    /// Whatever that comes to: whoever waits for it hears of a failure at once.
    fn connect(&self) -> Result<Connection, RedisError> {
        Ok(self.over(Link::new(self.raw(), self.links.clone())))
    }

    fn is_valid(&self, connection: &mut Connection) -> Result<(), RedisError> {
        let ping = redis::cmd("PING").get_packed_command();
        connection.inner.req_packed_command(&ping)?.extract_error().map(drop)
    }

    fn has_broken(&self, connection: &mut Connection) -> bool {
        if connection.broken || !connection.inner.is_open() {
            connection.inner.close();
        }
        connection.discarded
    }
}

/// What became of a request that has no answer that could be used.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// It never left.
    Unsent(Error),
    /// It may have run, or do so yet.
    Unanswered(Error),
    /// Redis refused it for a reason that may pass: loading, busy, no longer the primary.
    Later(Error),
    /// Redis refused it, and will again: a script that errs half-way keeps what it wrote.
    Never(Error),
    /// Redis would not even begin it, and never will.
    Denied(Error),
}

impl Failure {
    /// The key is not this kind's any more.
    pub(crate) fn is_wrong_kind(&self) -> bool {
        matches!(self, Failure::Never(e) if e.kind() == ErrorKind::WrongKind)
    }

    /// Whether it would be the same the next time.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Failure::Never(_) | Failure::Denied(_))
    }

    pub(crate) fn error(self) -> Error {
        match self {
            Failure::Unsent(e)
            | Failure::Unanswered(e)
            | Failure::Later(e)
            | Failure::Never(e)
            | Failure::Denied(e) => e,
        }
    }
}

/// An answer, and whether the request was sent twice to get it.
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) resent: bool,
    /// When the connection was made that the first copy went by, if there was a second.
    pub(crate) first_by: Option<Moment>,
}

/// How often a request may be sent while it has no answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Copies {
    /// Two copies would do more than one.
    One,
    /// It is idempotent, as every operation on a lock is by its owner id.
    Two,
}

/// The pool, and what is counted of it.
pub(crate) struct Backend {
    /// Gone once the client is closed.
    pool: RwLock<Option<Pool>>,
    requests: AtomicU64,
    /// When a connection last broke.
    broke: Mutex<Moment>,
    /// When another server was last found to be the primary.
    moved: Mutex<Moment>,
}

impl Backend {
    pub(crate) fn new(pool: Pool) -> Self {
        Backend {
            pool: RwLock::new(Some(pool)),
            requests: AtomicU64::new(0),
            broke: Mutex::default(),
            moved: Mutex::default(),
        }
    }

    /// When a request was last answered by another primary than the one that had refused it.
    pub(super) fn moved(&self) -> Moment {
        *self.moved.lock()
    }

    /// Requests sent so far, by whichever thread.
    pub(crate) fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, requests: usize) {
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        // The pool ends with its last user: outside our lock.
        let pool = self.pool.write().take();
        drop(pool);
    }

    /// Runs an operation on a lock, at most until `limit`.
    pub(crate) fn script<A: AsRef<[u8]>>(
        &self,
        script: &Script,
        names: &Names,
        args: &[A],
        limit: Moment,
    ) -> Result<Reply, Failure> {
        self.eval(script, &names.keys(), args, limit, Copies::Two)
    }

    /// Runs a script over keys of its own, each in two parts, at most until `limit`.
    pub(crate) fn eval<A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[[&str; 2]],
        args: &[A],
        limit: Moment,
        copies: Copies,
    ) -> Result<Reply, Failure> {
        let mut evalsha = Vec::new();
        call(&mut evalsha, "EVALSHA", &script.sha, keys, args);
        let (_, reply) = self.send(limit, copies, |connection| match connection.request(&evalsha) {
            Ok(Value::ServerError(e))
                if e.kind() == Some(ServerErrorKind::NoScript) && Moment::now() < limit =>
            {
                self.count(1);
                let mut eval = Vec::new();
                call(&mut eval, "EVAL", &script.source, keys, args);
                connection.limit_to(limit);
                connection.request(&eval)
            }
            other => other,
        })?;
        match reply.value {
            Value::ServerError(e) => Err(match refused(e.into()) {
                // The second copy was refused; the first one may run yet.
                Failure::Later(e) | Failure::Denied(e) if reply.resent => Failure::Unanswered(e),
                failure => failure,
            }),
            _ => Ok(reply),
        }
    }

    /// Sends one command that may safely be sent twice, at most until `limit`.
    pub(crate) fn command(&self, cmd: &Cmd, limit: Moment) -> Result<Value, Failure> {
        let packed = cmd.get_packed_command();
        let (_, reply) = self.send(limit, Copies::Two, |connection| connection.request(&packed))?;
        match reply.value {
            Value::ServerError(e) => Err(refused(e.into())),
            value => Ok(value),
        }
    }

    /// Sends requests in pipelines until `limit`, the ones that Redis does not know as a whole
    /// (`eval`, by their index). Returns which were answered.
    pub(crate) fn pipeline(
        &self,
        requests: &[Vec<u8>],
        limit: Moment,
        eval: impl Fn(usize) -> Vec<u8>,
    ) -> Vec<bool> {
        const BATCH: usize = 64;
        let mut done = vec![false; requests.len()];
        if requests.is_empty() {
            return done;
        }
        let Ok(mut connection) = self.connection(limit, None) else { return done };
        for (i, batch) in requests.chunks(BATCH).enumerate() {
            let eval = |j| eval(i * BATCH + j);
            let Ok(mut answers) = self.answers(&mut connection, batch, limit, eval) else { return done };
            if connection.broken {
                // What was refused was not carried out: where the primary is now, it is.
                let younger = self.connection(limit, Some(Moment::now()));
                let Ok(again) = younger.and_then(|younger| {
                    connection = younger;
                    let again = self.answers(&mut connection, batch, limit, eval);
                    again.map_err(|e| connection.unanswered(e))
                }) else {
                    return done;
                };
                answers = again;
            }
            for (j, answer) in answers.iter().enumerate() {
                done[i * BATCH + j] = !matches!(answer, Value::ServerError(_));
            }
            if limit <= Moment::now() {
                return done;
            }
        }
        done
    }

    /// Sends requests in one write, and in full those that Redis does not know.
    fn answers(
        &self,
        connection: &mut Connection,
        requests: &[Vec<u8>],
        limit: Moment,
        eval: impl Fn(usize) -> Vec<u8>,
    ) -> Result<Vec<Value>, RedisError> {
        self.count(requests.len());
        let mut answers = connection.exchange(requests, limit)?;
        for (i, answer) in answers.iter_mut().enumerate() {
            if matches!(answer, Value::ServerError(e) if e.kind() == Some(ServerErrorKind::NoScript)) {
                self.count(1);
                connection.limit_to(limit);
                *answer = connection.request(&eval(i))?;
            }
            connection.heed(answer);
        }
        Ok(answers)
    }

    /// One attempt, and on an I/O error that leaves time for it one more on a connection made
    /// since, where two copies do no more than one. What a server has not carried out, as it is no primary, is
    /// no copy: it is sent once more in any case. Returns the connection too that gave the answer.
    pub(super) fn send(
        &self,
        limit: Moment,
        copies: Copies,
        mut exchange: impl FnMut(&mut Connection) -> Result<Value, RedisError>,
    ) -> Result<(Pooled, Reply), Failure> {
        let mut failed: Option<(Moment, Error)> = None;
        let mut first_by = None;
        let mut moved: Option<(Moment, ServerError)> = None;
        loop {
            // What broke one connection has often broken them all: a second attempt needs a younger one, and
            // so does one that has no second.
            let again_since = failed.as_ref().map(|(at, _)| *at).max(moved.as_ref().map(|(at, _)| *at));
            let born_after = match again_since {
                None if copies == Copies::One => Some(*self.broke.lock()),
                since => since,
            };
            let mut connection = match self.connection(limit, born_after) {
                Ok(connection) => connection,
                Err(e) => {
                    return Err(match (failed, moved) {
                        (Some((_, first)), _) => Failure::Unanswered(first),
                        (None, Some((_, refusal))) => refused(refusal.into()),
                        (None, None) => e,
                    });
                }
            };
            connection.limit_to(limit);
            self.count(1);
            match exchange(&mut connection) {
                Ok(value) => {
                    connection.heed(&value);
                    if let Some(refusal) = no_primary(&value).filter(|_| moved.is_none()) {
                        moved = Some((Moment::now(), refusal.clone()));
                        continue;
                    }
                    if moved.is_some() && no_primary(&value).is_none() {
                        *self.moved.lock() = Moment::now();
                    }
                    return Ok((connection, Reply { value, resent: failed.is_some(), first_by }));
                }
                Err(e) => {
                    connection.broken = true;
                    let at = Moment::now();
                    if !e.is_timeout() {
                        *self.broke.lock() = at;
                    }
                    let again = copies == Copies::Two && failed.is_none() && !e.is_timeout();
                    let error =
                        failed.take().map_or_else(|| unanswered(e, connection.limit), |(_, first)| first);
                    if !again {
                        return Err(Failure::Unanswered(error));
                    }
                    failed = Some((at, error));
                    first_by = Some(connection.born);
                }
            }
        }
    }

    /// Sends a renewal (`renew`; in full where it is given `true`) and `command` on one connection, in one
    /// trip, at most until `limit`. Returns both answers. Where Redis does not know the renewal, both are sent
    /// again: `command` is made anew, for the time that is left then.
    pub(crate) fn renew_and(
        &self,
        renew: impl Fn(bool) -> Vec<u8>,
        command: impl Fn() -> Vec<u8>,
        limit: Moment,
    ) -> Result<Reply, Failure> {
        let (_, reply) = self.send(limit, Copies::Two, |connection| {
            let mut both = |eval| -> Result<[Value; 2], RedisError> {
                connection.limit_to(limit);
                connection.inner.send_packed_command(&[renew(eval), command()].concat())?;
                let renewed = connection.inner.recv_response()?;
                connection.limit_to(limit);
                Ok([renewed, connection.inner.recv_response()?])
            };
            self.count(1);
            let answers = match both(false)? {
                [Value::ServerError(e), _]
                    if e.kind() == Some(ServerErrorKind::NoScript) && Moment::now() < limit =>
                {
                    self.count(2);
                    both(true)?
                }
                answers => answers,
            };
            Ok(Value::Array(answers.into()))
        })?;
        let refusal = list(&reply.value).iter().find_map(|answer| match answer {
            Value::ServerError(e) => Some(refused(e.clone().into())),
            _ => None,
        });
        refusal.map_or(Ok(reply), Err)
    }

    /// Writes one request, whose answer is read later: so that those to several servers are on their way at
    /// the same time. It is written once.
    pub(crate) fn post(&self, packed: &[u8], limit: Moment) -> Result<Posted, Failure> {
        let connection = self.connection(limit, None)?;
        self.write(connection, packed, false)
    }

    /// Like [`post`](Backend::post), for who has to know which server answers: where the connection is new,
    /// that is asked in the same write. Where only a younger connection will do, by one born after that.
    pub(crate) fn post_to_known(
        &self,
        packed: &[u8],
        limit: Moment,
        born_after: Option<Moment>,
    ) -> Result<Posted, Failure> {
        let connection = self.connection(limit, born_after)?;
        if connection.server.is_some() {
            return self.write(connection, packed, false);
        }
        self.count(1);
        let mut both = ServerInfo::request();
        both.extend_from_slice(packed);
        self.write(connection, &both, true)
    }

    fn write(&self, mut connection: Pooled, packed: &[u8], asks_server: bool) -> Result<Posted, Failure> {
        self.count(1);
        let sent = connection.inner.send_packed_command(packed);
        // Until its answer is read, what it would say next is not the next request's.
        connection.broken = true;
        match sent {
            Ok(()) => Ok(Posted { connection, asks_server }),
            Err(e) => Err(connection.unanswered(e)),
        }
    }

    /// A connection of the pool that nobody uses just now, if there is one. Waits for nothing.
    pub(super) fn idle(&self) -> Option<Pooled> {
        let pool = self.pool.read().clone()?;
        loop {
            let mut connection = pool.try_get()?;
            if connection.inner.is_open() {
                return Some(connection);
            }
            connection.discarded = true;
        }
    }

    /// A connection from the pool, one that was made since `born_after`. Where none can be made, that is told at
    /// once; but while others are in use, one of those is waited for. One that broke as it was made says little:
    /// a few more are.
    fn connection(&self, limit: Moment, born_after: Option<Moment>) -> Result<Pooled, Failure> {
        /// How many may break.
        const DIALS: u32 = 3;
        let (mut asked, mut before, mut dialled) = (None, None, 0);
        loop {
            // A clone, so that close() does not wait for whoever waits here.
            let pool = self.pool.read().clone();
            let pool = pool.ok_or_else(|| Failure::Unsent(Error::new(ErrorKind::Closed, "")))?;
            // Mostly there is one, and then it is not worth a look at the clock.
            let mut connection = match pool.try_get() {
                Some(connection) => connection,
                None => {
                    let now = Moment::now();
                    asked.get_or_insert(now);
                    pool.get_timeout(limit.since(now)).map_err(|e| no_connection(e, before.take()))?
                }
            };
            match connection.inner.failure() {
                None if connection.inner.is_open()
                    && born_after.is_none_or(|moment| connection.born > moment) =>
                {
                    return Ok(connection);
                }
                // Of one that failed before nobody knows how it would be now.
                Some(failure) if asked.is_some_and(|asked| asked <= connection.born) => {
                    dialled += 1;
                    let broke = is_broken_off(failure) && dialled < DIALS;
                    let failure = not_connected(failure.clone());
                    if !(broke || connection.inner.others_are_open()) || limit <= Moment::now() {
                        // It goes back: others who wait hear it, too.
                        return Err(failure);
                    }
                    connection.discarded = true;
                    drop(connection);
                    wire::breathe();
                }
                failure => {
                    before = failure.cloned();
                    asked.get_or_insert_with(Moment::now);
                    connection.discarded = true;
                }
            }
        }
    }
}

/// The time was up before there was a connection. `before`: why there was none the last time, if that is known.
fn no_connection(e: impl std::error::Error + Send + Sync + 'static, before: Option<RedisError>) -> Failure {
    let error = Error::new(ErrorKind::Unavailable, "").because(NO_CONNECTION_IN_TIME);
    Failure::Unsent(match before {
        Some(before) if !before.is_timeout() => error.caused_by(before),
        _ => error.caused_by(e),
    })
}

/// A request that was written. Dropped unread, it takes its connection with it.
pub(crate) struct Posted {
    connection: Pooled,
    /// The first answer is what the server tells of itself.
    asks_server: bool,
}

/// What a script was answered, and by which server, where that is known.
pub(crate) struct Told {
    pub(crate) answer: Result<Value, Failure>,
    pub(crate) server: Option<Arc<ServerInfo>>,
}

impl Posted {
    /// What a script was answered, waited for until `limit`; an error of the server is one here. Where Redis
    /// does not know the script, it is sent as `full` says.
    pub(crate) fn told(mut self, backend: &Backend, limit: Moment, full: impl FnOnce() -> Vec<u8>) -> Told {
        let answer = self.hear(backend, limit, full);
        Told { answer, server: self.connection.server.clone() }
    }

    fn hear(
        &mut self,
        backend: &Backend,
        limit: Moment,
        full: impl FnOnce() -> Vec<u8>,
    ) -> Result<Value, Failure> {
        if self.asks_server {
            let told = self.receive(limit)?;
            self.connection.server = Some(Arc::new(ServerInfo::read(&told, Moment::now())));
        }
        let mut value = self.receive(limit)?;
        if matches!(&value, Value::ServerError(e) if e.kind() == Some(ServerErrorKind::NoScript)) {
            backend.count(1);
            let sent = self.connection.inner.send_packed_command(&full());
            sent.map_err(|e| self.connection.unanswered(e))?;
            value = self.receive(limit)?;
        }
        self.connection.broken = no_primary(&value).is_some();
        if let Value::ServerError(e) = value { Err(refused(e.into())) } else { Ok(value) }
    }

    fn receive(&mut self, limit: Moment) -> Result<Value, Failure> {
        self.connection.limit_to(limit);
        let answer = self.connection.inner.recv_response();
        answer.map_err(|e| self.connection.unanswered(e))
    }
}

impl Connection {
    /// Writes requests whose answers are [read](Connection::read) later.
    pub(super) fn write(&mut self, packed: &[u8]) -> Result<(), RedisError> {
        let sent = self.inner.send_packed_command(packed);
        self.broken |= sent.is_err();
        sent
    }

    /// The next answer, waited for until the [limit](Connection::limit_to). One that does not come leaves it
    /// broken.
    pub(super) fn read(&mut self) -> Result<Value, RedisError> {
        let answer = self.inner.recv_response();
        self.broken |= answer.is_err();
        answer
    }

    pub(super) fn is_broken(&self) -> bool {
        self.broken
    }

    /// There was no answer by its limit.
    pub(super) fn unanswered(&self, e: RedisError) -> Failure {
        Failure::Unanswered(unanswered(e, self.limit))
    }

    /// How long a write may take.
    pub(super) fn limit_writes_to(&mut self, limit: Duration) -> Result<(), RedisError> {
        self.inner.set_write_timeout(Some(limit))
    }

    pub(super) fn request(&mut self, packed: &[u8]) -> Result<Value, RedisError> {
        self.inner.req_packed_command(packed)
    }

    /// Sends requests in one write and reads their answers one by one until `limit`: the library's
    /// own pipeline would wait for each one's time limit. An error leaves it broken.
    pub(super) fn exchange(&mut self, requests: &[Vec<u8>], limit: Moment) -> Result<Vec<Value>, RedisError> {
        self.limit_to(limit);
        let sent = self.inner.send_packed_command(&requests.concat());
        let answers = sent.and_then(|()| {
            let answer = |_| {
                self.limit_to(limit);
                self.inner.recv_response()
            };
            requests.iter().map(answer).collect()
        });
        self.broken |= answers.is_err();
        answers
    }

    /// An answer may say that it talks to a server that cannot serve us: perhaps a new one can.
    pub(super) fn heed(&mut self, answer: &Value) {
        self.broken |= no_primary(answer).is_some();
    }

    /// The read time limit of the next request. Setting it is a system call, so it is set only
    /// where the usual one would be too long.
    pub(super) fn limit_to(&mut self, limit: Moment) {
        const COARSE: Duration = Duration::from_millis(1);
        let left = limit.since(Moment::now()).max(COARSE);
        if left + COARSE < self.limit || self.limit + COARSE < left {
            self.broken |= self.inner.set_read_timeout(Some(left)).is_err();
            self.limit = left;
        }
    }
}

/// A number in an answer: an integer, or text that reads as one.
pub(crate) fn number(value: Option<&Value>) -> Option<i64> {
    match value? {
        Value::Int(n) => Some(*n),
        other => text(Some(other))?.parse().ok(),
    }
}

/// Text in an answer.
pub(crate) fn text(value: Option<&Value>) -> Option<String> {
    match value? {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(n) => Some(n.to_string()),
        _ => None,
    }
}

/// A list in an answer.
pub(crate) fn list(value: &Value) -> &[Value] {
    match value {
        Value::Array(items) => items,
        _ => &[],
    }
}
