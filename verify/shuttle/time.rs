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
}

impl Time {
    const fn new() -> Time {
        Time {
            now: BEGINNING,
            sleepers: Vec::new(),
            threads: 1,
            asleep: 0,
            when_quiet: None,
            last: None,
            stops: BTreeMap::new(),
            dead: Vec::new(),
        }
    }
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

pub(crate) fn now() -> Moment {
    with(|time| {
        time.now = time.now.after(Duration::from_nanos(1));
        time.now
    })
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
    let process = process();
    with(|time| time.stops.get(&process).copied().unwrap_or_default())
}

/// Stands still while its process is stopped.
pub(crate) fn while_stopped() {
    while with(|time| !time.stops.is_empty()) {
        let until = went_on();
        if until <= now() {
            return;
        }
        let sleeper = Sleeper::until((until < Moment::NEVER).then_some(until));
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
        assert!(since < limit, "after {since:?} somebody still waits for what should have woken it");
        self.due()
    }
}

/// Counts a thread that begins.
pub(super) fn thread_begins() {
    with(|time| time.threads += 1);
}

pub(super) fn thread_ends() {
    let next = with(|time| {
        time.threads -= 1;
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
    /// Creates a wait until `deadline` that may be woken from now on, whether or not it sleeps yet.
    pub(super) fn until(deadline: Option<Moment>) -> Arc<Sleeper> {
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
