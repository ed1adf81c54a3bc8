//! What one thread of a run does with a condition: it signals, or waits for a signal.

use std::cell::RefCell;
use std::time::Duration;

use super::checks::{self, WHOLE, sometimes};
use super::faults::{Plan, Weather};
use super::part::Part;
use crate::sync::time;

/// How much longer than this a waiter must still wait that must be signalled.
const SURELY: Duration = Duration::from_millis(100);
/// How long it may take until a signal has passed by one waiter that is dead or stands still, beside a lease.
const PASSED: Duration = Duration::from_secs(10);

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
    /// When each signal was sent.
    signals: Vec<Duration>,
}

thread_local!(static RECORDS: RefCell<Records> = RefCell::default());

fn with<R>(f: impl FnOnce(&mut Records) -> R) -> R {
    RECORDS.with_borrow_mut(f)
}

/// Begins a run.
pub(super) fn begin() {
    RECORDS.set(Records::default());
}

impl Part {
    pub(super) fn signal_or_wait(&mut self) {
        let lock = self.client.reentrant_lock("exchange");
        let filled = lock.condition("filled");
        let (asked, _about) = (time::elapsed(), checks::about("exchange", self.process));
        let Some(mut guard) = self.expects(lock.lock()) else { return };
        let mut hold = checks::held("exchange", self.process, (WHOLE, WHOLE), Some(guard.token()), asked);
        let signals = self.rng.below(3) == 0;
        // Who signals at once may come between two requests of who begins to wait.
        if !signals || self.rng.below(2) == 0 {
            self.stay(hold, &guard);
        }
        if signals {
            let now = time::elapsed();
            if self.expects(filled.signal(&guard)).is_some() {
                with(|it| it.signals.push(now));
            }
        } else {
            checks::ends(hold);
            checks::released(hold, false);
            let limit = Duration::from_millis(
                1 + [self.rng.below(self.pace), self.rng.below(30_000), self.rng.below(90_000)]
                    [self.rng.below(3)] as u64,
            );
            let (process, began) = (self.process, time::elapsed());
            let waits = Waits { process, began, until: began + limit, ended: None, signalled: false };
            let at = with(|it| {
                it.waits.push(waits);
                it.waits.len() - 1
            });
            let token = guard.token();
            let woken = filled.wait_with(&mut guard, limit);
            let signalled = self.expects(woken);
            let now = time::elapsed();
            with(|it| (it.waits[at].ended, it.waits[at].signalled) = (Some(now), signalled == Some(true)));
            if signalled == Some(true) {
                sometimes("a waiter for a condition is signalled");
            }
            if signalled.is_none() {
                return drop(guard);
            }
            if signalled == Some(false) && guard.token() == token {
                // The time was up before the wait could begin: the lock was not released at all.
                checks::goes_on(hold);
            } else {
                hold = checks::held("exchange", self.process, (WHOLE, WHOLE), Some(guard.token()), now);
            }
            self.stay(hold, &guard);
        }
        self.releases(hold, guard);
    }
}

/// a-signal-wakes: where processes stop and die at most, each signal wakes a waiter if one was there that lived, and
/// waited for long enough. A waiter whose process died later may have been woken.
pub(super) fn finish(weather: Weather, plan: &Plan, lease: Duration) {
    let surely = match weather {
        Weather::Calm => SURELY,
        Weather::Deadly => lease + PASSED,
        _ => return,
    };
    with(|it| {
        let mut there: Vec<&Waits> = it.waits.iter().filter(|it| !plan.stops(it.process)).collect();
        there.sort_by_key(|it| it.began);
        let end = |it: &Waits| it.ended.or(plan.death(it.process)).unwrap_or(Duration::MAX);
        // Whom a signal has woken: who says so, and perhaps who died after it.
        let mut woken: Vec<&Waits> =
            it.waits.iter().filter(|it| it.signalled || it.ended.is_none()).collect();
        woken.sort_by_key(|it| end(it));
        it.signals.sort();
        for signal in &it.signals {
            let waits = |it: &&Waits| {
                it.began < *signal && *signal + surely < it.until && it.ended.is_none_or(|at| *signal < at)
            };
            let Some(first) = there.iter().position(waits) else { continue };
            there.remove(first);
            let by_it = woken.iter().position(|it| it.began < *signal && *signal < end(it));
            let by_it = by_it.unwrap_or_else(|| panic!("a-signal-wakes: nobody by that of {signal:?}"));
            woken.remove(by_it);
        }
    });
}
