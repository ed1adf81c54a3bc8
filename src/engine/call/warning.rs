//! Early warnings: tokens that are cancelled when too little of a hold is certain to remain.
//!
//! One thread of the process sleeps until the first hold may have come to one of its margins. Renewals in the
//! background do not wake it: when a margin would be reached without them, it checks how much of the hold is
//! left, and sleeps again. What shortens or ends a hold has this hold alone [checked](check_again) again. The
//! thread ends a moment after the last hold with a warning.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::cancel::{CancellationToken, WeakToken, push_swept};
use crate::clock::Moment;
use crate::sync::{Condvar, Global, Mutex, thread};

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
struct Warnings {
    pid: u32,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    holds: HashMap<HoldKey, HoldWarnings>,
    /// The holds, by the earliest time at which a warning of each may be due.
    planned: BTreeSet<(Moment, HoldKey)>,
    /// Until when the thread sleeps.
    wakes_at: Moment,
    /// Whether the thread runs.
    running: bool,
}

/// The warnings of one hold.
struct HoldWarnings {
    left: TimeLeft,
    warnings: Vec<Warning>,
    planned: Moment,
    /// How often a warning was added, or the hold may have become shorter.
    changes: u64,
}

#[derive(Clone)]
struct Warning {
    margin: Duration,
    /// Weak: nobody needs the warning once its token is gone.
    token: WeakToken,
}

static CURRENT: Global<Option<Arc<Warnings>>> = Global::new(None);

/// The holds of a guard for which it was asked for warnings. When it is dropped, after its hold, no warning of
/// a hold that has ended is left.
#[derive(Default)]
pub(crate) struct Warned(OnceLock<Box<(Arc<Warnings>, Vec<HoldKey>)>>);

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
        let warnings = Warnings::current();
        self.0.get_or_init(|| Box::new((warnings.clone(), holds.iter().map(|(key, _)| *key).collect())));
        for (key, left) in holds {
            warnings.add(key, left, margin, &token);
        }
        token
    }
}

impl Drop for Warned {
    #[inline]
    fn drop(&mut self) {
        if let Some((warnings, keys)) = self.0.get().map(|it| &**it)
            && warnings.pid == std::process::id()
        {
            keys.iter().for_each(|key| warnings.check(*key));
        }
    }
}

/// Checks the warnings of these holds again, as they may now end earlier than planned.
pub(crate) fn check_again(holds: Holds) {
    let warnings = Warnings::current();
    for (key, _) in holds {
        if let Some(watch) = warnings.state.lock().holds.get_mut(&key) {
            watch.changes += 1;
        }
        warnings.check(key);
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

    fn add(self: &Arc<Self>, key: HoldKey, left: TimeLeft, margin: Duration, token: &CancellationToken) {
        {
            let mut state = self.state.lock();
            let new = || HoldWarnings {
                left: left.clone(),
                warnings: Vec::new(),
                planned: Moment::NEVER,
                changes: 0,
            };
            let watch = state.holds.entry(key).or_insert_with(new);
            watch.changes += 1;
            let warning = Warning { margin, token: token.downgrade() };
            push_swept(&mut watch.warnings, warning, |it| it.token.is_kept());
        }
        // Only now: what shortens the hold after this has it looked at again.
        match left(margin) {
            Some(spare) if !spare.is_zero() => self.plan(key, Moment::now().after(spare), token),
            _ => self.check(key),
        }
    }

    /// Has the hold looked at `at` the latest. If that is impossible, cancels the token.
    fn plan(self: &Arc<Self>, key: HoldKey, at: Moment, token: &CancellationToken) {
        let mut state = self.state.lock();
        state.plan(key, |planned| planned.min(at));
        self.wake(&state);
        if state.running {
            return;
        }
        let warnings = self.clone();
        match thread::Builder::new().name("rc-warnings".to_owned()).spawn(move || warnings.run()) {
            Ok(_) => state.running = true,
            // A warning too early is better than none.
            Err(_) => {
                drop(state);
                tracing::warn!("the warning thread could not be started: the early warning fires at once");
                token.cancel();
            }
        }
    }

    /// Cancels what is due of a hold's warnings, and plans the next look at it. Without the mutex while it
    /// asks how much is left and cancels, as both may run code of others.
    fn check(&self, key: HoldKey) {
        loop {
            let Some((left, all, changes)) = self.state.lock().of(key) else { return };
            let now = Moment::now();
            let mut next = Moment::NEVER;
            for Warning { margin, token } in all {
                let Some(token) = token.upgrade().filter(|token| !token.is_cancelled()) else { continue };
                match left(margin) {
                    Some(spare) if spare.is_zero() => token.cancel(),
                    Some(spare) => next = next.min(now.after(spare)),
                    None => {}
                }
            }
            let mut state = self.state.lock();
            if state.holds.get(&key).is_none_or(|watch| watch.changes == changes) {
                state.plan(key, |_| next);
                if next == Moment::NEVER {
                    state.holds.remove(&key);
                }
                return self.wake(&state);
            }
        }
    }

    /// Wakes the thread if it would sleep for too long.
    fn wake(&self, state: &State) {
        let first = state.planned.first().map_or_else(|| Moment::now().after(IDLE), |(at, _)| *at);
        if state.running && first < state.wakes_at {
            self.changed.notify_one();
        }
    }

    fn run(self: Arc<Self>) {
        let mut idle_until = None;
        let mut state = self.state.lock();
        loop {
            let now = Moment::now();
            let first = state.planned.first().copied();
            if let Some((_, key)) = first.filter(|(at, _)| *at <= now) {
                state.plan(key, |_| Moment::NEVER);
                drop(state);
                self.check(key);
                state = self.state.lock();
                continue;
            }
            let until = match first {
                Some((at, _)) => {
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

impl State {
    fn of(&self, key: HoldKey) -> Option<(TimeLeft, Vec<Warning>, u64)> {
        self.holds.get(&key).map(|watch| (watch.left.clone(), watch.warnings.clone(), watch.changes))
    }

    /// Sets when the hold is looked at next, from when it would be.
    fn plan(&mut self, key: HoldKey, at: impl FnOnce(Moment) -> Moment) {
        if let Some(watch) = self.holds.get_mut(&key) {
            self.planned.remove(&(watch.planned, key));
            watch.planned = at(watch.planned);
            if watch.planned < Moment::NEVER {
                self.planned.insert((watch.planned, key));
            }
        }
    }
}

#[cfg(all(test, not(shuttle)))]
#[path = "../../../verify/unit/engine/call/warning.rs"]
mod tests;
