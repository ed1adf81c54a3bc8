//! The observers of a client.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::events::Observer;
#[cfg(feature = "tracing")]
use super::tracing::Tracing;
use crate::sync::Mutex;

type Numbered = Arc<[(u64, Arc<dyn Observer>)]>;

/// The observers of a client.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<State>);

#[derive(Default)]
struct State {
    /// The number of observers: without any, no mutex has to be locked. (No schedule depends on it, so it is
    /// the standard library's.)
    count: AtomicUsize,
    /// The last number that was assigned, and the current observers.
    observers: Mutex<(u64, Numbered)>,
}

impl Observers {
    /// Adds an observer; returns its number.
    pub(crate) fn add(&self, observer: impl Observer) -> u64 {
        let mut state = self.0.observers.lock();
        state.0 += 1;
        let (number, observer): (_, Arc<dyn Observer>) = (state.0, Arc::new(observer));
        let added = (number, observer);
        self.replace(&mut state.1, |observers| observers.iter().cloned().chain([added]).collect());
        number
    }

    fn remove(&self, number: u64) {
        let mut state = self.0.observers.lock();
        self.replace(&mut state.1, |observers| {
            observers.iter().filter(|(other, _)| *other != number).cloned().collect()
        });
    }

    fn replace(&self, observers: &mut Numbered, change: impl FnOnce(&Numbered) -> Numbered) {
        *observers = change(observers);
        self.0.count.store(observers.len(), Ordering::Release);
    }

    /// Adds an observer until the returned value is dropped.
    pub(crate) fn observe(&self, observer: impl Observer) -> Observation {
        Observation { number: self.add(observer), observers: self.clone() }
    }

    fn is_observed(&self) -> bool {
        self.0.count.load(Ordering::Acquire) > 0
    }

    /// Notifies all observers of an event that happens for each hold. If nobody listens, `what` is not even
    /// called.
    pub(crate) fn tell_often(&self, what: impl Fn(&dyn Observer)) {
        #[cfg(feature = "tracing")]
        let traced = Tracing::is_on();
        #[cfg(not(feature = "tracing"))]
        let traced = false;
        if traced || self.is_observed() {
            self.tell(what);
        }
    }

    /// Notifies all observers. A panic in an observer is caught, because the lock must still work.
    pub(crate) fn tell(&self, what: impl Fn(&dyn Observer)) {
        self.tell_of_each(1, what);
    }

    /// The same for an event of a grant with `holds` holds: observers are notified once per hold, the log
    /// once.
    pub(crate) fn tell_of_each(&self, holds: u32, what: impl Fn(&dyn Observer)) {
        #[cfg(feature = "tracing")]
        let _ = catch_unwind(AssertUnwindSafe(|| what(&Tracing)));
        if !self.is_observed() {
            return;
        }
        let observers = self.0.observers.lock().1.clone();
        for (_, observer) in &*observers {
            for _ in 0..holds {
                let _ = catch_unwind(AssertUnwindSafe(|| what(&**observer)));
            }
        }
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observers").field(&self.0.count).finish()
    }
}

/// An observer added by [`Client::observe`](crate::Client::observe), which is removed when this is dropped.
/// An event in progress at that moment may still reach it.
#[must_use = "the observer is removed when this is dropped"]
pub struct Observation {
    observers: Observers,
    number: u64,
}

impl Drop for Observation {
    fn drop(&mut self) {
        self.observers.remove(self.number);
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observation").finish_non_exhaustive()
    }
}
