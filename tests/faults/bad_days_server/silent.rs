//! The server stands still.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::ErrorKind;
use redis_concurrent::observe::LossReason;
use redis_concurrent_testkit::{RedisServer, wait_until};

use super::says_unavailable;
use crate::both::both;
use crate::server_days::*;

mod bodies {
    use super::*;

    pub fn an_unlock_that_a_stopped_server_leaves_open_is_done_when_it_goes_on<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connected(|| brisk(&server.url()).lease(Duration::from_secs(60)));
        let lock = client.lock_with_kind("stopped", kind);
        let guard = lock.lock().unwrap();
        server.stop().unwrap();
        let start = Instant::now();
        error_of(on_time("unlock", COMMAND, || guard.unlock()), ErrorKind::OutcomeUnknown, "stopped");
        assert!(start.elapsed() >= COMMAND - ms(5), "it gave up early: {:?}", start.elapsed());
        says_unavailable(&client, kind, "stopped");
        says_unavailable(&client, kind, "other");
        server.cont().unwrap();
        // Not by its lease of a minute: the renewal thread has gone on.
        another_gets_in(&server, kind, "stopped", SURELY);
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// Nothing that stands behind a request of this process that nobody has answered can know
    /// whether it is busy: the server is silent, and that is what it must say.
    pub fn a_waiter_behind_an_unanswered_request_says_unavailable_too<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        // The first one outlasts the second, however long that takes.
        let patience = Duration::from_secs(15);
        let client = connected(|| brisk(&server.url()).waiter_timeout(patience).command_timeout(patience));
        let lock = client.lock_with_kind("behind", kind);
        server.stop().unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| lock.try_lock_for(patience).map(drop));
            wait_until(SURELY, "the first waiter", || lock.local_queue_length() == 1);
            let second = on_time("try_lock_for", ms(300), || lock.try_lock_for(ms(300)));
            assert!(!first.is_finished());
            server.cont().unwrap();
            first.join().unwrap().unwrap();
            error_of(second, ErrorKind::Unavailable, "behind");
        });
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// Nor does a timed call wait for the answer to a request of its own.
    pub fn a_timed_call_ends_long_before_its_request_would<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connected(|| unhurried(&server.url()).lease(ms(60_000)));
        let lock = client.lock_with_kind("timed", kind);
        server.stop().unwrap();
        for wait in [50, 300].map(ms) {
            let timed = on_time("try_lock_for", wait, || lock.try_lock_for(wait).map(drop));
            error_of(timed, ErrorKind::Unavailable, "timed");
        }
        server.cont().unwrap();
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    pub fn a_hold_that_a_stopped_server_lets_lapse_is_lost_while_it_is_silent<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let counters = Counters::default();
        let client = connected(|| brisk(&server.url()).lease(SHORT_LEASE).observer(counters.clone()));
        let lock = client.lock_with_kind("silence", kind);
        let guard = lock.lock().unwrap();
        let lost = guard.lost();
        server.stop().unwrap();
        on_time("lost()", SHORT_LEASE, || assert!(lost.wait_timeout(SURELY)));
        assert!(guard.is_lost());
        assert_eq!(lock.hold_count(), 0);
        error_of(on_time("lock", ms(0), || lock.lock()), ErrorKind::LeaseLost, "silence");
        error_of(on_time("unlock", ms(0), || guard.unlock()), ErrorKind::LeaseLost, "silence");
        server.cont().unwrap();
        another_gets_in(&server, kind, "silence", SURELY);
        wait_until(SURELY, "the loss is told", || counters.losses() == [LossReason::Expired]);
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    pub fn waiters_bear_a_server_that_stops_and_goes_on<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let mine = connect(&server.url());
        let yours = connected(|| brisk(&server.url()).waiter_timeout(COMMAND));
        let (held, awaited) = (mine.lock_with_kind("bear", kind), yours.lock_with_kind("bear", kind));
        let guard = held.lock().unwrap();
        let token = guard.token();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| takes_a_turn(&awaited));
            wait_for_queue(&server, "bear");
            server.stop().unwrap();
            // Longer than a heartbeat and a command: the waiter has met the silence.
            thread::sleep(COMMAND / 3 + COMMAND);
            server.cont().unwrap();
            guard.unlock().unwrap();
            assert!(waiting.join().unwrap() > token);
        });
        drop((held, awaited));
        nothing_stays(&server, &[&mine, &yours]);
    }

    pub fn a_pause_shorter_than_the_lease_costs_only_time<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let counters = Counters::default();
        let client = connected(|| unhurried(&server.url()).renew_every(ms(300)).observer(counters.clone()));
        let (held, other) = (client.lock_with_kind("held", kind), client.lock_with_kind("other", kind));
        for what in ["ALL", "WRITE"] {
            let guard = held.lock().unwrap();
            let start = Instant::now();
            ask::<()>(&server, &["CLIENT", "PAUSE", "500", what]);
            other.lock().unwrap().unlock().unwrap();
            assert!(start.elapsed() > ms(300), "there was no pause");
            counters.wait_for_renewals(1);
            guard.unlock().unwrap();
        }
        assert!(counters.losses().is_empty());
        drop((held, other));
        nothing_stays(&server, &[&client]);
    }

    pub fn a_pause_longer_than_the_lease_costs_the_hold_and_nothing_more<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        // Only where nothing but writes has to wait can it be ended before its time: the other one leaves time
        // for all of this, and for a machine that stands still meanwhile.
        let command = ms(400);
        for (what, pause) in [("ALL", ms(6000)), ("WRITE", ms(30_000))] {
            let counters = Counters::default();
            let hasty = || {
                brisk(&server.url()).command_timeout(command).lease(SHORT_LEASE).observer(counters.clone())
            };
            let client = connected(hasty);
            let held = client.lock_with_kind("held", kind);
            let guard = held.lock().unwrap();
            let start = Instant::now();
            ask::<()>(&server, &["CLIENT", "PAUSE", &pause.as_millis().to_string(), what]);
            let other = client.lock_with_kind("other", kind);
            let timed = on_time("try_lock_for", ms(500), || other.try_lock_for(ms(500)));
            error_of(timed, ErrorKind::Unavailable, "other");
            error_of(on_time("try_lock", command, || other.try_lock()), ErrorKind::Unavailable, "other");
            assert!(guard.lost().wait_timeout(SURELY));
            error_of(on_time("unlock", ms(0), || guard.unlock()), ErrorKind::LeaseLost, "held");
            assert!(start.elapsed() < pause, "the pause was over");
            // Late copies of what was asked for above run when the pause ends.
            ask::<()>(&server, &["CLIENT", "UNPAUSE"]);
            ask::<String>(&server, &["PING"]);
            another_gets_in(&server, kind, "held", SURELY);
            another_gets_in(&server, kind, "other", SURELY);
            wait_until(SURELY, "the loss is told", || counters.losses() == [LossReason::Expired]);
            drop((held, other));
            nothing_stays(&server, &[&client]);
        }
    }
}

both! {
    an_unlock_that_a_stopped_server_leaves_open_is_done_when_it_goes_on;
    a_waiter_behind_an_unanswered_request_says_unavailable_too;
    a_timed_call_ends_long_before_its_request_would;
    a_hold_that_a_stopped_server_lets_lapse_is_lost_while_it_is_silent;
    waiters_bear_a_server_that_stops_and_goes_on;
    a_pause_shorter_than_the_lease_costs_only_time;
    a_pause_longer_than_the_lease_costs_the_hold_and_nothing_more;
}

/// One thread renews for all clients of a process: one server's silence must not cost the hold
/// on another server, whatever its lease.
#[test]
fn a_silent_server_costs_no_hold_on_another_one() {
    let (silent, lively) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    // A renewal that nobody answers takes 20 seconds.
    let patient = connected(|| unhurried(&silent.url()).lease(Duration::from_secs(150)).renew_every(ms(100)));
    let counters = Counters::default();
    let hasty = connected(|| brisk(&lively.url()).renew_every(ms(300)).observer(counters.clone()));
    let (long, short) = (patient.simple_lock("long"), hasty.simple_lock("short"));
    let (first, second) = (long.lock().unwrap(), short.lock().unwrap());
    counters.wait_for_renewals(2);
    silent.stop().unwrap();
    // One round that waited for the silent server would be late by far, and lose the hold.
    on_time("renewals", ms(3000), || counters.wait_for_renewals(10));
    let losses = counters.losses();
    silent.cont().unwrap();
    assert!(losses.is_empty(), "lost by the silence of another server");
    gives_back(second);
    gives_back(first);
    drop((long, short));
    nothing_stays(&lively, &[&hasty]);
    nothing_stays(&silent, &[&patient]);
}
