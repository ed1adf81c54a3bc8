//! A hold of a single lock, and what only its guard can do.

use std::marker::PhantomData;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::receipt::Receipt;
use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine;
use crate::engine::call::How;
use crate::engine::call::release::Stay;
use crate::engine::call::replicas::Replicas;
use crate::engine::call::warning::Holds;
use crate::engine::entries::entry::LockEntry;
use crate::engine::state::lock_state::{Acquired, Ticket};
use crate::error::Error;
use crate::guard::{Guard, OwnedGuard, Ownership, sealed};
use crate::kind::{Exclusive, Kind, Sharing};
use crate::observe::Span;
use crate::wait::Wait;

/// A hold of a lock of one kind.
pub struct Hold<K: Kind> {
    /// The lock that is held.
    pub(crate) entry: Arc<LockEntry>,
    /// 0 once the hold is released: no hold has this ticket.
    pub(crate) ticket: Ticket,
    /// The token with which the hold began.
    first_token: u64,
    /// The value that the rule added to the grant.
    pub(crate) value: u64,
    /// Whether the lock has another mode, in which its next request may be.
    pub(super) has_modes: bool,
    /// The replicas that must have it.
    pub(super) replicas: Option<Replicas>,
    _span: Option<Span>,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> sealed::HasHold for K {
    type Hold = Hold<K>;
}

impl<K: Kind> Hold<K> {
    // Otherwise a kept lock takes 2 % more, as acquiring calls it in two places.
    #[inline(always)]
    pub(crate) fn new(entry: Arc<LockEntry>, acquired: Acquired) -> Self {
        let Acquired { ticket, token, value, .. } = acquired;
        let span = acquired.is_outermost().then(|| Span::hold(|| entry.observed())).flatten();
        let (has_modes, replicas, kind) = (false, None, PhantomData);
        Hold { entry, ticket, first_token: token, value, has_modes, replicas, _span: span, kind }
    }

    /// Marks the hold as ended, so that dropping it does nothing. Returns its ticket.
    fn ends(&mut self) -> Ticket {
        mem::take(&mut self.ticket)
    }

    /// Gives the hold back before its caller has seen it: no minimum hold time applies. Blocks for as long as `wait`
    /// allows.
    pub(crate) fn never_counted(&mut self, wait: &Wait<'_>) {
        let limit = wait.limit(Moment::now(), self.entry.shared.config.command_timeout);
        let ticket = self.ends();
        let _ = engine::call::end(&self.entry, ticket, How::Unused(limit));
    }

    pub(super) fn end(mut self, how: How<'_>) -> Result<(), Error> {
        let ticket = self.ends();
        engine::call::end(&self.entry, ticket, how)
    }

    /// The current token. It differs from the first one after a wait for a condition, which reacquires the
    /// lock.
    pub(crate) fn current_token(&self) -> u64 {
        engine::call::held::token(&self.entry, self.ticket).unwrap_or(self.first_token)
    }
}

impl<K: Kind> sealed::AnyHold for Hold<K> {
    fn name(&self) -> &str {
        self.entry.name()
    }

    fn token(&self) -> Option<u64> {
        (K::SHARING == Sharing::Exclusive).then(|| self.current_token())
    }

    fn remaining(&self) -> Duration {
        engine::call::held::remaining(&self.entry, self.ticket, Moment::now())
    }

    fn lost(&self) -> CancellationToken {
        engine::call::held::lost_token(&self.entry, self.ticket, Moment::now())
    }

    fn renew(&self, lease: Option<Duration>) -> Result<(), Error> {
        engine::call::held::renew(&self.entry, self.ticket, lease, &Wait::forever())
    }

    fn release(self) -> Result<(), Error> {
        self.end(How::Released(Stay::Agreed))
    }

    fn loss(&self) -> Option<Error> {
        engine::call::held::loss(&self.entry, self.ticket)
    }

    fn time_left(&self) -> Holds {
        vec![engine::call::held::time_left(&self.entry, self.ticket)]
    }
}

impl<K: Kind> Drop for Hold<K> {
    fn drop(&mut self) {
        if self.ticket > 0 {
            let _ = engine::call::end(&self.entry, self.ticket, How::Dropped { unread: !self.has_modes });
        }
    }
}

shows!(Hold<K> as "Guard", [K: Kind] |it| "lock": it.entry, "token": it.current_token());

impl<K: Exclusive, O: Ownership> Guard<K, O> {
    /// The fencing token: greater than that of every earlier hold of this lock, in any process. That holds
    /// even after Redis lost its data, unless its clock stepped back by more than the outage lasted; it does
    /// not hold for a [`redisson_fenced_lock`](crate::Client::redisson_fenced_lock), whose counter is lost
    /// with the data. The resource that you protect should reject a token lower than the highest it has seen.
    ///
    /// A wait for a [condition](crate::Condition) releases the lock and acquires it again: the token is a new
    /// one afterwards.
    ///
    /// Tokens exceed 2^53 (except for a `redisson_fenced_lock`, whose first token is 1): in Lua, JavaScript
    /// or JSON, compare them as text padded with zeros.
    #[doc(alias = "fencing_token")]
    pub fn token(&self) -> u64 {
        self.hold.current_token()
    }

    /// Releases the hold, but leaves it in Redis for `rest` from now: it is not renewed, and keeps every
    /// caller out. For a job that succeeded and should not be run again by another node. It takes the place
    /// of a [minimum hold time](crate::RedisLock::min_hold), which must be decided in advance. `rest` is from
    /// 1 ms to 40 days ([`LONGEST_STAY`](crate::guard::LONGEST_STAY)); or zero: then the lock is free at once,
    /// whatever its minimum hold time, for a job that failed and should be tried by another node.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redis_concurrent::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// # let send_invoices = || Err::<(), ()>(());
    /// let lock = Client::connect(&url)?.reentrant_lock("nightly:invoices");
    /// if let Some(guard) = lock.try_lock()? {
    ///     match send_invoices() {
    ///         Ok(()) => guard.unlock_staying(Duration::from_secs(20 * 3600))?, // done for today
    ///         Err(_) => guard.unlock_staying(Duration::ZERO)?,                  // the next node tries
    ///     }
    /// }
    /// assert!(!lock.is_locked()?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// For this thread the hold has ended. On an inner guard of a re-entered lock `rest` has no effect: the
    /// last guard decides. Blocks for one request, for at most the command timeout.
    ///
    /// # Errors
    /// `InvalidInput` for any other `rest`: the hold is then released as by dropping the guard. Otherwise see
    /// [`unlock`](Guard::unlock).
    pub fn unlock_staying(self, rest: Duration) -> Result<(), Error> {
        let stay = Stay::for_rest(rest, self.name())?;
        self.hold.end(How::Released(stay))
    }
}

impl<K: Kind> OwnedGuard<K> {
    /// Sets the lease to its full length, or else gives the hold back, as part of a call that may take as long
    /// as `wait` says.
    pub(crate) fn renewed(mut self, wait: &Wait<'_>) -> Result<Self, Error> {
        if let Err(error) = engine::call::held::renew(&self.hold.entry, self.hold.ticket, None, wait) {
            self.hold.never_counted(wait);
            return Err(error);
        }
        Ok(self)
    }

    /// Gives up the hold without releasing it, for another process to [adopt](crate::Client::adopt). The
    /// lease is set to its full length once more, and is not renewed until the hold is adopted. In this
    /// process the hold has ended: a token from [`lost`](Guard::lost) no longer reports on it, and an
    /// observer receives `released`. Blocks for one request, for at most the command timeout.
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the hold had already ended, `Refused` while other threads of this process
    /// share it, `InvalidInput` if the kind's rule has no `kind.transfer`, `OutcomeUnknown` or `Unavailable`
    /// if Redis did not reply. The guard is dropped then, which releases the hold.
    pub fn into_receipt(mut self) -> Result<Receipt, Error> {
        let grant = engine::call::receipt::detach(&self.hold.entry, self.hold.ticket)?;
        self.hold.ends();
        Ok(Receipt::new(&self.hold.entry, &grant))
    }
}
