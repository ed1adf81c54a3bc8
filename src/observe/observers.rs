//! The observers of a client.

use std::cell::Cell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::events::Observer;
use super::tracing::{TRACED, Tracing};
use crate::clock::Moment;
use crate::sync::{Condvar, Mutex, spawn};

thread_local! {
    /// Whether holds depend on this thread.
    static SERVES_HOLDS: Cell<bool> = const { Cell::new(false) };
    /// Whether this thread notifies observers of what such threads do.
    static NOTIFIES: Cell<bool> = const { Cell::new(false) };
}

/// Called once by each thread on which holds depend, whichever threads have them: no observer may delay it.
pub(crate) fn serves_holds() {
    SERVES_HOLDS.set(true);
}

/// How many events of such threads wait for observers at most, and for how long their thread waits for more.
const MOST_QUEUED: usize = 1 << 14;
const IDLE: Duration = Duration::from_secs(1);

type All = Arc<[Arc<dyn Observer>]>;

/// The observers of a client.
#[derive(Clone, Default)]
pub(crate) struct Observers(Arc<State>);

#[derive(Default)]
struct State {
    /// The number of observers: without any, no mutex has to be locked. (No schedule depends on it, so it is
    /// the standard library's.)
    count: AtomicUsize,
    observers: Mutex<All>,
    queue: Mutex<Queue>,
    /// Notified of an event, when the client closes, and when the thread ends.
    changed: Condvar,
}

/// The events that a thread of their own reports.
#[derive(Default)]
struct Queue {
    events: VecDeque<(u32, Event)>,
    /// How many there was no room for.
    missed: u64,
    /// Whether the thread runs.
    running: bool,
    /// Whether the client is closed: the thread does not wait for more.
    closed: bool,
}

type Event = Box<dyn Fn(&dyn Observer) + Send>;

impl Observers {
    /// Adds an observer, which is returned as well.
    pub(crate) fn add(&self, observer: impl Observer) -> Arc<dyn Observer> {
        let observer: Arc<dyn Observer> = Arc::new(observer);
        self.replace(|all| all.iter().chain([&observer]).cloned().collect());
        observer
    }

    fn replace(&self, with: impl FnOnce(&All) -> All) {
        let mut all = self.0.observers.lock();
        *all = with(&all);
        self.0.count.store(all.len(), Ordering::Release);
    }

    /// Adds an observer until the returned value is dropped.
    pub(crate) fn observe(&self, observer: impl Observer) -> Observation {
        Observation { observer: self.add(observer), observers: self.clone() }
    }

    fn is_observed(&self) -> bool {
        self.0.count.load(Ordering::Acquire) > 0
    }

    /// Notifies all observers of an event that happens for each hold. If nobody listens, `what` is not even
    /// called.
    pub(crate) fn tell_often(&self, what: impl Fn(&dyn Observer)) {
        if self.has_listeners() {
            self.tell(what);
        }
    }

    /// Whether an observer may want to know of a wait, or a subscriber of its span.
    pub(crate) fn may_hear_of_waits(&self) -> bool {
        self.is_observed() || tracing::level_filters::LevelFilter::current() >= tracing::Level::DEBUG
    }

    fn has_listeners(&self) -> bool {
        TRACED && Tracing::is_on() || self.is_observed()
    }

    /// Like [`tell_apart`](Self::tell_apart), for an event that happens for each renewal or hold.
    pub(crate) fn tell_often_apart(&self, what: impl Fn(&dyn Observer) + Send + 'static) {
        if self.has_listeners() {
            self.tell_apart(1, what);
        }
    }

    /// The same as [`tell_of_each`](Self::tell_of_each), for an event that may happen on a thread that
    /// [serves holds](serves_holds): another one then notifies the observers.
    pub(crate) fn tell_apart(&self, holds: u32, what: impl Fn(&dyn Observer) + Send + 'static) {
        if cfg!(shuttle) || !SERVES_HOLDS.get() {
            return self.tell_of_each(holds, what);
        }
        let mut queue = self.0.queue.lock();
        if queue.events.len() == MOST_QUEUED {
            queue.missed += u64::from(holds);
            return;
        }
        queue.events.push_back((holds, Box::new(what)));
        self.0.changed.notify_all();
        if !queue.running {
            let observers = self.clone();
            // If there is no thread now, there may be one at the next event.
            queue.running = spawn("rc-observers", move || observers.run()).is_ok();
        }
    }

    /// Reports queued events, until there have been none for a while.
    fn run(self) {
        NOTIFIES.set(true);
        let mut queue = self.0.queue.lock();
        loop {
            if queue.events.is_empty() && !queue.closed {
                self.0.changed.wait_for(&mut queue, IDLE);
            }
            let missed = std::mem::take(&mut queue.missed);
            let Some((holds, what)) = queue.events.pop_front() else {
                queue.running = false;
                self.0.changed.notify_all();
                return;
            };
            drop(queue);
            self.tell_of_each(holds, what);
            if missed > 0 {
                self.tell(|o| o.missed(missed));
            }
            queue = self.0.queue.lock();
        }
    }

    /// Waits until queued events are reported and their thread has ended, until `limit` at most. Returns whether
    /// they are. A call by an observer on such a thread does not wait.
    pub(crate) fn wait_for_end(&self, limit: Moment) -> bool {
        let mut queue = self.0.queue.lock();
        queue.closed = true;
        self.0.changed.notify_all();
        while queue.running && !NOTIFIES.get() && Moment::now() < limit {
            limit.wait_on(&self.0.changed, &mut queue);
        }
        !queue.running
    }

    /// Notifies all observers. A panic in an observer is caught, because the lock must still work.
    pub(crate) fn tell(&self, what: impl Fn(&dyn Observer)) {
        self.tell_of_each(1, what);
    }

    /// The same for an event of a grant with `holds` holds: observers are notified once per hold, the log
    /// once.
    pub(crate) fn tell_of_each(&self, holds: u32, what: impl Fn(&dyn Observer)) {
        if TRACED {
            let _ = catch_unwind(AssertUnwindSafe(|| what(&Tracing)));
        }
        if !self.is_observed() {
            return;
        }
        let observers = self.0.observers.lock().clone();
        for observer in &*observers {
            for _ in 0..holds {
                let _ = catch_unwind(AssertUnwindSafe(|| what(&**observer)));
            }
        }
    }
}

shows!(Observers as "Observers", |it| "count": it.0.count);

/// An observer added by [`Client::observe`](crate::Client::observe), which is removed when this is dropped.
/// An event in progress at that moment may still reach it.
#[must_use = "the observer is removed when this is dropped"]
pub struct Observation {
    observers: Observers,
    observer: Arc<dyn Observer>,
}

impl Drop for Observation {
    fn drop(&mut self) {
        let others = |it: &&Arc<dyn Observer>| !Arc::ptr_eq(it, &self.observer);
        self.observers.replace(|all| all.iter().filter(others).cloned().collect());
    }
}

shows!(Observation as "Observation", |_it|);
