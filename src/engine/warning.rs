//! Early warnings: tokens that are cancelled when too little of a hold is certain to remain.
//!
//! One thread of the process sleeps until the first warning may be due. Renewals do not wake it: when the
//! warning would be due without them, it checks how much of the hold is left, and sleeps again. It ends with
//! the last warning.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::sync::{Condvar, Mutex, thread};

/// Returns the time until less than the given margin of a hold remains: zero if that is so now, or the hold
/// is lost; `None` once the hold has ended.
pub(crate) type TimeLeft = Box<dyn Fn(Duration) -> Option<Duration> + Send>;

/// Returns the time until less than `margin` remains, if `left` remains now.
pub(crate) fn until(left: Duration, margin: Duration) -> Duration {
    // Just after the instant at which exactly `margin` is left.
    match left.checked_sub(margin) {
        Some(spare) if !left.is_zero() => spare + Duration::from_micros(1),
        _ => Duration::ZERO,
    }
}

struct Warning {
    left: TimeLeft,
    margin: Duration,
    token: CancellationToken,
}

/// The warnings of this process.
struct Warnings {
    pid: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// The warnings, by the earliest time at which each may be due and a number of its own.
    planned: BTreeMap<(Moment, u64), Warning>,
    numbers: u64,
    /// How often [`look_again`] has moved the planned warnings forward.
    looks: u64,
    /// Whether the thread runs.
    running: bool,
}

impl State {
    /// Returns when to check a warning: at `at`, which was computed when there had been `looks` calls of
    /// [`look_again`]; or now, if there has been one since, as the hold may have been shortened.
    fn still_at(&self, at: Moment, looks: u64) -> Moment {
        if self.looks == looks { at } else { Moment::now() }
    }
}

static CURRENT: Mutex<Option<Arc<Warnings>>> = Mutex::new(None);

/// Returns a token that is cancelled when less than `margin` is left, or when `lost` is cancelled.
pub(crate) fn ends_within(left: TimeLeft, lost: CancellationToken, margin: Duration) -> CancellationToken {
    let token = CancellationToken::new();
    lost.cancels(&token);
    let warning = Warning { left, margin, token: token.clone() };
    let warnings = Warnings::current();
    let looks = warnings.state.lock().looks;
    if let Some((at, warning)) = warning.due(Moment::now()) {
        warnings.plan(at, looks, warning);
    }
    token
}

/// Checks all warnings again, as a hold may now end earlier than planned.
pub(crate) fn look_again() {
    let current = CURRENT.lock().clone();
    if let Some(warnings) = current.filter(|it| it.pid == std::process::id()) {
        let mut state = warnings.state.lock();
        state.looks += 1;
        let now = Moment::now();
        let all = std::mem::take(&mut state.planned);
        state.planned = all.into_iter().map(|((at, number), it)| ((at.min(now), number), it)).collect();
        warnings.changed.notify_one();
    }
}

impl Warning {
    /// Returns when the warning may be due. Returns `None` if the hold has ended, or if it is due now, in
    /// which case its token is cancelled.
    fn due(self, now: Moment) -> Option<(Moment, Warning)> {
        let until = (self.left)(self.margin)?;
        if until.is_zero() {
            self.token.cancel();
            return None;
        }
        Some((now.after(until), self))
    }
}

impl Warnings {
    /// Returns the warnings of this process; a forked child has its own.
    fn current() -> Arc<Warnings> {
        let pid = std::process::id();
        let mut current = CURRENT.lock();
        match &*current {
            Some(warnings) if warnings.pid == pid => warnings.clone(),
            _ => {
                let warnings = Arc::new(Warnings { pid, state: Mutex::default(), changed: Condvar::new() });
                // The parent's is not dropped: its mutex may be held by a thread that does not exist here.
                std::mem::forget(current.replace(warnings.clone()));
                warnings
            }
        }
    }

    fn plan(self: &Arc<Self>, at: Moment, looks: u64, warning: Warning) {
        let mut state = self.state.lock();
        let at = state.still_at(at, looks);
        state.numbers += 1;
        let number = state.numbers;
        let first = state.planned.keys().next().is_none_or(|(first, _)| at < *first);
        let token = warning.token.clone();
        state.planned.insert((at, number), warning);
        if state.running {
            if first {
                self.changed.notify_one();
            }
            return;
        }
        let warnings = self.clone();
        match thread::Builder::new().name("rc-warnings".to_owned()).spawn(move || warnings.run()) {
            Ok(_) => state.running = true,
            // A warning too early is better than none.
            Err(_) => {
                state.planned.remove(&(at, number));
                drop(state);
                tracing::warn!("the warning thread could not be started: the early warning fires at once");
                token.cancel();
            }
        }
    }

    fn run(self: Arc<Self>) {
        let mut state = self.state.lock();
        loop {
            let now = Moment::now();
            let Some((&(at, number), _)) = state.planned.first_key_value() else {
                state.running = false;
                return;
            };
            if at > now {
                match at.instant() {
                    Some(instant) => drop(self.changed.wait_until(&mut state, instant)),
                    None => self.changed.wait(&mut state),
                }
                continue;
            }
            let Some(warning) = state.planned.remove(&(at, number)) else { continue };
            // Wakers and hold checks run outside our mutex.
            let looks = state.looks;
            drop(state);
            let again = warning.due(now);
            state = self.state.lock();
            if let Some((at, warning)) = again {
                let at = state.still_at(at, looks);
                state.planned.insert((at, number), warning);
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../verify/unit/engine/warning.rs"]
mod tests;
