//! Work that is done once, elections, and rate limiters, for tasks.

use std::collections::HashMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis_concurrent::election::Term;
use redis_concurrent::once::{Attempt, Begun, Ending};
use redis_concurrent::rate_limiter::Decision;
use redis_concurrent::{CancellationToken, Election, Error, ErrorKind, Once, RateLimiter, Wait};

use crate::clock;
use crate::turn::Turn;
use crate::workers::{ATTEMPTS, InBackground, RELEASES};

/// A [`Once`] for tasks: work that is done once, however many callers ask for it. Cheap to clone; the tasks that
/// wait for one name do so in turn, on one thread.
///
/// # Errors of all forms
///
/// Those of [`Once`](Once#errors-of-all-forms), and `Unavailable` if no thread could be started.
#[derive(Clone, Debug)]
pub struct AsyncOnce {
    once: Once,
    turn: Turn,
}

impl AsyncOnce {
    /// Creates the handle for tasks. Makes no request.
    pub fn new(once: Once) -> Self {
        AsyncOnce { turn: Turn::of(&once), once }
    }

    /// Returns the handle for threads, for queries, which block for a request.
    pub fn blocking(&self) -> &Once {
        &self.once
    }

    /// Does `work`, given its fencing token and a token that is cancelled when the attempt is lost, unless it was done
    /// before; waits while another caller does it. Returns the outcome, as [`Once::run`] does. If the future is
    /// dropped, the attempt is given back in the background.
    ///
    /// # Errors
    /// Those of [`Once::run`]; see also [the type](AsyncOnce#errors-of-all-forms).
    pub async fn run<W>(&self, work: impl FnOnce(u64, CancellationToken) -> W) -> Result<Ending, Error>
    where
        W: Future<Output = Result<String, String>>,
    {
        let (name, once) = (self.once.name(), self.once.clone());
        let begin = move |wait: Wait<'_>| once.begin_with(wait).map(|begun| Some(begun.into()));
        match self.turn.wait(name, begin).await? {
            AsyncBegun::Yours(attempt) => match work(attempt.token(), attempt.lost()).await {
                Ok(answer) => attempt.done(&answer).await.map(|()| Ending::Done(answer)),
                Err(why) => attempt.fail(&why).await.map(|()| Ending::Failed(why)),
            },
            AsyncBegun::Done(answer) => Ok(Ending::Done(answer)),
            AsyncBegun::Failed(why) => Ok(Ending::Failed(why)),
            AsyncBegun::InProgress => Err(Error::new(ErrorKind::Timeout, name)),
        }
    }

    /// Begins the work unless it is finished, or another caller does it: does not wait. Takes two requests at most, each
    /// of at most the command timeout.
    ///
    /// # Errors
    /// See [the type](AsyncOnce#errors-of-all-forms).
    pub async fn try_begin(&self) -> Result<AsyncBegun, Error> {
        let once = self.once.clone();
        ATTEMPTS.attempt(self.once.name(), move || once.try_begin().map(AsyncBegun::from)).await
    }
}

/// What [`AsyncOnce::try_begin`] found.
#[derive(Debug)]
#[non_exhaustive]
pub enum AsyncBegun {
    /// The caller does the work.
    Yours(AsyncAttempt),
    /// Another caller is doing the work.
    InProgress,
    /// The work was done, and this is its answer.
    Done(String),
    /// The work failed permanently, and this is why.
    Failed(String),
}

impl From<Begun> for AsyncBegun {
    fn from(begun: Begun) -> Self {
        match begun {
            Begun::Yours(attempt) => AsyncBegun::Yours(AsyncAttempt(InBackground::new(attempt))),
            Begun::Done(answer) => AsyncBegun::Done(answer),
            Begun::Failed(why) => AsyncBegun::Failed(why),
            _ => AsyncBegun::InProgress,
        }
    }
}

/// An [`Attempt`] of a task. Dropping it gives it back, in the background.
#[derive(Debug)]
#[must_use = "an attempt that is not kept is given back at once"]
pub struct AsyncAttempt(InBackground<Attempt>);

impl AsyncAttempt {
    /// Returns the fencing token, greater than that of every earlier attempt.
    pub fn token(&self) -> u64 {
        self.0.get().token()
    }

    /// Returns a token that is cancelled when the attempt is lost: another caller may then do the work.
    pub fn lost(&self) -> CancellationToken {
        self.0.get().lost()
    }

    /// Marks the work as done: see [`Attempt::done`].
    ///
    /// # Errors
    /// Those of [`Attempt::done`].
    pub async fn done(self, answer: &str) -> Result<(), Error> {
        let answer = answer.to_owned();
        self.end(move |attempt| attempt.done(&answer)).await
    }

    /// Marks the work as permanently failed: see [`Attempt::fail`].
    ///
    /// # Errors
    /// Those of [`Attempt::fail`].
    pub async fn fail(self, why: &str) -> Result<(), Error> {
        let why = why.to_owned();
        self.end(move |attempt| attempt.fail(&why)).await
    }

    /// Gives up the work: see [`Attempt::give_back`].
    ///
    /// # Errors
    /// Those of [`Attempt::give_back`].
    pub async fn give_back(self) -> Result<(), Error> {
        self.end(Attempt::give_back).await
    }

    async fn end(self, end: impl FnOnce(Attempt) -> Result<(), Error> + Send + 'static) -> Result<(), Error> {
        let name = self.0.get().name().to_owned();
        let attempt = self.0.into_inner();
        RELEASES.outcome(&name, move || end(attempt)).await
    }
}

/// An [`Election`] for tasks. Cheap to clone; the tasks of one name campaign in turn, on one thread.
///
/// # Errors of all forms
///
/// Those of [`Election`](Election#errors-of-all-forms), and `Unavailable` if no thread could be started.
#[derive(Clone, Debug)]
pub struct AsyncElection {
    election: Election,
    turn: Turn,
}

impl AsyncElection {
    /// Creates the handle for tasks. Makes no request.
    pub fn new(election: Election) -> Self {
        AsyncElection { turn: Turn::of(&election), election }
    }

    /// Returns the handle for threads, for queries, which block for a request.
    pub fn blocking(&self) -> &Election {
        &self.election
    }

    /// Campaigns, does `work` as the leader, given the [token](redis_concurrent::Guard::token) of the term and the token of its
    /// [`ending`](Term::ending), and resigns, as [`Election::run`] does. If the future is dropped, its candidate gives
    /// up, or the term is resigned in the background: the work has ended by then.
    ///
    /// # Errors
    /// Those of [`Election::run`]; see also [the type](AsyncElection#errors-of-all-forms).
    pub async fn run<W: Future>(
        &self,
        work: impl FnOnce(u64, CancellationToken) -> W,
    ) -> Result<W::Output, Error> {
        let (name, election) = (self.election.name(), self.election.clone());
        let campaign = move |wait: Wait<'_>| Ok(election.campaign_with(wait)?.map(InBackground::new));
        let term = self.turn.wait(name, campaign).await?;
        let outcome = work(term.get().token(), term.get().ending()).await;
        let term: Term = term.into_inner();
        RELEASES.outcome(name, move || term.resign()).await?;
        Ok(outcome)
    }
}

/// A [`RateLimiter`] for tasks, which wait without a thread. Cheap to clone; of the tasks that wait with clones of one
/// handle for the same number of permits, only the first asks Redis.
///
/// # Errors of all forms
///
/// Those of [`RateLimiter`](RateLimiter#errors-of-all-forms), and `Unavailable` if no thread could be started.
#[derive(Clone, Debug)]
pub struct AsyncRateLimiter {
    limiter: RateLimiter,
    /// By the number of permits: tasks that wait for few must not wait for one that waits for many.
    turns: Arc<Mutex<HashMap<u32, Arc<tokio::sync::Mutex<()>>>>>,
}

impl AsyncRateLimiter {
    /// Creates the limiter for tasks. Makes no request.
    pub fn new(limiter: RateLimiter) -> Self {
        AsyncRateLimiter { limiter, turns: Arc::default() }
    }

    /// Returns the limiter for threads, for queries, which block for a request.
    pub fn blocking(&self) -> &RateLimiter {
        &self.limiter
    }

    /// Acquires `n` permits if they are available now; the decision says whether it did. Takes one request, of at most
    /// the command timeout.
    ///
    /// # Errors
    /// See [the type](AsyncRateLimiter#errors-of-all-forms).
    pub async fn try_acquire(&self, n: u32) -> Result<Decision, Error> {
        let limiter = self.limiter.clone();
        ATTEMPTS.attempt(self.limiter.name(), move || limiter.try_acquire(n)).await
    }

    /// Waits for `n` permits. If the future is dropped, none is counted, unless a request for them is on its way.
    ///
    /// # Errors
    /// See [the type](AsyncRateLimiter#errors-of-all-forms).
    pub async fn acquire(&self, n: u32) -> Result<(), Error> {
        self.try_acquire_for(n, Duration::MAX).await.map(drop)
    }

    /// Waits for `n` permits for at most `timeout`, as [`RateLimiter::acquire_with`] does.
    ///
    /// # Errors
    /// See [the type](AsyncRateLimiter#errors-of-all-forms).
    pub async fn try_acquire_for(&self, n: u32, timeout: Duration) -> Result<Decision, Error> {
        let (deadline, mut turn) = (clock::after(timeout), None);
        loop {
            let decision = self.try_acquire(n).await?;
            let again = clock::after(decision.retry_after);
            let is_late = deadline.is_some_and(|deadline| again.is_none_or(|again| deadline < again));
            if decision.allowed || is_late {
                return Ok(decision);
            }
            if turn.is_none() {
                // It asks again when its turn comes, or its time is up.
                turn = clock::by(deadline, self.turn(n).lock_owned()).await;
            } else {
                // A client that is closed meanwhile says so when it is asked again.
                let _ = clock::by(again, self.limiter.closed().cancelled()).await;
            }
        }
    }

    fn turn(&self, n: u32) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock();
        turns.retain(|_, it| Arc::strong_count(it) > 1);
        turns.entry(n).or_default().clone()
    }
}
