//! A count-down latch: threads wait until a count reaches 0.

use std::time::Duration;

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::kind::{Kind, Queueing, Reentrancy, Sharing};
use crate::lock::RedisLock;
use crate::settings::{check_lease, within};
use crate::wait::Wait;

/// The error of counting down a latch that has no count. The rule returns the same to a wait.
const NO_COUNT: &str = "this latch has no count: try_set_count comes first";

/// The highest count, that of java.util.concurrent.
const HIGHEST: u64 = i32::MAX as u64;

/// A latch kept in Redis: the handle of one name, cheap to clone and to create. Threads in any process wait
/// until its count is 0; from then on every caller passes at once, until the latch is reset or deleted.
///
/// ```
/// use std::thread;
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let done = client.count_down_latch("import:done");
/// done.try_set_count(2)?;
/// thread::scope(|scope| {
///     for _ in 0..2 {
///         scope.spawn(|| done.count_down());
///     }
///     done.wait()
/// })?;
/// assert_eq!(done.count()?, Some(0));
/// # done.delete()?;
/// # Ok(())
/// # }
/// ```
///
/// # Its count
///
/// A coordinator sets the count once, by [`try_set_count`](CountDownLatch::try_set_count),
/// before any thread waits or counts down: a latch without a count rejects both with an error. If any process
/// may be the first, each calls it: it has no effect if another was faster. The count is the user's own state: it stays in Redis until
/// [`delete`](CountDownLatch::delete), or as long as [`expire_after`](CountDownLatch::expire_after) says.
/// Deleting a latch frees its name for any other kind.
///
/// A call counts down once, even if its request is sent twice.
///
/// # Waiting
///
/// Each waiting thread has a queue position of its own in Redis: it asks once, is notified when the count is
/// 0, and meanwhile sends three heartbeats per waiter timeout. The last `count_down` wakes all of them. A
/// lost message delays a waiter by one heartbeat. Threads that were admitted but not yet notified when the
/// latch was reset or deleted get `Broken`, like those that were not admitted: delete it when all have
/// passed. (A thread whose first request had no reply yet counts as one that arrives later.)
///
/// # Errors of all forms
///
/// `Refused` if a thread waits or counts down before there is a count; the latch does not change. Call
/// [`try_set_count`](CountDownLatch::try_set_count) first. `Unavailable` if Redis cannot be reached: timed waits then
/// run to their deadline, `wait()` gives up after
/// [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout). `OutcomeUnknown` if an update of the
/// count got no reply. `WrongType` if the key is in use by something else. `Closed`, `Forked`, and
/// `InvalidInput` for an invalid name.
#[derive(Clone)]
pub struct CountDownLatch {
    lock: RedisLock<Latch>,
}

// Shows the name. The count would take a request: see [`count`](CountDownLatch::count).
shows!(CountDownLatch as "CountDownLatch", |it| "name": it.name());

impl Client {
    /// The latch `name`: threads wait there until its count is 0.
    #[doc(alias = "getCountDownLatch")]
    pub fn count_down_latch(&self, name: &str) -> CountDownLatch {
        CountDownLatch { lock: self.lock_with_kind(name, Latch) }
    }
}

impl CountDownLatch {
    /// The latch's name.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    // ---- the count -------------------------------------------------------------------------

    /// Sets the count, if there is none; returns whether it did. From 1 to 2,147,483,647. Blocks for one
    /// request, at most the command timeout.
    ///
    /// # Errors
    /// `InvalidInput` for a number out of range; see also [the type](CountDownLatch#errors-of-all-forms).
    pub fn try_set_count(&self, count: u64) -> Result<bool, Error> {
        self.lock.update_state(&["set", &self.checked(count)?])
    }

    /// Decrements the count, and admits every waiter when it reaches 0. At 0 it stays 0. Returns the
    /// remaining count. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// `Refused` if there is no count, as for a wait. `OutcomeUnknown` if there was no reply: the count may
    /// have been decremented, or may still be. See also [the type](CountDownLatch#errors-of-all-forms).
    pub fn count_down(&self) -> Result<u64, Error> {
        let left: i64 = self.lock.update_state(&["down"])?;
        left.try_into().map_err(|_| self.lock.error(ErrorKind::Refused, NO_COUNT))
    }

    /// The count; `None` if it was never set, was deleted, or has expired. One request.
    ///
    /// # Errors
    /// See [the type](CountDownLatch#errors-of-all-forms).
    pub fn count(&self) -> Result<Option<u64>, Error> {
        Ok(self.lock.inspect_state::<i64>("", Wait::forever())?.try_into().ok())
    }

    /// Makes the count expire `timeout` from now, whatever it is then; the next
    /// [`reset`](CountDownLatch::reset) makes it permanent again. Threads that still wait then get `Broken`,
    /// at their next heartbeat at the latest. From 100 ms to a year. Returns whether there is a count. Blocks
    /// for one request, at most the command timeout.
    ///
    /// # Errors
    /// `InvalidInput` for a timeout out of range; see also [the type](CountDownLatch#errors-of-all-forms).
    pub fn expire_after(&self, timeout: Duration) -> Result<bool, Error> {
        check_lease("time to live", timeout).map_err(|why| self.lock.error(ErrorKind::InvalidInput, why))?;
        self.lock.update_state(&["expire", &timeout.as_millis().to_string()])
    }

    /// Sets the count, whatever it was. Waiting threads get `Broken`. Blocks for one request, at most the
    /// command timeout.
    ///
    /// # Errors
    /// See [`try_set_count`](CountDownLatch::try_set_count).
    pub fn reset(&self, count: u64) -> Result<(), Error> {
        self.lock.update_state(&["reset", &self.checked(count)?])
    }

    /// Deletes the count; returns whether there was one. Threads that wait for it get `Broken`; the name is
    /// free for locks of any kind. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// See [the type](CountDownLatch#errors-of-all-forms).
    pub fn delete(&self) -> Result<bool, Error> {
        self.lock.update_state(&["delete"])
    }

    // ---- waiting ---------------------------------------------------------------------------

    /// Waits until the count is 0, without a deadline.
    ///
    /// # Errors
    /// `Refused` if there is no count. `Broken` if the count was reset or deleted, or has expired, meanwhile.
    /// See also [the type](CountDownLatch#errors-of-all-forms).
    pub fn wait(&self) -> Result<(), Error> {
        // Without a deadline, the wait cannot time out.
        if self.wait_with(Wait::forever())? { Ok(()) } else { Err(self.lock.error(ErrorKind::Timeout, "")) }
    }

    /// Waits as `wait` says (a timeout, a deadline, a token, a [`Wait`]); returns `false` if the time is up.
    ///
    /// # Errors
    /// `Cancelled` if `wait` has a token that is cancelled; see also [`wait`](CountDownLatch::wait).
    pub fn wait_with<'w>(&self, wait: impl Into<Wait<'w>>) -> Result<bool, Error> {
        Ok(self.lock.lock_owned_with(wait)?.is_some())
    }

    // ---- underneath ------------------------------------------------------------------------

    fn checked(&self, count: u64) -> Result<String, Error> {
        let checked = within("the count", count, 1..=HIGHEST).map(|()| count.to_string());
        checked.map_err(|why| self.lock.error(ErrorKind::InvalidInput, why))
    }
}

/// The kind of [`CountDownLatch`]: a hash with the count, which is the user's own
/// state and does not expire unless the user says so.
///
/// A latch has no holders. A caller that is admitted has passed: Redis keeps no record of it, and there is
/// nothing to give back.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latch;

impl Kind for Latch {
    const NAME: &'static str = "count-down latch";
    const RULE: &'static str = rule_file!("../../lua/latch.lua");
    const SHARING: Sharing = Sharing::PassThrough;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;
}
