//! What an observer hears, and when; and that nothing it does hurts a lock.

use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis::Commands;
use redis_concurrent::{
    AcquiredVia, CancellationToken, Client, Error, ErrorKind, KeptEnd, LockInfo, LossReason, Observer,
};
use redis_concurrent_testkit::{ClientKind, Proxy, RedisServer, wait_until};

use crate::diary::{Diary, Heard, watched};

const LONG: Duration = Duration::from_secs(15);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn free_then_released() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let guard = lock.lock().unwrap();
    assert_eq!(diary.all(), [Heard::Acquired(AcquiredVia::Free)]);
    // Re-entries are not told.
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(diary.all().len(), 1);
    guard.unlock().unwrap();
    assert_eq!(diary.all(), [Heard::Acquired(AcquiredVia::Free), Heard::Released]);
}

#[test]
fn a_call_that_ends_without_a_hold_is_told_with_its_wait() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
    let held = other.lock_owned().unwrap();
    let busy = Heard::NotAcquired(None);
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(diary.all(), std::slice::from_ref(&busy));
    let wait = ms(400);
    assert!(lock.try_lock_for(wait).unwrap().is_none());
    assert_eq!(diary.all(), [busy.clone(), busy.clone()]);
    let longest = diary.times(&busy).pop().unwrap();
    assert!(longest >= wait - ms(5), "{longest:?} of {wait:?}");
    diary.clear();
    // What the caller is told as an error, the observer is told as one.
    let cancelled = Heard::NotAcquired(Some(ErrorKind::Cancelled));
    let token = CancellationToken::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock_interruptibly(&token).map(drop));
        wait_until(LONG, "it waits", || lock.local_queue_length() == 1);
        token.cancel();
        assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
    });
    assert_eq!(diary.all(), std::slice::from_ref(&cancelled));
    assert!(lock.lock_interruptibly(&token).unwrap_err().is_cancelled());
    assert_eq!(diary.all(), [cancelled.clone(), cancelled]);
    held.unlock().unwrap();
    diary.clear();
    let guard = lock.lock().unwrap();
    assert!(lock.lock_owned().is_err());
    let would = Heard::NotAcquired(Some(ErrorKind::WouldDeadlock));
    assert_eq!(diary.all(), [Heard::Acquired(AcquiredVia::Free), would]);
    guard.unlock().unwrap();
}

#[test]
fn why_a_lock_is_no_longer_kept() {
    let server = RedisServer::start().unwrap();
    // Renewed often enough for the last of them.
    let (client, diary) = watched(&server.url(), |b| b.lease(ms(5_000)));
    let others = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
    let plain = client.reentrant_lock("watched");
    let over = || diary.all().iter().any(|heard| matches!(heard, Heard::NoLongerKept(_)));
    // Where the machine stands still, it may end for another reason: then once more.
    let ends = |linger, why, act: &dyn Fn()| {
        let lock = plain.linger(linger);
        wait_until(4 * LONG, "that is told", || {
            diary.clear();
            let twice = || lock.lock()?.unlock().and_then(|()| lock.lock()?.unlock());
            if twice().is_err() || !diary.has(&Heard::Acquired(AcquiredVia::Kept)) {
                return false;
            }
            act();
            diary.has(&Heard::NoLongerKept(why))
        });
    };
    ends(LONG, KeptEnd::Wanted, &|| drop(others.lock().unwrap()));
    ends(LONG, KeptEnd::Replaced, &|| drop(plain.fair().lock().unwrap()));
    // If it was over before the hold ended, it was given back at once.
    let free = || over() || !plain.is_locked().unwrap();
    ends(ms(300), KeptEnd::Expired, &|| wait_until(LONG, "its time is up", free));
    let tell = |command: &str| {
        let mut words = redis::Cmd::new();
        words.arg(command.split(' ').collect::<Vec<_>>());
        let _: redis::Value = words.query(&mut server.connection().unwrap()).unwrap();
        wait_until(LONG, "that is found out", over);
    };
    ends(LONG, KeptEnd::Unheard, &|| tell("CLIENT KILL TYPE pubsub"));
    ends(LONG, KeptEnd::Lost, &|| tell("FLUSHALL"));
    client.close().unwrap();
}

#[test]
fn an_observer_that_was_added_is_removed_when_its_observation_is_dropped() {
    let server = RedisServer::start().unwrap();
    let (client, always) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let (first, second) = (Diary::default(), Diary::default());
    let observations = (client.observe(first.clone()), client.observe(second.clone()));
    let guard = lock.lock().unwrap();
    drop(observations.0);
    guard.unlock().unwrap();
    drop(observations.1);
    lock.lock().unwrap().unlock().unwrap();
    let acquired = || Heard::Acquired(AcquiredVia::Free);
    assert_eq!(first.all(), [acquired()]);
    assert_eq!(second.all(), [acquired(), Heard::Released]);
    assert_eq!(always.all(), [acquired(), Heard::Released, acquired(), Heard::Released]);
}

/// From when its thread was in until it gave the hold up, re-entries or not.
#[test]
fn a_hold_is_told_with_its_length() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let (outer, began) = (lock.lock().unwrap(), Instant::now());
    let inner = lock.lock().unwrap();
    // In any order.
    outer.unlock().unwrap();
    let least = ms(60);
    assert!(!inner.lost().wait_timeout(least));
    let (long, short) = (began.elapsed(), Instant::now());
    inner.unlock().unwrap();
    let short = short.elapsed();
    let held = diary.times(&Heard::Released);
    assert_eq!(held.len(), 1);
    assert!(held[0] >= long && held[0] <= long + short + ms(500), "{held:?}, not {long:?}");
}

/// Calls and holds add up, with waits that end in every instant.
#[test]
fn each_hold_that_is_told_ends_once() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b.local_handoff(ms(20)));
    let (locks, calls) = ([client.simple_lock("watched"), client.simple_lock("watched").fair()], 300);
    thread::scope(|scope| {
        for i in 0..4_u64 {
            let lock = &locks[i as usize % 2];
            scope.spawn(move || {
                for n in 0..calls {
                    // A time that may be too short for an answer.
                    match lock.try_lock_for(Duration::from_micros(n * (i + 1))) {
                        Ok(guard) => drop(guard),
                        Err(error) => assert!(error.is_unavailable(), "{error}"),
                    }
                }
            });
        }
    });
    let all = diary.all();
    let acquired = all.iter().filter(|h| matches!(h, Heard::Acquired(_))).count();
    let not = all.iter().filter(|h| matches!(h, Heard::NotAcquired(_))).count();
    assert!(acquired > 0 && not > 0, "{acquired} and {not}");
    assert_eq!(acquired + not, 4 * calls as usize);
    assert_eq!(diary.count(&Heard::Released), acquired);
    assert_eq!(all.len(), 2 * acquired + not);
}

#[test]
fn granted_by_another_process() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
    let held = other.lock_owned().unwrap();
    let mut redis = server.connection().unwrap();
    let mut waited = Duration::ZERO;
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        wait_until(LONG, "it waits", || redis.zcard::<_, u64>("rc:{watched}:queue").unwrap() == 1);
        assert!(diary.all().is_empty());
        let waits = Instant::now();
        thread::sleep(ms(60));
        waited = waits.elapsed();
        held.unlock().unwrap();
        waiter.join().unwrap();
    });
    let told = diary.times(&Heard::Acquired(AcquiredVia::Granted))[0];
    assert!(told >= waited, "{told:?}, not {waited:?}");
    assert_eq!(diary.all(), [Heard::Acquired(AcquiredVia::Granted), Heard::Released]);
}

#[test]
fn handed_over_within_the_process() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b.local_handoff(Duration::from_secs(60)));
    let lock = client.simple_lock("watched");
    let held = lock.lock_owned().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        wait_until(LONG, "it waits", || lock.local_queue_length() == 1);
        held.unlock().unwrap();
        waiter.join().unwrap();
    });
    let (ways, releases) = (diary.all(), diary.count(&Heard::Released));
    assert!(
        diary.has(&Heard::Acquired(AcquiredVia::Free))
            && diary.has(&Heard::Acquired(AcquiredVia::HandedOver)),
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
    // Of the old lease, which a renewal found nearly whole on a machine that does not stand still.
    let left = diary.times(&Heard::Renewed);
    assert!(left.iter().all(|left| *left < ms(900)) && left.iter().any(|left| *left > ms(300)), "{left:?}");
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
    let lose = |why: LossReason, how: &mut dyn FnMut()| {
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
    lose(LossReason::Revoked, &mut || redis.del("rc:{watched}").unwrap());
    lose(LossReason::Forced, &mut || assert!(other.force_unlock().unwrap().was_held()));
    lose(LossReason::Closed, &mut || client.close().unwrap());
}

#[test]
fn a_lease_that_ran_out_is_a_loss_by_the_deadline() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched").with_lease(ms(150));
    let guard = lock.lock().unwrap();
    wait_until(LONG, "it is told, though nobody asks", || diary.has(&Heard::Lost(LossReason::Expired)));
    drop(guard);
    // Nobody else would hear of this one.
    assert!(diary.has(&Heard::UnlockFailed(ErrorKind::LeaseLost)), "{:?}", diary.all());
    assert_eq!(diary.count(&Heard::Lost(LossReason::Expired)), 1, "{:?}", diary.all());
}

#[test]
fn a_loss_found_by_the_release_is_told() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let guard = lock.lock().unwrap();
    server.flush_all().unwrap();
    assert!(guard.unlock().unwrap_err().is_lease_lost());
    assert_eq!(diary.count(&Heard::Lost(LossReason::Revoked)), 1, "{:?}", diary.all());
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
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        }
        proxy.heal().unwrap();
        let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
        wait_until(LONG, "it is given back", || !other.is_locked().unwrap());
        // What unlock() returned is not told again.
        assert_eq!(diary.count(&Heard::UnlockFailed(ErrorKind::OutcomeUnknown)), 1, "{:?}", diary.all());
    }
}

#[test]
fn a_new_inbox_connection_is_told_but_not_the_first() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let other = Client::connect(&server.url()).unwrap().reentrant_lock("watched");
    let held = other.lock_owned().unwrap();
    assert!(lock.try_lock_for(ms(400)).unwrap().is_none());
    wait_until(LONG, "a listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
    assert!(!diary.has(&Heard::Reconnected));
    for n in 1..=2 {
        wait_until(LONG, "a listener", || server.clients(ClientKind::PubSub).unwrap().len() == 1);
        server.kill_clients(ClientKind::PubSub).unwrap();
        wait_until(LONG, "it is told", || diary.count(&Heard::Reconnected) == n);
    }
    held.unlock().unwrap();
}

/// A lease of a second, and a server that is silent for much less, then for longer.
#[test]
fn renewals_that_fail_are_told_with_what_is_left() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (client, diary) =
        watched(&proxy.url(), |b| b.lease(ms(3000)).renew_every(ms(100)).command_timeout(ms(200)));
    let lock = client.reentrant_lock("watched");
    let guard = lock.lock().unwrap();
    wait_until(LONG, "a renewal", || diary.has(&Heard::Renewed));
    // Making the first connection is no failure.
    assert_eq!(diary.count(&Heard::RenewalFailed), 0, "{:?}", diary.all());
    proxy.black_hole(true);
    wait_until(LONG, "a failure", || diary.has(&Heard::RenewalFailed));
    let left = diary.times(&Heard::RenewalFailed)[0];
    assert!(left > Duration::ZERO && left < ms(3000), "{left:?}");
    proxy.heal().unwrap();
    let before = diary.count(&Heard::Renewed);
    wait_until(LONG, "renewals again", || diary.count(&Heard::Renewed) > before);
    guard.unlock().unwrap();
    assert_eq!(diary.count(&Heard::Released), 1, "{:?}", diary.all());
}

#[test]
fn a_release_that_goes_on_is_told_and_so_is_its_end() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (client, diary) = watched(&proxy.url(), |b| b.lease(ms(900)).command_timeout(ms(100)));
    let lock = client.reentrant_lock("watched");
    // Given back in the background, where nobody hears of it.
    let guard = lock.lock().unwrap();
    proxy.black_hole(true);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    assert_eq!(diary.all(), [Heard::Acquired(AcquiredVia::Free), Heard::Deferred]);
    proxy.heal().unwrap();
    drop(lock.try_lock_for(LONG).unwrap().expect("it was given back"));
    diary.clear();
    // Silent until there is nothing to give back any more.
    let guard = lock.lock().unwrap();
    proxy.black_hole(true);
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::OutcomeUnknown);
    wait_until(LONG, "it is given up", || diary.has(&Heard::Abandoned));
    assert_eq!(diary.all(), [Heard::Acquired(AcquiredVia::Free), Heard::Deferred, Heard::Abandoned]);
    proxy.heal().unwrap();
}

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
    let builder = Client::builder().url(&server.url());
    let client = builder.observer(a.clone()).observer(Thrower).observer(b.clone()).connect().unwrap();
    drop(client.simple_lock("x").lock().unwrap());
    drop(client.reentrant_lock("y").lock().unwrap());
    let told = [("simple lock", "x".to_owned()), ("reentrant lock", "y".to_owned())];
    assert_eq!((&*a.0.lock(), &*b.0.lock()), (&told.to_vec(), &told.to_vec()));
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
        wait_until(LONG, "it waits", || lock.local_queue_length() == 1);
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
        let _ = (
            client.lock_count(),
            client.request_count(),
            lock.local_queue_length(),
            lock.hold_count(),
            lock.is_locked(),
        );
        self.calls.lock().push(heard);
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
