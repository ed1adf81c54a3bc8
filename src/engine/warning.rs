//! Early warnings: tokens that are cancelled when too little of a hold is certain to remain.
//!
//! One thread of the process sleeps until the first of them may be due. Renewals do not wake it: it looks what is left
//! of the hold when it would have been due without them, and sleeps again. It ends with the last warning.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::cancel::CancellationToken;
use crate::clock::Moment;
use crate::sync::{Condvar, Mutex, thread};

/// Tells in how long less than a margin of a hold will remain, zero if that is so, or it is lost; `None` once it has
/// ended.
pub(crate) type TimeLeft = Box<dyn Fn(Duration) -> Option<Duration> + Send>;

/// The time until less than `margin` remains, of so much.
pub(crate) fn until(left: Duration, margin: Duration) -> Duration {
    // Behind the instant at which exactly that much is left.
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
    /// By when each may be due, and a number of its own.
    planned: BTreeMap<(Moment, u64), Warning>,
    numbers: u64,
    /// It has a thread.
    running: bool,
}

static CURRENT: Mutex<Option<Arc<Warnings>>> = Mutex::new(None);

/// A token that is cancelled when `left` says less than `margin`, or when `lost` is.
pub(crate) fn ends_within(left: TimeLeft, lost: CancellationToken, margin: Duration) -> CancellationToken {
    let token = CancellationToken::new();
    lost.cancels(&token);
    let warning = Warning { left, margin, token: token.clone() };
    if let Some((at, warning)) = warning.due(Moment::now()) {
        Warnings::current().plan(at, warning);
    }
    token
}

/// A hold may end earlier now than it would have: all of them are looked at.
pub(crate) fn look_again() {
    let current = CURRENT.lock().clone();
    if let Some(warnings) = current.filter(|it| it.pid == std::process::id()) {
        let mut state = warnings.state.lock();
        let now = Moment::now();
        let all = std::mem::take(&mut state.planned);
        state.planned = all.into_iter().map(|((at, number), it)| ((at.min(now), number), it)).collect();
        warnings.changed.notify_one();
    }
}

impl Warning {
    /// When it may be due, unless it is over: its token is cancelled if it is due now.
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
    /// Those of this process; a forked child has its own.
    fn current() -> Arc<Warnings> {
        let pid = std::process::id();
        let mut current = CURRENT.lock();
        match &*current {
            Some(warnings) if warnings.pid == pid => warnings.clone(),
            _ => {
                let warnings = Arc::new(Warnings { pid, state: Mutex::default(), changed: Condvar::new() });
                // A parent's is left as it is: its mutex may be held by a thread that does not exist here.
                std::mem::forget(current.replace(warnings.clone()));
                warnings
            }
        }
    }

    fn plan(self: &Arc<Self>, at: Moment, warning: Warning) {
        let mut state = self.state.lock();
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
            // Too early rather than never.
            Err(_) => {
                state.planned.remove(&(at, number));
                drop(state);
                tracing::warn!("an early warning is given at once: its thread could not be started");
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
            // Wakers run, and a hold's lock state is looked at, outside our mutex.
            drop(state);
            let again = warning.due(Moment::now());
            state = self.state.lock();
            if let Some((at, warning)) = again {
                state.planned.insert((at, number), warning);
            }
        }
    }
}
