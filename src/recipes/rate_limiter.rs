//! A distributed rate limiter.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use redis::FromRedisValue;

use crate::cancel::CancellationToken;
use crate::client::{Client, Effect};
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::names::Names;
use crate::script::Script;
use crate::settings::{check_lease, within};
use crate::sync::{Mutex, OfProcess};
use crate::wait::Wait;

static ACQUIRE: LazyLock<Script> =
    LazyLock::new(|| script(include_str!("../../lua/rate_limiter/acquire.lua")));
static DELETE: LazyLock<Script> = LazyLock::new(|| script(include_str!("../../lua/rate_limiter/delete.lua")));

/// Composes a script of the limiter: the beginning that both share, then `source`.
pub(crate) fn script(source: &str) -> Script {
    let begin = include_str!("../../lua/rate_limiter/begin.lua");
    Script::plain(&format!("{begin}{}{source}", include_str!("../../lua/lib/foreign.lua")))
}

/// A distributed rate limiter, shared by all processes: the handle of one name, cheap to clone and to create.
/// To limit several subjects (addresses, customers) separately, give each its own name.
///
/// ```
/// use std::time::Duration;
/// use redis_concurrent::Client;
/// use redis_concurrent::rate_limiter::Rate;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let rate = Rate::fixed_window(3, Duration::from_secs(10));
/// let logins = client.rate_limiter("login:203.0.113.7", rate);
///
/// for left in [2, 1, 0] {
///     let decision = logins.try_acquire(1)?;
///     assert!(decision.allowed && decision.remaining == left);
/// }
/// let decision = logins.try_acquire(1)?;
/// assert!(!decision.allowed);
/// println!("try again in {:?}", decision.retry_after);
/// # Ok(())
/// # }
/// ```
///
/// # How it counts
///
/// Each decision takes one request: a script makes it, by the server's clock. A request for several permits
/// gets all or none; a rejected one is not counted and changes nothing. Permits are not given back.
///
/// Redis keeps how much was used, and as of when; the [`Rate`] stays with the handle and is sent with each
/// request. So there is no setup, and a handle with another rate finds the same count: if 4 of a limit
/// of 10 are used, and the limit is raised to 20, 16 are left. If handles of one name have different rates,
/// each decides by its own.
///
/// The count expires by itself, as soon as no used permit counts any more by the rate of the last caller that
/// acquired some.
///
/// # Waiting
///
/// A waiter sleeps for as long as Redis told it to, and asks again. Of the threads that wait with one client for the same
/// number of permits at one rate, only the first does: the others sleep until it has its permits or gives up, or their
/// own time is up. So the requests grow with the processes that wait, not with their threads.
///
/// Others do not queue: the first caller to ask when enough permits are available gets them, and one that asks for many
/// may be overtaken for a long time by callers that ask for few.
///
/// # Errors of all forms
///
/// `InvalidInput` for an invalid name or rate, or for 0 permits; `Refused` for more than the rate admits at
/// once (the burst, or the limit of a fixed window), since that can never be granted. In these cases, no request is sent.
/// `OutcomeUnknown` if there was no reply: the request may have been counted, or may still be, and is not
/// sent again, as it could count twice. `Unavailable` if Redis cannot be reached or rejects this client; even
/// calls that wait return it at once, as it is the caller's decision whether to proceed without counting.
/// `WrongType` if the key is in use by something else. `Closed`, `Forked`.
#[derive(Clone)]
pub struct RateLimiter {
    client: Client,
    name: Arc<str>,
    names: Result<Names, Error>,
    rate: Rate,
}

/// The decision of a [`RateLimiter`] on one request, as of the moment when Redis made it:
/// other requests may have been admitted since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "a caller that is not allowed must be kept out"]
#[non_exhaustive]
pub struct Decision {
    /// Whether the request is allowed, and so was counted. A rejected request is not counted.
    pub allowed: bool,
    /// The number of further permits available at that moment.
    pub remaining: u32,
    /// How long until as many permits as requested are available, if no others are acquired meanwhile; zero
    /// for an allowed request.
    pub retry_after: Duration,
    /// How long until the limiter is entirely unused, if no permits are acquired meanwhile.
    pub reset_after: Duration,
}

shows!(RateLimiter as "RateLimiter", |it| "name": it.name, "rate": it.rate);

impl Client {
    /// The rate limiter `name`, which admits requests at `rate`. The count is kept in Redis, the rate in this
    /// handle.
    #[doc(alias = "getRateLimiter")]
    pub fn rate_limiter(&self, name: &str, rate: Rate) -> RateLimiter {
        let names = Names::new(&self.shared().config.namespace, name);
        RateLimiter { client: self.clone(), name: name.into(), names, rate }
    }
}

impl RateLimiter {
    /// The rate limiter's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    // ---- acquiring -------------------------------------------------------------------------

    /// Acquires `n` permits if they are available now; the decision says whether it did. Blocks for one
    /// request, at most the command timeout.
    ///
    /// # Errors
    /// See [the type](RateLimiter#errors-of-all-forms).
    pub fn try_acquire(&self, n: u32) -> Result<Decision, Error> {
        self.acquire_with(n, Wait::once())
    }

    /// Waits for `n` permits, without a deadline.
    ///
    /// # Errors
    /// See [the type](RateLimiter#errors-of-all-forms).
    pub fn acquire(&self, n: u32) -> Result<(), Error> {
        // Without a deadline, it ends only with the permits.
        self.acquire_with(n, Wait::forever()).map(drop)
    }

    /// Waits for `n` permits as `wait` says (a timeout, a deadline, a token, a [`Wait`]). If Redis reports
    /// that a timeout is too short, the request is rejected at once, as waiting would be useless; the decision
    /// says how long it would take.
    ///
    /// # Errors
    /// `Cancelled` if a token is cancelled: if it was before the call, no permit was counted. See also [the
    /// type](RateLimiter#errors-of-all-forms).
    pub fn acquire_with<'w>(&self, n: u32, wait: impl Into<Wait<'w>>) -> Result<Decision, Error> {
        let wait = wait.into();
        self.check(n)?;
        let mut turn = None;
        loop {
            if wait.is_cancelled() {
                return Err(self.error(ErrorKind::Cancelled, ""));
            }
            // Sent once: a second copy would count twice.
            let decision = self.decision(Effect::Adds, n, &wait)?;
            if decision.allowed || wait.once {
                return Ok(decision);
            }
            let again = Moment::now().after(decision.retry_after);
            if wait.deadline < again {
                return Ok(decision);
            }
            let wanted = || (self.name.clone(), self.client.shared().id, self.rate, n);
            let turn = turn.get_or_insert_with(|| Turn::after_others(wanted(), &wait));
            turn.sleep(&self.client, decision.retry_after, &wait);
        }
    }

    /// Returns a token that is cancelled when the limiter's client is closed: for a caller that waits for
    /// [`retry_after`](Decision::retry_after) by itself, in a runtime of tasks, say. No request. In a forked child it
    /// is cancelled.
    pub fn closed(&self) -> CancellationToken {
        let (shared, closed) = (self.client.shared(), CancellationToken::new());
        match shared.same_process() {
            Ok(()) => shared.ended.cancels(&closed),
            Err(_) => closed.cancel(),
        }
        closed
    }

    // ---- the count -------------------------------------------------------------------------

    /// The number of permits available now; acquires none. One request, at most the command timeout.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid name or rate; `Unavailable`, `WrongType`, `Closed`, `Forked`.
    pub fn available(&self) -> Result<u32, Error> {
        self.rate.check().map_err(|why| self.error(ErrorKind::InvalidInput, why))?;
        Ok(self.decision(Effect::Reads, 0, &Wait::forever())?.remaining)
    }

    /// Deletes the count; returns whether there was one. Waiters find out when they next ask. One request, at
    /// most the command timeout.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid name; `Unavailable`, `WrongType`, `Closed`, `Forked`. `OutcomeUnknown`
    /// if there was no reply.
    pub fn delete(&self) -> Result<bool, Error> {
        // Sent once: a second copy would delete what was acquired after the first.
        self.eval(Effect::Adds, &DELETE, &[], &Wait::forever())
    }

    // ---- underneath ------------------------------------------------------------------------

    fn check(&self, n: u32) -> Result<(), Error> {
        self.rate.check().map_err(|why| self.error(ErrorKind::InvalidInput, why))?;
        let most = self.rate.at_once();
        if n > most {
            let why = format!("at most {most} permits can be acquired at once, got {n}");
            return Err(self.error(ErrorKind::Refused, why));
        }
        within("permits", n, 1..=most).map_err(|why| self.error(ErrorKind::InvalidInput, why))
    }

    fn decision(&self, effect: Effect, n: u32, wait: &Wait<'_>) -> Result<Decision, Error> {
        let (allowed, remaining, retry, reset) = self.eval(effect, &ACQUIRE, &self.rate.args(n), wait)?;
        let (retry_after, reset_after) = (Duration::from_micros(retry), Duration::from_micros(reset));
        Ok(Decision { allowed, remaining, retry_after, reset_after })
    }

    /// Runs a script over the limiter's only key.
    fn eval<T: FromRedisValue>(
        &self,
        effect: Effect,
        script: &Script,
        args: &[String],
        wait: &Wait<'_>,
    ) -> Result<T, Error> {
        let [state, ..] = self.names.as_ref().map_err(Clone::clone)?.keys();
        self.client.eval(&self.name, (effect, script), &[state], args, wait)
    }

    fn error(&self, kind: ErrorKind, why: impl Into<String>) -> Error {
        Error::new(kind, &self.name).because(why)
    }
}

/// The threads of this process that wait for permits, in order of arrival: what each waits for, and its turn.
static LINE: OfProcess<Mutex<BTreeMap<u64, (Wanted, CancellationToken)>>> = OfProcess::new();

/// What a thread waits for: permits of this name, from a client with this id, at this rate, so many.
type Wanted = (Arc<str>, u64, Rate, u32);

/// A waiting thread's turn to ask.
struct Turn {
    number: u64,
    /// Cancelled when it comes, and with the call's own token. It wakes only this thread, so it may be cancelled under the
    /// mutex.
    comes: CancellationToken,
}

impl Turn {
    fn after_others(wanted: Wanted, wait: &Wait<'_>) -> Self {
        let comes = wait.cancel.map_or_else(CancellationToken::new, CancellationToken::child);
        let line = LINE.get();
        let mut line = line.lock();
        let number = line.last_key_value().map_or(0, |(last, _)| last + 1);
        if line.values().all(|(its, _)| *its != wanted) {
            comes.cancel();
        }
        line.insert(number, (wanted, comes.clone()));
        Turn { number, comes }
    }

    /// Sleeps until the thread should ask: for `time` if it is its turn, otherwise until that comes; or until the end of
    /// the call or of the client.
    fn sleep(&self, client: &Client, time: Duration, wait: &Wait<'_>) {
        if self.comes.is_cancelled() {
            client.pause(time, wait);
        } else {
            client.pause(Duration::MAX, &wait.cancelled_by(&self.comes));
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let line = LINE.get();
        let mut line = line.lock();
        let Some((wanted, _)) = line.remove(&self.number) else { return };
        if let Some((_, comes)) = line.values().find(|(its, _)| *its == wanted) {
            comes.cancel();
        }
    }
}

/// The highest limit or burst: the same as for the permits of a semaphore.
const MOST: u32 = i32::MAX as u32;

/// How many permits a [`RateLimiter`] admits: a number per window, and how they may be
/// distributed in it.
///
/// A rate can be created from any values; an invalid one is reported by the first call of a limiter. A number
/// of permits is from 1 to 2^31-1, a window from 100 ms to a year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rate {
    limit: u32,
    window: Duration,
    /// `None`: a fixed window.
    burst: Option<u32>,
}

impl Rate {
    /// `limit` permits per `window`, and at most `limit` by one call. A window begins with the first permit, and ends that long after it; the
    /// count then starts from 0 again.
    ///
    /// This is a quota, and simple to explain. Around the end of a window, up to twice the limit may be
    /// admitted within the length of one window: the first half late in the old one, the second early in the
    /// new.
    pub const fn fixed_window(limit: u32, window: Duration) -> Self {
        Rate { limit, window, burst: None }
    }

    /// `limit` permits per `window`, evenly, and at most `limit` of them at once: like
    /// [`smooth_with_burst`](Rate::smooth_with_burst) with a burst of the limit.
    pub const fn smooth(limit: u32, window: Duration) -> Self {
        Rate::smooth_with_burst(limit, window, limit)
    }

    /// `limit` permits per `window`, evenly: they become available again one by one, one every
    /// `window / limit`. After a pause, at most `burst` are admitted at once; a burst of 1 spaces all of
    /// them.
    ///
    /// No period as long as a window admits more than `limit + burst`. The algorithm is the generic cell rate
    /// algorithm (GCRA) of ITU-T I.371, as a continuous-state leaky bucket.
    pub const fn smooth_with_burst(limit: u32, window: Duration, burst: u32) -> Self {
        Rate { limit, window, burst: Some(burst) }
    }

    /// How many permits may be acquired at once: the burst, or the limit of a fixed window. No call can ask
    /// for more.
    fn at_once(&self) -> u32 {
        self.burst.unwrap_or(self.limit)
    }

    /// Returns an error text if the rate is invalid.
    pub(crate) fn check(&self) -> Result<(), String> {
        for (what, n) in [("limit", self.limit), ("burst", self.at_once())] {
            within(&format!("a rate's {what}"), n, 1..=MOST)?;
        }
        check_lease("rate's window", self.window)
    }

    /// The arguments of the script: n, limit, window in µs, burst. A fraction of a microsecond is rounded up,
    /// so that the rate is never exceeded.
    pub(crate) fn args(&self, n: u32) -> Vec<String> {
        let window = self.window.as_nanos().div_ceil(1000).to_string();
        let args = [n.to_string(), self.limit.to_string(), window];
        args.into_iter().chain(self.burst.map(|burst| burst.to_string())).collect()
    }
}
