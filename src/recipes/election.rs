//! The election of a leader: candidates, and the leader's term.

mod observing;

use std::ops::Deref;
use std::time::Duration;

pub use self::observing::{Change, Changes, Leader, Waiting};
use self::observing::{Observing, RULE};
use crate::cancel::CancellationToken;
use crate::client::Client;
use crate::clock::Moment;
use crate::error::{Error, ErrorKind};
use crate::forms::timed_out;
use crate::guard::OwnedGuard;
use crate::kind::{Exclusive, Kind, Queued, Queueing, Reentrancy};
use crate::lock::RedisLock;
use crate::lock::inspect::Process;
use crate::wait::Wait;

/// The election of a leader among the processes that share a name: the handle of one name, cheap to clone and
/// to create. At most one of its candidates leads at a time; the others wait to succeed it, in order of
/// arrival.
///
/// ```
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let election = client.election("scheduler").value("10.0.0.7:8080");
///
/// let term = election.campaign()?; // waits until this candidate leads
/// let leader = client.election("scheduler").leader()?.expect("there is one");
/// assert_eq!((leader.value.as_str(), leader.term), ("10.0.0.7:8080", term.token()));
///
/// term.resign()?; // the next candidate leads at once
/// assert!(election.leader()?.is_none());
/// # Ok(())
/// # }
/// ```
///
/// # Terms
///
/// A campaign that succeeds begins a [`Term`]: a hold like that of a lock, with a lease that is renewed in
/// the background until the term is [resigned](Term::resign) or dropped. Its [token](crate::Guard::token) is
/// greater than that of every earlier term: it is the fencing token of all that the leader does. After an
/// orderly end the next candidate leads within one hand-off; after the death of the leader's process, when
/// its lease has expired.
///
/// A term that was waited for begins once its lease is renewed: if that fails, or the term is over by then,
/// no work was done in it, and the campaign continues.
///
/// Each campaign is a candidate of its own, with its own position in the queue: two threads of a process
/// compete like two processes, and a leader that campaigns again waits for the end of its own term.
///
/// # The leader's own work
///
/// A leader must have stopped its work before its term can end. [`run`](Election::run) does the work in one
/// term and resigns, [`keep_running`](Election::keep_running) in one term after the other; the work gets
/// [`Term::ending`], a token that is cancelled [some time](Election::stop_before) before the term is no longer
/// certain to last.
///
/// # Observing
///
/// Any process may ask for the [leader](Election::leader) and the value it has published, or
/// [observe](Election::observe) every change of leader as it happens; an observer learns if it missed one.
///
/// # Errors of all forms
///
/// As with [any lock](RedisLock#errors-of-all-forms): `Unavailable` if Redis cannot be reached (`campaign()`
/// gives up after [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout)), `WrongType` if the key
/// is in use by something else, `Closed`, `Forked`, and `InvalidInput` for an invalid name, a value longer
/// than 4,096 bytes, and a `stop_before` that leaves no time to lead.
#[derive(Clone)]
pub struct Election {
    client: Client,
    lock: RedisLock<Candidate>,
    watching: RedisLock<Observing>,
    stop_before: Duration,
}

impl Client {
    /// The election `name` of a leader: of its candidates, at most one leads at a time.
    pub fn election(&self, name: &str) -> Election {
        let lock = self.lock_with_kind(name, Candidate::default());
        let watching = self.lock_with_kind(name, Observing::default());
        Election { client: self.clone(), lock, watching, stop_before: self.shared().config.lease / 6 }
    }
}

impl Election {
    /// The election's name.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    /// The same election for a candidate that others see as `value` when it leads: an address, say. Default
    /// empty. At most 4,096 bytes: with a longer one each call that campaigns returns `InvalidInput`.
    #[must_use]
    pub fn value(&self, value: &str) -> Self {
        let lock = self.lock.with_kind(Candidate { value: value.to_owned() });
        let lock = lock.checked(|| check_value(value));
        Election { lock, ..self.clone() }
    }

    /// The same election for a leader whose work is to stop when less than `margin` of its term is certain to
    /// remain: see [`Term::ending`]. Default: a sixth of the lease. From 1 ms to half the lease, and together
    /// with [`renew_every`](crate::ClientBuilder::renew_every) at most five sixths of it, as each renewal
    /// must come first: with any other value each call that campaigns returns `InvalidInput`.
    #[must_use]
    pub fn stop_before(&self, margin: Duration) -> Self {
        let lock = self.lock.clone().checked(|| self.client.shared().config.check_margin(margin));
        Election { lock, stop_before: margin, ..self.clone() }
    }

    /// The same election for a leader whose term begins only once `n` replicas know of it: see
    /// [`RedisLock::with_replicas`]. Without this, a term that began just before a failover may overlap with the
    /// next one until its leader is told, and the next number may be lower.
    #[must_use]
    pub fn with_replicas(&self, n: usize, timeout: Duration) -> Self {
        Election { lock: self.lock.with_replicas(n, timeout), ..self.clone() }
    }

    // ---- campaigning -----------------------------------------------------------------------

    /// Waits until this candidate leads, without a timeout.
    ///
    /// # Errors
    /// See [the type](Election#errors-of-all-forms).
    pub fn campaign(&self) -> Result<Term, Error> {
        self.campaign_with(Wait::forever())?.ok_or_else(|| timed_out(self.name()))
    }

    /// Makes one attempt: `None` if there is a leader, or another candidate waits. Blocks for one request, at
    /// most the command timeout.
    ///
    /// # Errors
    /// See [the type](Election#errors-of-all-forms).
    pub fn try_campaign(&self) -> Result<Option<Term>, Error> {
        self.campaign_with(Wait::once())
    }

    /// Waits as `wait` says (a timeout, a deadline, a token, a [`Wait`]); returns `None` if the time is up.
    ///
    /// # Errors
    /// `Cancelled` if `wait` has a token that is cancelled. `Unavailable` also if the lease was lost, or could not be
    /// renewed, before the term had begun, and there is no time left for another attempt. See also [the
    /// type](Election#errors-of-all-forms).
    pub fn campaign_with<'w>(&self, wait: impl Into<Wait<'w>>) -> Result<Option<Term>, Error> {
        let wait = &wait.into();
        // That the lock can be acquired does not show that its lease can be renewed, so the time of failed
        // renewals is added up here and counts towards the unreachable timeout.
        let mut in_vain = Duration::ZERO;
        loop {
            let Some(guard) = self.lock.lock_owned_with(*wait)? else { return Ok(None) };
            let granted = Moment::now();
            let error = match Term::begin(guard, self.stop_before, wait) {
                Ok(term) => return Ok(Some(term)),
                Err(error) => error,
            };
            let failed = match error.kind() {
                ErrorKind::LeaseLost => false,
                ErrorKind::Unavailable | ErrorKind::OutcomeUnknown => true,
                _ => return Err(error),
            };
            if failed && !wait.once {
                self.client.pause(PAUSE, wait);
                in_vain += Moment::now().since(granted);
            }
            let gives_up = wait.deadline == Moment::NEVER
                && (wait.once || in_vain >= self.client.shared().config.unreachable_timeout);
            // (If it was cancelled, the lock returns that error in the next round.)
            if (gives_up || wait.is_over(Moment::now())) && !wait.is_cancelled() {
                return Err(not_begun(self.name(), error));
            }
        }
    }

    /// Campaigns, does `work` as the leader, and resigns. The work must end when [`Term::ending`] is
    /// cancelled, within the margin of [`stop_before`](Election::stop_before): no lock with leases can stop a
    /// thread.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use redis_concurrent::Client;
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = redis_concurrent_testkit::RedisServer::start()?;
    /// # let client = Client::connect(&server.url())?;
    /// let rounds = client.election("scheduler").run(|term| {
    ///     let mut rounds = 0;
    ///     while rounds < 3 && !term.ending().wait_timeout(Duration::from_millis(10)) {
    ///         rounds += 1; // … one round of the leader's work, under term.token()
    ///     }
    ///     rounds
    /// })?;
    /// assert_eq!(rounds, 3);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// `LeaseLost` if the term ended before the work did: the last part of the work may have overlapped with
    /// the next leader's. After the other errors of [`Term::resign`], all of the work was within its term.
    /// See also [the type](Election#errors-of-all-forms): with these errors, `work` did not run.
    pub fn run<R>(&self, work: impl FnOnce(&Term) -> R) -> Result<R, Error> {
        self.run_with(Wait::forever(), work)?.ok_or_else(|| timed_out(self.name()))
    }

    /// Like [`run`](Election::run), with a campaign that waits as `wait` says; `None` if the time is up. A
    /// deadline applies to the campaign only, a token to the term, too.
    ///
    /// # Errors
    /// `Cancelled` if the token was cancelled before this candidate led; see also [`run`](Election::run).
    pub fn run_with<'w, R>(
        &self,
        wait: impl Into<Wait<'w>>,
        work: impl FnOnce(&Term) -> R,
    ) -> Result<Option<R>, Error> {
        let wait = wait.into();
        let Some(term) = self.campaign_with(wait)? else { return Ok(None) };
        if let Some(cancel) = wait.cancel {
            cancel.cancels(&term.ending());
        }
        let outcome = work(&term);
        term.resign()?;
        Ok(Some(outcome))
    }

    /// Leads whenever it can, until `stop` is cancelled: campaigns, does `work` as the leader, resigns, and
    /// campaigns again, behind the other candidates. It does so also after a term that was lost, and while
    /// Redis cannot be reached; [observers](crate::observe::Observer) hear of each such failure, as `lost`,
    /// `not_acquired` or `release_deferred`. The pause before the next campaign is 100 ms after a term, and up
    /// to 5 s after failures in a row. `stop` ends the wait and the pause, and cancels [`Term::ending`]; the
    /// call returns once the work has.
    ///
    /// # Errors
    /// Those that would not pass: `Closed`, `Forked`, `WrongType`, `Refused`, `Protocol`, `InvalidInput`. See
    /// also [the type](Election#errors-of-all-forms). (A wrong password is `Unavailable`, and may be corrected.)
    pub fn keep_running(&self, stop: &CancellationToken, mut work: impl FnMut(&Term)) -> Result<(), Error> {
        let mut pause = PAUSE;
        while !stop.is_cancelled() {
            let mut led = false;
            let outcome = self.run_with(stop, |term| {
                led = true;
                work(term);
            });
            if let Err(error) = outcome
                && !may_pass(error.kind())
            {
                return Err(error);
            }
            pause = if led { PAUSE } else { LONGEST_PAUSE.min(pause * 2) };
            self.client.pause(pause, &stop.into());
        }
        Ok(())
    }

    // ---- what others see -------------------------------------------------------------------

    /// The leader, in whichever process; `None` if there is none. One request.
    ///
    /// # Errors
    /// See [the type](Election#errors-of-all-forms).
    pub fn leader(&self) -> Result<Option<Leader>, Error> {
        Ok(Leader::of(&self.watching.inspect_state::<Vec<String>>("", Wait::forever())?))
    }

    /// The candidates that wait to succeed the leader, in order: the first hundred of them. One request.
    ///
    /// # Errors
    /// See [the type](Election#errors-of-all-forms).
    pub fn candidates(&self) -> Result<Vec<Waiting>, Error> {
        let state: Vec<(String, String)> = self.watching.inspect_state("candidates", Wait::forever())?;
        let waiting = |(record, value): (String, _)| Waiting { process: Process::read(&record), value };
        Ok(state.into_iter().map(waiting).collect())
    }

    /// The leader, and every change of it from then on, as they happen: see [`Changes`].
    pub fn observe(&self) -> Changes {
        Changes { watching: self.watching.clone(), seen: None }
    }
}

impl Queued for Election {
    fn queue(&self) -> Option<usize> {
        self.lock.queue()
    }
}

shows!(Election as "Election", |it| "name": it.name(), "value": it.lock.kind().value);

/// The longest value of a leader, in bytes.
const LONGEST_VALUE: usize = 4096;

/// The kind of a [`Term`]: a candidate that leads.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    value: String,
}

impl Kind for Candidate {
    const NAME: &'static str = "election";
    const RULE: &'static str = RULE;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;

    fn args(&self) -> String {
        format!("lead|{}", self.value)
    }
}

impl Exclusive for Candidate {}

/// Checks that a leader may have this value.
fn check_value(value: &str) -> Result<(), String> {
    if value.len() > LONGEST_VALUE {
        return Err(format!(
            "a leader's value must be at most {LONGEST_VALUE} bytes long, got {}",
            value.len()
        ));
    }
    Ok(())
}

/// How long a candidate whose lease was not renewed, or whose term is over, leaves the leadership to others.
const PAUSE: Duration = Duration::from_millis(100);
/// The longest pause between two campaigns of a candidate that fail.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Whether a candidate that got this error may lead later.
fn may_pass(error: ErrorKind) -> bool {
    use ErrorKind::{Cancelled, LeaseLost, NotReplicated, OutcomeUnknown, Unavailable};
    matches!(error, Cancelled | LeaseLost | NotReplicated | OutcomeUnknown | Unavailable)
}

/// The error of a candidate whose lease was lost, or not renewed: its term has not begun.
fn not_begun(name: &str, error: Error) -> Error {
    let why = match error.kind() {
        ErrorKind::LeaseLost => "the lease of the term was lost before it began",
        ErrorKind::OutcomeUnknown => "the lease of the term could not be renewed, and is given back",
        _ => return error,
    };
    Error::new(ErrorKind::Unavailable, name).because(why).caused_by(error)
}

/// A term in which this candidate leads, until it is [resigned](Term::resign), dropped, or lost. Its lease is
/// renewed in the background. It may move to another thread, and be kept in a struct.
///
/// It dereferences to its guard: the [token](crate::Guard::token) is the number of the term, greater than that
/// of every earlier one. Let what the leader changes [reject a lower one](crate::Fenced).
#[must_use = "a term that is not kept is resigned at once"]
pub struct Term {
    guard: OwnedGuard<Candidate>,
    ending: CancellationToken,
}

impl Term {
    /// Begins a term with enough of its lease left that its work need not stop at once. Takes no longer than
    /// `wait` allows.
    ///
    /// # Errors
    /// `LeaseLost` if the lease was lost; any other error if it could not be renewed: the hold is given back.
    fn begin(mut guard: OwnedGuard<Candidate>, margin: Duration, wait: &Wait<'_>) -> Result<Term, Error> {
        if guard.remaining() < 2 * margin {
            // It was waited for, and so far has only its first lease.
            guard = guard.renewed(wait)?;
        }
        let ending = guard.ends_within(margin);
        Ok(Term { guard, ending })
    }

    /// A token that is cancelled when the leader's work must stop: when less than
    /// [`stop_before`](crate::Election::stop_before) is certain to remain of the term, because renewals fail,
    /// or when it is over. All calls return the same token.
    pub fn ending(&self) -> CancellationToken {
        self.ending.clone()
    }

    /// Publishes `value` from now on, in place of the [candidate's](crate::Election::value); observers are
    /// notified. At most 4,096 bytes. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// `LeaseLost` or `Closed` if the term is over, `InvalidInput` for a longer value. `OutcomeUnknown` if
    /// Redis did not reply: others may see the new value, or may still do so. `Unavailable`, `Forked`.
    pub fn proclaim(&self, value: &str) -> Result<(), Error> {
        check_value(value).map_err(|why| Error::new(ErrorKind::InvalidInput, self.name()).because(why))?;
        self.guard.update("proclaim", value)
    }

    /// Ends the term; the next candidate leads. Blocks for one request, at most the command timeout. Dropping
    /// the term does the same, and reports an error to the observer.
    ///
    /// # Errors
    /// `LeaseLost` if the term was over before; `Closed`. `OutcomeUnknown` if Redis did not reply,
    /// `Unavailable` if it certainly did not run the request: in both cases it is sent again in the
    /// background until the lease has expired.
    pub fn resign(self) -> Result<(), Error> {
        self.guard.unlock()
    }
}

impl Deref for Term {
    type Target = OwnedGuard<Candidate>;

    fn deref(&self) -> &Self::Target {
        &self.guard
    }
}

shows!(Term as "Term", |it| "election": it.name(), "token": it.token());
