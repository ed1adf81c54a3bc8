//! The lock of one name over all servers: every way to acquire it, and what a majority can say of it.

use std::sync::Arc;
use std::time::Duration;

use super::holding::{Holding, Quorum, RedLockHold};
use super::node::{Query, read_all};
use super::round::attempt;
use super::servers::RedLockClient;
use crate::clock::Moment;
use crate::engine::call::backoff::Backoff;
use crate::engine::operations::commands;
use crate::engine::redis::failure::Failure;
use crate::engine::state::lock_state::{Request, Terms};
use crate::error::{Error, ErrorKind};
use crate::forms::forms;
use crate::guard::sealed::{self, holder};
use crate::guard::{Guard, Ownership};
use crate::kinds::Simple;
use crate::lock::holder::{busy, held_by, holders_of, several_busy};
use crate::lock::inspect::{Holder, read};
use crate::lock::{RedisLock, this_thread};
use crate::settings::{check_lease, within};
use crate::wait::Wait;

/// The shortest node timeout.
const SHORTEST_NODE_TIMEOUT: Duration = Duration::from_millis(1);
/// The first pause after a failed attempt is at most about as long as that attempt took, but at least this.
const SHORTEST_SLOT: Duration = Duration::from_millis(1);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// The address of a server, and the holder there, if there is one.
type Reply = (String, Result<Option<Holder>, Error>);

/// A lock over several servers: the handle of one name, made by [`RedLockClient::lock`]. Cheap to clone.
///
/// Not reentrant: if the thread that holds the lock asks again, it gets
/// [`WouldDeadlock`](ErrorKind::WouldDeadlock) (`try_lock`: `None`). As with a [`RedisLock`],
/// [`lock`](RedLock::lock) makes the thread the owner and [`lock_owned`](RedLock::lock_owned) the
/// guard. A hold is renewed until its guard is dropped, unless its lease is [fixed](RedLock::with_lease);
/// a hold that a majority no longer has is *lost*. An observer of a client is notified of what that client's
/// server grants, loses and gets back, as for a simple lock.
///
/// # While it is held
///
/// Its [`Guard`] is [certain to last](Guard::remaining) as long as those leases of a majority that last longest.
/// [`renew_for`](Guard::renew_for) asks each server that granted the hold, all at once, for at most the node
/// timeout, and for no longer than the lease of its [terms](RedLock::with_lease), as a restarted server counts
/// again after that time; it returns `OutcomeUnknown` if fewer than a majority confirmed it.
/// [`unlock`](Guard::unlock) releases it on all servers, within the node timeout: a server that does not reply is
/// asked again in the background, until it replies or the lease has expired. It returns `OutcomeUnknown` if fewer
/// than a majority replied.
///
/// # Errors of all forms
///
/// `Unavailable` if fewer than a majority of the servers can be asked, or count: the error says why for each.
/// Timed methods then retry until their deadline; methods without a deadline give up after the longest
/// [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout) of the clients. If a majority of the
/// servers says so: `WrongType` if the key is in use by something else, `WouldDeadlock` if this thread holds
/// the lock, `LeaseLost` if it has a guard of a lost hold, `Closed`. `Forked`, and `InvalidInput` for an
/// invalid name, lease or node timeout. A busy lock is not an error: the call returns `None`. A call with a
/// deadline returns by it, give or take a quarter of a second.
#[derive(Clone, Debug)]
pub struct RedLock {
    quorum: Result<Quorum, Error>,
}

impl sealed::HasHold for RedLock {
    type Hold = RedLockHold;
}

impl<O: Ownership> Guard<RedLock, O> {
    /// Returns the number of servers on which the lock is held: all of them if all are up, 0 once the hold is
    /// lost.
    pub fn servers(&self) -> usize {
        self.hold.servers()
    }
}

impl RedLockClient {
    /// Returns the lock `name`. Making a handle sends no request and cannot fail: an invalid name is reported
    /// by the first call on it.
    pub fn lock(&self, name: &str) -> RedLock {
        let entry = |shared| RedisLock::new(shared, Simple, name).entry().cloned();
        let entries = self.nodes.iter().map(|node| entry(&node.shared)).collect::<Result<_, _>>();
        let (servers, terms) = (self.clone(), Terms::new(self.lease, ""));
        RedLock { quorum: entries.map(|entries| Quorum { servers, entries, terms }) }
    }
}

impl RedLock {
    /// The same lock with a fixed lease: a hold expires at most `lease` after it was granted, and is renewed
    /// only by [`renew`](Guard::renew), or by [`renew_for`](Guard::renew_for) for no longer than `lease`. At
    /// least 100 ms, at most a year. All users of a name must use the same lease, because [restarted
    /// servers](RedLockClient#how-it-works) do not count for that long.
    #[must_use]
    pub fn with_lease(&self, lease: Duration) -> Self {
        let fixed = |it: Quorum| Quorum { terms: Terms { lease, fixed: true, ..it.terms }, ..it };
        RedLock { quorum: self.quorum.clone().map(fixed) }
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.quorum.as_ref().map_or_else(Error::name, Quorum::name)
    }

    forms!(RedLock);

    /// Returns whether an attempt would find the lock busy now: a majority of the servers has a holder, of
    /// any process. (The servers do not say which process it is.) One request to each server, all at once;
    /// blocks for at most the node timeout.
    ///
    /// # Errors
    /// `Unavailable` if too few servers replied to tell: neither does a majority have a holder, nor is a
    /// majority free. `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    pub fn is_locked(&self) -> Result<bool, Error> {
        let quorum = self.quorum()?;
        let replies: Vec<_> = quorum.ask()?.into_iter().map(|(_, reply)| reply).collect();
        let count = |held: bool| {
            replies.iter().filter(|reply| reply.as_ref().is_ok_and(|it| it.is_some() == held)).count()
        };
        let (held, free) = (count(true), count(false));
        if held.max(free) >= quorum.servers.majority() {
            return Ok(held > free);
        }
        let why = format!("{} of {} servers replied: too few to tell", held + free, replies.len());
        let error = Error::new(ErrorKind::Unavailable, self.name()).because(why);
        Err(error.perhaps_by(replies.into_iter().find_map(Result::err)))
    }

    /// Returns the error of a caller that did not get the lock in time: a [`Timeout`](ErrorKind::Timeout)
    /// with the owner on each server and for how long it has held the lock, as
    /// [`RedisLock::busy_error`](crate::RedisLock::busy_error) returns it for a lock on one server. One request to each
    /// server, all at once, when this is called; blocks for at most the node timeout.
    ///
    /// An owner is the id of a client, which differs from server to server: the servers have no record of its
    /// process. If several callers compete and none gets a majority, each may hold some of the servers for a
    /// moment.
    ///
    /// ```no_run
    /// # fn sell(red: &redis_concurrent::RedLockClient) -> Result<(), redis_concurrent::Error> {
    /// let lock = red.lock("stock:42");
    /// // "stock:42": timed out: on 3 of 3 servers, 10.0.0.1:6379: held by 7f3b…:1 for 12.3 s,
    /// // 10.0.0.2:6379: held by …
    /// let guard = lock.try_lock()?.ok_or_else(|| lock.busy_error())?;
    /// # drop(guard);
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "or_who")]
    pub fn busy_error(&self) -> Error {
        let replies = match self.quorum().and_then(Quorum::ask) {
            Ok(replies) => replies,
            Err(why) => return busy(self.name(), Err(why)),
        };
        let all = replies.len();
        let of = |(address, reply): Reply| (format!("{address}: "), reply.map(Vec::from_iter));
        several_busy(self.name(), replies.into_iter().map(of), |held| match held.len() {
            0 => held_by(&[]),
            n => format!("on {n} of {all} servers, {}", held.join(", ")),
        })
    }

    // ---- underneath ------------------------------------------------------------------------

    /// What attempts need, if the settings are valid.
    fn quorum(&self) -> Result<&Quorum, Error> {
        let quorum = self.quorum.as_ref().map_err(Clone::clone)?;
        let bad = |why: String| Error::new(ErrorKind::InvalidInput, quorum.name()).because(why);
        let lease = quorum.terms.lease;
        check_lease("lease", lease).map_err(bad)?;
        within("the node timeout", quorum.limit(), SHORTEST_NODE_TIMEOUT..=lease / 2).map_err(bad)?;
        Ok(quorum)
    }

    fn acquire<O: Ownership>(&self, wait: &Wait<'_>) -> Result<Option<Guard<RedLock, O>>, Error> {
        let (quorum, thread) = (self.quorum()?, this_thread());
        let (holder, terms) = (holder::<O>(thread), quorum.terms.clone());
        let request = Request { holder, thread, terms, once: true, from: None, instead: false, most: None };
        Ok(quorum.hold(&request, wait)?.map(|holding| Guard::new(RedLockHold::new(holding))))
    }
}

impl Quorum {
    /// Asks each server for its holder.
    fn ask(&self) -> Result<Vec<Reply>, Error> {
        let began = Moment::now();
        let each = || self.servers.nodes.iter().zip(&*self.entries);
        each().try_for_each(|(node, _)| node.shared.usable()).map_err(|e| e.about(self.name()))?;
        let queries = each().map(|at| (at, Query::sent(at.0, commands::inspect(at.1, "", ""), began)));
        let replies: Vec<_> = read_all(queries.collect(), began, began.after(self.limit())).collect();
        let replies = replies.into_iter().map(|((node, entry), reply)| {
            let holder = match reply {
                Ok(reply) => Ok(holders_of(read(&reply.value).holders, true, &[]).into_iter().next()),
                Err(Failure::WrongKind(e)) => return Err(entry.error(e)),
                Err(failure) => Err(failure.error()),
            };
            Ok((node.address.clone(), holder))
        });
        replies.collect()
    }

    /// Attempts to acquire the lock until `wait` is over.
    fn hold(&self, request: &Request, wait: &Wait<'_>) -> Result<Option<Arc<Holding>>, Error> {
        let clients = || self.servers.nodes.iter().map(|node| &node.shared);
        clients().try_for_each(|client| client.same_process()).map_err(|e| e.about(self.name()))?;
        let mut backoff = Backoff::default();
        let mut out_of_reach = None;
        loop {
            if wait.is_cancelled() {
                return Err(Error::new(ErrorKind::Cancelled, self.name()));
            }
            let began = Moment::now();
            let trouble = match attempt(self, request, wait) {
                Ok(Some(holding)) => return Ok(Some(holding)),
                Err(error) if !error.is_retryable() => return Err(error),
                missed => missed.err(),
            };
            out_of_reach = trouble.as_ref().map(|_| out_of_reach.unwrap_or(began));
            if !wait.once {
                let slot = Moment::now().since(began).max(SHORTEST_SLOT);
                // On behalf of a client that is not closed.
                let open = clients().find(|client| !client.is_closed());
                open.into_iter().for_each(|client| backoff.pause(client, slot, LONGEST_PAUSE, wait));
            }
            let now = Moment::now();
            // A call without a deadline does not wait for a majority for ever.
            let gives_up = out_of_reach.is_some_and(|since| {
                let limits = clients().map(|client| client.config.unreachable_timeout);
                wait.deadline == Moment::NEVER && limits.max().is_some_and(|limit| now.since(since) >= limit)
            });
            if (wait.once || wait.is_over(now) || gives_up) && !wait.is_cancelled() {
                return trouble.map_or(Ok(None), Err);
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/unit/red_lock/lock.rs"]
mod tests;
