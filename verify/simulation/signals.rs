//! What one thread of a run does with a condition: it signals, or waits for a signal.

use std::cell::RefCell;
use std::time::Duration;

use super::checks::{self, WHOLE, sometimes};
use super::faults::{Plan, Weather};
use super::part::Part;
use crate::guard::Guard;
use crate::kinds::Reentrant;
use crate::lock::ReentrantLock;
use crate::sync::time;

/// How much longer than this a waiter must still wait that must be signalled.
const SURELY: Duration = Duration::from_millis(100);
/// How long it may take until a signal has passed by one waiter that is dead or stands still, beside a lease.
const PASSED: Duration = Duration::from_secs(8);
/// How long a waiter that only waits does so mostly, in ms, and who signals seldom pauses at most.
const PATIENCE: usize = 90_000;
const PAUSE: usize = 20_000;

/// How long after it goes on a waiter that stood still says that it was signalled.
const RESUMED: Duration = Duration::from_secs(2);

/// A call that waits for a signal.
struct Waits {
    process: usize,
    began: Duration,
    /// When it gives up.
    until: Duration,
    ended: Option<Duration>,
    signalled: bool,
}

#[derive(Default)]
struct Records {
    waits: Vec<Waits>,
    /// When each signal was sent, and by which process.
    signals: Vec<(Duration, usize)>,
}

thread_local!(static RECORDS: RefCell<Records> = RefCell::default());

fn with<R>(f: impl FnOnce(&mut Records) -> R) -> R {
    RECORDS.with_borrow_mut(f)
}

/// Begins a run.
pub(super) fn begin() {
    RECORDS.set(Records::default());
}

/// What a thread does with the condition.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    /// It signals or waits, as it comes.
    Either,
    /// It signals once in a while, and mostly when another process has just stopped or died.
    Signals,
    /// It waits, as long as it can.
    Waits,
}

impl Part {
    pub(super) fn signal_or_wait(&mut self) {
        match self.role {
            Role::Either => self.either(),
            Role::Signals => self.signal_when_one_stops(),
            Role::Waits => self.wait_at_once(),
        }
    }

    fn enters(&mut self) -> Option<(ReentrantLock, usize, Guard<Reentrant>)> {
        let (lock, asked) = (self.client.reentrant_lock("exchange"), time::elapsed());
        let guard = self.expects(lock.lock())?;
        let hold = checks::held("exchange", self.process, (WHOLE, WHOLE), Some(guard.token()), asked);
        Some((lock, hold, guard))
    }

    fn either(&mut self) {
        let _about = checks::about("exchange", self.process);
        let Some((lock, hold, guard)) = self.enters() else { return };
        let signals = match self.process {
            0 if self.signals => self.rng.below(8) > 0,
            _ => self.rng.below(if self.signals { 8 } else { 3 }) == 0,
        };
        // Who signals at once may come between two requests of who begins to wait.
        if !signals || self.rng.below(2) == 0 {
            self.stay(hold, &guard);
        }
        if !signals {
            let all = [self.rng.below(self.pace), self.rng.below(30_000), self.rng.below(90_000), 90_000];
            let limit = Duration::from_millis(1 + all[self.rng.below(4)] as u64);
            let Some((hold, guard)) = self.wait_for_signal(&lock, hold, guard, limit) else { return };
            self.stay(hold, &guard);
            return self.releases(hold, guard);
        }
        self.signal(&lock, &guard);
        // Whom it has woken waits for the lock meanwhile.
        if self.rng.below(2) == 0 {
            self.stay(hold, &guard);
        }
        self.releases(hold, guard);
    }

    /// Signals when another process has just stopped, whose turn it may be.
    fn signal_when_one_stops(&mut self) {
        match self.next_fault().filter(|_| self.rng.below(4) > 0) {
            Some(left) => time::sleep(left),
            None => self.pause(PAUSE),
        }
        self.pause(1_000);
        let _about = checks::about("exchange", self.process);
        let Some((lock, hold, guard)) = self.enters() else { return };
        // So that it is more than one waiter's turn.
        for _ in 0..1 + self.rng.below(3) {
            self.signal(&lock, &guard);
        }
        self.releases(hold, guard);
    }

    /// Has the lock only as long as it must, so that others wait for a signal, rather than for the lock.
    fn wait_at_once(&mut self) {
        let _about = checks::about("exchange", self.process);
        let Some((lock, hold, guard)) = self.enters() else { return };
        let limit =
            Duration::from_millis([self.rng.below(30_000), PATIENCE, PATIENCE][self.rng.below(3)] as u64);
        let Some((hold, guard)) = self.wait_for_signal(&lock, hold, guard, limit) else { return };
        self.releases(hold, guard);
    }

    fn signal(&mut self, lock: &ReentrantLock, guard: &Guard<Reentrant>) {
        let now = time::elapsed();
        if self.expects(lock.condition("filled").signal(guard)).is_some() {
            with(|it| it.signals.push((now, self.process)));
        }
    }

    /// Waits for a signal, or for so long. Returns the hold that it has then.
    fn wait_for_signal(
        &mut self,
        lock: &ReentrantLock,
        hold: usize,
        mut guard: Guard<Reentrant>,
        limit: Duration,
    ) -> Option<(usize, Guard<Reentrant>)> {
        checks::ends(hold);
        checks::released(hold, false);
        let (process, began) = (self.process, time::elapsed());
        let waits = Waits { process, began, until: began + limit, ended: None, signalled: false };
        let at = with(|it| {
            it.waits.push(waits);
            it.waits.len() - 1
        });
        let token = guard.token();
        let woken = lock.condition("filled").wait_with(&mut guard, limit);
        let signalled = self.expects(woken);
        let now = time::elapsed();
        with(|it| (it.waits[at].ended, it.waits[at].signalled) = (Some(now), signalled == Some(true)));
        if signalled == Some(true) {
            sometimes("a waiter for a condition is signalled");
        }
        // The time was up before the wait could begin: the lock was not released at all.
        if !signalled? && guard.token() == token {
            checks::goes_on(hold);
            return Some((hold, guard));
        }
        let hold = checks::held("exchange", self.process, (WHOLE, WHOLE), Some(guard.token()), now);
        Some((hold, guard))
    }
}

/// a-signal-wakes: where processes stop and die at most, each signal wakes a waiter if one was there that lived, and
/// waited for long enough; and it does so soon, but for the time for which others have the lock.
pub(super) fn finish(weather: Weather, plan: &Plan, lease: Duration) {
    let surely = match weather {
        Weather::Calm => SURELY,
        Weather::Deadly => lease + PASSED,
        _ => return,
    };
    let mut holds = checks::holds("exchange");
    holds.sort_by_key(|it| it.began);
    let free = |from, until| checks::free(&holds, from, until);
    with(|it| {
        // A waiter that stands still loses its signal to another, and yet says, once it goes on, that it was signalled.
        let late = |it: &Waits, end| {
            plan.stops_of(it.process)
                .any(|(at, goes_on)| it.began < at && goes_on <= end && free(goes_on, end) <= RESUMED)
        };
        let mut woken: Vec<(Duration, &Waits)> =
            it.waits.iter().filter_map(|it| Some((it.ended?, it))).collect();
        woken.retain(|(end, it)| it.signalled && !late(it, *end));
        woken.sort_by_key(|(end, _)| *end);
        let mut there: Vec<&Waits> = it.waits.iter().filter(|it| !plan.stops(it.process)).collect();
        there.sort_by_key(|it| it.began);
        it.signals.sort();
        for (signal, by) in &it.signals {
            let waits = |it: &&Waits| {
                it.began < *signal && *signal + surely < it.until && it.ended.is_none_or(|at| *signal < at)
            };
            let Some(first) = there.iter().position(waits) else { continue };
            // Unless it may be that one that stood still had it after all.
            let may_be_late = |(at, goes_on): (Duration, Duration)| {
                *signal < goes_on && free(*signal, at) <= SURELY && free(*signal, goes_on) <= PASSED
                    || goes_on <= *signal && free(goes_on, *signal) <= RESUMED
            };
            if plan.stops(*by) || plan.all_stops().any(may_be_late) {
                there.remove(first);
                continue;
            }
            let soon = |end| SURELY + PASSED * plan.passed_by(*signal, end);
            let by_it = woken.iter().position(|(end, it)| {
                it.began < *signal && *signal < *end && free(*signal, *end) <= soon(*end)
            });
            let by_it = by_it.unwrap_or_else(|| panic!("a-signal-wakes: nobody by that of {signal:?}"));
            let (_, by_it) = woken.remove(by_it);
            if plan.stops(by_it.process) {
                continue;
            }
            let gone = |it: &Waits| plan.stops(it.process) && it.ended.is_none_or(|end| *signal < end);
            if it.waits.iter().any(|it| it.began < by_it.began && gone(it)) {
                sometimes("a signal passes by who stopped or died");
            }
            there.retain(|it| !std::ptr::eq(*it, by_it));
        }
    });
}
