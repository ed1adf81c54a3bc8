//! The terms on which a lock is taken: its lease, local hand-off, minimum hold time, replicas.

use std::time::Duration;

use super::RedisLock;
use crate::clock::Millis;
use crate::engine::redis::replicas::{self, Replicas};
use crate::error::{Error, ErrorKind};
use crate::kind::{Exclusive, Kind};
use crate::settings::{check_lease, check_stay};

/// How long a process may keep a lock for its next hold.
const SHORTEST_LINGER: Duration = Duration::from_millis(1);
const LONGEST_LINGER: Duration = Duration::from_secs(60);
/// The lease of what a process keeps, unless that is kept for long.
const LINGERING_LEASE: Duration = Duration::from_secs(3);
/// Far more than any server has.
const MOST_REPLICAS: usize = 100;

impl<K: Kind> RedisLock<K> {
    /// The same lock with a fixed lease: a hold expires by itself at most `lease` after it was granted; no renewals
    /// in the background keep it alive. After a wait it counts from the last busy reply; a hold of which less than
    /// half is left by then is set to the full lease first. At least 100 ms, at most a year.
    ///
    /// A hold that was waited for begins with a lease of one [waiter
    /// timeout](crate::ClientBuilder::waiter_timeout), and is extended to the rest of its own lease once,
    /// half a second later: a waiter that died just before its turn costs others no more than that.
    ///
    /// A thread that holds the lock and re-enters by such a handle gets the hold that it had, with its lease:
    /// it is neither cut short under the outer work nor made longer, and no request is sent (unlike in
    /// Redisson, where a re-entry sets the lease anew). [`remaining`](crate::Guard::remaining) returns the
    /// remaining lease, [`renew_for`](crate::Guard::renew_for) sets another. The same applies to
    /// [`fair`](RedisLock::fair) and [`min_hold`](RedisLock::min_hold): the terms of a hold are those on
    /// which it began. Only [`with_replicas`](RedisLock::with_replicas) applies to a re-entry too.
    #[must_use]
    #[doc(alias = "with_ttl")]
    pub fn with_lease(&self, lease: Duration) -> Self {
        let mut lock = self.clone();
        lock.does_not_linger();
        lock.terms.lease = lease;
        lock.terms.fixed = true;
        lock.checked(|| check_lease("lease", lease))
    }

    /// The same lock for requests without local hand-off: processes in order of arrival, one turn each;
    /// threads in order of arrival within a process.
    ///
    /// This is what java.util.concurrent calls a fair lock (`new ReentrantLock(true)`), up to one difference: between
    /// threads of several processes it is the processes that take turns. For a
    /// [read/write lock](crate::ReadWriteLock), whose fairness there is about readers and writers, see
    /// [`arrival_order`](crate::ReadWriteLock::arrival_order).
    #[must_use]
    pub fn fair(&self) -> Self {
        let mut lock = self.clone();
        lock.does_not_linger();
        lock.terms.fair = true;
        lock
    }

    /// The same lock for holds of at least `least`: one that is released earlier stays in Redis for the rest
    /// of it, is not renewed, and keeps every caller out, its own thread too. So a job that is over in a
    /// second is not run again by a process whose clock is a minute late (ShedLock's `lockAtLeastFor`).
    ///
    /// It counts from when the hold began. For the releasing caller it has ended: `unlock()` does not block
    /// for it. A process that dies before it releases leaves its hold for the lease, which may be shorter; so
    /// does one that releases while Redis is silent, for the lease at most. Holds of such a handle ask Redis
    /// one by one, as [`fair`](RedisLock::fair) ones do. A [receipt](crate::Receipt) and a wait for a
    /// [condition](crate::Condition) release the hold without it.
    ///
    /// From 1 ms to 40 days ([`LONGEST_STAY`](crate::LONGEST_STAY)), and not longer than a [fixed lease](RedisLock::with_lease): any other value is
    /// `InvalidInput` on the first call.
    #[must_use]
    pub fn min_hold(&self, least: Duration) -> Self {
        let mut lock = self.clone();
        lock.terms.at_least = least.into();
        lock.does_not_linger();
        lock.terms.fair = true;
        lock.checked(|| check_stay("the minimum hold time", least))
    }

    /// The same lock for holds that count only once `n` replicas have them: `lock` and its variants then wait
    /// for them, at most `timeout` longer. If too few have it by then, the hold is given back, and the error is
    /// `NotReplicated`, also from `try_lock`.
    ///
    /// It costs one more round trip for each call that acquires, a re-entry too, plus the time that the
    /// replicas take to acknowledge. For that time it keeps a connection of the pool: while a replica hangs, other
    /// calls of the client may wait for one as long. Holds of such a handle ask Redis one by one, as
    /// [`fair`](RedisLock::fair) ones do. What it is worth: a replica that becomes the primary knows of the
    /// hold if it is one of those that had it. With fewer than all replicas, another may be promoted; and no
    /// replica is required to have later renewals, or the release. So it makes two holders at a failover
    /// rare, and does not rule them out: what protects the data is the [token](crate::Guard::token).
    ///
    /// After a wait for a [condition](crate::Condition) too few replicas are an error of the wait, and the
    /// lock is held.
    ///
    /// `n` is from 1 to 100, `timeout` from 1 ms to less than the lease: any other value is `InvalidInput` on the
    /// first call.
    #[must_use]
    pub fn with_replicas(&self, n: usize, timeout: Duration) -> Self {
        let mut lock = self.clone();
        lock.replicas = Some(Replicas { n, limit: timeout });
        lock.does_not_linger();
        lock.terms.fair = true;
        lock.checked(|| {
            if !(1..=MOST_REPLICAS).contains(&n) {
                return Err(format!("replicas must be between 1 and {MOST_REPLICAS}, got {n}"));
            }
            Ok(())
        })
    }

    /// It is given back as soon as its last hold here ends, and its lease is the client's.
    fn does_not_linger(&mut self) {
        if self.terms.lingers()
            && let Ok(entry) = &self.entry
        {
            self.terms.lease = entry.shared.config.lease;
            self.terms.linger = Millis::default();
        }
    }

    /// The same handle, unless its terms cannot work: then each call on it returns the error.
    pub(crate) fn checked(mut self, check: impl FnOnce() -> Result<(), String>) -> Self {
        let Ok(entry) = &self.entry else { return self };
        if let Err(why) = check().and_then(|()| replicas::agree(&self.terms, self.replicas)) {
            self.entry = Err(Error::new(ErrorKind::InvalidInput, entry.name()).because(why));
        }
        self
    }
}

impl<K: Exclusive> RedisLock<K> {
    /// The same lock, kept by its process: when its last hold here ends and no thread here waits for it, it is
    /// not given back yet, and the next hold of this process begins without a request, in a fraction of a
    /// microsecond. For locks that one process takes again and again, and others seldom: a shard's, a tenant's
    /// behind sticky routing. Cluster file systems keep their locks like this (the glocks of GFS2).
    ///
    /// As soon as another process waits for it, or tries it, this one is told so and gives it back: at once, or
    /// when its hold ends (waiting threads of this process may have it for one more [local hand-off
    /// period](crate::ClientBuilder::local_handoff)). Otherwise it gives it back `linger` after the first hold
    /// ended. So another process waits for one message longer than it would for a holder; if the message is
    /// lost, for a heartbeat longer; if messages cannot be published (an ACL), for `linger`.
    ///
    /// What a user must know:
    ///
    /// - *A process that dies keeps others out for the lease*, even between its holds, and so does one that ends
    ///   without [`Client::close`](crate::Client::close): so the lease of such a handle is short, 3 s or three
    ///   times `linger`, where the client's is longer. Close the client.
    /// - *To Redis the lock is held meanwhile*: [`is_locked`](RedisLock::is_locked) and
    ///   [`holder`](RedisLock::holder) say so, and `try_lock` of another process is `None` once, and free a
    ///   message later. [`hold_count`](RedisLock::hold_count) is 0.
    /// - *If Redis loses its data*, this process may begin new holds until it notices: as a rule when its
    ///   connection for messages breaks, and after 2 s where the network is silent. Others get the lock meanwhile,
    ///   and the [tokens](crate::Guard::token) tell. Nor does an unlock that keeps the lock hear from Redis whether
    ///   the hold was still there.
    /// - Processes with a version of this library that does not know of it wait for up to `linger`, and so do programs
    ///   with another library at [`simple_lock_at`](crate::Client::simple_lock_at) and
    ///   [`redisson_lock`](crate::Client::redisson_lock). So do all
    ///   others for a lock of a [kind of your own](crate::Kind) whose `kind.is_full` does not return the holder's
    ///   id.
    ///
    /// A lock that several processes take in turn gains nothing. The library notices: after three hand-backs in a row
    /// before it was used again, the lock does not linger for a while, at most a second. Where it is rarely contended
    /// and no core is idle, the other process also waits until the thread that reads the message gets a core.
    ///
    /// With [`fair`](RedisLock::fair), [`with_lease`](RedisLock::with_lease),
    /// [`min_hold`](RedisLock::min_hold) or [`with_replicas`](RedisLock::with_replicas) a lock does not linger. It
    /// does not after a wait for a [condition](crate::Condition), until it was given back.
    ///
    /// From 1 ms to 1 min: any other value is `InvalidInput` on the first call.
    ///
    /// ```
    /// use std::time::Duration;
    /// use redis_concurrent::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// let client = Client::connect(&url)?;
    /// let shard = client.reentrant_lock("shard:7").linger(Duration::from_secs(1));
    /// for _ in 0..10 {
    ///     shard.with(|guard| println!("one batch, under token {}", guard.token()))?;
    /// }
    /// client.close()?; // gives back what was kept
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn linger(&self, linger: Duration) -> Self {
        let mut lock = self.clone();
        if !lock.terms.fixed && !lock.terms.fair {
            lock.does_not_linger();
            lock.terms.linger = linger.into();
            lock.terms.lease = lock.terms.lease.min(LINGERING_LEASE.max(linger.saturating_mul(3)));
        }
        lock.checked(|| {
            if !(SHORTEST_LINGER..=LONGEST_LINGER).contains(&linger) {
                return Err(format!(
                    "the time to linger must be between {SHORTEST_LINGER:?} and {LONGEST_LINGER:?}, got {linger:?}"
                ));
            }
            Ok(())
        })
    }
}
