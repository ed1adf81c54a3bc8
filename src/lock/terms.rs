//! The terms on which a lock is acquired: its lease, local hand-off, minimum hold time, replicas.

use std::time::Duration;

use super::RedisLock;
use crate::clock::Millis;
use crate::engine::call::replicas::Replicas;
use crate::engine::call::several::Part;
use crate::engine::state::lock_state::MOST_PRIORITY;
use crate::kind::{Exclusive, Kind};
use crate::settings::{check_stay, within};

/// The bounds of the time for which a process may keep a lock for its next hold.
const SHORTEST_LINGER: Duration = Duration::from_millis(1);
const LONGEST_LINGER: Duration = Duration::from_secs(60);
/// The lease of a lock that lingers, unless it lingers for long.
const LINGERING_LEASE: Duration = Duration::from_secs(3);
/// As many positions are counted by one script.
const MOST_WAITERS: usize = 1_000;
/// Far more than any server has.
const MOST_REPLICAS: usize = 100;

impl<K: Kind> RedisLock<K> {
    /// The same lock with a fixed lease: a hold expires at most `lease` after it was granted, and is not
    /// renewed in the background. After a wait the lease counts from the last busy reply; if less than half
    /// of it is left then, it is first set to its full length. At least 100 ms, at most a year.
    ///
    /// A hold that was waited for begins with a lease of one [waiter
    /// timeout](crate::ClientBuilder::waiter_timeout), which is extended once, half a second later, to the
    /// rest of the hold's own lease. So a waiter that died just before its turn costs others no more than a
    /// waiter timeout.
    ///
    /// A thread that holds the lock and re-enters through such a handle gets its existing hold with its
    /// lease: the lease of the outer work is neither shortened nor extended, and no request is sent (unlike
    /// in Redisson, where a re-entry resets the lease). [`remaining`](crate::Guard::remaining) returns the
    /// remaining lease, and [`renew_for`](crate::Guard::renew_for) sets another. The same applies to
    /// [`fair`](RedisLock::fair) and [`min_hold`](RedisLock::min_hold): a hold keeps the terms on which it
    /// began. Only [`with_replicas`](RedisLock::with_replicas) applies to a re-entry, too.
    #[must_use]
    #[doc(alias = "with_ttl")]
    pub fn with_lease(&self, lease: Duration) -> Self {
        RedisLock { kind: self.kind.clone(), part: self.part.clone().and_then(|part| part.with_lease(lease)) }
    }

    /// The same lock without local hand-off: processes take turns in order of arrival, one hold each; within
    /// a process, threads are served in order of arrival.
    ///
    /// This is what java.util.concurrent calls a fair lock (`new ReentrantLock(true)`), with one difference:
    /// across processes it is the processes, not their threads, that take turns. For a [read/write
    /// lock](crate::ReadWriteLock), where fairness in java.util.concurrent is about readers and writers, see
    /// [`arrival_order`](crate::ReadWriteLock::arrival_order).
    #[must_use]
    pub fn fair(&self) -> Self {
        self.fair_and(|_| Ok(()))
    }

    /// The same lock with a minimum hold time: a hold that is released earlier than `least` stays in Redis
    /// until then, is not renewed, and keeps every caller out, including its own thread. So a job that
    /// finishes within a second is not run again by a process whose clock is a minute late (ShedLock's
    /// `lockAtLeastFor`).
    ///
    /// The time counts from when the hold began. For the releasing caller the hold has ended: `unlock()` does
    /// not block until then. If a process dies before it releases, its hold stays for the lease, which may be
    /// shorter; if Redis does not respond to the release, the hold stays for at most the lease. Holds of such
    /// a handle ask Redis one by one, as those of a [`fair`](RedisLock::fair) lock do. A
    /// [receipt](crate::Receipt) and a wait for a [condition](crate::Condition) give up the hold without a
    /// minimum hold time.
    ///
    /// From 1 ms to 40 days ([`LONGEST_STAY`](crate::guard::LONGEST_STAY)), and not longer than a [fixed
    /// lease](RedisLock::with_lease): any other value is `InvalidInput` on the first call.
    #[must_use]
    pub fn min_hold(&self, least: Duration) -> Self {
        self.fair_and(|part| {
            part.terms.at_least = least.into();
            check_stay("the minimum hold time", least)
        })
    }

    /// The same lock with holds that count only once `n` replicas have them: `lock` and its variants then
    /// wait for the replicas, for at most `timeout`. If too few have the hold in time, it is released, and
    /// the error is `NotReplicated`, also from `try_lock`.
    ///
    /// Each call that acquires, including a re-entry, costs one more round trip, plus the time that the
    /// replicas take to acknowledge. It occupies a connection of the pool for that time: while a replica
    /// hangs, other calls of the client may wait as long for a connection. Holds of such a handle ask Redis
    /// one by one, as those of a [`fair`](RedisLock::fair) lock do.
    ///
    /// What it is worth: a replica that is promoted knows of the hold if it is one of those that acknowledged
    /// it. Unless all replicas must acknowledge, another one may be promoted; and no replica is required to
    /// have later renewals, or the release. So two holders after a failover become rare, but not impossible:
    /// what protects the data is the [token](crate::Guard::token).
    ///
    /// If too few replicas have the hold after a wait for a [condition](crate::Condition), the wait returns
    /// the error, and the lock is held.
    ///
    /// `n` is from 1 to 100, `timeout` from 1 ms to less than the lease: any other value is `InvalidInput` on
    /// the first call.
    #[must_use]
    pub fn with_replicas(&self, n: usize, timeout: Duration) -> Self {
        self.fair_and(|part| {
            part.replicas = Some(Replicas { n, limit: timeout });
            within("replicas", n, 1..=MOST_REPLICAS)
        })
    }

    /// The same lock for callers that do not join a long queue: if `n` threads wait already, a call that would have
    /// to wait returns [`QueueFull`](crate::ErrorKind::QueueFull) at once. So a service that is slow sheds load, where
    /// its callers would time out one after the other. With 0 nobody waits. `try_lock` takes no place, and is not
    /// affected.
    ///
    /// Redis counts the waiters of all processes in the step that gives out a place, so two callers do not both
    /// get the last one. Each process counts as the number of its threads that waited when it was last heard, at
    /// most a heartbeat ago (a third of the [waiter timeout](crate::ClientBuilder::waiter_timeout), at most a
    /// second). Behind a thread of its own process, a caller sends no request: then that process counts, its own
    /// threads now (also one whose first request is not answered yet, as it may have to wait), and the others' as of its
    /// last heartbeat. Threads behind a holder of their own process are
    /// not in Redis's queue yet, and only that process counts them. Who waits is never turned away again, and one
    /// who would wait for a [condition](crate::Condition) is not counted.
    ///
    /// The limit is the handle's, for its own calls: use the same everywhere. It costs two commands in Redis for each
    /// request of a waiter. At most 1,000, any other value is `InvalidInput` on the first call.
    #[must_use]
    pub fn max_waiters(&self, n: usize) -> Self {
        self.clone().altered(|part| {
            part.max_waiters = Some(n);
            within("waiters", n, 0..=MOST_WAITERS)
        })
    }

    /// The same lock for callers that are more or less urgent than others: from −3 to 3, and 0 unless it is set.
    /// As with Java's threads, a higher number is more urgent. Waiters of one priority come in by arrival, in Redis
    /// as within a process. Any other value is `InvalidInput` on the first call.
    ///
    /// *Each step counts as 30 s of waiting*: a caller passes those of the next lower priority that came up to 30 s
    /// before it, and no others. So the less urgent wait longer, but do not starve: after 30 s a waiter counts as one
    /// of the next priority that comes now. The place is fixed when it is taken; nothing more is sent for it.
    ///
    /// It is about waiting only: who holds the lock keeps it, and a [local
    /// hand-off](crate::ClientBuilder::local_handoff) still goes to the next thread of the process, unless that is
    /// less urgent than the thread that acquired the lock. A process has one place in Redis, with the priority of the
    /// first of its threads: if a more urgent one comes, this takes a request to leave that place and one for the
    /// new, and the old one is taken again afterwards. A wait for a [condition](crate::Condition) comes back with the
    /// priority of its hold. Of a [read/write lock](crate::ReadWriteLock), it orders each half by itself: writers
    /// still come before all readers.
    ///
    /// ```
    /// use redis_concurrent::Client;
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let url = server.url();
    /// let client = Client::connect(&url)?;
    /// let index = client.reentrant_lock("index");
    /// let for_users = index.max_waiters(20); // the 21st gets `QueueFull` at once
    /// let nightly = index.priority(-1); // lets users pass, for 30 s each time it waits
    /// # drop(for_users.lock()?);
    /// # drop(nightly.lock()?);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    #[doc(alias = "set_priority")]
    pub fn priority(&self, n: i8) -> Self {
        self.clone().altered(|part| {
            part.terms.priority = n;
            within("a priority", n, -MOST_PRIORITY..=MOST_PRIORITY)
        })
    }

    fn fair_and(&self, alter: impl FnOnce(&mut Part) -> Result<(), String>) -> Self {
        self.clone().altered(|part| {
            does_not_linger(part);
            part.terms.fair = true;
            alter(part)
        })
    }

    /// The same lock with what `alter` alters; an error of it, or of terms that contradict each other, is returned by
    /// every call that would send a request.
    pub(super) fn altered(self, alter: impl FnOnce(&mut Part) -> Result<(), String>) -> Self {
        RedisLock { part: self.part.and_then(|part| part.altered(alter)), kind: self.kind }
    }

    /// The same lock, if `check` finds no error.
    pub(crate) fn checked(self, check: impl FnOnce() -> Result<(), String>) -> Self {
        self.altered(|_| check())
    }
}

/// Sets the usual lease in place of that of a lock that is kept.
fn does_not_linger(part: &mut Part) {
    if part.terms.lingers() {
        (part.terms.lease, part.terms.linger) = (part.entry.shared.config.lease, Millis::default());
    }
}

impl<K: Exclusive> RedisLock<K> {
    /// The same lock, kept by the process between its holds. When the last hold here ends and no thread here
    /// waits, the lock is not released yet, and the next hold of this process begins without a request, in a
    /// fraction of a microsecond. For locks that one process acquires again and again and others rarely: that
    /// of a shard, or of a tenant behind sticky routing. Cluster file systems keep their locks in the same
    /// way (the glocks of GFS2).
    ///
    /// As soon as another process waits for the lock, or tries it, this process is notified and releases it:
    /// at once, or when its hold ends (waiting threads of this process may have it for one more [local
    /// hand-off period](crate::ClientBuilder::local_handoff)). Otherwise it releases the lock `linger` after
    /// the first hold ended. So another process waits for one message longer than it would for a holder; if
    /// the message is lost, for a heartbeat longer; if messages cannot be published (because of an ACL), for
    /// `linger`.
    ///
    /// What to know before using it:
    ///
    /// - *A process that dies keeps others out for the lease*, even between its holds, and so does one that
    ///   exits without [`Client::close`](crate::Client::close). So the lease of such a handle is short: 3 s
    ///   or three times `linger`, whichever is longer, unless the client's is shorter. Close the client.
    /// - *The first hold does not linger.* A lock is kept only while this client listens for others that want it: its
    ///   first release subscribes, and is sent as usual. On a cluster that is so for each lock.
    /// - *To Redis the lock is held between holds*: [`is_locked`](RedisLock::is_locked) and
    ///   [`holder`](RedisLock::holder) say so, and the first `try_lock` of another process returns `None`; a
    ///   message later the lock is free. [`hold_count`](RedisLock::hold_count) is 0.
    /// - *If Redis loses its data*, this process may begin new holds until it notices: usually when its
    ///   connection for messages breaks, or after 2 s if the network is silent. Others may get the lock in
    ///   the meantime; the [tokens](crate::Guard::token) tell the holds apart. Nor does an unlock that keeps
    ///   the lock learn from Redis whether the hold still existed.
    /// - Processes with a version of this library that does not know of lingering wait for up to `linger`. So
    ///   do programs that use another library at [`simple_lock_at`](crate::Client::simple_lock_at) and
    ///   [`redisson_lock`](crate::Client::redisson_lock), and, for a lock of a [kind of your
    ///   own](crate::kinds::Kind) whose `kind.is_full` does not return the holder's id, all other processes.
    ///
    /// A lock that several processes acquire in turn gains nothing. The library detects that: after the lock
    /// was given back three times in a row before it was used again, it does not linger for a while, at most
    /// a second. Where the lock is rarely contended and no core is idle, the other process also waits until
    /// the thread that reads the message is scheduled.
    ///
    /// Combined with [`fair`](RedisLock::fair), [`with_lease`](RedisLock::with_lease),
    /// [`min_hold`](RedisLock::min_hold) or [`with_replicas`](RedisLock::with_replicas), a lock does not
    /// linger. Nor does it linger after a wait for a [condition](crate::Condition), until it has been
    /// released.
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
    /// client.close()?; // releases the lock that was kept
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn linger(&self, linger: Duration) -> Self {
        self.clone().altered(|part| {
            if !part.terms.fixed && !part.terms.fair {
                does_not_linger(part);
                part.terms.linger = linger.into();
                part.terms.lease = part.terms.lease.min(LINGERING_LEASE.max(linger.saturating_mul(3)));
            }
            within("linger", linger, SHORTEST_LINGER..=LONGEST_LINGER)
        })
    }
}
