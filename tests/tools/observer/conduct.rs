//! What an observer may do: panic, ask, and come in numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis_concurrent::crossbeam_channel::{self, Receiver};
use redis_concurrent::internals::lock_count;
use redis_concurrent::observe::{AcquiredVia, LockInfo, LossReason, Observer};
use redis_concurrent::{Client, Error};
use redis_concurrent_testkit::{ClientKind, RedisServer, released_all, wait_until};

use super::{LONG, ms};
use crate::support::{builder, connect, connected, renewed_again, unhurried};

#[test]
fn every_observer_is_told_all_and_the_kind() {
    #[derive(Clone, Default)]
    struct Kinds(Arc<Mutex<Vec<(&'static str, String)>>>);
    impl Observer for Kinds {
        fn acquired(&self, lock: LockInfo<'_>, _: Duration, _: AcquiredVia) {
            self.0.lock().push((lock.kind, lock.name.to_owned()));
        }
    }
    let server = RedisServer::start().unwrap();
    let (a, b) = (Kinds::default(), Kinds::default());
    let builder = || builder(&server.url()).observer(a.clone()).observer(Thrower).observer(b.clone());
    let client = connected(builder);
    drop(client.simple_lock("x").lock().unwrap());
    drop(client.reentrant_lock("y").lock().unwrap());
    let expected = [("simple lock", "x".to_owned()), ("reentrant lock", "y".to_owned())];
    assert_eq!((&*a.0.lock(), &*b.0.lock()), (&expected.to_vec(), &expected.to_vec()));
}

/// Throws in whatever it hears.
struct Thrower;

impl Observer for Thrower {
    fn acquired(&self, _: LockInfo<'_>, _: Duration, _: AcquiredVia) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn not_acquired(&self, _: LockInfo<'_>, _: Duration, _: Option<&Error>) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn released(&self, _: LockInfo<'_>, _: Duration) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn renewed(&self, _: LockInfo<'_>, _: Duration, _: Duration) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn renewal_failed(&self, _: LockInfo<'_>, _: Duration, _: &Error) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn lost(&self, _: LockInfo<'_>, _: LossReason) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn release_deferred(&self, _: LockInfo<'_>, _: Duration) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn release_abandoned(&self, _: LockInfo<'_>, _: &Error) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn unlock_failed(&self, _: LockInfo<'_>, _: &Error) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn reconnected(&self, _: Duration) {
        std::panic::resume_unwind(Box::new(()));
    }
}

#[test]
fn what_an_observer_throws_hurts_nobody() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).renew_every(ms(50)).observer(Thrower));
    let lock = client.reentrant_lock("watched");
    let other = connect(&server).reentrant_lock("watched");
    // Acquired, renewed again and again, released.
    let guard = lock.lock().unwrap();
    renewed_again(|| guard.remaining());
    assert!(!guard.is_lost());
    guard.unlock().unwrap();
    // Lost, and dropped too late.
    let guard = lock.lock().unwrap();
    server.flush_all().unwrap();
    assert!(guard.lost().wait_timeout(LONG));
    drop(guard);
    // Waited for, over a new connection of the listener.
    let held = other.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(LONG).map(|held| held.is_some()));
        wait_until(LONG, "it waits", || lock.local_queue_length() == 1);
        wait_until(LONG, "a listener", || !server.clients(ClientKind::PubSub).unwrap().is_empty());
        server.kill_clients(ClientKind::PubSub).unwrap();
        wait_until(LONG, "a new one", || !server.clients(ClientKind::PubSub).unwrap().is_empty());
        held.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
    let guard = lock.lock_owned().unwrap();
    let _ = released_all(&client.close());
    drop(guard);
}

/// Does not return from what happens in the background until its channel is disconnected, and counts what it
/// missed.
struct Blocks(Receiver<()>, Arc<AtomicU64>);

impl Observer for Blocks {
    fn renewed(&self, _: LockInfo<'_>, _: Duration, _: Duration) {
        let _ = self.0.recv();
    }
    fn renewal_failed(&self, _: LockInfo<'_>, _: Duration, _: &Error) {
        let _ = self.0.recv();
    }
    fn lost(&self, _: LockInfo<'_>, _: LossReason) {
        let _ = self.0.recv();
    }
    fn missed(&self, events: u64) {
        self.1.fetch_add(events, Ordering::Relaxed);
    }
}

#[test]
fn an_observer_that_does_not_return_costs_no_hold() {
    let server = RedisServer::start().unwrap();
    let ((sender, receiver), missed) = (crossbeam_channel::bounded(0), Arc::new(AtomicU64::new(0)));
    let observer = || Blocks(receiver.clone(), missed.clone());
    let client = connected(|| unhurried(&server.url()).lease(LONG).renew_every(ms(50)).observer(observer()));
    let held = |name: &str| client.reentrant_lock(name).lock_owned().unwrap();
    let all: Vec<_> = (0..100).map(|i| held(&format!("{i}"))).collect();
    // Found out by the thread of deadlines, and by that of messages.
    let fixed = client.reentrant_lock("fixed").with_lease(ms(1500)).lock_owned().unwrap();
    let (forced, another) = (held("forced"), held("another"));
    // Dropped before them, also where this fails: the client ends with its threads.
    let sender = sender;
    assert!(fixed.lost().wait_timeout(LONG));
    let (forced_lost, another_lost) = (forced.lost(), another.lost());
    wait_until(LONG, "it listens", || !server.clients(ClientKind::PubSub).unwrap().is_empty());
    connect(&server).reentrant_lock("forced").force_unlock().unwrap();
    connect(&server).reentrant_lock("another").force_unlock().unwrap();
    assert!(forced_lost.wait_timeout(LONG) && another_lost.wait_timeout(LONG));
    // One that is not renewed soon has the least left, and ever less.
    renewed_again(|| all.iter().map(|guard| guard.remaining()).min().unwrap());
    assert!(all.iter().all(|guard| guard.loss().is_none()));
    // What has no room is counted.
    assert_eq!(missed.load(Ordering::Relaxed), 0);
    wait_until(20 * LONG, "there is no more room", || {
        thread::sleep(ms(200));
        // A busy machine takes its time; one that is not renewed at all is lost.
        let renewed = client.request_count();
        assert!(all.iter().all(|guard| guard.loss().is_none()), "lost after {renewed} requests");
        renewed > 20_000
    });
    drop(sender);
    wait_until(LONG, "it is told", || missed.load(Ordering::Relaxed) > 0);
}

/// Uses the client that it watches, as a service's metrics may.
#[derive(Clone, Default)]
struct Curious {
    client: Arc<OnceLock<Client>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Curious {
    fn ask(&self, call: &'static str) {
        let Some(client) = self.client.get() else { return };
        let lock = client.reentrant_lock("watched");
        let _ = (
            lock_count(client),
            client.request_count(),
            lock.local_queue_length(),
            lock.hold_count(),
            lock.is_locked(),
        );
        self.calls.lock().push(call);
    }
}

impl Observer for Curious {
    fn acquired(&self, _: LockInfo<'_>, _: Duration, _: AcquiredVia) {
        self.ask("acquired");
    }
    fn released(&self, _: LockInfo<'_>, _: Duration) {
        self.ask("released");
    }
    fn renewed(&self, _: LockInfo<'_>, _: Duration, _: Duration) {
        self.ask("renewed");
    }
    fn lost(&self, _: LockInfo<'_>, _: LossReason) {
        self.ask("lost");
    }
    fn unlock_failed(&self, _: LockInfo<'_>, _: &Error) {
        self.ask("unlock failed");
    }
}

#[test]
fn an_observer_is_called_outside_all_locks() {
    let server = RedisServer::start().unwrap();
    let curious = Curious::default();
    let client = connected(|| builder(&server.url()).renew_every(ms(50)).observer(curious.clone()));
    assert!(curious.client.set(client.clone()).is_ok());
    // On a thread that is not joined: should it hang, the test says so.
    let done = Arc::new(Mutex::new("nothing"));
    let calls = curious.calls.clone();
    thread::spawn({
        let done = done.clone();
        move || {
            let lock = client.reentrant_lock("watched");
            let guard = lock.lock().unwrap();
            wait_until(LONG, "a renewal", || calls.lock().contains(&"renewed"));
            guard.unlock().unwrap();
            *done.lock() = "locking";
            let guard = lock.lock().unwrap();
            server.flush_all().unwrap();
            assert!(guard.lost().wait_timeout(LONG));
            drop(guard);
            *done.lock() = "losing";
            let _guard = lock.lock_owned().unwrap();
            calls.lock().clear();
            let _ = released_all(&client.close());
            assert!(calls.lock().contains(&"lost"));
            *done.lock() = "closing";
        }
    });
    let start = std::time::Instant::now();
    while *done.lock() != "closing" {
        assert!(start.elapsed() < 4 * LONG, "it hangs after {}", done.lock());
        thread::sleep(ms(5));
    }
}
