//! The server stands still.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{ErrorKind, LossReason};
use redis_concurrent_testkit::{RedisServer, wait_until};

use super::says_unavailable;
use crate::both::both;
use crate::server_days::*;

mod bodies {
    use super::*;

    pub fn an_unlock_that_a_stopped_server_leaves_open_is_done_when_it_goes_on<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connected(|| brisk(&server.url()).lease(Duration::from_secs(15)));
        let lock = client.lock_with_kind("stopped", kind);
        let guard = lock.lock().unwrap();
        server.stop().unwrap();
        let start = Instant::now();
        error_of(on_time("unlock", COMMAND, || guard.unlock()), ErrorKind::OutcomeUnknown, "stopped");
        assert!(start.elapsed() >= COMMAND - ms(5), "it gave up early: {:?}", start.elapsed());
        says_unavailable(&client, kind, "stopped");
        says_unavailable(&client, kind, "other");
        server.cont().unwrap();
        // Not by its lease of 15 seconds: the renewal thread has gone on.
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

    pub fn a_hold_that_a_stopped_server_lets_lapse_is_lost_while_it_is_silent<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let ear = Ear::default();
        let client = connected(|| brisk(&server.url()).lease(SHORT_LEASE).observer(ear.clone()));
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
        wait_until(SURELY, "the loss is told", || ear.losses() == [LossReason::Expired]);
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    pub fn waiters_bear_a_server_that_stops_and_goes_on<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let (mine, yours) = (connect(&server.url()), connect(&server.url()));
        let (held, wanted) = (mine.lock_with_kind("bear", kind), yours.lock_with_kind("bear", kind));
        let guard = held.lock().unwrap();
        let token = guard.token();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| takes_a_turn(&wanted));
            wait_for_queue(&server, "bear");
            server.stop().unwrap();
            // Longer than a heartbeat and a command: the waiter has met the silence.
            thread::sleep(HEARD / 3 + HEARD);
            server.cont().unwrap();
            guard.unlock().unwrap();
            assert!(waiting.join().unwrap() > token);
        });
        drop((held, wanted));
        nothing_stays(&server, &[&mine, &yours]);
    }

    pub fn a_pause_shorter_than_the_lease_costs_only_time<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let ear = Ear::default();
        let client = connected(|| {
            let patient = brisk(&server.url()).waiter_timeout(SURELY).command_timeout(SURELY);
            patient.lease(ms(9000)).renew_every(ms(300)).observer(ear.clone())
        });
        let (held, other) = (client.lock_with_kind("held", kind), client.lock_with_kind("other", kind));
        for what in ["ALL", "WRITE"] {
            let guard = held.lock().unwrap();
            let start = Instant::now();
            ask::<()>(&server, &["CLIENT", "PAUSE", "500", what]);
            other.lock().unwrap().unlock().unwrap();
            assert!(start.elapsed() > ms(300), "there was no pause");
            ear.wait_for_renewals(1);
            guard.unlock().unwrap();
        }
        assert!(ear.losses().is_empty());
        drop((held, other));
        nothing_stays(&server, &[&client]);
    }

    pub fn a_pause_longer_than_the_lease_costs_the_hold_and_nothing_more<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        // Only where nothing but writes has to wait can it be ended before its time.
        for (what, pause) in [("ALL", ms(3000)), ("WRITE", ms(20_000))] {
            let ear = Ear::default();
            let client = connected(|| brisk(&server.url()).lease(SHORT_LEASE).observer(ear.clone()));
            let held = client.lock_with_kind("held", kind);
            let guard = held.lock().unwrap();
            let start = Instant::now();
            ask::<()>(&server, &["CLIENT", "PAUSE", &pause.as_millis().to_string(), what]);
            let other = client.lock_with_kind("other", kind);
            let timed = on_time("try_lock_for", ms(500), || other.try_lock_for(ms(500)));
            error_of(timed, ErrorKind::Unavailable, "other");
            error_of(on_time("try_lock", COMMAND, || other.try_lock()), ErrorKind::Unavailable, "other");
            assert!(guard.lost().wait_timeout(SURELY));
            error_of(on_time("unlock", ms(0), || guard.unlock()), ErrorKind::LeaseLost, "held");
            assert!(start.elapsed() < pause, "the pause was over");
            // Late copies of what was asked for above run when the pause ends.
            ask::<()>(&server, &["CLIENT", "UNPAUSE"]);
            ask::<String>(&server, &["PING"]);
            another_gets_in(&server, kind, "held", SURELY);
            another_gets_in(&server, kind, "other", SURELY);
            wait_until(SURELY, "the loss is told", || ear.losses() == [LossReason::Expired]);
            drop((held, other));
            nothing_stays(&server, &[&client]);
        }
    }
}

both! {
    an_unlock_that_a_stopped_server_leaves_open_is_done_when_it_goes_on;
    a_waiter_behind_an_unanswered_request_says_unavailable_too;
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
    let patient = connected(|| {
        brisk(&silent.url())
            .lease(Duration::from_secs(30))
            .renew_every(ms(100))
            .waiter_timeout(Duration::from_secs(4))
            .command_timeout(Duration::from_secs(4))
    });
    let ear = Ear::default();
    // Longer than a loaded machine stands still, and shorter than one request to the silent server may take.
    let hasty = connected(|| brisk(&lively.url()).lease(ms(3000)).renew_every(ms(300)).observer(ear.clone()));
    let (long, short) = (patient.simple_lock("long"), hasty.simple_lock("short"));
    let (first, second) = (long.lock().unwrap(), short.lock().unwrap());
    ear.wait_for_renewals(2);
    silent.stop().unwrap();
    let start = Instant::now();
    // One round that waited for the silent server would be enough.
    wait_until(SURELY, "time to pass", || start.elapsed() > ms(5000) || second.is_lost());
    let losses = ear.losses();
    silent.cont().unwrap();
    assert!(losses.is_empty(), "lost after {:?} by the silence of another server", start.elapsed());
    second.unlock().unwrap();
    first.unlock().unwrap();
    assert!(ear.renewed.load(SeqCst) > 2);
    drop((long, short));
    nothing_stays(&lively, &[&hasty]);
    nothing_stays(&silent, &[&patient]);
}
