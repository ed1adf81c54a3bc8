//! Taking a connection from the pool.

use std::cell::RefCell;
use std::sync::atomic::Ordering;
use std::time::Duration;
use std::{mem, ptr};

use redis::RedisError;

use crate::clock::Moment;
use crate::engine::redis::backend::Backend;
use crate::engine::redis::batch::{BatchLeader, Joined, Sender};
use crate::engine::redis::connection::Connection;
use crate::engine::redis::failure::Failure;
use crate::engine::redis::pool::{Given, Pool, breathe, is_exhausted};
use crate::engine::redis::refusal::{NO_CONNECTION_IN_TIME, is_broken_off, not_connected, unanswered};
use crate::error::{Error, ErrorKind};

/// How many connections in a row may break while they are made: a single one says little.
const DIALS: u32 = 3;

/// For how long nothing may be sent on a connection before a request that cannot be sent twice. Servers, proxies
/// and balancers close connections that rest for a second or more.
const REST: Duration = Duration::from_millis(500);

thread_local! {
    /// The pools of which this thread keeps a connection for longer than a request.
    static KEPT: RefCell<Vec<*const Backend>> = const { RefCell::new(Vec::new()) };
}

/// Why a thread that keeps a connection does not wait for another one.
const NONE_LEFT: &str = "this thread keeps a connection for its optimistic update, and the pool has no other left: \
                         call this outside the update, or raise max_connections";

/// The search for a connection that was dialled since `dialled_since`, until `limit`. If none can be made,
/// that error is returned at once, unless others are in use: then one of those is waited for.
struct Checkout<'a> {
    backend: &'a Backend,
    limit: Moment,
    /// (The time of dialling counts: once a connection is made, it may be closed again before this is known.)
    dialled_since: Option<Moment>,
    /// What is sent cannot be sent twice.
    once: bool,
    /// When a connection was first waited for.
    waits_since: Option<Moment>,
    /// Why there was no connection the last time, if that is known.
    before: Option<RedisError>,
    dialled: u32,
}

impl Checkout<'_> {
    /// Waits for a connection.
    fn wait(&mut self, pool: &Pool) -> Result<Given, Failure> {
        let now = Moment::now();
        self.waits_since.get_or_insert(now);
        let found = self.backend.aside.last_or(|| pool.get_timeout(self.limit.since(now)).map(Box::new));
        found.map_err(|e| no_connection(e, self.before.take()))
    }

    /// Returns whether this connection will do; if not, another one is needed.
    fn accepts(&mut self, connection: &mut Given) -> Result<bool, Failure> {
        match &connection.open {
            Ok(_)
                if connection.is_since(self.backend.moved.get())
                    && self.dialled_since.is_none_or(|moment| connection.is_since(moment)) =>
            {
                if !self.once || self.backend.is_still_open(connection, self.limit)? {
                    return Ok(true);
                }
                // What closed one connection while it rested has often closed them all.
                self.dialled_since = Some(Moment::now());
                self.waits_since.get_or_insert_with(Moment::now);
                connection.discarded = true;
            }
            // An error from before says nothing about the present.
            Err(Some(failure)) if self.waits_since.is_some_and(|since| since <= connection.born) => {
                self.dialled += 1;
                let broke = is_broken_off(failure) && self.dialled < DIALS;
                let failure = not_connected(failure.clone());
                if !(broke || connection.links.load(Ordering::Relaxed) > 0) || self.limit <= Moment::now() {
                    // The connection returns to the pool, so that other waiters get the error, too.
                    return Err(failure);
                }
                connection.discarded = true;
            }
            unusable => {
                self.before = unusable.as_ref().err().cloned().flatten();
                self.waits_since.get_or_insert_with(Moment::now);
                connection.discarded = true;
            }
        }
        Ok(false)
    }
}

impl Backend {
    /// From now on this thread keeps a connection, or no longer does.
    pub(in crate::engine) fn keeps(&self, keeps: bool) {
        let _ = KEPT.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if keeps {
                kept.push(self);
            } else if let Some(at) = kept.iter().rposition(|it| ptr::eq(*it, self)) {
                kept.swap_remove(at);
            }
        });
    }

    /// Returns the pool for a thread that found no connection idle: a clone, so that close() does not wait for it.
    fn pool_to_wait_for(&self) -> Result<Pool, Failure> {
        let pool = self.pool.read().as_ref().map(|(pool, _)| pool.clone());
        let pool = pool.ok_or_else(|| Failure::Unsent(Error::new(ErrorKind::Closed, "")))?;
        // Where all wait for what the others keep, none would ever get one. (A thread that ends keeps none, even if
        // the destructor of another thread-local still sends something.)
        let keeps = |kept: &RefCell<Vec<_>>| kept.borrow().iter().any(|it| ptr::eq(*it, self));
        if is_exhausted(&pool) && KEPT.try_with(keeps).unwrap_or(false) {
            return Err(Failure::Denied(ErrorKind::Unavailable.because(NONE_LEFT)));
        }
        Ok(pool)
    }

    /// Returns one that is idle in the pool, if there is one.
    fn pooled(&self) -> Option<Given> {
        self.pool.read().as_ref()?.0.try_get().map(Box::new)
    }

    /// Returns an idle connection of the pool, if there is one. Does not block.
    pub(crate) fn idle(&self) -> Option<Given> {
        loop {
            let aside = self.aside.take(|connection| connection.unread.is_none());
            let mut connection = aside.or_else(|| self.pooled())?;
            if connection.open.is_ok() && connection.is_since(self.moved.get()) {
                return Some(connection);
            }
            connection.discarded = true;
        }
    }

    /// Takes a connection that was dialled since `dialled_since`, for a request. Blocks until `limit` at most. If all are
    /// in use, the request may go together with others, and so may have been sent when this returns. `alone` is all that
    /// it sends, if that may go with others; `once`: it cannot be sent twice.
    pub(in crate::engine) fn sender(
        &self,
        limit: Moment,
        dialled_since: Option<Moment>,
        once: bool,
        alone: Option<&[u8]>,
    ) -> Result<Sender, Failure> {
        let dialled_since = dialled_since.or_else(|| once.then(|| self.broke.get()));
        let (mut joins, mut leader) = (alone.filter(|_| dialled_since.is_none()), None);
        // A connection that is idle now belongs to the leader, which is about to wake up and takes this
        // request along.
        let mut queues = joins.is_some() && self.batch.led.load(Ordering::Relaxed);
        let (backend, waits_since, before) = (self, None, None);
        let mut checkout = Checkout { backend, limit, dialled_since, once, waits_since, before, dialled: 0 };
        loop {
            let queues = mem::take(&mut queues);
            // Usually one is idle, and then it is not worth reading the clock. The one that was put aside last comes
            // first: what a thread sends arrives behind what it has sent before.
            let idle = || self.aside.take(|_| true).or_else(|| self.pooled());
            let mut connection = match if queues { None } else { idle() } {
                Some(connection) => connection,
                None => {
                    let pool = self.pool_to_wait_for()?;
                    if let Some(packed) = joins.take_if(|_| queues || is_exhausted(&pool)) {
                        match self.batch.join(packed, limit) {
                            Joined::Leader(new) => leader = Some(new),
                            Joined::Sent(answer) => return Ok(Sender::Leader(answer)),
                            Joined::Alone => {}
                        }
                    }
                    checkout.wait(&pool)?
                }
            };
            let dialled = checkout.dialled;
            if checkout.accepts(&mut connection)? {
                let by = connection.by();
                let followers = leader.map(|leader: BatchLeader<'_>| leader.followers(by));
                return Ok(Sender::Own(connection, by, followers.unwrap_or_default()));
            }
            drop(connection);
            if checkout.dialled > dialled {
                breathe();
            }
        }
    }

    /// Whether a connection is open at its other end, too: if it has rested, at the cost of a round trip, for
    /// which this waits until `limit`.
    pub(in crate::engine) fn is_still_open(
        &self,
        connection: &mut Connection,
        limit: Moment,
    ) -> Result<bool, Failure> {
        let sent = Moment::now();
        if sent < connection.used.after(REST) {
            return Ok(true);
        }
        self.count(1);
        let sends = connection.write(&redis::cmd("PING").get_packed_command());
        let Err(e) = sends.and_then(|()| connection.read(limit)) else { return Ok(true) };
        if e.is_timeout() { Err(Failure::Unsent(unanswered(e, limit.since(sent)))) } else { Ok(false) }
    }
}

/// The time was up before there was a connection. `before`: why there was none the last time, if that is
/// known.
fn no_connection(e: impl std::error::Error + Send + Sync + 'static, before: Option<RedisError>) -> Failure {
    let error = ErrorKind::Unavailable.because(NO_CONNECTION_IN_TIME);
    Failure::Unsent(match before {
        Some(before) if !before.is_timeout() => error.caused_by(before),
        _ => error.caused_by(e),
    })
}
