//! A barrier: threads wait for each other, round after round.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::meeting::Meeting;
use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::engine::entry::Cell;
use crate::engine::release;
use crate::engine::runtime::Shared;
use crate::engine::state::lock_state::Ticket;
use crate::error::{Error, ErrorKind};
use crate::kind::{Kind, Reentry, Sharing};
use crate::wait::Wait;

/// Redis lets all of a round in at once, and does nothing else meanwhile.
const MOST_PARTIES: usize = 10_000;

/// A barrier kept in Redis: the handle of one name. Cheap to clone and to make. As many threads as it has
/// parties wait there for each other, in any processes; when the last one comes, all go on, and the
/// barrier is there for the next round.
///
/// ```
/// use std::thread;
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent::testing::RedisServer::start()?;
/// # let url = server.url();
/// let client = Client::connect(&url)?;
/// let phase = client.cyclic_barrier("import:phase", 2);
/// thread::scope(|scope| {
///     let other = scope.spawn(|| phase.wait());
///     let mine = phase.wait_then(|| println!("both are here"))?;
///     assert_eq!(mine + other.join().unwrap()?, 1); // one came last: 0, and one first: 1
///     Ok(())
/// })
/// # }
/// ```
///
/// # Rounds
///
/// Each call of a form of `wait` is one arrival, and returns its index: `parties - 1` for the first to
/// arrive, 0 for the last. More arrivals than parties belong to the next round. An action, given by
/// [`wait_then`](CyclicBarrier::wait_then), runs on the thread that completes the round, before the others
/// go on; only that of the last to arrive runs. (If a whole round has come together while an action runs, its
/// first one completes it: it has the index `parties - 1` then, and the last one 0.)
///
/// # When it breaks
///
/// If a thread gives up, by its deadline or its token, or its process dies or stands still for a
/// [window](crate::ClientBuilder::window), the round can never be complete: all others that wait get
/// `Broken`, and so does who comes later, until [`reset`](CyclicBarrier::reset). So it is if an action
/// panics, or its process dies. That it is broken stays in Redis until it is reset; otherwise all of a
/// barrier ends by itself a minute (or two windows) after its last round.
///
/// A call that ends before Redis knows of it (cancelled before, Redis out of reach) is no arrival, and breaks
/// nothing. Who gives up in the instant in which the last one comes may get `Timeout` or `Cancelled` while
/// the others pass: it had arrived.
///
/// # Waiting
///
/// Each thread that waits has a place of its own in Redis: two requests a round, and three times a window one
/// that says that it lives. Each looks after one other: a dead one is found within a window and a beat. A
/// message that is lost costs a beat.
///
/// # Errors of all forms
///
/// `Broken` as above. `Refused` when those who wait are for another number of parties: nothing is changed
/// then. `Unavailable` when Redis cannot be reached: timed forms then go to their deadline, `wait()` gives up
/// after [`give_up_after`](crate::ClientBuilder::give_up_after). `WrongKind` when the key is in use by
/// something else. `Closed`, `Forked`, and `Config` for a bad name or number of parties.
#[derive(Clone)]
pub struct CyclicBarrier {
    meeting: Meeting<Barrier>,
    parties: usize,
}

impl fmt::Debug for CyclicBarrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CyclicBarrier").field("name", &self.meeting).field("parties", &self.parties).finish()
    }
}

/// One that passed, until it has left. Dropped before the barrier is open, it breaks it.
struct Passed {
    cell: Arc<Cell>,
    ticket: Ticket,
}

impl Drop for Passed {
    fn drop(&mut self) {
        // Whatever becomes of it, it has passed: what is left of it in Redis ends by itself.
        let _ = release(&self.cell, self.ticket);
    }
}

impl CyclicBarrier {
    pub(crate) fn new(shared: &Arc<Shared>, name: &str, parties: usize) -> Self {
        CyclicBarrier { meeting: Meeting::new(shared, name), parties }
    }

    /// The barrier's name.
    pub fn name(&self) -> &str {
        self.meeting.name()
    }

    /// How many threads make a round.
    pub fn parties(&self) -> usize {
        self.parties
    }

    // ---- waiting ---------------------------------------------------------------------------

    /// Waits for the others, without a deadline. Returns the index of this arrival.
    ///
    /// # Errors
    /// See [the type](CyclicBarrier#errors-of-all-forms).
    pub fn wait(&self) -> Result<usize, Error> {
        self.meet(&Wait::forever(), NO_ACTION)
    }

    /// Waits for at most `limit`. Nothing is time enough only for the last one.
    ///
    /// # Errors
    /// `Timeout` when the time is up: the barrier is broken. See also
    /// [the type](CyclicBarrier#errors-of-all-forms).
    pub fn wait_for(&self, limit: Duration) -> Result<usize, Error> {
        self.meet(&within(limit), NO_ACTION)
    }

    /// Waits until `deadline`.
    ///
    /// # Errors
    /// `Timeout` when the time is up: the barrier is broken. See also
    /// [the type](CyclicBarrier#errors-of-all-forms).
    pub fn wait_until(&self, deadline: Instant) -> Result<usize, Error> {
        self.meet(&until(Moment::at(deadline)), NO_ACTION)
    }

    /// Waits until the others are here or `cancel` is cancelled. A thread that sleeps wakes at once; one
    /// inside a request sees it when that ends, after at most the command limit.
    ///
    /// # Errors
    /// `Cancelled`: the barrier is broken, if this thread had arrived. See also
    /// [the type](CyclicBarrier#errors-of-all-forms).
    pub fn wait_interruptibly(&self, cancel: &CancellationToken) -> Result<usize, Error> {
        self.meet(&Wait::forever().with(cancel), NO_ACTION)
    }

    /// Waits for at most `limit`, until `cancel` is cancelled.
    ///
    /// # Errors
    /// `Timeout` or `Cancelled`: the barrier is broken, if this thread had arrived. See also
    /// [the type](CyclicBarrier#errors-of-all-forms).
    pub fn wait_for_interruptibly(
        &self,
        limit: Duration,
        cancel: &CancellationToken,
    ) -> Result<usize, Error> {
        self.meet(&within(limit).with(cancel), NO_ACTION)
    }

    /// Like [`wait`](CyclicBarrier::wait); if this thread completes the round, it runs `action` before the
    /// others go on, for as long as that takes. A panic in there breaks the barrier and goes on. One request
    /// more than without.
    ///
    /// # Errors
    /// `Broken` also when the barrier broke while the action ran; `Unknown` when nobody said whether the
    /// others went on after it. See also [the type](CyclicBarrier#errors-of-all-forms).
    pub fn wait_then(&self, action: impl FnOnce()) -> Result<usize, Error> {
        self.meet(&Wait::forever(), Some(action))
    }

    /// Like [`wait_for`](CyclicBarrier::wait_for), with an action as for
    /// [`wait_then`](CyclicBarrier::wait_then). The limit is not for the action.
    ///
    /// # Errors
    /// See [`wait_then`](CyclicBarrier::wait_then) and [`wait_for`](CyclicBarrier::wait_for).
    pub fn wait_for_then(&self, limit: Duration, action: impl FnOnce()) -> Result<usize, Error> {
        self.meet(&within(limit), Some(action))
    }

    // ---- its state -------------------------------------------------------------------------

    /// Whether it is broken. One request.
    ///
    /// # Errors
    /// See [the type](CyclicBarrier#errors-of-all-forms).
    pub fn is_broken(&self) -> Result<bool, Error> {
        self.usable()?;
        Ok(self.meeting.inspect()?.0 == 1)
    }

    /// How many threads wait for the others, in all processes. One request.
    ///
    /// # Errors
    /// See [the type](CyclicBarrier#errors-of-all-forms).
    pub fn number_waiting(&self) -> Result<usize, Error> {
        self.usable()?;
        Ok(self.meeting.inspect()?.1.places.len())
    }

    /// Makes it a fresh one. Who waits gets `Broken`, and so does the one whose action runs when that is
    /// over. Blocks for one request, at most the command limit.
    ///
    /// # Errors
    /// `Unknown` when there was no answer. See also [the type](CyclicBarrier#errors-of-all-forms).
    pub fn reset(&self) -> Result<(), Error> {
        self.usable()?;
        self.meeting.change(&["reset"]).map(drop)
    }

    // ---- underneath ------------------------------------------------------------------------

    fn meet(&self, wait: &Wait<'_>, action: Option<impl FnOnce()>) -> Result<usize, Error> {
        self.usable()?;
        let parties = self.parties.to_string();
        let args = if action.is_some() { format!("{parties} then") } else { parties.clone() };
        let Some((cell, grip)) = self.meeting.come_in(&args, wait)? else {
            return Err(Error::new(ErrorKind::Timeout, self.name()));
        };
        let passed = Passed { cell, ticket: grip.ticket };
        // The rule's value is twice the index, and one more for whoever has yet to open the barrier.
        if grip.value % 2 == 1 {
            if let Some(action) = action {
                action();
            }
            let me = passed.cell.owner_id(grip.owner);
            if self.meeting.change(&["open", &me, &parties])? != 1 {
                return Err(self.meeting.error(ErrorKind::Broken, "while its action ran"));
            }
        }
        drop(passed);
        usize::try_from(grip.value / 2).map_err(|e| self.meeting.error(ErrorKind::Protocol, e.to_string()))
    }

    fn usable(&self) -> Result<(), Error> {
        if (1..=MOST_PARTIES).contains(&self.parties) {
            return Ok(());
        }
        let why = format!("a barrier has from 1 to {MOST_PARTIES} parties, not {}", self.parties);
        Err(self.meeting.error(ErrorKind::Config, why))
    }
}

/// For the forms without one.
const NO_ACTION: Option<fn()> = None;

/// An arrival is never just an attempt: who comes when its time is up breaks the barrier for the others.
fn until(deadline: Moment) -> Wait<'static> {
    Wait { deadline: (deadline < Moment::NEVER).then_some(deadline), cancel: None, once: false }
}

fn within(limit: Duration) -> Wait<'static> {
    until(Moment::now().after(limit))
}

/// The kind of [`CyclicBarrier`](crate::CyclicBarrier): the queue itself is the round. Redis lets in the last
/// one to come, and then those who wait.
///
/// Each that is let in has an entry in Redis until its own thread gives it back: so one whose message was lost
/// finds at its next beat that it has passed, and does not wait for another round.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Barrier;

impl Kind for Barrier {
    const NAME: &'static str = "cyclic barrier";
    const RULE: &'static str = include_str!("../../lua/barrier.lua");
    const SHARING: Sharing = Sharing::Shared;
    const REENTRY: Reentry = Reentry::Another;
}
