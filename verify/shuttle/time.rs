//! The time of one execution, and the sleepers in it.
//!
//! Two readings are never equal, and nothing else moves the clock by itself. A thread of a test lets time
//! pass ([`pass`]), at whichever step the scheduler lets it; or, if a test asks for it ([`pass_when_quiet`]),
//! time jumps to the next deadline when all threads wait and nothing else can happen. In tests with neither,
//! a lost wake-up is a deadlock: no timeout hides it.

#![cfg_attr(not(test), allow(dead_code))]

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::clock::Moment;

/// Not the beginning of time, since leases and waiter timeouts are counted back from here.
const BEGINNING: Moment = Moment::of(1_000_000_000_000_000);

struct Time {
    now: Moment,
    sleepers: Vec<(Moment, Arc<Sleeper>)>,
    /// Threads that have not ended.
    threads: usize,
    /// Their names, with how many have each.
    names: BTreeMap<String, usize>,
    /// How many of them wait for anything but a mutex, whose owner can always continue.
    asleep: usize,
    /// How long an execution may take if time passes by itself.
    when_quiet: Option<Duration>,
    /// The thread that waits for all others to end.
    last: Option<Arc<Sleeper>>,
    /// Until when the threads of a process stand still.
    stops: BTreeMap<usize, Moment>,
    /// Those that stand still for ever.
    dead: Vec<Arc<Sleeper>>,
    /// By how many parts in a million the clock of a process runs fast, or slow if that is negative.
    drifts: BTreeMap<usize, i64>,
}

impl Time {
    const fn new() -> Time {
        Time {
            now: BEGINNING,
            sleepers: Vec::new(),
            threads: 1,
            names: BTreeMap::new(),
            asleep: 0,
            when_quiet: None,
            last: None,
            stops: BTreeMap::new(),
            dead: Vec::new(),
            drifts: BTreeMap::new(),
        }
    }

    /// By how much more time passes on the clock of this thread's process, in so many parts.
    fn speed(&self) -> (u128, u128) {
        let drift = if self.drifts.is_empty() { None } else { self.drifts.get(&process()) };
        ((PARTS + drift.copied().unwrap_or_default()) as u128, PARTS as u128)
    }
}

const PARTS: i64 = 1_000_000;

/// How long after the beginning this is, and `speed.0 / speed.1` times that.
fn scaled(moment: Moment, speed: (u128, u128)) -> Moment {
    if moment == Moment::NEVER || speed.0 == speed.1 || moment <= BEGINNING {
        return moment;
    }
    let nanos = (moment.since(BEGINNING).as_nanos() * speed.0).div_ceil(speed.1);
    u64::try_from(nanos).map_or(Moment::NEVER, |nanos| BEGINNING.after(Duration::from_nanos(nanos)))
}

// All threads of an execution run on one OS thread, and this is never borrowed across a step at which another
// one may run.
thread_local!(static TIME: RefCell<Time> = const { RefCell::new(Time::new()) });

fn with<R>(f: impl FnOnce(&mut Time) -> R) -> R {
    TIME.with(|time| f(&mut time.borrow_mut()))
}

/// Begins an execution.
pub(crate) fn begin() {
    with(|time| *time = Time::new());
}

/// Returns the time by the clock of this thread's process.
pub(crate) fn now() -> Moment {
    let now = real();
    with(|time| scaled(now, time.speed()))
}

/// Returns the time by a clock that neither runs fast nor slow.
pub(crate) fn real() -> Moment {
    with(|time| {
        // Two, so that a slow clock moves, too.
        time.now = time.now.after(Duration::from_nanos(2));
        time.now
    })
}

/// From now on the clock of a process runs fast by so many parts in a million, or slow.
pub(crate) fn drifts(process: usize, parts: i64) {
    with(|time| time.drifts.insert(process, parts));
}

/// Lets time pass: a thread that sleeps until then or less wakes up.
pub(crate) fn pass(d: Duration) {
    let due = with(|time| {
        time.now = time.now.after(d);
        time.due()
    });
    wake(due);
}

/// Sleeps for this long.
pub(crate) fn sleep(d: Duration) {
    let until = now().after(d);
    Sleeper::until(Some(until)).sleep();
}

/// Returns how much time has passed since the beginning.
pub(crate) fn elapsed() -> Duration {
    with(|time| time.now.since(BEGINNING))
}

/// From now on, time passes up to the next deadline of a sleeping thread whenever nothing else can happen,
/// but less than `limit` since the beginning. A thread that needs more was not woken when it should have
/// been.
pub(crate) fn pass_when_quiet(limit: Duration) {
    with(|time| time.when_quiet = Some(limit));
}

/// Whether it passes by itself.
pub(crate) fn passes() -> bool {
    with(|time| time.when_quiet.is_some())
}

// ---- processes that stop -----------------------------------------------------------------------

shuttle::thread_local! {
    /// That of this thread, if it is not 0.
    static PROCESS: Cell<usize> = Cell::new(0);
}

/// From now on this thread is one of that process, as are those that it starts. Returns which it was.
pub(crate) fn belongs_to(process: usize) -> usize {
    PROCESS.with(|its| its.replace(process))
}

pub(super) fn process() -> usize {
    PROCESS.with(Cell::get)
}

/// Until then, the threads of a process do not go on: they stand still where they sleep, or talk to a server.
pub(crate) fn stop(process: usize, until: Moment) {
    with(|time| {
        let its = time.stops.entry(process).or_insert(until);
        *its = until.max(*its);
    });
}

/// Lets all of them go on.
pub(crate) fn go_on() {
    let dead = with(|time| {
        time.stops.clear();
        std::mem::take(&mut time.dead)
    });
    wake(dead);
}

/// When this process went on that had stopped.
pub(crate) fn went_on() -> Moment {
    with(|time| scaled(time.stopped_until(), time.speed()))
}

/// Stands still while its process is stopped.
pub(crate) fn while_stopped() {
    while with(|time| !time.stops.is_empty()) {
        let until = with(|time| time.stopped_until());
        if until <= real() {
            return;
        }
        let sleeper = Sleeper::until_real((until < Moment::NEVER).then_some(until));
        if until == Moment::NEVER {
            with(|time| time.dead.push(sleeper.clone()));
        }
        sleeper.rest();
    }
}

/// Waits until this thread is the only one.
pub(crate) fn wait_for_others() {
    let me = Sleeper::until(None);
    let alone = with(|time| {
        time.last = Some(me.clone());
        time.threads == 1
    });
    if !alone {
        me.sleep();
    }
}

fn wake(due: Vec<Arc<Sleeper>>) {
    for sleeper in due {
        sleeper.wake(true);
    }
}

impl Time {
    fn stopped_until(&self) -> Moment {
        self.stops.get(&process()).copied().unwrap_or_default()
    }

    fn due(&mut self) -> Vec<Arc<Sleeper>> {
        let now = self.now;
        let due = self.sleepers.extract_if(.., |(deadline, _)| *deadline <= now);
        due.map(|(_, sleeper)| sleeper).collect()
    }

    /// Returns what wakes up by itself if nothing else can happen.
    fn next(&mut self) -> Vec<Arc<Sleeper>> {
        if self.threads == 1
            && let Some(last) = self.last.take()
        {
            return vec![last];
        }
        let Some(limit) = self.when_quiet.filter(|_| self.asleep == self.threads) else { return Vec::new() };
        let next = self.sleepers.iter().map(|(deadline, _)| *deadline).min();
        self.now = next.map_or(self.now, |next| self.now.max(next));
        let since = self.now.since(BEGINNING);
        let names = &self.names;
        assert!(since < limit, "a call that never ends: after {since:?} some of these still wait: {names:?}");
        self.due()
    }
}

/// Counts a thread that begins.
pub(super) fn thread_begins(name: &str) {
    with(|time| {
        time.threads += 1;
        *time.names.entry(name.to_owned()).or_default() += 1;
    });
}

pub(super) fn thread_ends(name: &str) {
    let next = with(|time| {
        time.threads -= 1;
        if let Some(n) = time.names.get_mut(name) {
            *n -= 1;
        }
        time.names.retain(|_, n| *n > 0);
        time.next()
    });
    wake(next);
}

/// A single wait of a thread: woken once, by another thread or by its deadline.
#[derive(Default)]
pub(super) struct Sleeper(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    Awake,
    Asleep(Waker),
    Woken {
        by_time: bool,
    },
}

impl Sleeper {
    /// Creates a wait until `deadline`, by the clock of this thread's process, that may be woken from now on, whether or
    /// not it sleeps yet.
    pub(super) fn until(deadline: Option<Moment>) -> Arc<Sleeper> {
        let real = |deadline| {
            with(|time| {
                let (fast, one) = time.speed();
                scaled(deadline, (one, fast))
            })
        };
        Sleeper::until_real(deadline.map(real))
    }

    fn until_real(deadline: Option<Moment>) -> Arc<Sleeper> {
        let sleeper = Arc::new(Sleeper::default());
        if let Some(deadline) = deadline {
            let now = with(|time| {
                time.sleepers.push((deadline, sleeper.clone()));
                time.due()
            });
            wake(now);
        }
        sleeper
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether it falls asleep now: it may be polled again without having been woken.
    fn begins(&self, waker: &Waker) -> bool {
        let mut state = self.state();
        let begins = matches!(*state, State::Awake);
        if begins {
            *state = State::Asleep(waker.clone());
        }
        begins
    }

    fn woken(&self) -> Option<bool> {
        match *self.state() {
            State::Woken { by_time } => Some(by_time),
            _ => None,
        }
    }

    /// Returns whether this call woke it.
    pub(super) fn wake(&self, by_time: bool) -> bool {
        let mut state = self.state();
        if let State::Woken { .. } = *state {
            return false;
        }
        if let State::Asleep(waker) = std::mem::replace(&mut *state, State::Woken { by_time }) {
            with(|time| time.asleep -= 1);
            drop(state);
            waker.wake();
        }
        true
    }

    /// Sleeps until it is woken. Returns whether that was by its deadline.
    pub(super) fn sleep(self: Arc<Self>) -> bool {
        let by_time = self.rest();
        while_stopped();
        by_time
    }

    fn rest(self: Arc<Self>) -> bool {
        let by_time = shuttle::future::block_on(poll_fn(|cx| {
            if self.begins(cx.waker()) {
                let next = with(|time| {
                    time.asleep += 1;
                    time.next()
                });
                wake(next);
            }
            self.woken().map_or(Poll::Pending, Poll::Ready)
        }));
        with(|time| time.sleepers.retain(|(_, other)| !Arc::ptr_eq(other, &self)));
        by_time
    }
}
