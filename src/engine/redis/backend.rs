//! The way to Redis: the pool, and one request with its retry. Everything that is sent on a shared connection
//! goes through here. The result says what became of a request, and not what that means to a lock.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use redis::{Cmd, RedisError, ServerError, ServerErrorKind, Value};

use crate::clock::{LatestMoment, Moment};
use crate::engine::redis::answers::list;
use crate::engine::redis::batch::{Answer, Batch, Followers, Sender};
use crate::engine::redis::connection::{By, Connection};
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::{Pool, Pooled};
use crate::engine::redis::refusal::{no_primary, refused, refused_script, unanswered};
use crate::engine::redis::resp::call;
use crate::error::Error;
use crate::script::Script;
use crate::sync::{Mutex, RwLock};

/// A reply, and whether the request was sent twice to get it.
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) resent: bool,
    /// Just before the copy was sent that this is the reply to.
    pub(crate) asked: Moment,
    /// If the request was sent twice: when the connection of the first copy was made.
    pub(crate) first_by: Option<Moment>,
}

/// Whether a request without a reply may be sent again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Idempotent {
    /// Two copies would do more than one.
    No,
    /// It is idempotent, as every operation on a lock is by its owner id.
    Yes,
}

/// The pool, and the state and counters beside it.
pub(crate) struct Backend {
    /// Gone once the client is closed.
    pub(in crate::engine) pool: RwLock<Option<Pool>>,
    /// Requests that wait for a connection.
    pub(in crate::engine) batch: Batch,
    requests: AtomicU64,
    /// When a connection last broke.
    broke: Mutex<Moment>,
    /// When another server was last found to be the primary: connections made before do not lead there.
    moved: LatestMoment,
    /// When a server last said that it is not the primary.
    refused: LatestMoment,
}

impl Backend {
    pub(crate) fn new(pool: Pool) -> Self {
        Backend {
            pool: RwLock::new(Some(pool)),
            batch: Batch::default(),
            requests: AtomicU64::new(0),
            broke: Mutex::default(),
            moved: LatestMoment::default(),
            refused: LatestMoment::default(),
        }
    }

    /// When another server was last found to be the primary: connections from before are no longer used.
    pub(crate) fn moved(&self) -> Moment {
        self.moved.get()
    }

    /// Another server is the primary: connections made before `since` may not lead there.
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
        // The pool shuts down with its last user, so this happens outside our mutex.
        let pool = self.pool.write().take();
        drop(pool);
    }

    /// Runs a script over keys, each in two parts, until `limit` at most: by its SHA1, and in full if Redis
    /// does not know it.
    pub(crate) fn eval<A: AsRef<[u8]>>(
        &self,
        script: &Script,
        keys: &[[&str; 2]],
        args: &[A],
        limit: Moment,
        idempotent: Idempotent,
    ) -> Result<Reply, Failure> {
        let packed = |verb, text| {
            let mut packed = Vec::new();
            call(&mut packed, verb, text, keys, args);
            packed
        };
        let evalsha = packed("EVALSHA", &script.sha);
        let (_, reply) = self.send(limit, idempotent, Some(&evalsha), |connection, followers| {
            let answer = match followers.is_empty() {
                true => connection.link.request(&evalsha)?,
                false => followers.exchange(connection, &evalsha, limit)?,
            };
            if !is_unknown(&answer) || limit <= Moment::now() {
                return Ok(answer);
            }
            if connection.is_broken() {
                // A follower's reply did not arrive: what would be read next may be that of another request.
                return Err(io::Error::from(io::ErrorKind::ConnectionAborted).into());
            }
            self.count(1);
            connection.limit_to(limit);
            connection.link.request(&packed("EVAL", &script.source))
        })?;
        match reply.value {
            Value::ServerError(e) => Err(match refused_script(Some(script), e.into()) {
                // The second copy was rejected; the first one may still run.
                Failure::Later(e) | Failure::Denied(e) if reply.resent => Failure::Unanswered(e),
                failure => failure,
            }),
            _ => Ok(reply),
        }
    }

    /// Sends one command that may safely be sent twice, until `limit` at most.
    pub(crate) fn command(&self, cmd: &Cmd, limit: Moment) -> Result<Value, Failure> {
        let packed = cmd.get_packed_command();
        let (_, reply) = self.send(limit, Idempotent::Yes, Some(&packed), |connection, followers| {
            followers.exchange(connection, &packed, limit)
        })?;
        match reply.value {
            Value::ServerError(e) => Err(refused(e.into())),
            value => Ok(value),
        }
    }

    /// Sends requests that may be sent twice in pipelines, until `limit`. Those whose script Redis does not
    /// know are sent again in full (`eval`, by their index). Returns which had a reply that is not an error.
    pub(crate) fn pipeline(
        &self,
        requests: &[Vec<u8>],
        limit: Moment,
        eval: impl Fn(usize) -> Vec<u8>,
    ) -> Vec<bool> {
        const BATCH: usize = 64;
        let mut done = Vec::with_capacity(requests.len());
        for batch in requests.chunks(BATCH) {
            let sent = self.send(limit, Idempotent::Yes, None, |connection, _| {
                self.count(batch.len() - 1);
                let mut answers = connection.exchange(batch, limit)?;
                for (i, answer) in answers.iter_mut().enumerate().filter(|(_, answer)| is_unknown(answer)) {
                    self.count(1);
                    connection.limit_to(limit);
                    *answer = connection.link.request(&eval(done.len() + i))?;
                }
                Ok(Value::Array(answers))
            });
            let Ok((_, reply)) = sent else { break };
            done.extend(list(&reply.value).iter().map(|answer| !matches!(answer, Value::ServerError(_))));
            if limit <= Moment::now() {
                break;
            }
        }
        done.resize(requests.len(), false);
        done
    }

    /// Makes one attempt. After an I/O error that leaves time for it, makes one more on a connection made
    /// since, if two copies do no more than one. A request that a server has not executed, as it is not the
    /// primary, does not count as a copy: it is sent once more in any case.
    ///
    /// Also returns the connection that gave the reply, unless it was another thread's: while all are in use,
    /// `alone` goes together with the requests of others, if it is all that is sent and may be sent twice.
    pub(crate) fn send(
        &self,
        limit: Moment,
        idempotent: Idempotent,
        mut alone: Option<&[u8]>,
        mut exchange: impl FnMut(&mut Connection, Followers) -> Result<Value, RedisError>,
    ) -> Result<(Option<Pooled>, Reply), Failure> {
        let mut failed: Option<(Moment, Error)> = None;
        let mut first_by = None;
        let mut moved: Option<(Moment, ServerError)> = None;
        loop {
            // What broke one connection has often broken them all. So a second attempt needs a younger one,
            // and so does a request that has no second attempt.
            let again_since = failed.as_ref().map(|(at, _)| *at).max(moved.as_ref().map(|(at, _)| *at));
            let once = idempotent == Idempotent::No;
            let dialled_since = again_since.or_else(|| once.then(|| *self.broke.lock()));
            let (answer, by, connection) = match self.sender(limit, dialled_since, idempotent, alone) {
                Ok(Sender::Own(mut connection, by, followers)) => {
                    self.count(1 + followers.len());
                    let answer = exchange(&mut connection, followers);
                    let answer = answer.and_then(|value| self.of_primary(by, value));
                    match &answer {
                        Ok(value) => connection.check_role(value),
                        Err(_) => connection.broken = true,
                    }
                    (answer, by, Some(connection))
                }
                // The script is unknown: the request was not executed.
                Ok(Sender::Leader(Answer { value: Ok(value), .. })) if is_unknown(&value) => {
                    alone = None;
                    continue;
                }
                Ok(Sender::Leader(Answer { value, by })) => {
                    (value.and_then(|value| self.of_primary(by, value)), by, None)
                }
                Err(e) => {
                    return Err(match (failed, moved) {
                        (Some((_, first)), _) => Failure::Unanswered(first),
                        (None, Some((_, refusal))) => refused(refusal.into()),
                        (None, None) => e,
                    });
                }
            };
            match answer {
                Ok(value) => {
                    if let Some(refusal) = no_primary(&value).filter(|_| moved.is_none()) {
                        let at = Moment::now();
                        self.refuses(at);
                        moved = Some((at, refusal.clone()));
                        continue;
                    }
                    if let Some((at, _)) = moved.filter(|_| no_primary(&value).is_none()) {
                        self.moved.put(at);
                    }
                    let reply = Reply { value, resent: failed.is_some(), asked: by.asked, first_by };
                    return Ok((connection, reply));
                }
                Err(e) => {
                    failed = Some(self.fails(e, by, failed, idempotent)?);
                    first_by = Some(by.born);
                }
            }
        }
    }

    /// A request had no reply. If it may be sent again, returns when that was, and why. Otherwise returns the
    /// failure, with the error of the first copy if that had no reply either.
    fn fails(
        &self,
        e: RedisError,
        by: By,
        before: Option<(Moment, Error)>,
        idempotent: Idempotent,
    ) -> Result<(Moment, Error), Failure> {
        let at = Moment::now();
        let again = idempotent == Idempotent::Yes && before.is_none() && !e.is_timeout();
        if !e.is_timeout() {
            *self.broke.lock() = at;
        }
        let error = before.map_or_else(|| unanswered(e, by.limit), |(_, first)| first);
        if again { Ok((at, error)) } else { Err(Failure::Unanswered(error)) }
    }

    /// Returns the reply, unless it comes from a server that is no longer the primary without knowing it,
    /// such as one that was suspended: its successor does not know what it has granted since.
    fn of_primary(&self, by: By, value: Value) -> Result<Value, RedisError> {
        if by.dialled >= self.moved() || no_primary(&value).is_some() {
            return Ok(value);
        }
        let moved = "the server that answered was no longer the primary";
        Err(io::Error::new(io::ErrorKind::ConnectionAborted, moved).into())
    }

    /// Calls a script (`write`; in full if it is given `true`) and sends `command` on one connection, in one
    /// round trip, until `limit` at most. Returns both replies. If Redis does not know the script, both are
    /// sent again, and `command` is called again for the time that is left then.
    pub(crate) fn write_and(
        &self,
        write: impl Fn(bool) -> Vec<u8>,
        command: impl Fn() -> Vec<u8>,
        limit: Moment,
    ) -> Result<Reply, Failure> {
        let (_, reply) = self.send(limit, Idempotent::Yes, None, |connection, _| {
            let mut both = |eval| -> Result<[Value; 2], RedisError> {
                connection.limit_to(limit);
                connection.link.send_packed_command(&[write(eval), command()].concat())?;
                let written = connection.link.recv_response()?;
                connection.limit_to(limit);
                Ok([written, connection.link.recv_response()?])
            };
            self.count(1);
            let answers = match both(false)? {
                [written, _] if is_unknown(&written) && Moment::now() < limit => {
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
}

/// Whether Redis does not know the script by its SHA1.
fn is_unknown(answer: &Value) -> bool {
    matches!(answer, Value::ServerError(e) if e.kind() == Some(ServerErrorKind::NoScript))
}
