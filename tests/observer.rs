//! What an observer hears, and when; and that nothing it does hurts a lock.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis::Commands;
use redis_concurrent::testing::{ClientKind, Proxy, RedisServer, wait_until};
use redis_concurrent::{Client, ClientBuilder, Error, ErrorKind, Loss, Observer, Way};

const LONG: Duration = Duration::from_secs(15);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[derive(Clone, Debug, PartialEq)]
enum Heard {
    Acquired(Way),
    Released,
    Renewed,
    Lost(Loss),
    Reconnected,
    UnlockFailed(ErrorKind),
}

/// Writes down what it hears of one lock.
#[derive(Clone, Default)]
struct Diary(Arc<Mutex<Vec<Heard>>>);

impl Diary {
    fn note(&self, lock: &str, heard: Heard) {
        assert!(lock == "watched" || lock.is_empty(), "{lock}");
        self.0.lock().push(heard);
    }

    fn all(&self) -> Vec<Heard> {
        self.0.lock().clone()
    }

    fn has(&self, heard: &Heard) -> bool {
        self.0.lock().contains(heard)
    }

    fn count(&self, heard: &Heard) -> usize {
        self.0.lock().iter().filter(|h| *h == heard).count()
    }

    fn clear(&self) {
        self.0.lock().clear();
    }
}

impl Observer for Diary {
    fn acquired(&self, lock: &str, waited: Duration, way: Way) {
        assert!(waited < LONG, "{waited:?}");
        self.note(lock, Heard::Acquired(way));
    }

    fn released(&self, lock: &str) {
        self.note(lock, Heard::Released);
    }

    fn renewed(&self, lock: &str, lag: Duration) {
        assert!(lag < LONG, "{lag:?}");
        self.note(lock, Heard::Renewed);
    }

    fn lost(&self, lock: &str, why: Loss) {
        self.note(lock, Heard::Lost(why));
    }

    fn reconnected(&self, down: Duration) {
        assert!(down < LONG, "{down:?}");
        self.note("", Heard::Reconnected);
    }

    fn unlock_failed(&self, lock: &str, error: &Error) {
        assert_eq!(error.name(), lock);
        self.note(lock, Heard::UnlockFailed(error.kind()));
    }
}

fn watched(url: &str, set: impl FnOnce(ClientBuilder) -> ClientBuilder) -> (Client, Diary) {
    let diary = Diary::default();
    let client = set(Client::builder().url(url)).observer(diary.clone()).connect().unwrap();
    (client, diary)
}

#[test]
fn free_then_released() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let guard = lock.lock().unwrap();
    assert_eq!(diary.all(), [Heard::Acquired(Way::Free)]);
    // Re-entries are not told.
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(diary.all().len(), 1);
    guard.unlock().unwrap();
    assert_eq!(diary.all(), [Heard::Acquired(Way::Free), Heard::Released]);
    // What is busy is not told at all.
    let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
    let _held = other.lock().unwrap();
    diary.clear();
    assert!(lock.try_lock().unwrap().is_none());
    assert!(diary.all().is_empty());
}

#[test]
fn granted_by_another_process() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
    let held = other.lock_owned().unwrap();
    let mut redis = server.connection().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        wait_until(LONG, "it waits", || redis.zcard::<_, u64>("rc:{watched}:queue").unwrap() == 1);
        assert!(diary.all().is_empty());
        held.unlock().unwrap();
        waiter.join().unwrap();
    });
    assert_eq!(diary.all(), [Heard::Acquired(Way::Granted), Heard::Released]);
}

#[test]
fn handed_over_within_the_process() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b.slice(Duration::from_secs(60)));
    let lock = client.simple_lock("watched");
    let held = lock.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        wait_until(LONG, "it waits", || lock.queued_threads() == 1);
        held.unlock().unwrap();
        waiter.join().unwrap();
    });
    let (ways, releases) = (diary.all(), diary.count(&Heard::Released));
    assert!(
        diary.has(&Heard::Acquired(Way::Free)) && diary.has(&Heard::Acquired(Way::HandedOver)),
        "{ways:?}"
    );
    assert_eq!((ways.len(), releases), (4, 2), "{ways:?}");
}

#[test]
fn renewals_are_told_and_a_fixed_lease_has_none() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b.lease(ms(900)).renew_every(ms(60)));
    let lock = client.reentrant_lock("watched");
    let guard = lock.lock().unwrap();
    wait_until(LONG, "renewals", || diary.count(&Heard::Renewed) >= 3);
    guard.unlock().unwrap();
    diary.clear();
    let fixed = lock.with_lease(ms(300));
    let guard = fixed.lock().unwrap();
    assert!(guard.lost().wait_timeout(LONG));
    assert_eq!(diary.count(&Heard::Renewed), 0);
}

#[test]
fn each_loss_is_told_once_with_its_reason() {
    let server = RedisServer::start().unwrap();
    let mut redis = server.connection().unwrap();
    let (client, diary) = watched(&server.url(), |b| b.lease(ms(900)).renew_every(ms(60)));
    let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
    let lock = client.reentrant_lock("watched");
    let lose = |why: Loss, how: &mut dyn FnMut()| {
        let held = lock.lock_owned().unwrap();
        // Its listener stands from the first renewal on: it can be told of a forced unlock.
        wait_until(LONG, "a renewal", || diary.has(&Heard::Renewed));
        wait_until(LONG, "a listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
        how();
        let lost = Heard::Lost(why);
        wait_until(LONG, "the loss is told", || diary.has(&lost));
        assert!(held.is_lost());
        let error = held.unlock().unwrap_err();
        assert!(error.is_lease_lost() || error.is_closed(), "{error}");
        assert_eq!(diary.count(&lost), 1, "{:?}", diary.all());
        assert_eq!(diary.count(&Heard::Released), 0, "{:?}", diary.all());
        diary.clear();
    };
    lose(Loss::Verdict, &mut || redis.del("rc:{watched}").unwrap());
    lose(Loss::Forced, &mut || assert!(other.force_unlock().unwrap()));
    lose(Loss::Closed, &mut || client.close().unwrap());
}

#[test]
fn a_lease_that_ran_out_is_a_loss_by_the_deadline() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched").with_lease(ms(150));
    let guard = lock.lock().unwrap();
    wait_until(LONG, "it is told, though nobody asks", || diary.has(&Heard::Lost(Loss::Deadline)));
    drop(guard);
    // Nobody else would hear of this one.
    assert!(diary.has(&Heard::UnlockFailed(ErrorKind::LeaseLost)), "{:?}", diary.all());
    assert_eq!(diary.count(&Heard::Lost(Loss::Deadline)), 1, "{:?}", diary.all());
}

#[test]
fn a_loss_found_by_the_release_is_told() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let guard = lock.lock().unwrap();
    server.flush_all().unwrap();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!(diary.count(&Heard::Lost(Loss::Verdict)), 1, "{:?}", diary.all());
    assert!(!diary.has(&Heard::UnlockFailed(ErrorKind::LeaseLost)), "unlock() said it itself");
}

#[test]
fn a_drop_that_fails_is_told() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (client, diary) = watched(&proxy.url(), |b| b.command_timeout(ms(200)));
    let lock = client.reentrant_lock("watched");
    for how in 0..2 {
        let guard = lock.lock().unwrap();
        proxy.black_hole(true);
        if how == 0 {
            drop(guard);
        } else {
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::Unknown);
        }
        proxy.heal().unwrap();
        let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
        wait_until(LONG, "it is given back", || !other.is_locked().unwrap());
        // What unlock() returned is not told again.
        assert_eq!(diary.count(&Heard::UnlockFailed(ErrorKind::Unknown)), 1, "{:?}", diary.all());
    }
}

#[test]
fn a_new_inbox_connection_is_told_but_not_the_first() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
    let held = other.lock_owned().unwrap();
    assert!(lock.try_lock_for(ms(50)).unwrap().is_none());
    wait_until(LONG, "a listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
    assert!(!diary.has(&Heard::Reconnected));
    for n in 1..=2 {
        wait_until(LONG, "a listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
        server.kill_clients(ClientKind::PubSub).unwrap();
        wait_until(LONG, "it is told", || diary.count(&Heard::Reconnected) == n);
    }
    held.unlock().unwrap();
}

/// Throws in whatever it hears.
struct Thrower;

impl Observer for Thrower {
    fn acquired(&self, _: &str, _: Duration, _: Way) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn released(&self, _: &str) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn renewed(&self, _: &str, _: Duration) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn lost(&self, _: &str, _: Loss) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn reconnected(&self, _: Duration) {
        std::panic::resume_unwind(Box::new(()));
    }
    fn unlock_failed(&self, _: &str, _: &Error) {
        std::panic::resume_unwind(Box::new(()));
    }
}

#[test]
fn what_an_observer_throws_hurts_nobody() {
    let server = RedisServer::start().unwrap();
    let builder = Client::builder().url(&server.url()).lease(ms(900)).renew_every(ms(50));
    let client = builder.observer(Thrower).connect().unwrap();
    let lock = client.reentrant_lock("watched");
    let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
    // Acquired, renewed for longer than a lease, released.
    let guard = lock.lock().unwrap();
    assert!(!guard.lost().wait_timeout(ms(1_500)));
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
        wait_until(LONG, "it waits", || lock.queued_threads() == 1);
        wait_until(LONG, "a listener", || !server.clients(ClientKind::PubSub).unwrap().is_empty());
        server.kill_clients(ClientKind::PubSub).unwrap();
        wait_until(LONG, "a new one", || !server.clients(ClientKind::PubSub).unwrap().is_empty());
        held.unlock().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
    let guard = lock.lock_owned().unwrap();
    client.close().unwrap();
    drop(guard);
}

/// Uses the client that it watches, as a service's metrics may.
#[derive(Clone, Default)]
struct Curious {
    client: Arc<OnceLock<Client>>,
    calls: Arc<Mutex<Vec<&'static str>>>,
}

impl Curious {
    fn ask(&self, heard: &'static str) {
        let Some(client) = self.client.get() else { return };
        let lock = client.reentrant_lock("watched");
        let _ =
            (client.locks(), client.requests(), lock.queued_threads(), lock.hold_count(), lock.is_locked());
        self.calls.lock().push(heard);
    }
}

impl Observer for Curious {
    fn acquired(&self, _: &str, _: Duration, _: Way) {
        self.ask("acquired");
    }
    fn released(&self, _: &str) {
        self.ask("released");
    }
    fn renewed(&self, _: &str, _: Duration) {
        self.ask("renewed");
    }
    fn lost(&self, _: &str, _: Loss) {
        self.ask("lost");
    }
    fn unlock_failed(&self, _: &str, _: &Error) {
        self.ask("unlock failed");
    }
}

#[test]
fn an_observer_is_called_outside_all_locks() {
    let server = RedisServer::start().unwrap();
    let curious = Curious::default();
    let builder = Client::builder().url(&server.url()).lease(ms(900)).renew_every(ms(50));
    let client = builder.observer(curious.clone()).connect().unwrap();
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
            client.close().unwrap();
            assert!(calls.lock().contains(&"lost"));
            *done.lock() = "closing";
        }
    });
    let start = std::time::Instant::now();
    while *done.lock() != "closing" {
        assert!(start.elapsed() < LONG, "it hangs after {}", done.lock());
        thread::sleep(ms(5));
    }
}
