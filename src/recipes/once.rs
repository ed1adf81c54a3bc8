//! Work that is done once: one caller does it, and all callers that ask for it again get its outcome.

use std::ops::Deref;
use std::time::Duration;

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::guard::OwnedGuard;
use crate::kind::{Exclusive, Kind, Queued, Queueing, Reentrancy};
use crate::lock::RedisLock;
use crate::settings::check_lease;
use crate::wait::Wait;

/// How long an answer is kept by default.
const KEPT: Duration = Duration::from_secs(24 * 3600);
/// The longest answer, in bytes: a script must not take long.
const LONGEST: usize = 256 * 1024;

/// Work that is to be done once per key, by whichever process: a payment by its idempotency key, a message by
/// its id. The first caller does it and stores its answer; the others get that answer. Cheap to clone and to
/// create.
///
/// ```
/// use redis_concurrent::Client;
/// use redis_concurrent::once::Begun;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let charge = |token: u64| format!("receipt under {token}");
/// let mut answers = Vec::new();
/// for _ in 0..2 {
///     answers.push(match client.once("payment:8f3a").begin()? {
///         Begun::Yours(attempt) => {
///             let answer = charge(attempt.token());
///             attempt.done(&answer)?;
///             answer
///         }
///         Begun::Done(answer) => answer, // the first caller's
///         other => panic!("{other:?}"),
///     });
/// }
/// assert_eq!(answers[0], answers[1]);
/// # Ok(())
/// # }
/// ```
///
/// # An attempt
///
/// [`begin`](Once::begin) gives the work to the caller, or returns its outcome; while another caller does the
/// work, it waits. An [`Attempt`] is a hold like that of a lock: it has a lease, renewed in the background,
/// and a token greater than that of every earlier attempt. It ends in one of three ways:
/// [done](Attempt::done), with an answer; [failed](Attempt::fail), with a reason, so that it is not tried
/// again; or given back (by [`give_back`](Attempt::give_back), by being dropped, or, if its process died, by
/// the expiry of its lease), and the next caller does the work.
///
/// So if a process is killed before its work began to have effects, or after `done` returned, the work is
/// done once. If it is killed in between, the work is done again, **under a higher token**: let what the work
/// changes [reject the lower one](crate::Fenced), or record there, in the same transaction, that the work is
/// done. No store other than the work's own can do better.
///
/// # What is kept
///
/// The outcome is kept for a day, or for as long as [`expire_after`](Once::expire_after) says; then the key is new
/// again. It is kept in Redis alone: if Redis loses its data, the work is done again; so it may be after a
/// failover, unless [replicas](Once::with_replicas) must have the outcome.
///
/// # Errors of all forms
///
/// As with [any lock](RedisLock#errors-of-all-forms): `Unavailable` if Redis cannot be reached, `WrongType`
/// if the key is in use by something else, `Protocol` if its outcome is in a state that only a later version
/// knows, `Closed`, `Forked`, and `InvalidInput` for a key that is empty or longer than 1,024 bytes, and for a
/// time to keep below 100 ms or above a year.
#[derive(Clone)]
pub struct Once {
    lock: RedisLock<Attempts>,
    kept: Duration,
}

/// What [`Once::begin`] and its variants found.
#[derive(Debug)]
#[non_exhaustive]
pub enum Begun {
    /// The caller does the work.
    Yours(Attempt),
    /// Another caller is doing the work, and the time to wait is up. (Never from [`begin`](Once::begin).)
    InProgress,
    /// The work was done, and this is its answer.
    Done(String),
    /// The work failed permanently, and this is why.
    Failed(String),
}

/// The outcome of the work.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Ending {
    /// The work was done, and this is its answer.
    Done(String),
    /// The work failed permanently, and this is why.
    Failed(String),
}

impl From<Ending> for Begun {
    fn from(ending: Ending) -> Begun {
        match ending {
            Ending::Done(answer) => Begun::Done(answer),
            Ending::Failed(why) => Begun::Failed(why),
        }
    }
}

impl Client {
    /// The work `key`, which is done once, by its first caller; all others get that caller's answer.
    #[doc(alias = "idempotency")]
    pub fn once(&self, key: &str) -> Once {
        Once { lock: self.lock_with_kind(key, Attempts), kept: KEPT }
    }
}

impl Once {
    /// The key of the work.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// The same work, with an answer that is kept for `time` after it is stored. From 100 ms to a year: any
    /// other value is `InvalidInput` on the first call.
    #[must_use]
    pub fn expire_after(&self, time: Duration) -> Self {
        Once { lock: self.lock.clone().checked(|| check_lease("time to keep", time)), kept: time }
    }

    /// The same work, whose attempts and outcomes count only once `n` replicas have them: see
    /// [`RedisLock::with_replicas`]. [`done`](Attempt::done) and [`fail`](Attempt::fail) wait for the replicas,
    /// too. Without this, an outcome that was stored just before a failover may be forgotten, and the work is
    /// done again.
    #[must_use]
    pub fn with_replicas(&self, n: usize, timeout: Duration) -> Self {
        Once { lock: self.lock.with_replicas(n, timeout), kept: self.kept }
    }

    // ---- beginning -------------------------------------------------------------------------

    /// Begins the work, or waits for the end of another caller's attempt, without a timeout.
    ///
    /// # Errors
    /// See [the type](Once#errors-of-all-forms).
    pub fn begin(&self) -> Result<Begun, Error> {
        self.begin_with(Wait::forever())
    }

    /// Like [`begin`](Once::begin), but does not wait: returns [`InProgress`](Begun::InProgress) while
    /// another caller does the work. Blocks for one request, or two if the work is finished, each at most the
    /// command timeout.
    ///
    /// # Errors
    /// See [the type](Once#errors-of-all-forms).
    pub fn try_begin(&self) -> Result<Begun, Error> {
        self.begin_with(Wait::once())
    }

    /// Like [`begin`](Once::begin), but waits as `wait` says (a timeout, a deadline, a token, a [`Wait`]).
    ///
    /// # Errors
    /// `Cancelled` if `wait` has a token that is cancelled. See also [the type](Once#errors-of-all-forms).
    pub fn begin_with<'w>(&self, wait: impl Into<Wait<'w>>) -> Result<Begun, Error> {
        let wait = wait.into();
        loop {
            match self.lock.lock_owned_with(wait) {
                Ok(Some(guard)) => return Ok(Begun::Yours(Attempt { guard, kept: self.kept })),
                Ok(None) => return Ok(Begun::InProgress),
                // The work is finished; or it was, but its outcome has expired: then try again.
                Err(error) if error.kind() == ErrorKind::Conflict => {
                    if let Some(ending) = self.ending_by(&wait)? {
                        return Ok(ending.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Does `work` unless it was done before, and returns its outcome: the new one, or the one that is kept.
    /// An `Ok` of the work is stored as [done](Attempt::done), an `Err` as [failed](Attempt::fail). If it
    /// panics, the attempt is given back. An answer or a reason has at most 262,144 bytes: the outcome of a longer
    /// one is kept without it.
    ///
    /// # Errors
    /// Those of [`begin`](Once::begin), if `work` did not run, and of [`Attempt::done`], if it did.
    pub fn run(&self, work: impl FnOnce(&Attempt) -> Result<String, String>) -> Result<Ending, Error> {
        match self.begin()? {
            Begun::Yours(attempt) => match work(&attempt) {
                Ok(answer) => attempt.done(&answer).map(|()| Ending::Done(answer)),
                Err(why) => attempt.fail(&why).map(|()| Ending::Failed(why)),
            },
            Begun::Done(answer) => Ok(Ending::Done(answer)),
            Begun::Failed(why) => Ok(Ending::Failed(why)),
            Begun::InProgress => Err(crate::forms::timed_out(self.name())),
        }
    }

    // ---- the outcome -----------------------------------------------------------------------

    /// The outcome of the work; `None` if it is not finished, or the outcome is no longer kept. One request.
    ///
    /// # Errors
    /// See [the type](Once#errors-of-all-forms).
    pub fn ending(&self) -> Result<Option<Ending>, Error> {
        self.ending_by(&Wait::forever())
    }

    fn ending_by(&self, wait: &Wait<'_>) -> Result<Option<Ending>, Error> {
        let state: Vec<Option<String>> = self.lock.inspect_state("", *wait)?;
        let state: Vec<_> = state.iter().map(|it| it.as_deref().unwrap_or_default()).collect();
        match state[..] {
            ["done", answer] => Ok(Some(Ending::Done(answer.to_owned()))),
            ["failed", why] => Ok(Some(Ending::Failed(why.to_owned()))),
            ["begun" | ""] => Ok(None),
            // A later version's, perhaps. To take it for none would be to ask again for ever.
            ref other => {
                let why = format!("the outcome is kept in a state that is not known here: {other:?}");
                Err(Error::new(ErrorKind::Protocol, self.name()).because(why))
            }
        }
    }

    /// Deletes the outcome of the work, so that the next caller does it again; returns whether there was one
    /// (`true` also if the request had to be sent twice). An attempt in progress is not affected. Blocks for
    /// one request, at most the command timeout.
    ///
    /// # Errors
    /// `OutcomeUnknown` if Redis did not reply. See also [the type](Once#errors-of-all-forms).
    pub fn forget(&self) -> Result<bool, Error> {
        self.lock.update_state(&["forget"])
    }
}

impl Queued for Once {
    fn queue(&self) -> Option<usize> {
        self.lock.queue()
    }
}

// Shows the key. The outcome would take a request: see [`ending`](Once::ending).
shows!(Once as "Once", |it| "key": it.name(), "kept": it.kept);

/// The right to do the work of a [`Once`]: a hold with a lease, renewed in the background, until it is ended
/// by [`done`](Attempt::done), [`fail`](Attempt::fail) or [`give_back`](Attempt::give_back), dropped (given
/// back), or lost. It may move to another thread.
///
/// It dereferences to its guard: the [token](crate::Guard::token) is greater than that of every earlier
/// attempt, in any process; [`lost`](crate::Guard::lost) is cancelled when another caller may do the work.
#[must_use = "an attempt that is not kept is given back at once"]
pub struct Attempt {
    guard: OwnedGuard<Attempts>,
    kept: Duration,
}

impl Attempt {
    /// Marks the work as done: stores its answer, of at most 262,144 bytes, for all callers that ask for it. The
    /// work is kept as done without a longer one: the answer is then empty.
    /// Retries while Redis does not reply, for half a minute at most.
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the attempt was lost before: another caller may be doing the work, or have
    /// done it. `OutcomeUnknown` if there was no reply: the answer is stored, or the attempt is given back.
    /// `Unavailable` if the answer certainly is not stored: the attempt is given back. `InvalidInput` for a
    /// longer answer, once the work is kept without it. `NotReplicated`, [with replicas](Once::with_replicas), if
    /// the answer is stored and too few of them have it: a failover may forget it.
    pub fn done(self, answer: &str) -> Result<(), Error> {
        self.end("done", answer)
    }

    /// Marks the work as permanently failed: stores the reason, of at most 262,144 bytes, for all callers
    /// that ask for it; none tries again. (If another caller should try, [give it back](Attempt::give_back).)
    /// Otherwise like [`done`](Attempt::done).
    ///
    /// # Errors
    /// See [`done`](Attempt::done).
    pub fn fail(self, why: &str) -> Result<(), Error> {
        self.end("failed", why)
    }

    /// Gives up the work: the next caller does it, under a higher token. Blocks for one request, at most the
    /// command timeout. Dropping the attempt does the same, and reports an error to the observer.
    ///
    /// # Errors
    /// See [`Guard::unlock`](crate::Guard::unlock).
    pub fn give_back(self) -> Result<(), Error> {
        self.guard.unlock()
    }

    fn end(self, how: &str, answer: &str) -> Result<(), Error> {
        // What was done must not be done again, whatever its answer is.
        let storable = answer.len() <= LONGEST;
        let stored = if storable { answer } else { "" };
        let name = self.name().to_owned();
        self.guard.conclude(&[how, &self.kept.as_millis().to_string(), stored])?;
        if storable {
            return Ok(());
        }
        let why = format!(
            "an answer must be at most {LONGEST} bytes long, got {}: the work is kept as {how} without it",
            answer.len()
        );
        Err(Error::new(ErrorKind::InvalidInput, &name).because(why))
    }
}

impl Deref for Attempt {
    type Target = OwnedGuard<Attempts>;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

shows!(Attempt as "Attempt", |it| "key": it.name(), "token": it.token());

/// The kind of an [`Attempt`]: one caller does the work, unless it is finished.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attempts;

impl Kind for Attempts {
    const NAME: &'static str = "idempotency key";
    const RULE: &'static str = rule_file!("../../lua/once.lua");
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;
}

impl Exclusive for Attempts {}
