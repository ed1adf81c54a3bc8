//! The lock of one name over all servers: every way to acquire it.

use std::sync::Arc;
use std::time::Duration;

use super::holding::{Call, Holding, RedLockHold};
use super::round::{Missed, attempt};
use super::servers::RedLockClient;
use crate::clock::Moment;
use crate::engine::call::backoff::{Backoff, pause};
use crate::engine::entries::entry::LockEntry;
use crate::engine::state::lock_state::{Request, Terms};
use crate::error::{Error, ErrorKind};
use crate::forms::forms;
use crate::guard::sealed::{self, holder};
use crate::guard::{Guard, Ownership};
use crate::kinds::Simple;
use crate::lock::{RedisLock, this_thread};
use crate::settings::check_lease;
use crate::wait::Wait;

/// The default node timeout is a twentieth of the lease, within these bounds: a server that hangs costs it
/// once, and a thread on a busy machine may well not run for some 10 ms.
const NODE_TIMEOUTS: [Duration; 2] = [Duration::from_millis(25), Duration::from_millis(200)];
/// The shortest node timeout.
const SHORTEST_NODE_TIMEOUT: Duration = Duration::from_millis(1);
/// The first pause after a failed attempt is at most about as long as that attempt took, but at least this.
const SHORTEST_SLOT: Duration = Duration::from_millis(1);
/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

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
    pub(super) servers: RedLockClient,
    name: Arc<str>,
    /// The lock's entry for each server, in the order of the servers.
    entries: Result<Arc<[Arc<LockEntry>]>, Error>,
    terms: Terms,
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
        let entries = self.nodes.iter().map(|node| entry(&node.shared)).collect();
        let terms = Terms::new(self.lease, "");
        RedLock { servers: self.clone(), name: Arc::from(name), entries, terms }
    }
}

impl RedLock {
    /// The same lock with a fixed lease: a hold expires at most `lease` after it was granted, and is renewed
    /// only by [`renew`](Guard::renew), or by [`renew_for`](Guard::renew_for) for no longer than `lease`. At
    /// least 100 ms, at most a year. All users of a name must use the same lease, because [restarted
    /// servers](RedLockClient#how-it-works) do not count for that long.
    #[must_use]
    pub fn with_lease(&self, lease: Duration) -> Self {
        let mut lock = self.clone();
        lock.terms.lease = lease;
        lock.terms.fixed = true;
        lock
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    forms!(RedLock);

    // ---- underneath ------------------------------------------------------------------------

    /// The node timeout.
    pub(super) fn limit(&self) -> Duration {
        self.servers.node_timeout.unwrap_or_else(|| default_node_timeout(self.terms.lease))
    }

    /// The entries, if the settings are valid.
    pub(super) fn entries(&self) -> Result<&Arc<[Arc<LockEntry>]>, Error> {
        let bad = |why: String| Error::new(ErrorKind::InvalidInput, &self.name).because(why);
        let entries = self.entries.as_ref().map_err(Clone::clone)?;
        let (lease, limit) = (self.terms.lease, self.limit());
        check_lease("lease", lease).map_err(bad)?;
        if !(SHORTEST_NODE_TIMEOUT..=lease / 2).contains(&limit) {
            let most = lease / 2;
            return Err(bad(format!(
                "the node timeout must be between {SHORTEST_NODE_TIMEOUT:?} and {most:?}, got {limit:?}"
            )));
        }
        Ok(entries)
    }

    fn acquire<O: Ownership>(&self, wait: &Wait<'_>) -> Result<Option<Guard<RedLock, O>>, Error> {
        let thread = this_thread();
        let terms = self.terms.clone();
        let request =
            Request { holder: holder::<O>(thread), thread, terms, once: true, from: None, instead: false };
        Ok(self.hold(&request, wait)?.map(|holding| Guard::new(RedLockHold::new(holding))))
    }

    /// Attempts to acquire the lock until `wait` is over.
    fn hold(&self, request: &Request, wait: &Wait<'_>) -> Result<Option<Arc<Holding>>, Error> {
        let entries = self.entries()?;
        for node in &*self.servers.nodes {
            node.shared.same_process().map_err(|e| e.about(&self.name))?;
        }
        let mut backoff = Backoff::new();
        let (lease, limit) = (self.terms.lease, self.limit());
        let call = Call { servers: &self.servers, name: &self.name, entries, lease, limit };
        let mut out_of_reach = None;
        loop {
            if wait.is_cancelled() {
                return Err(Error::new(ErrorKind::Cancelled, &self.name));
            }
            let began = Moment::now();
            let trouble = match attempt(&call, request, wait) {
                Ok(holding) => return Ok(Some(holding)),
                Err(Missed::Never(error)) => return Err(error),
                Err(Missed::Busy) => None,
                Err(Missed::TooFew(error)) => Some(error),
            };
            out_of_reach = trouble.as_ref().map(|_| out_of_reach.unwrap_or(began));
            if !wait.once {
                let now = Moment::now();
                let slot = now.since(began).max(SHORTEST_SLOT);
                self.pause(now.after(backoff.pause(slot, LONGEST_PAUSE)), wait);
            }
            let now = Moment::now();
            let gives_up = out_of_reach.is_some_and(|since| self.gives_up(since, now, wait));
            if (wait.once || wait.is_over(now) || gives_up) && !wait.is_cancelled() {
                return trouble.map_or(Ok(None), Err);
            }
        }
    }

    /// Sleeps between two attempts, on behalf of a client that is not closed.
    fn pause(&self, until: Moment, wait: &Wait<'_>) {
        if let Some(node) = self.servers.nodes.iter().find(|node| !node.shared.is_closed()) {
            pause(&node.shared, until, wait);
        }
    }

    /// Whether a majority has been out of reach for so long that a call without a deadline returns an error.
    fn gives_up(&self, since: Moment, now: Moment, wait: &Wait<'_>) -> bool {
        let limits = self.servers.nodes.iter().map(|node| node.shared.config.unreachable_timeout);
        wait.deadline.is_none() && limits.max().is_some_and(|limit| now.since(since) >= limit)
    }
}

fn default_node_timeout(lease: Duration) -> Duration {
    let [least, most] = NODE_TIMEOUTS;
    (lease / 20).clamp(least, most)
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/unit/red_lock/lock.rs"]
mod tests;
