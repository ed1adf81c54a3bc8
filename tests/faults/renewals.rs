//! Renewals: what they promise while Redis is silent, slow, or refuses connections.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent::observe::{LockInfo, LossReason, Observer};
use redis_concurrent::{Client, Error, ErrorKind};
use redis_concurrent_testkit::*;

use crate::support::*;

/// What renewals are like.
#[derive(Clone, Default)]
struct Renewals(Arc<Mutex<Figures>>);

#[derive(Debug, Default)]
struct Figures {
    longest_lag: Duration,
    highest_load: usize,
    most: usize,
    failures: usize,
    last_failure: Option<String>,
}

impl Observer for Renewals {
    fn renewed(&self, _: LockInfo<'_>, lag: Duration, _: Duration) {
        let mut figures = self.0.lock();
        figures.longest_lag = lag.max(figures.longest_lag);
    }

    fn renewal_load(&self, under_way: usize, most: usize) {
        let mut figures = self.0.lock();
        figures.highest_load = under_way.max(figures.highest_load);
        figures.most = most;
    }

    fn renewal_failed(&self, _: LockInfo<'_>, _: Duration, error: &Error) {
        let mut figures = self.0.lock();
        figures.failures += 1;
        figures.last_failure = Some(error.to_string());
    }
}

/// The thread that waits for an answer is not the one that reports deadlines.
#[test]
fn a_loss_is_told_in_time_while_another_renewal_waits_for_its_answer() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let recorder = Recorder::default();
    // An answer is waited for as long as the sixth of a lease.
    let builder = builder(&proxy.url()).lease(6 * LONG).renew_every(ms(300)).command_timeout(LONG);
    let client = builder.observer(recorder.clone()).connect().unwrap();
    let renewed = client.reentrant_lock("renewed").lock_owned().unwrap();
    wait_until(SOON, "renewals have begun", || recorder.count(Event::Renewed) > 0);
    let fixed = client.reentrant_lock("fixed").with_lease(ms(1500)).lock_owned().unwrap();
    let (began, lost) = (Instant::now(), fixed.lost());
    proxy.black_hole(true);
    assert!(lost.wait_timeout(LONG), "nobody was told");
    let took = began.elapsed();
    assert!(fixed.is_lost() && !renewed.is_lost());
    assert!(took < LONG / 2, "told after {took:?}");
    proxy.black_hole(false);
}

/// As many requests are on their way as the due times ask for: a round trip is no limit. (Optimized and on an idle
/// machine also with LOCKS=20000 ROUND_TRIP_MS=50.)
#[test]
fn renewals_keep_up_on_a_slow_line() {
    let locks = std::env::var("LOCKS").map_or(1_000, |n| n.parse().unwrap());
    let round_trip = ms(std::env::var("ROUND_TRIP_MS").map_or(200, |n| n.parse().unwrap()));
    // Few enough a second for a machine with other work, and long enough on their way that many are so at once.
    let (lease, every) = (ms(60_000), ms(2_000));
    let (recorder, renewals) = (Recorder::default(), Renewals::default());
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let builder = unhurried(&proxy.url()).lease(lease).renew_every(every);
    let client = builder.observer(renewals.clone()).observer(recorder.clone()).connect().unwrap();
    let guards: Vec<_> =
        (0..locks).map(|i| client.reentrant_lock(&format!("{i}")).lock_owned().unwrap()).collect();
    proxy.delay(round_trip);
    // One after the other they would take longer than a lease.
    let before = recorder.count(Event::Renewed);
    wait_until(lease, "all are renewed three times", || recorder.count(Event::Renewed) >= before + 3 * locks);
    let lost = guards.iter().filter(|guard| guard.is_lost()).count();
    proxy.delay(ms(0));
    let figures = std::mem::take(&mut *renewals.0.lock());
    println!("{locks} locks, {round_trip:?} a round trip: {lost} lost, {figures:?}");
    assert_eq!((lost, recorder.losses()), (0, 0), "{figures:?}");
    // Far from what can be on its way at once, and more than one batch.
    assert!(figures.highest_load > 64 && figures.highest_load < figures.most, "{figures:?}");
    // How many can be released in the time that closing takes at most depends on the machine.
    let _ = client.close();
}

/// A server that takes no new connection has one of this client's all the same.
#[test]
fn a_hold_lives_on_where_no_connection_is_to_be_had_for_its_renewals() {
    let (recorder, renewals) = (Recorder::default(), Renewals::default());
    let server = RedisServer::start().unwrap();
    let mut admin = server.connection().unwrap();
    // An answer that is awaited in vain would end the one connection that there is.
    let client = builder(&server.url()).lease(6 * LONG).renew_every(ms(300)).command_timeout(LONG);
    let client = client.observer(renewals.clone()).observer(recorder.clone()).connect().unwrap();
    let guard = client.reentrant_lock("x").lock_owned().unwrap();
    redis::cmd("CONFIG").arg("SET").arg("maxclients").arg(1).exec(&mut admin).unwrap();
    assert!(Client::connect(&server.url()).is_err(), "a new connection was let in");
    let renewed = recorder.count(Event::Renewed);
    wait_until(LONG, "it is renewed again and again", || recorder.count(Event::Renewed) >= renewed + 10);
    assert!(!guard.is_lost() && renewals.0.lock().failures == 0, "{:?}", renewals.0.lock());
    guard.unlock().unwrap();
}

/// A holder that never waited hears of it all the same: since it asked for `lost`, or holds for longer than a heartbeat.
#[test]
fn a_forced_unlock_is_told_at_once_to_a_holder_that_asked_or_holds_on() {
    let server = RedisServer::start().unwrap();
    let other = connected(|| builder(&server.url())).reentrant_lock("x");
    for fixed in [None, Some(ms(30_000))] {
        for asks in [true, false] {
            let recorder = Recorder::default();
            let client = connected(|| builder(&server.url()).observer(recorder.clone()));
            let lock = client.reentrant_lock("x");
            let lock = match fixed {
                Some(lease) => lock.with_lease(lease),
                None => lock,
            };
            let guard = lock.lock().unwrap();
            let lost = asks.then(|| guard.lost());
            wait_until(SOON, "the holder listens", || !channels(&server).is_empty());
            let forced = other.force_unlock().unwrap();
            assert!(forced.holders == 1 && forced.notified == 1, "{forced:?}");
            wait_until(SOON, "the holder is told", || recorder.count(Event::Lost(LossReason::Forced)) == 1);
            assert!(guard.is_lost() && lost.is_none_or(|lost| lost.is_cancelled()));
            assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
            client.close().unwrap();
            wait_until(SOON, "nobody listens", || channels(&server).is_empty());
        }
    }
}

#[test]
fn a_forced_unlock_says_that_nobody_was_told() {
    let server = RedisServer::start().unwrap();
    // It would listen, and be told, once it has held the lock for a heartbeat: a third of the lease here.
    let client = connected(|| builder(&server.url()).waiter_timeout(ms(60_000)));
    let other = connect(&server).reentrant_lock("x");
    let nobody = other.force_unlock().unwrap();
    assert!(nobody.holders == 0 && nobody.notified == 0, "{nobody:?}");
    let guard = client.reentrant_lock("x").lock_owned().unwrap();
    let forced = other.force_unlock().unwrap();
    assert_eq!((forced.holders, forced.notified), (1, 0));
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
}

/// What is held for less than a heartbeat costs neither a connection nor a message.
#[test]
fn short_holds_make_nobody_listen() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("x");
    let began = Instant::now();
    let (mut longest, mut checked) = (Duration::ZERO, 0);
    while began.elapsed() < ms(2500) {
        let held = Instant::now();
        lock.lock().unwrap().unlock().unwrap();
        longest = longest.max(held.elapsed());
        // On a busy machine a hold may last for a heartbeat, which is a second.
        let was_short = longest < ms(900);
        assert!(!was_short || channels(&server).is_empty(), "{longest:?}");
        checked += u32::from(was_short);
    }
    assert!(checked > 0, "each hold lasted for a heartbeat");
}
