//! The way to Redis: the pool, and one request with its retry.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, RedisError, ServerError, ServerErrorKind, Value};

use super::answers::list;
use super::connection::Connection;
use super::failure::Failure;
use super::pool::{Pool, Pooled, breathe};
use super::refusal::{
    NO_CONNECTION_IN_TIME, is_broken_off, no_primary, not_connected, refused, refused_script, unanswered,
};
use super::resp::call;
use crate::clock::{LatestMoment, Moment};
use crate::error::{Error, ErrorKind};
use crate::script::Script;
use crate::sync::{Mutex, RwLock};

/// An answer, and whether the request was sent twice to get it.
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) resent: bool,
    /// Before the copy was sent that it is the reply to.
    pub(crate) asked: Moment,
    /// When the connection was made that the first copy went by, if there was a second.
    pub(crate) first_by: Option<Moment>,
}

/// How often a request may be sent while it has no answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idempotent {
    /// Two copies would do more than one.
    No,
    /// It is idempotent, as every operation on a lock is by its owner id.
    Yes,
}

/// The pool, and what is counted of it.
pub(crate) struct Backend {
    /// Gone once the client is closed.
    pool: RwLock<Option<Pool>>,
    requests: AtomicU64,
    /// When a connection last broke.
    broke: Mutex<Moment>,
    /// When another server was last found to be the primary: what was connected before does not lead there.
    moved: LatestMoment,
    /// When a server last said that it is not the primary.
    refused: LatestMoment,
}

impl Backend {
    pub(crate) fn new(pool: Pool) -> Self {
        Backend {
            pool: RwLock::new(Some(pool)),
            requests: AtomicU64::new(0),
            broke: Mutex::default(),
            moved: LatestMoment::default(),
            refused: LatestMoment::default(),
        }
    }

    /// When another server was last found to be the primary: connections from before are not used any more.
    pub(crate) fn moved(&self) -> Moment {
        self.moved.get()
    }

    /// Another server is the primary: what was connected before `since` may not lead there.
    pub(crate) fn moves(&self, since: Moment) {
        self.moved.put(since);
    }

    /// A server said that it is not the primary.
    pub(crate) fn refuses(&self, at: Moment) {
        self.refused.put(at);
    }

    /// When a server last said that it is not the primary, if one ever did.
    pub(crate) fn refused(&self) -> Option<Moment> {
        Some(self.refused.get()).filter(|at| *at != Moment::default())
    }

    /// Requests sent so far, by any thread.
    pub(crate) fn request_count(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, requests: usize) {
        self.requests.fetch_add(requests as u64, Ordering::Relaxed);
    }

    pub(crate) fn close(&self) {
        // The pool ends with its last user: outside our mutex.
        let pool = self.pool.write().take();
        drop(pool);
    }

    /// Runs a script over keys, each in two parts, until `limit` at most: by its SHA1, and in full where Redis
    /// does not know it.
    pub(crate) fn eval<A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[[&str; 2]],
        args: &[A],
        limit: Moment,
        idempotent: Idempotent,
    ) -> Result<Reply, Failure> {
        let mut evalsha = Vec::new();
        call(&mut evalsha, "EVALSHA", &script.sha, keys, args);
        let (_, reply) =
            self.send(limit, idempotent, |connection| match connection.link.request(&evalsha) {
                Ok(Value::ServerError(e))
                    if e.kind() == Some(ServerErrorKind::NoScript) && Moment::now() < limit =>
                {
                    self.count(1);
                    let mut eval = Vec::new();
                    call(&mut eval, "EVAL", &script.source, keys, args);
                    connection.limit_to(limit);
                    connection.link.request(&eval)
                }
                other => other,
            })?;
        match reply.value {
            Value::ServerError(e) => Err(match refused_script(Some(script), e.into()) {
                // The second copy was rejected; the first one may run yet.
                Failure::Later(e) | Failure::Denied(e) if reply.resent => Failure::Unanswered(e),
                failure => failure,
            }),
            _ => Ok(reply),
        }
    }

    /// Sends one command that may safely be sent twice, until `limit` at most.
    pub(crate) fn command(&self, cmd: &Cmd, limit: Moment) -> Result<Value, Failure> {
        let packed = cmd.get_packed_command();
        let (_, reply) = self.send(limit, Idempotent::Yes, |connection| connection.link.request(&packed))?;
        match reply.value {
            Value::ServerError(e) => Err(refused(e.into())),
            value => Ok(value),
        }
    }

    /// Sends requests in pipelines until `limit`, the ones that Redis does not know as a whole (`eval`, by
    /// their index). Returns which were answered.
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
                // What was rejected was not executed: the present primary will execute it.
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
                *answer = connection.link.request(&eval(i))?;
            }
            connection.check_role(answer);
        }
        Ok(answers)
    }

    /// One attempt, and after an I/O error that leaves time for it one more on a connection made since, if
    /// two copies do no more than one. A request that a server has not executed, as it is not the primary,
    /// does not count as a copy: it is sent once more in any case. Also returns the connection that gave the
    /// reply.
    pub(crate) fn send(
        &self,
        limit: Moment,
        idempotent: Idempotent,
        mut exchange: impl FnMut(&mut Connection) -> Result<Value, RedisError>,
    ) -> Result<(Pooled, Reply), Failure> {
        let mut failed: Option<(Moment, Error)> = None;
        let mut first_by = None;
        let mut moved: Option<(Moment, ServerError)> = None;
        loop {
            // What broke one connection has often broken them all: a second attempt needs a younger one, and
            // so does a request that has no second attempt.
            let again_since = failed.as_ref().map(|(at, _)| *at).max(moved.as_ref().map(|(at, _)| *at));
            let born_after = match again_since {
                None if idempotent == Idempotent::No => Some(*self.broke.lock()),
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
            let asked = connection.limit_to(limit);
            self.count(1);
            match exchange(&mut connection).and_then(|value| self.of_primary(&connection, value)) {
                Ok(value) => {
                    connection.check_role(&value);
                    if let Some(refusal) = no_primary(&value).filter(|_| moved.is_none()) {
                        let at = Moment::now();
                        self.refuses(at);
                        moved = Some((at, refusal.clone()));
                        continue;
                    }
                    if let Some((at, _)) = moved.filter(|_| no_primary(&value).is_none()) {
                        self.moved.put(at);
                    }
                    return Ok((connection, Reply { value, resent: failed.is_some(), asked, first_by }));
                }
                Err(e) => {
                    connection.broken = true;
                    let at = Moment::now();
                    if !e.is_timeout() {
                        *self.broke.lock() = at;
                    }
                    let again = idempotent == Idempotent::Yes && failed.is_none() && !e.is_timeout();
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

    /// The answer, unless it is of a server that meanwhile is not the primary any more and does not know it, as one
    /// that stood still: what it has granted since, its successor knows nothing of.
    fn of_primary(&self, connection: &Connection, value: Value) -> Result<Value, RedisError> {
        if connection.is_since(self.moved()) || no_primary(&value).is_some() {
            return Ok(value);
        }
        let moved = "the server that answered was no longer the primary";
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, moved).into())
    }

    /// Sends a renewal (`renew`; in full where it is given `true`) and `command` on one connection, in one
    /// round trip, until `limit` at most. Returns both replies. If Redis does not know the renewal script,
    /// both are sent again: `command` is made anew, for the time that is left then.
    pub(crate) fn renew_and(
        &self,
        renew: impl Fn(bool) -> Vec<u8>,
        command: impl Fn() -> Vec<u8>,
        limit: Moment,
    ) -> Result<Reply, Failure> {
        let (_, reply) = self.send(limit, Idempotent::Yes, |connection| {
            let mut both = |eval| -> Result<[Value; 2], RedisError> {
                connection.limit_to(limit);
                connection.link.send_packed_command(&[renew(eval), command()].concat())?;
                let renewed = connection.link.recv_response()?;
                connection.limit_to(limit);
                Ok([renewed, connection.link.recv_response()?])
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

    /// An idle connection of the pool, if there is one. Does not wait.
    pub(crate) fn idle(&self) -> Option<Pooled> {
        let pool = self.pool.read().clone()?;
        loop {
            let mut connection = pool.try_get()?;
            if connection.link.is_open() && connection.is_since(self.moved()) {
                return Some(connection);
            }
            connection.discarded = true;
        }
    }

    /// A connection from the pool, one that was made since `born_after`. If none can be made, that error is
    /// returned at once; but while others are in use, one of those is waited for. One that broke while it was
    /// made says little: a few more are tried.
    pub(crate) fn connection(&self, limit: Moment, born_after: Option<Moment>) -> Result<Pooled, Failure> {
        /// How many may break.
        const DIALS: u32 = 3;
        let (mut asked, mut before, mut dialled) = (None, None, 0);
        loop {
            // A clone, so that close() does not wait for a thread that waits here.
            let pool = self.pool.read().clone();
            let pool = pool.ok_or_else(|| Failure::Unsent(Error::new(ErrorKind::Closed, "")))?;
            // Usually there is one, and then it is not worth reading the clock.
            let mut connection = match pool.try_get() {
                Some(connection) => connection,
                None => {
                    let now = Moment::now();
                    asked.get_or_insert(now);
                    pool.get_timeout(limit.since(now)).map_err(|e| no_connection(e, before.take()))?
                }
            };
            match connection.link.failure() {
                None if connection.link.is_open()
                    && connection.is_since(self.moved())
                    && born_after.is_none_or(|moment| connection.born > moment) =>
                {
                    return Ok(connection);
                }
                // An error that came earlier says nothing about the present.
                Some(failure) if asked.is_some_and(|asked| asked <= connection.born) => {
                    dialled += 1;
                    let broke = is_broken_off(failure) && dialled < DIALS;
                    let failure = not_connected(failure.clone());
                    if !(broke || connection.link.others_are_open()) || limit <= Moment::now() {
                        // It goes back: other waiters get the error, too.
                        return Err(failure);
                    }
                    connection.discarded = true;
                    drop(connection);
                    breathe();
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

/// The time was up before there was a connection. `before`: why there was none the last time, if that is
/// known.
fn no_connection(e: impl std::error::Error + Send + Sync + 'static, before: Option<RedisError>) -> Failure {
    let error = Error::new(ErrorKind::Unavailable, "").because(NO_CONNECTION_IN_TIME);
    Failure::Unsent(match before {
        Some(before) if !before.is_timeout() => error.caused_by(before),
        _ => error.caused_by(e),
    })
}
