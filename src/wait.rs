//! How long one call may take: its one deadline and its one token, set at the public API and passed down
//! everywhere.

use std::time::{Duration, Instant};

use crate::cancel::CancellationToken;
use crate::clock::Moment;

/// How far beyond the call's deadline a request may wait for its reply: giving up earlier would only turn a
/// late reply into an unknown outcome.
const GRACE: Duration = Duration::from_millis(100);

/// How long a call may wait, and what may end its wait earlier. Every call that blocks has a form that takes
/// one, such as [`lock_with`](crate::RedisLock::lock_with), and takes whatever converts into it: a `Duration`
/// is a [timeout](Wait::timeout), an `Instant` a [deadline](Wait::until), and a [`CancellationToken`] ends a
/// wait without a deadline. A deadline together with a token is built here.
///
/// ```
/// use std::time::{Duration, Instant};
/// use redis_concurrent::{CancellationToken, Client, Wait};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let lock = client.reentrant_lock("stock:42");
/// let shutdown = CancellationToken::new();
///
/// if let Some(guard) = lock.lock_with(Duration::from_secs(2))? {
///     guard.unlock()?;
/// }
/// let deadline = Instant::now() + Duration::from_secs(2);
/// if let Some(guard) = lock.lock_with(Wait::until(deadline).cancelled_by(&shutdown))? {
///     guard.unlock()?;
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Wait<'a> {
    /// When the call must be over.
    pub(crate) deadline: Moment,
    pub(crate) cancel: Option<&'a CancellationToken>,
    /// A single attempt, without queueing.
    pub(crate) once: bool,
    /// Since when the caller has waited for its turn to make this call, in a queue of its own where others
    /// may wait behind it.
    pub(crate) arrived: Option<Moment>,
}

impl From<Duration> for Wait<'_> {
    /// See [`Wait::timeout`].
    fn from(timeout: Duration) -> Self {
        Wait::timeout(timeout)
    }
}

impl From<Instant> for Wait<'_> {
    /// See [`Wait::until`].
    fn from(deadline: Instant) -> Self {
        Wait::until(deadline)
    }
}

impl<'a> From<&'a CancellationToken> for Wait<'a> {
    /// No deadline; see [`Wait::cancelled_by`].
    fn from(cancel: &'a CancellationToken) -> Self {
        Wait::forever().cancelled_by(cancel)
    }
}

impl<'a> Wait<'a> {
    /// No deadline.
    #[must_use]
    pub fn forever() -> Self {
        Wait { deadline: Moment::NEVER, cancel: None, once: false, arrived: None }
    }

    /// A single attempt, without queueing.
    #[must_use]
    pub fn once() -> Self {
        Wait { once: true, ..Wait::forever() }
    }

    /// At most `timeout` from now. A zero timeout makes a [single attempt](Wait::once); `Duration::MAX` waits
    /// forever.
    #[must_use]
    pub fn timeout(timeout: Duration) -> Self {
        if timeout.is_zero() { Wait::once() } else { Wait::until_moment(Moment::now().after(timeout)) }
    }

    /// Until `deadline`; one in the past makes a [single attempt](Wait::once).
    #[must_use]
    pub fn until(deadline: Instant) -> Self {
        Wait::timeout(deadline.saturating_duration_since(Instant::now()))
    }

    /// The same, ended early when `cancel` is cancelled: the call then returns `Cancelled`, even if the token
    /// was cancelled before the call. A sleeping thread wakes at once; a thread inside a request notices when
    /// the request ends, after at most the [command timeout](crate::ClientBuilder::command_timeout). A second
    /// token replaces the first: to wait on two, use a token that is cancelled by both.
    #[must_use]
    pub fn cancelled_by(mut self, cancel: &'a CancellationToken) -> Self {
        self.cancel = Some(cancel);
        self
    }

    /// The same for a caller that has waited since `since`, in a queue of its own, for its turn to make the
    /// call: the [unreachable timeout](crate::ClientBuilder::unreachable_timeout) counts from then.
    #[must_use]
    pub fn queued_since(self, since: Instant) -> Self {
        Wait { arrived: Some(Moment::now().before(since.elapsed())), ..self }
    }

    /// Until `deadline`. Even if that has passed, this is not a single attempt.
    pub(crate) fn until_moment(deadline: Moment) -> Self {
        Wait { deadline, ..Wait::forever() }
    }

    /// The same for an operation that cannot be a single attempt: it still begins, even if its time is up by
    /// then.
    pub(crate) fn begun(self) -> Self {
        let deadline = if self.once { Moment::now() } else { self.deadline };
        Wait { deadline, once: false, ..self }
    }

    /// The same for a call that began at `began`. A single attempt may have to wait for a request of another
    /// thread first: it is over when a request of its own, which may take `limit`, would have been.
    pub(crate) fn since(self, began: Moment, limit: Duration) -> Self {
        let deadline = if self.once { began.after(limit) } else { self.deadline };
        Wait { deadline, ..self }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancel.is_some_and(CancellationToken::is_cancelled)
    }

    pub(crate) fn is_over(&self, now: Moment) -> bool {
        self.deadline <= now || self.is_cancelled()
    }

    /// By when a request sent now must be answered, if one may take `limit`. Requests sent after the
    /// deadline, to give something back, have a grace period of their own, but only one for the whole call.
    pub(crate) fn limit(&self, now: Moment, limit: Duration) -> Moment {
        let (longest, deadline) = (now.after(limit), self.deadline);
        if self.once {
            return longest.min(deadline);
        }
        longest.min(deadline.max(now).after(GRACE)).min(deadline.after(2 * GRACE))
    }

    /// The same without its token, so that it may outlive the call.
    pub(crate) fn uncancelled(&self) -> Wait<'static> {
        Wait { deadline: self.deadline, cancel: None, once: self.once, arrived: self.arrived }
    }
}
