//! Early warnings: tokens that are cancelled when too little of a hold is certain to remain.
//!
//! One thread of the process sleeps until the first warning may be due. Renewals in the background do not wake
//! it: when a margin would be reached without them, it checks how much of the hold is left, and sleeps again.
//! What shortens or ends a hold has the warnings of this hold alone [checked](check_again) again. The thread
//! ends a moment after the last warning. They are a plain list, which is looked through each time: with 10,000
//! of them that takes some 2 % of a core.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::cancel::{CancellationToken, WeakToken, push_swept};
use crate::clock::Moment;
use crate::sync::{Condvar, Mutex, MutexGuard, OfProcess, spawn};

/// Returns the time until less than the given margin of a hold remains: zero if that is so now, or the hold
/// is lost; `None` once the hold has ended.
pub(crate) type TimeLeft = Arc<dyn Fn(Duration) -> Option<Duration> + Send + Sync>;

/// A hold: the address of what has it, which its [`TimeLeft`] keeps from being used again, and its number
/// there.
pub(crate) type HoldKey = (usize, u64);

/// What can be watched of a guard: each of its holds.
pub(crate) type Holds = Vec<(HoldKey, TimeLeft)>;

/// For how long the thread waits for another warning before it ends.
const IDLE: Duration = Duration::from_secs(1);

/// Returns the time until less than `margin` remains, if `left` remains now.
pub(crate) fn until(left: Duration, margin: Duration) -> Duration {
    // Just after the instant at which exactly `margin` is left.
    match left.checked_sub(margin) {
        Some(spare) if !left.is_zero() => spare + Duration::from_micros(1),
        _ => Duration::ZERO,
    }
}

/// The warnings of this process.
#[derive(Default)]
struct Warnings {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    warnings: Vec<Warning>,
    /// How often a hold may have become shorter.
    changes: u64,
    /// Until when the thread sleeps.
    wakes_at: Moment,
    /// Whether the thread runs.
    running: bool,
}

struct Warning {
    hold: HoldKey,
    left: TimeLeft,
    margin: Duration,
    /// Weak: nobody needs the warning once its token is gone.
    token: WeakToken,
    /// The earliest time at which it may be due.
    at: Moment,
}

static CURRENT: OfProcess<Warnings> = OfProcess::new();

/// The holds of a guard for which it was asked for warnings, and the process that asked. When it is dropped, after its
/// hold, no warning of a hold that has ended is left.
#[derive(Default)]
pub(crate) struct Warned(OnceLock<Box<(u32, Holds)>>);

impl Warned {
    /// Returns a token that is cancelled when less than `margin` is left of any of the holds, or when `lost`
    /// is cancelled.
    pub(crate) fn ends_within(
        &self,
        holds: Holds,
        lost: &CancellationToken,
        margin: Duration,
    ) -> CancellationToken {
        let token = lost.child();
        // So also in a forked child, which has lost its parent's holds.
        if token.is_cancelled() {
            return token;
        }
        self.0.get_or_init(|| Box::new((std::process::id(), holds.clone())));
        let new = |(hold, left)| Warning { hold, left, margin, token: token.downgrade(), at: Moment::NEVER };
        CURRENT.get().plan(holds.into_iter().map(new).collect());
        token
    }
}

impl Drop for Warned {
    #[inline]
    fn drop(&mut self) {
        if let Some((_, holds)) = self.0.get().map(|it| &**it).filter(|(pid, _)| *pid == std::process::id()) {
            check_again(holds);
        }
    }
}

/// Checks the warnings of these holds again, as they may now end earlier than planned.
pub(crate) fn check_again(holds: &Holds) {
    let warnings = CURRENT.get();
    warnings.state.lock().changes += 1;
    warnings.check(|it| holds.iter().any(|(hold, _)| *hold == it.hold));
}

impl Warnings {
    /// Plans these warnings anew.
    fn check(self: &Arc<Self>, which: impl Fn(&Warning) -> bool) {
        let these = self.state.lock().warnings.extract_if(.., |it| which(it)).collect();
        self.plan(these);
    }

    /// Cancels the tokens of those that are due, and keeps the others for later. Without the mutex while it asks
    /// how much is left and cancels, as both may run code of others.
    fn plan(self: &Arc<Self>, mut these: Vec<Warning>) {
        loop {
            let changes = self.state.lock().changes;
            these.retain_mut(Warning::is_to_come);
            let mut state = self.state.lock();
            // What was shortened meanwhile was not seen by who shortened it.
            if state.changes == changes {
                let all = &mut state.warnings;
                these.into_iter().for_each(|it| push_swept(all, it, |it| it.token.is_kept()));
                return self.goes_on(state);
            }
        }
    }

    /// Wakes the thread if it would sleep for too long, and starts it if it is needed.
    fn goes_on(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        if state.running || state.warnings.is_empty() {
            let first = first_due(&state.warnings).unwrap_or_else(|| Moment::now().after(IDLE));
            if state.running && first < state.wakes_at {
                self.changed.notify_one();
            }
            return;
        }
        let warnings = self.clone();
        match spawn("rc-warnings", move || warnings.run()) {
            Ok(()) => state.running = true,
            // A warning too early is better than none.
            Err(error) => {
                let all = std::mem::take(&mut state.warnings);
                drop(state);
                tracing::warn!(error = %format_args!("{error:#}"), "early warnings fire at once");
                all.iter().filter_map(|it| it.token.upgrade()).for_each(|token| token.cancel());
            }
        }
    }

    fn run(self: Arc<Self>) {
        let mut idle_until = None;
        let mut state = self.state.lock();
        loop {
            let now = Moment::now();
            let until = match first_due(&state.warnings) {
                Some(at) if at <= now => {
                    drop(state);
                    self.check(|it| it.at <= now);
                    state = self.state.lock();
                    continue;
                }
                Some(at) => {
                    idle_until = None;
                    at
                }
                None => *idle_until.get_or_insert_with(|| now.after(IDLE)),
            };
            if until <= now {
                state.running = false;
                return;
            }
            state.wakes_at = until;
            until.wait_on(&self.changed, &mut state);
        }
    }
}

/// Returns when the first of them may be due.
fn first_due(warnings: &[Warning]) -> Option<Moment> {
    warnings.iter().map(|it| it.at).min()
}

impl Warning {
    /// Whether it may come later, and when; cancels its token if it is due now.
    fn is_to_come(&mut self) -> bool {
        let now = Moment::now();
        let Some(token) = self.token.upgrade().filter(|token| !token.is_cancelled()) else { return false };
        let Some(spare) = (self.left)(self.margin) else { return false };
        if spare.is_zero() {
            token.cancel();
        }
        self.at = now.after(spare);
        !spare.is_zero()
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/call/warning.rs"]
mod tests;
