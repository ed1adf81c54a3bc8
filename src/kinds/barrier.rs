//! A cyclic barrier: threads wait for each other, round after round.

use crate::client::Client;
use crate::error::{Error, ErrorKind};
use crate::guard::OwnedGuard;
use crate::kind::{Kind, Queueing, Reentrancy, Sharing};
use crate::lock::RedisLock;
use crate::settings::within;
use crate::wait::Wait;

/// A bound on the queue of a round: Redis admits its parties in several scripts, one after another.
const MOST_PARTIES: usize = 10_000;

/// A barrier kept in Redis: the handle of one name, cheap to clone and to create. As many threads as the
/// barrier has parties, in any processes, wait for each other there; when the last one arrives, all of them
/// proceed, and the barrier is ready for the next round.
///
/// ```
/// use std::thread;
/// use redis_concurrent::Client;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = redis_concurrent_testkit::RedisServer::start()?;
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
/// Each call of a `wait` method is one arrival, and returns its index: `parties - 1` for the first to arrive,
/// 0 for the last. More arrivals than parties belong to the next round. An action, given to
/// [`wait_then`](CyclicBarrier::wait_then), runs on the thread that completes the round, before the others
/// proceed; only the action of the last party to arrive runs. (If the whole next round arrives while an
/// action runs, its first party completes it: that party still has the index `parties - 1`, and the last one
/// 0.)
///
/// # When it breaks
///
/// If a party times out or is cancelled, or its process dies or stalls for a [waiter
/// timeout](crate::ClientBuilder::waiter_timeout), the round can never complete: all other waiters get
/// `Broken`, and so do later arrivals, until [`reset`](CyclicBarrier::reset). The same happens if an action
/// panics, or its process dies. A broken barrier stays broken in Redis until it is reset; otherwise all data
/// of a barrier expires by itself a minute (or two waiter timeouts) after its last round.
///
/// A call that ends before Redis knows of it (because it was cancelled earlier, or Redis is unreachable) is
/// not an arrival, and does not break the barrier. A party that gives up counts as arrived until Redis knows of it (if
/// it cannot be told, for a waiter timeout): it may get `Timeout` or `Cancelled` while the others pass.
///
/// # Waiting
///
/// Each waiting thread has a queue position of its own in Redis: two requests per round, and three heartbeats
/// per waiter timeout. Each heartbeat checks one other party, so a dead party is detected within a waiter
/// timeout and a heartbeat. A lost message delays a waiter by one heartbeat.
///
/// # Errors of all forms
///
/// `Broken` as above. `Refused` if the waiting parties expect another number of parties; the barrier does not
/// change. `Unavailable` if Redis cannot be reached: timed methods then run to their deadline, `wait()` gives
/// up after [`unreachable_timeout`](crate::ClientBuilder::unreachable_timeout). `WrongType` if the key is in
/// use by something else. `Closed`, `Forked`, and `InvalidInput` for an invalid name or number of parties.
#[derive(Clone)]
pub struct CyclicBarrier {
    lock: RedisLock<Barrier>,
    parties: usize,
}

shows!(CyclicBarrier as "CyclicBarrier", |it| "name": it.name(), "parties": it.parties);

/// A party that was admitted, until it has left. If it is dropped before the barrier is open, the barrier
/// breaks: that can only be the party that has to open it.
struct Passed {
    guard: OwnedGuard<Barrier>,
    /// How long the call may take to leave.
    wait: Wait<'static>,
}

impl Drop for Passed {
    fn drop(&mut self) {
        // Whatever the outcome, the party has passed: its entry in Redis would expire by itself.
        self.guard.hold.never_counted(&self.wait);
    }
}

impl Client {
    /// The barrier `name`: threads wait there for each other, `parties` at a time; at least one, at most
    /// 10,000. All handles of a name must agree on the number.
    pub fn cyclic_barrier(&self, name: &str, parties: usize) -> CyclicBarrier {
        // The shorter it is, the sooner others learn that the party whose action runs has died.
        let lock = self.lock_with_kind(name, Barrier::default()).leased_as_a_waiter();
        let lock = lock.checked(|| within("parties", parties, 1..=MOST_PARTIES));
        CyclicBarrier { lock, parties }
    }
}

impl CyclicBarrier {
    /// The barrier's name.
    pub fn name(&self) -> &str {
        self.lock.name()
    }

    // ---- waiting ---------------------------------------------------------------------------

    /// Waits for the other parties, without a deadline. Returns the index of this arrival.
    ///
    /// # Errors
    /// See [the type](CyclicBarrier#errors-of-all-forms).
    pub fn wait(&self) -> Result<usize, Error> {
        self.meet(&Wait::forever(), NO_ACTION)
    }

    /// Waits as `wait` says (a timeout, a deadline, a token, a [`Wait`]). A timeout of zero suffices only for
    /// the last party.
    ///
    /// # Errors
    /// `Timeout` if the time is up, `Cancelled` if a token is cancelled: the barrier breaks if this thread had
    /// arrived. See also [the type](CyclicBarrier#errors-of-all-forms).
    pub fn wait_with<'w>(&self, wait: impl Into<Wait<'w>>) -> Result<usize, Error> {
        self.meet(&wait.into().begun(), NO_ACTION)
    }

    /// Like [`wait`](CyclicBarrier::wait); if this thread completes the round, it runs `action` before the
    /// others proceed, however long that takes. A panic in the action breaks the barrier and is propagated.
    /// Takes one more request than without an action.
    ///
    /// # Errors
    /// `Broken` also if the barrier broke while the action ran; `OutcomeUnknown` if it is not known whether
    /// the others proceeded after it. See also [the type](CyclicBarrier#errors-of-all-forms).
    pub fn wait_then(&self, action: impl FnOnce()) -> Result<usize, Error> {
        self.meet(&Wait::forever(), Some(action))
    }

    /// Like [`wait_with`](CyclicBarrier::wait_with), with an action as for
    /// [`wait_then`](CyclicBarrier::wait_then). A timeout does not apply to the action.
    ///
    /// # Errors
    /// See [`wait_then`](CyclicBarrier::wait_then) and [`wait_with`](CyclicBarrier::wait_with).
    pub fn wait_then_with<'w>(
        &self,
        wait: impl Into<Wait<'w>>,
        action: impl FnOnce(),
    ) -> Result<usize, Error> {
        self.meet(&wait.into().begun(), Some(action))
    }

    // ---- its state -------------------------------------------------------------------------

    /// Whether the barrier is broken. One request.
    ///
    /// # Errors
    /// See [the type](CyclicBarrier#errors-of-all-forms).
    pub fn is_broken(&self) -> Result<bool, Error> {
        self.lock.inspect_state("", Wait::forever())
    }

    /// The number of threads that wait for the others, in all processes. One request.
    ///
    /// # Errors
    /// See [the type](CyclicBarrier#errors-of-all-forms).
    pub fn number_waiting(&self) -> Result<usize, Error> {
        Ok(self.lock.inspect()?.waiting.len())
    }

    /// Resets the barrier to its initial state. Waiting parties get `Broken`, and so does a party whose
    /// action is running, once that has ended. Blocks for one request, at most the command timeout.
    ///
    /// # Errors
    /// `OutcomeUnknown` if there was no reply. See also [the type](CyclicBarrier#errors-of-all-forms).
    pub fn reset(&self) -> Result<(), Error> {
        self.lock.update_state(&["reset"])
    }

    // ---- underneath ------------------------------------------------------------------------

    fn meet(&self, wait: &Wait<'_>, action: Option<impl FnOnce()>) -> Result<usize, Error> {
        let parties = self.parties.to_string();
        let args = if action.is_some() { format!("{parties} then") } else { parties.clone() };
        let Some(guard) = self.lock.with_kind(Barrier { args }).lock_owned_with(*wait)? else {
            return Err(Error::new(ErrorKind::Timeout, self.name()));
        };
        // The rule's value is twice the index, plus one for the party that has yet to open the barrier.
        let value = guard.value();
        let opens = value % 2 == 1;
        // The deadline applies neither to an action nor to what follows it.
        let wait = if opens { Wait::forever() } else { wait.uncancelled() };
        let passed = Passed { guard, wait };
        if opens {
            if let Some(action) = action {
                action();
            }
            passed.guard.update("open", &parties).map_err(|e| match e.kind() {
                ErrorKind::LeaseLost => {
                    self.lock.error(ErrorKind::Broken, "the barrier broke while this party's action ran")
                }
                _ => e,
            })?;
        }
        drop(passed);
        usize::try_from(value / 2).map_err(|e| self.lock.error(ErrorKind::Protocol, e.to_string()))
    }
}

/// For the methods without an action.
const NO_ACTION: Option<fn()> = None;

/// The kind of [`CyclicBarrier`]: the queue itself is the round. Redis admits the last
/// party to arrive, and then the waiting ones.
///
/// Each admitted party has an entry in Redis until its own thread removes it, so a party that missed its
/// message finds at its next heartbeat that it has passed, and does not wait for another round.
#[derive(Clone, Debug, Default)]
pub(crate) struct Barrier {
    args: String,
}

impl Kind for Barrier {
    const NAME: &'static str = "cyclic barrier";
    const RULE: &'static str = rule_file!("../../lua/barrier.lua");
    const SHARING: Sharing = Sharing::Shared;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;

    fn args(&self) -> String {
        self.args.clone()
    }
}
