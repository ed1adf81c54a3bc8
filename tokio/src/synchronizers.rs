//! Work that is done once, elections, and rate limiters, for tasks.

use std::future::Future;
use std::time::Duration;

use redis_concurrent::election::Term;
use redis_concurrent::once::{Attempt, Begun, Ending};
use redis_concurrent::rate_limiter::Decision;
use redis_concurrent::{CancellationToken, Election, Error, ErrorKind, Once, RateLimiter};

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
        let begun = self.turn.wait(name, move |wait| once.begin_with(wait).map(Some)).await?;
        let attempt = match begun {
            Begun::Yours(attempt) => InBackground::new(attempt),
            Begun::Done(answer) => return Ok(Ending::Done(answer)),
            Begun::Failed(why) => return Ok(Ending::Failed(why)),
            _ => return Err(Error::new(ErrorKind::Timeout, name)),
        };
        let outcome = work(attempt.get().token(), attempt.get().lost()).await;
        let attempt: Attempt = attempt.into_inner();
        let end = move || match outcome {
            Ok(answer) => attempt.done(&answer).map(|()| Ending::Done(answer)),
            Err(why) => attempt.fail(&why).map(|()| Ending::Failed(why)),
        };
        RELEASES.outcome(name, end).await
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
        let term = self.turn.wait(name, move |wait| election.campaign_with(wait)).await?;
        let term = InBackground::new(term);
        let outcome = work(term.get().token(), term.get().ending()).await;
        let term: Term = term.into_inner();
        RELEASES.outcome(name, move || term.resign()).await?;
        Ok(outcome)
    }
}

/// A [`RateLimiter`] for tasks, which wait without a thread. Cheap to clone.
///
/// # Errors of all forms
///
/// Those of [`RateLimiter`](RateLimiter#errors-of-all-forms), and `Unavailable` if no thread could be started.
#[derive(Clone, Debug)]
pub struct AsyncRateLimiter(RateLimiter);

impl AsyncRateLimiter {
    /// Creates the limiter for tasks. Makes no request.
    pub fn new(limiter: RateLimiter) -> Self {
        AsyncRateLimiter(limiter)
    }

    /// Returns the limiter for threads, for queries, which block for a request.
    pub fn blocking(&self) -> &RateLimiter {
        &self.0
    }

    /// Acquires `n` permits if they are available now; the decision says whether it did. Takes one request, of at most
    /// the command timeout.
    ///
    /// # Errors
    /// See [the type](AsyncRateLimiter#errors-of-all-forms).
    pub async fn try_acquire(&self, n: u32) -> Result<Decision, Error> {
        let limiter = self.0.clone();
        ATTEMPTS.outcome(self.0.name(), move || limiter.try_acquire(n)).await
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
        let deadline = clock::after(timeout);
        loop {
            let decision = self.try_acquire(n).await?;
            let again = clock::after(decision.retry_after);
            let is_late = deadline.is_some_and(|deadline| again.is_none_or(|again| deadline < again));
            match again {
                _ if decision.allowed || is_late => return Ok(decision),
                Some(again) => clock::until(again).await,
                None => std::future::pending().await,
            }
        }
    }
}
