//! The guards: a hold, until it is given back.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine;
use crate::engine::entry::Cell;
use crate::engine::state::lock_state::{Grip, Ticket};
use crate::error::{Error, ErrorKind};
use crate::kind::{Exclusive, Kind, Sharing};
use crate::lock::RedisLock;
use crate::lock::receipt::Receipt;
use crate::settings::check_lease;

/// What a guard has: the hold itself. Both guards dereference to it.
pub struct Hold<K: Kind> {
    cell: Arc<Cell>,
    ticket: Ticket,
    /// Its token when it began.
    first_token: u64,
    /// What the rule said beside the grant.
    beside: u64,
    released: bool,
    kind: PhantomData<fn() -> K>,
}

impl<K: Kind> Hold<K> {
    pub(crate) fn new(cell: Arc<Cell>, grip: Grip) -> Self {
        let Grip { ticket, token, value, .. } = grip;
        Hold { cell, ticket, first_token: token, beside: value, released: false, kind: PhantomData }
    }

    fn release(mut self) -> Result<(), Error> {
        self.released = true;
        engine::release(&self.cell, self.ticket)
    }

    /// It is given back before anybody had it: it does not stay. That is waited for until `limit`.
    pub(crate) fn never_counted(mut self, limit: Moment) {
        self.released = true;
        engine::take_back(&self.cell, self.ticket, limit);
    }

    /// Whether it is a hold of this lock.
    pub(crate) fn is_of(&self, cell: &Arc<Cell>) -> bool {
        Arc::ptr_eq(&self.cell, cell)
    }

    /// Whether its end is the end of its thread's hold.
    pub(crate) fn is_last(&self) -> bool {
        engine::held::is_last(&self.cell, self.ticket)
    }

    /// Ends it here, but not in Redis.
    fn part(mut self) -> Result<Receipt, Error> {
        let tenure = engine::receipt::part(&self.cell, self.ticket)?;
        self.released = true;
        let owner = self.cell.owner_id(tenure.owner);
        Ok(Receipt::new(K::NAME, &self.cell, owner, &tenure))
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        &self.cell.name
    }

    /// How long the hold is certain to last if nothing renews it; nothing once it is lost. Counted
    /// here, without asking Redis, from before the request that got it.
    pub fn remaining(&self) -> Duration {
        engine::held::remaining(&self.cell, self.ticket)
    }

    /// Whether the hold ended before it was released. No request: with Redis silent it is known
    /// when the lease must have ended.
    pub fn is_lost(&self) -> bool {
        self.remaining().is_zero()
    }

    /// A token that is cancelled when the hold is lost, also while Redis is silent: to hand to the
    /// work that is done under the lock. From the first one on the client listens (with a thread and a
    /// connection, made in the background), so that a forced unlock is told at once.
    pub fn lost(&self) -> CancellationToken {
        engine::held::lost_token(&self.cell, self.ticket)
    }

    /// Sets the lease to end `lease` from now (sets, never adds). On a renewed hold the renewals go
    /// on and never shorten it. One request; at least 100 ms, at most a year.
    ///
    /// # Errors
    /// `LeaseLost` on a lost hold, `Config` for a lease that is too short, `Unknown` or
    /// `Unavailable` when Redis did not answer.
    pub fn renew_for(&self, lease: Duration) -> Result<(), Error> {
        check_lease("lease", lease)
            .map_err(|why| Error::new(ErrorKind::InvalidInput, &self.cell.name).because(why))?;
        engine::held::renew_for(&self.cell, self.ticket, lease)
    }
}

impl<K: Kind> Hold<K> {
    /// What the rule said beside the grant.
    pub(crate) fn value(&self) -> u64 {
        self.beside
    }

    /// The token of an exclusive kind, for code that does not know the kind.
    pub(crate) fn token_if_exclusive(&self) -> Option<u64> {
        (K::SHARING == Sharing::Exclusive).then(|| self.current_token())
    }

    /// Not always that of its beginning: a wait for a condition gives the lock up and comes in anew.
    pub(crate) fn current_token(&self) -> u64 {
        engine::held::token(&self.cell, self.ticket).unwrap_or(self.first_token)
    }

    /// The lock that it is a hold of.
    pub(crate) fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }
}

impl<K: Exclusive> Hold<K> {
    /// The fencing token: greater than that of every earlier hold of this lock, in any process,
    /// also after Redis lost its data (unless its clock stepped back by more than the outage
    /// lasted). Let what you protect refuse a token lower than the highest it has seen.
    ///
    /// A wait for a [condition](crate::Condition) gives the lock up and comes in anew: the token is
    /// another one afterwards.
    ///
    /// Tokens exceed 2^53: in Lua, JavaScript or JSON compare them as text padded with zeros.
    pub fn token(&self) -> u64 {
        self.current_token()
    }
}

impl<K: Kind> fmt::Debug for Hold<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold").field("lock", &self.cell).field("token", &self.current_token()).finish()
    }
}

impl<K: Kind> Drop for Hold<K> {
    fn drop(&mut self) {
        if !self.released {
            engine::release_quietly(&self.cell, self.ticket);
        }
    }
}

/// A hold of a thread: released when dropped. It stays on its thread.
///
/// Dropping it does what [`unlock`](Guard::unlock) does and tells the observer of an error. Leaked
/// by `mem::forget`, it is held, and renewed, until the client is closed.
#[must_use = "a guard that is not kept releases at once"]
pub struct Guard<'a, K: Kind> {
    hold: Hold<K>,
    // Borrows its lock, and like the JDK's it belongs to the thread: not Send.
    lock: PhantomData<(&'a RedisLock<K>, *const ())>,
}

impl<'a, K: Kind> Guard<'a, K> {
    pub(crate) fn new(_lock: &'a RedisLock<K>, hold: Hold<K>) -> Self {
        Guard { hold, lock: PhantomData }
    }

    /// Gives the hold back; the lock is released when it was the thread's last one. Blocks for the
    /// command limit at most, and not at all where a thread of this process is handed the lock.
    ///
    /// # Errors
    /// `LeaseLost` if the hold was over before, also for an inner one of several guards; `Closed` if the client was
    /// closed. `Unknown` if Redis did not answer, `Unavailable` if it is sure not to have run the release: it then
    /// goes on in the background until the lease is over. `Unknown` too if the hold is over and nobody can tell
    /// whether it was before: the request was sent twice, as its connection broke, and Redis may have forgotten the
    /// hold in between.
    pub fn unlock(self) -> Result<(), Error> {
        self.hold.release()
    }
}

impl<K: Kind> Guard<'_, K> {
    /// Redis has let another mode's hold in instead of this one: it ends here, without a request.
    pub(crate) fn replaced(mut self) -> Result<(), Error> {
        self.hold.released = true;
        engine::replaced(&self.hold.cell, self.hold.ticket)
    }
}

/// A hold of the guard itself: it may go to another thread, and is released when dropped, as a
/// [`Guard`] is.
#[must_use = "a guard that is not kept releases at once"]
pub struct OwnedGuard<K: Kind> {
    hold: Hold<K>,
}

impl<K: Kind> OwnedGuard<K> {
    pub(crate) fn new(hold: Hold<K>) -> Self {
        OwnedGuard { hold }
    }

    /// Gives the hold back. Blocks and errs as [`Guard::unlock`] does.
    ///
    /// # Errors
    /// `LeaseLost`, `Closed`, `Unknown`, `Unavailable`.
    pub fn unlock(self) -> Result<(), Error> {
        self.hold.release()
    }

    /// Ends the hold by a change that the kind's rule makes of it, under its own owner id.
    pub(crate) fn conclude(mut self, what: &str) -> Result<(), Error> {
        self.hold.released = true;
        engine::conclude(&self.hold.cell, self.hold.ticket, what)
    }

    /// Lets go of the hold without giving it back, for another process to
    /// [adopt](crate::Client::adopt): the lease is set to its full length once more, then nothing renews
    /// it until it is adopted. Here the hold has ended: a token from [`lost`](Hold::lost) tells nothing of
    /// it any more, and an observer hears `released`. Blocks for one request, at most the command limit.
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the hold was over before, `Refused` while other threads of this process
    /// share it, `Config` where the kind's rule has no `kind.transfer`, `Unknown` or `Unavailable` when
    /// Redis did not answer. The hold is given back then, as it is when its guard is dropped.
    pub fn into_receipt(self) -> Result<Receipt, Error> {
        self.hold.part()
    }
}

impl<K: Kind> Deref for Guard<'_, K> {
    type Target = Hold<K>;

    fn deref(&self) -> &Hold<K> {
        &self.hold
    }
}

impl<K: Kind> Deref for OwnedGuard<K> {
    type Target = Hold<K>;

    fn deref(&self) -> &Hold<K> {
        &self.hold
    }
}

impl<K: Kind> fmt::Debug for Guard<'_, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}

impl<K: Kind> fmt::Debug for OwnedGuard<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.hold.fmt(f)
    }
}
