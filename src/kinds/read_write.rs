//! The read/write lock: its two halves, and what belongs to both.

use crate::client::Client;
use crate::error::Error;
use crate::guard::Guard;
use crate::kind::{Exclusive, Kind, Reentrancy, Sharing};
use crate::lock::RedisLock;

/// The half of a [`ReadWriteLock`] that many can hold at a time.
pub type ReadLock = RedisLock<Read>;

/// The half of a [`ReadWriteLock`] that one can hold at a time.
pub type WriteLock = RedisLock<Write>;

/// A lock for many readers or one writer at a time, across all processes. Both halves are locks like any
/// other, with every way to acquire them.
///
/// ```
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let prices = client.read_write_lock("prices");
///
/// let read = prices.read_lock().lock()?;
/// let before = read.value();
/// read.unlock()?;
///
/// let write = prices.write_lock().lock()?;
/// // … change them …
/// let read = prices.downgrade(write)?; // from here on others may read too, and none may write
/// assert_ne!(read.value(), before);
/// # Ok(())
/// # }
/// ```
///
/// `examples/cached.rs` is a cache that is read and refilled under such a lock.
///
/// # Order
///
/// Writers come first: once a writer waits in Redis, no reader is admitted there before it, except a thread
/// that is already reading. The threads of a process share one hold in Redis: while some of them read, others
/// may join without asking Redis, for at most one [local hand-off
/// period](crate::ClientBuilder::local_handoff) after Redis last reported that there are no waiters. A writer
/// that arrives notifies the reading processes, so their readers pass it for one such period at most, and not
/// at all if the period is zero; readers of the writer's own client never pass it. With
/// [`arrival_order`](ReadWriteLock::arrival_order), callers are admitted in order of arrival, and readers
/// that are next to each other in the queue are admitted together.
///
/// A waiting writer holds readers back by its queue position, which lives as long as its heartbeats: if the
/// writer gives up, they are admitted at once; if it dies, within the [waiter
/// timeout](crate::ClientBuilder::waiter_timeout). Each reading process has a lease of its own: if the
/// process dies, it no longer keeps the writer out once that lease expires, whatever the others renew.
///
/// # Re-entry
///
/// Both halves are reentrant by thread. A writer may acquire the read lock as well, and keeps it when it has
/// released the write lock ([`downgrade`](ReadWriteLock::downgrade) does both in one request). A reader that
/// asks for the write lock would wait for itself, and gets [`WouldDeadlock`](crate::ErrorKind::WouldDeadlock)
/// at once (`try_lock`: `None`). This applies to holds of threads; an owned guard belongs to no thread.
///
/// # The three classical keys
///
/// A read/write lock in Redis is often described as three keys. Here they correspond to these. *write-wait*,
/// the mark that keeps readers out while a writer waits, is the writer's own queue position. One mark for all
/// waiting writers would be cleared by the first that gives up, or stay forever when one dies. *write* is the
/// field `writer` of the state. *read*, the count of readers, is a field for each reading process, with an
/// expiry of its own. A counter kept by INCR and DECR cannot work: a command that is sent twice, because its
/// reply was lost, counts twice; a reader that dies is never subtracted; and an expiry of the counter as a
/// whole is either renewed by the live readers, so that the dead one still counts, or ends, and admits a
/// writer among them.
#[derive(Clone)]
pub struct ReadWriteLock {
    read: ReadLock,
    write: WriteLock,
}

impl Client {
    /// The read/write lock `name`: many readers, or one writer.
    #[doc(alias = "rw_lock")]
    #[doc(alias = "getReadWriteLock")]
    pub fn read_write_lock(&self, name: &str) -> ReadWriteLock {
        let (read, write) = (self.lock_with_kind(name, Read::default()), self.lock_with_kind(name, Write));
        ReadWriteLock { read: read.clone().with_other_mode(&write), write: write.with_other_mode(&read) }
    }
}

impl ReadWriteLock {
    /// The same lock for readers that later writers do not pass: strictly in order of arrival, adjacent
    /// readers together. It applies to the requests of this handle.
    ///
    /// This is what java.util.concurrent calls fair (`new ReentrantReadWriteLock(true)`).
    /// [`fair`](RedisLock::fair), on either half, is about something else: it only turns local hand-off off.
    ///
    /// A process asks in the order in which its threads arrived; its readers share a hold as long as there
    /// are no waiters in Redis.
    #[must_use]
    pub fn arrival_order(&self) -> Self {
        let mut lock = self.clone();
        lock.read = lock.read.with_kind(Read { in_order: true });
        lock
    }

    /// The lock's name.
    pub fn name(&self) -> &str {
        self.read.name()
    }

    /// The half for reading.
    #[doc(alias = "read")]
    pub fn read_lock(&self) -> &ReadLock {
        &self.read
    }

    /// The half for writing.
    #[doc(alias = "write")]
    pub fn write_lock(&self) -> &WriteLock {
        &self.write
    }

    /// Exchanges this thread's write lock for a read lock: no other writer is admitted in between, and
    /// waiting readers are admitted at once, unless a writer waits. Blocks for one request, at most the
    /// command timeout; while Redis does not reply, for as long as
    /// [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout). If the thread holds the write lock
    /// more than once, its other guards keep holding it; this takes a second request, as it does if the
    /// thread is already reading.
    ///
    /// The read lock has the terms of the write lock: a [fixed lease](RedisLock::with_lease) starts again,
    /// and stays fixed. (The replicas of [`with_replicas`](RedisLock::with_replicas) are not required again.)
    ///
    /// # Errors
    /// `LeaseLost` if the write lock was lost; `NotOwner` for the guard of another lock; `Unavailable`,
    /// `Closed`. In each case, the guard has ended.
    pub fn downgrade(&self, guard: Guard<Write>) -> Result<Guard<Read>, Error> {
        self.read.instead_of(guard)
    }

    /// The number of readers: the threads and owned guards of this process are counted exactly, those of each
    /// other process that share a hold as one. One request.
    ///
    /// # Errors
    /// `Unavailable`, `WrongType`, `Closed`, `Forked`, `InvalidInput`.
    pub fn read_count(&self) -> Result<usize, Error> {
        self.read.hold_count_of_all()
    }
}

shows!(ReadWriteLock as "ReadWriteLock", |it| "name": it.name(), "read_holds": it.read.hold_count(), "write_holds": it.write.hold_count());

const RULE: &str = rule_file!("../../lua/read_write.lua");

/// The kind of a [`ReadLock`]: many may read at a time, while there is no writer. The
/// threads of a process share a hold in Redis, with a lease of its own.
///
/// Its guards' [`value`](crate::Guard::value) is the number of the last write, by any process: two reads with the same
/// number have seen the same state of what the lock protects. It stays the same while the hold lasts. 0 if no write
/// began within the last two hours: this identifies no write, and two reads with 0 may have seen different states.
/// Writes of threads that handed the lock on to each other within a local hand-off period count as one.
#[derive(Clone, Copy, Debug, Default)]
pub struct Read {
    /// In order of arrival: later writers do not pass.
    pub(crate) in_order: bool,
}

impl Kind for Read {
    const NAME: &'static str = "read lock";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::SharedPerProcess;
    const REENTRANCY: Reentrancy = Reentrancy::Counted;

    fn args(&self) -> String {
        if self.in_order { "read-in-order" } else { "read" }.to_owned()
    }
}

/// The kind of a [`WriteLock`]: one writes at a time, while there are no other readers.
#[derive(Clone, Copy, Debug, Default)]
pub struct Write;

impl Kind for Write {
    const NAME: &'static str = "write lock";
    const RULE: &'static str = RULE;
    const REENTRANCY: Reentrancy = Reentrancy::Counted;

    fn args(&self) -> String {
        "write".to_owned()
    }
}

impl Exclusive for Write {}
