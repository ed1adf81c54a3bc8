//! Queries about a lock, its holders and its waiters; and forced unlocks.

use std::sync::Arc;

use redis::{FromRedisValue, Value};

use crate::clock::Moment;
use crate::engine::call::How;
use crate::engine::call::held::{update, update_hold};
use crate::engine::entries::entry::{LockEntries, LockEntry};
use crate::engine::operations::effects::{lock, lock_at};
use crate::error::{Error, ErrorKind};
use crate::guard::{Guard, OwnedGuard, Ownership};
use crate::kind::{Kind, Queueing, Sharing};
use crate::lock::holder::{
    ForcedUnlock, HeldBy, busy, held_by, holders_in, holders_of_either_half, take_away,
};
use crate::lock::inspect::{Holder, Rows, inspect, state_of};
use crate::lock::{RedisLock, this_thread};
use crate::wait::Wait;

impl<K: Kind> RedisLock<K> {
    /// Returns whether the lock is held, in any process. One request.
    ///
    /// # Errors
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    pub fn is_locked(&self) -> Result<bool, Error> {
        Ok(!self.inspect()?.holders.is_empty())
    }

    /// Returns the holder, in any process; if there are several, the first. One request.
    ///
    /// The result describes the grant: which process has it, since when, and the remaining lease. Which of
    /// its threads holds the lock is known only to that process.
    ///
    /// # Errors
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    #[doc(alias = "owner")]
    pub fn holder(&self) -> Result<Option<Holder>, Error> {
        Ok(self.holders()?.into_iter().next())
    }

    /// Returns the holders, in all processes, as [`holder`](RedisLock::holder) describes them. One request;
    /// for a lock with many holders or waiters, one for every few dozen of them.
    ///
    /// # Errors
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    pub fn holders(&self) -> Result<Vec<Holder>, Error> {
        let part = self.part()?;
        holders_in(&part.entry, &part.terms.args)
    }

    /// Returns the error of a caller that did not get the lock in time: a [`Timeout`](ErrorKind::Timeout)
    /// that names the holders' processes (at most three) and for how long they have held the lock. It is
    /// meant for `ok_or_else`. Waits themselves never ask who holds the lock: this call does, with one
    /// request, as [`holders`](RedisLock::holders) does, or with two for a half of a read/write lock, as
    /// holders of either half may block the caller.
    ///
    /// The lock may have changed hands in the meantime, or be free: the error then says so. If the holders
    /// cannot be determined, that error is the [source](std::error::Error::source) of this one.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redis_concurrent::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// # let billing = Client::builder().url(&url).client_name("billing").connect()?;
    /// # let _held = billing.reentrant_lock("stock:42").lock_owned()?;
    /// # let client = Client::connect(&url)?;
    /// let lock = client.reentrant_lock("stock:42");
    /// let sold = lock.try_lock_for(Duration::from_millis(50))?.ok_or_else(|| lock.busy_error());
    /// // "stock:42": timed out: held by billing 5014@shop-1 for 12.3 s
    /// assert!(sold.unwrap_err().to_string().contains("held by billing "));
    /// # Ok(())
    /// # }
    /// ```
    #[doc(alias = "or_who")]
    pub fn busy_error(&self) -> Error {
        let holders = self.part().and_then(holders_of_either_half);
        busy(self.name(), holders.map(|holders| held_by(&holders)))
    }

    /// Returns the hold count of this thread; 0 once its hold is lost, and in a forked child. No request.
    pub fn hold_count(&self) -> usize {
        let (thread, now) = (this_thread(), Moment::now());
        let held = |entry: &Arc<LockEntry>| {
            lock_at(entry, now).map_or(0, |core| core.lock_state.hold_count(thread, now))
        };
        self.entries().iter().map(held).sum()
    }

    /// Returns whether this thread holds the lock. No request.
    pub fn is_held_by_current_thread(&self) -> bool {
        self.hold_count() > 0
    }

    /// Returns the number of threads that wait for the lock, in all processes, as far as Redis knows: exact
    /// for this process; for others as of their last heartbeat, at most a waiter timeout ago. For a
    /// read/write lock, the waiters for both halves. One request.
    ///
    /// Threads of another process that itself holds the lock exclusively are not counted: they have no queue
    /// position in Redis until their process has released the lock, and only that process knows of them (see
    /// [`local_queue_length`](RedisLock::local_queue_length)). So if all contention is within the process
    /// that holds the lock, other processes get 0.
    ///
    /// # Errors
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    pub fn queue_length(&self) -> Result<usize, Error> {
        let part = self.part()?;
        let waiting = self.inspect()?.waiting;
        let here: Vec<_> = [&part.entry].into_iter().chain(&part.other_mode).collect();
        let others = waiting.iter().filter(|it| !here.iter().any(|entry| entry.is_mine(&it.owner)));
        let ours: usize = here.iter().copied().map(queued).sum();
        Ok(others.map(|it| it.threads).sum::<usize>() + ours)
    }

    /// Returns the number of threads of this process that wait for the lock; 0 in a forked child. No request.
    pub fn local_queue_length(&self) -> usize {
        self.entries().iter().map(queued).sum()
    }

    /// Takes the lock away from its holders, in any process, and admits the next waiter. The requests of
    /// [`holders`](RedisLock::holders) to find them, and at most two per holder, each for at most the command
    /// timeout.
    ///
    /// A holder is notified at once if its client is listening: its hold is then lost, and its
    /// [`lost`](crate::Guard::lost) token is cancelled. A client listens from its first use of `lost`, its
    /// first wait, its first hold longer than a heartbeat (a third of its [waiter
    /// timeout](crate::ClientBuilder::waiter_timeout), by default a second), or the first lock that it keeps
    /// ([`linger`](crate::RedisLock::linger)). On a Redis Cluster it listens for each lock separately: from
    /// the use of `lost` on this hold, while one of its threads waits for this lock, or while it keeps this
    /// lock. The return value says whether the holder was notified. A holder that was not notified learns of
    /// the loss at its next renewal or at its release; with a fixed lease, only at its release.
    ///
    /// A foreign string at the key of a [simple lock](crate::kinds::Simple) is deleted if it is still the one that
    /// was found; the foreign holder is not notified.
    ///
    /// # Errors
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    pub fn force_unlock(&self) -> Result<ForcedUnlock, Error> {
        self.force_unlock_if(&HeldBy::Anyone, "", false)
    }

    /// Like [`force_unlock`](RedisLock::force_unlock), with a precondition: takes the lock only from the
    /// holder that was looked at before, and leaves any other holder alone. `reason`, of at most 1,024 bytes,
    /// is sent to a notified holder: its [`loss`](crate::Guard::loss), and the error of its release, end with
    /// it.
    ///
    /// ```
    /// use redis_concurrent::Client;
    /// use redis_concurrent::admin::HeldBy;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// let lock = Client::connect(&url)?.reentrant_lock("stock:42");
    /// # let guard = lock.lock_owned()?;
    /// if let Some(holder) = lock.holder()? {
    ///     // ... ask the person responsible ...
    ///     let by = HeldBy::Owner(holder.owner);
    ///     let forced = lock.force_unlock_if(&by, "stuck since noon; alice", false)?;
    ///     assert!(forced.holders == 1 && forced.skipped == 0);
    /// }
    /// # assert!(guard.unlock().is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// If `gently`, others are kept out for as long as the holder may still be working. The hold is no longer
    /// renewed and the holder is notified, but the next waiter gets the lock only when the holder's guard is
    /// released or dropped, which still returns `LeaseLost`, or when the lease expires. To end it earlier, once the
    /// holder's work is known to have ended, call this again for the same holder, not gently. A lock that its process
    /// only [keeps](RedisLock::linger) is given back at once; a foreign holder's hold, or one that does not expire, is
    /// removed at once.
    ///
    /// # Errors
    /// `InvalidInput` for a longer reason. Otherwise see [`force_unlock`](RedisLock::force_unlock).
    pub fn force_unlock_if(
        &self,
        held_by: &HeldBy,
        reason: &str,
        gently: bool,
    ) -> Result<ForcedUnlock, Error> {
        let (part, ordered) = (self.part()?, K::SHARING == Sharing::Exclusive);
        take_away(&part.entry, &[(&part.terms.args, ordered)], held_by, reason, gently)
    }

    /// The number of holders: exact for this process; for other processes, the number of their holds in
    /// Redis.
    pub(crate) fn hold_count_of_all(&self) -> Result<usize, Error> {
        let entry = self.entry()?;
        let holders = self.inspect()?.holders;
        let others = holders.iter().filter(|held| !entry.is_mine(&held.holder.owner)).count();
        Ok(others + lock(entry)?.lock_state.holders(Moment::now()))
    }

    /// All entries of this lock in this process: a single one, or one for each call.
    fn entries(&self) -> Vec<Arc<LockEntry>> {
        match self.entry() {
            Ok(entry) if K::QUEUEING == Queueing::PerCaller => LockEntries::all_of(entry),
            Ok(entry) => vec![entry.clone()],
            Err(_) => Vec::new(),
        }
    }

    pub(crate) fn inspect(&self) -> Result<Rows, Error> {
        inspect(self.entry()?, &self.part()?.terms.args)
    }
}

/// The number of threads of this process that wait at this entry. None of them is in a forked child.
fn queued(entry: &Arc<LockEntry>) -> usize {
    lock(entry).map_or(0, |core| core.lock_state.local_queue_length())
}

impl<K: Kind> RedisLock<K> {
    /// The same lock, on the same terms, with requests as `kind` makes them: for a kind with
    /// [arguments](Kind::args), such as a number of permits.
    #[must_use]
    pub fn with_kind(&self, kind: K) -> Self {
        RedisLock { kind: kind.into(), part: self.part.clone() }.asking()
    }

    /// Updates the state: calls the rule's `update` with the first three strings of `what`, then admits the
    /// waiters that can now be admitted. Applied once, even if the request is sent twice. Returns the list
    /// that the rule returns; a list of one can also be converted to that one's type. One request; blocks for
    /// at most the command timeout.
    ///
    /// # Errors
    /// `InvalidInput` if the rule has no `update`, or fails. `OutcomeUnknown` if Redis did not reply: the
    /// update may have been applied, or may still be. `Protocol` if the list cannot be converted to a `T`.
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`.
    pub fn update_state<T: FromRedisValue>(&self, what: &[&str]) -> Result<T, Error> {
        converted(self.name(), update(self.entry()?, what)?)
    }

    /// Returns what the rule's `inspect` returns, as [`update_state`](RedisLock::update_state) does;
    /// `question` is its `F[6]`. One request; blocks for at most the command timeout, and no longer than
    /// `wait` allows, if this is part of a longer call.
    ///
    /// # Errors
    /// `InvalidInput` if the rule fails, `Protocol` if the list cannot be converted to a `T`. `Unavailable`,
    /// `WrongType`, `Closed`, `Forked`.
    pub fn inspect_state<'w, T: FromRedisValue>(
        &self,
        question: &str,
        wait: impl Into<Wait<'w>>,
    ) -> Result<T, Error> {
        converted(self.name(), state_of(self.entry()?, question, &wait.into())?)
    }
}

impl<K: Kind, O: Ownership> Guard<K, O> {
    /// The number that the rule's `try_acquire` returned after that of the hold: how many permits it has, say.
    /// 0 if there was none.
    pub fn value(&self) -> u64 {
        self.hold.value
    }

    /// Updates the state as the holder: calls the rule's `update` with `what`, `arg`, and this hold's owner id.
    /// It must return `{1}`, or `{0}` if that owner has no hold: then this hold is lost. Otherwise like
    /// [`update_state`](RedisLock::update_state).
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the hold is lost. See also [`update_state`](RedisLock::update_state).
    pub fn update(&self, what: &str, arg: &str) -> Result<(), Error> {
        update_hold(&self.hold.entry, self.hold.ticket, what, arg)
    }
}

impl<K: Kind> OwnedGuard<K> {
    /// Ends the hold by an update, as when reserved goods are sold: calls the rule's `update` with the first
    /// three strings of `what`, under the owner id of this hold, `F[1]`. It must end that hold and return
    /// `{1}`, or `{0}` if there is none; as `again`, it must say which of the two it was, for a minute.
    ///
    /// Takes effect once, however often it has to be sent: while Redis does not reply, it is sent again, for
    /// as long as [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout) says, at most 30 s. Waits for
    /// the [replicas](RedisLock::with_replicas) that must have the hold. Usually one request.
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the hold had ended before. `OutcomeUnknown` if there was no reply: the update
    /// was applied, or else the hold is released in the background. `Unavailable` if Redis accepted no request:
    /// the hold is released. `NotReplicated` if the update was applied, and too few replicas have it. `Forked`.
    pub fn conclude(self, what: &[&str]) -> Result<(), Error> {
        let replicas = self.hold.replicas;
        self.hold.end(How::Updated(what, replicas))
    }
}

fn converted<T: FromRedisValue>(name: &str, mut reply: Vec<Value>) -> Result<T, Error> {
    let only = if reply.len() == 1 { reply.first().cloned() } else { None };
    let whole = redis::from_redis_value(Value::Array(std::mem::take(&mut reply)));
    whole.or_else(|e| only.map_or(Err(e), redis::from_redis_value)).map_err(|e| {
        Error::new(ErrorKind::Protocol, name)
            .because("the rule's reply is not of the expected type")
            .caused_by(e)
    })
}
