//! An observer that records what it hears.

// Each test binary uses only part of it.
#![allow(dead_code)]

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use redis_concurrent::observe::{AcquiredVia, KeptEnd, LockInfo, LossReason, Observer};
use redis_concurrent::{Client, ClientBuilder, Error, ErrorKind};

use crate::support::{LONG, builder, connected};

#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    Acquired(AcquiredVia),
    NotAcquired(Option<ErrorKind>),
    Deadlock { chosen: bool },
    Released,
    NoLongerKept(KeptEnd),
    Renewed,
    RenewalFailed,
    Lost(LossReason),
    Deferred,
    Abandoned,
    Reconnected,
    UnlockFailed(ErrorKind),
}

/// Records what it hears about one lock, and the durations reported with it.
#[derive(Clone, Default)]
pub struct Diary(Arc<Mutex<Vec<(Event, Duration)>>>);

impl Diary {
    fn note(&self, lock: LockInfo<'_>, event: Event, time: Duration) {
        assert!(["watched", "played", "also played"].contains(&lock.name), "{lock:?}");
        assert!(["reentrant lock", "simple lock"].contains(&lock.kind), "{lock:?}");
        // What is left of a lease is half a minute, unless a test has a shorter one.
        assert!(time < 2 * LONG, "{event:?}: {time:?}");
        self.0.lock().push((event, time));
    }

    pub fn all(&self) -> Vec<Event> {
        self.0.lock().iter().map(|(event, _)| event.clone()).collect()
    }

    /// Whether every client that it was given to is gone, with all its threads.
    pub fn is_complete(&self) -> bool {
        Arc::strong_count(&self.0) == 1
    }

    pub fn has(&self, event: &Event) -> bool {
        self.count(event) > 0
    }

    pub fn count(&self, event: &Event) -> usize {
        self.times(event).len()
    }

    /// Returns the durations reported with this.
    pub fn times(&self, event: &Event) -> Vec<Duration> {
        self.0.lock().iter().filter(|(it, _)| it == event).map(|(_, time)| *time).collect()
    }

    pub fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Observer for Diary {
    fn acquired(&self, lock: LockInfo<'_>, waited: Duration, way: AcquiredVia) {
        self.note(lock, Event::Acquired(way), waited);
    }

    fn not_acquired(&self, lock: LockInfo<'_>, waited: Duration, error: Option<&Error>) {
        assert!(error.is_none_or(|error| error.name() == lock.name), "{error:?}");
        self.note(lock, Event::NotAcquired(error.map(Error::kind)), waited);
    }

    fn deadlock(&self, lock: LockInfo<'_>, circle: &str, chosen: bool) {
        assert!(circle.contains(lock.name), "{circle}");
        self.note(lock, Event::Deadlock { chosen }, Duration::ZERO);
    }

    fn released(&self, lock: LockInfo<'_>, held: Duration) {
        self.note(lock, Event::Released, held);
    }

    fn no_longer_kept(&self, lock: LockInfo<'_>, why: KeptEnd) {
        self.note(lock, Event::NoLongerKept(why), Duration::ZERO);
    }

    fn renewed(&self, lock: LockInfo<'_>, lag: Duration, left: Duration) {
        assert!(lag < LONG, "{lag:?}");
        self.note(lock, Event::Renewed, left);
    }

    fn renewal_failed(&self, lock: LockInfo<'_>, left: Duration, error: &Error) {
        assert_eq!(error.name(), lock.name);
        self.note(lock, Event::RenewalFailed, left);
    }

    fn lost(&self, lock: LockInfo<'_>, why: LossReason) {
        self.note(lock, Event::Lost(why), Duration::ZERO);
    }

    fn release_deferred(&self, lock: LockInfo<'_>, held: Duration) {
        self.note(lock, Event::Deferred, held);
    }

    fn release_abandoned(&self, lock: LockInfo<'_>, error: &Error) {
        assert_eq!((error.name(), error.kind()), (lock.name, ErrorKind::OutcomeUnknown));
        self.note(lock, Event::Abandoned, Duration::ZERO);
    }

    fn unlock_failed(&self, lock: LockInfo<'_>, error: &Error) {
        assert_eq!(error.name(), lock.name);
        self.note(lock, Event::UnlockFailed(error.kind()), Duration::ZERO);
    }

    fn reconnected(&self, down: Duration) {
        assert!(down < LONG, "{down:?}");
        self.0.lock().push((Event::Reconnected, down));
    }
}

#[track_caller]
pub fn watched(url: &str, set: impl Fn(ClientBuilder) -> ClientBuilder) -> (Client, Diary) {
    let diary = Diary::default();
    let client = connected(|| set(builder(url)).observer(diary.clone()));
    (client, diary)
}
