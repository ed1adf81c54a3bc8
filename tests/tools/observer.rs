//! What an observer hears, and when; and that nothing it does hurts a lock.

mod conduct;
mod failures;

use std::thread;
use std::time::{Duration, Instant};

use redis::Commands;
use redis_concurrent::kinds::Simple;
use redis_concurrent::observe::{AcquiredVia, KeptEnd, Observer};
use redis_concurrent::{CancellationToken, ErrorKind, OwnedGuard};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::diary::{Diary, Event, watched};
use crate::support::connect;

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
    assert_eq!(diary.all(), [Event::Acquired(AcquiredVia::Free)]);
    // Re-entries are not told.
    lock.lock().unwrap().unlock().unwrap();
    assert_eq!(diary.all().len(), 1);
    guard.unlock().unwrap();
    assert_eq!(diary.all(), [Event::Acquired(AcquiredVia::Free), Event::Released]);
}

#[test]
fn a_call_that_ends_without_a_hold_is_told_with_its_wait() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let other = connect(&server).reentrant_lock("watched");
    let held = other.lock_owned().unwrap();
    let busy = Event::NotAcquired(None);
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(diary.all(), std::slice::from_ref(&busy));
    let wait = ms(400);
    wait_until(LONG, "its time is up", || {
        diary.clear();
        match lock.try_lock_for(wait) {
            // Once more where a busy machine had no answer for it in its time.
            Err(error) if error.is_unavailable() => false,
            outcome => {
                assert!(outcome.unwrap().is_none());
                true
            }
        }
    });
    assert_eq!(diary.all(), std::slice::from_ref(&busy));
    let longest = diary.times(&busy).pop().unwrap();
    assert!(longest >= wait - ms(5), "{longest:?} of {wait:?}");
    diary.clear();
    // What the caller is told as an error, the observer is told as one.
    let cancelled = Event::NotAcquired(Some(ErrorKind::Cancelled));
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
    let would = Event::NotAcquired(Some(ErrorKind::WouldDeadlock));
    assert_eq!(diary.all(), [Event::Acquired(AcquiredVia::Free), would]);
    guard.unlock().unwrap();
}

#[test]
fn why_a_lock_is_no_longer_kept() {
    let server = RedisServer::start().unwrap();
    // Renewed often enough for the last of them.
    let (client, diary) = watched(&server.url(), |b| b.lease(ms(5_000)));
    let others = connect(&server).reentrant_lock("watched");
    let plain = client.reentrant_lock("watched");
    let over = || diary.all().iter().any(|event| matches!(event, Event::NoLongerKept(_)));
    // Where the machine stands still, it may end for another reason: then once more.
    let ends = |linger, why, act: &dyn Fn()| {
        let lock = plain.linger(linger);
        wait_until(4 * LONG, "that is told", || {
            diary.clear();
            let twice = || lock.lock()?.unlock().and_then(|()| lock.lock()?.unlock());
            if twice().is_err() || !diary.has(&Event::Acquired(AcquiredVia::Kept)) {
                return false;
            }
            act();
            diary.has(&Event::NoLongerKept(why))
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
    let acquired = || Event::Acquired(AcquiredVia::Free);
    assert_eq!(first.all(), [acquired()]);
    assert_eq!(second.all(), [acquired(), Event::Released]);
    assert_eq!(always.all(), [acquired(), Event::Released, acquired(), Event::Released]);
}

/// Its own `drop` releases a hold, of which the client's observers are told.
#[test]
fn an_observer_that_uses_its_client_as_it_is_dropped_is_removed() {
    struct Holds(#[expect(dead_code, reason = "dropped with it")] OwnedGuard<Simple>);
    impl Observer for Holds {}
    let server = RedisServer::start().unwrap();
    let (client, always) = watched(&server.url(), |b| b);
    let lock = client.simple_lock("watched");
    let observation = client.observe(Holds(lock.lock_owned().unwrap()));
    let removed = thread::spawn(move || drop(observation));
    wait_until(LONG, "it is removed", || removed.is_finished());
    assert!(lock.try_lock_for(LONG).unwrap().is_some());
    wait_until(LONG, "its release is told", || always.all().contains(&Event::Released));
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
    let held = diary.times(&Event::Released);
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
    let acquired = |all: &[Event]| all.iter().filter(|h| matches!(h, Event::Acquired(_))).count();
    wait_until(LONG, "all are released", || diary.count(&Event::Released) >= acquired(&diary.all()));
    let all = diary.all();
    let acquired = acquired(&all);
    let not = all.iter().filter(|h| matches!(h, Event::NotAcquired(_))).count();
    assert!(acquired > 0 && not > 0, "{acquired} and {not}");
    assert_eq!(acquired + not, 4 * calls as usize);
    assert_eq!(diary.count(&Event::Released), acquired);
    assert_eq!(all.len(), 2 * acquired + not);
}

#[test]
fn granted_by_another_process() {
    let server = RedisServer::start().unwrap();
    let (client, diary) = watched(&server.url(), |b| b);
    let lock = client.reentrant_lock("watched");
    let other = connect(&server).reentrant_lock("watched");
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
    let reported = diary.times(&Event::Acquired(AcquiredVia::Granted))[0];
    assert!(reported >= waited, "{reported:?}, not {waited:?}");
    assert_eq!(diary.all(), [Event::Acquired(AcquiredVia::Granted), Event::Released]);
}

#[test]
fn handed_off_within_the_process() {
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
    let (ways, releases) = (diary.all(), diary.count(&Event::Released));
    assert!(
        diary.has(&Event::Acquired(AcquiredVia::Free)) && diary.has(&Event::Acquired(AcquiredVia::HandedOff)),
        "{ways:?}"
    );
    assert_eq!((ways.len(), releases), (4, 2), "{ways:?}");
}

#[test]
fn renewals_are_told_and_a_fixed_lease_has_none() {
    let server = RedisServer::start().unwrap();
    let lease = ms(6000);
    let (client, diary) = watched(&server.url(), |b| b.lease(lease).renew_every(ms(60)));
    let lock = client.reentrant_lock("watched");
    let guard = lock.lock().unwrap();
    wait_until(LONG, "renewals", || diary.count(&Event::Renewed) >= 3);
    guard.unlock().unwrap();
    // Of the old lease, which a renewal found nearly whole on a machine that does not stand still.
    let left = diary.times(&Event::Renewed);
    assert!(left.iter().all(|left| *left < lease) && left.iter().any(|left| *left > lease / 3), "{left:?}");
    diary.clear();
    let fixed = lock.with_lease(ms(300));
    let guard = fixed.lock().unwrap();
    assert!(guard.lost().wait_timeout(LONG));
    assert_eq!(diary.count(&Event::Renewed), 0);
}
