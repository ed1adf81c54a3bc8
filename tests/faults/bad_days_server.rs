//! Bad days of the server: it is not there, dies, stops, is full, busy, loading, a replica, or
//! takes our rights and keys away. Each call ends by its deadline with the one right outcome.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::{Client, ErrorKind, LossReason};
use redis_concurrent_testkit::{ClientKind, RedisServer, eventually, wait_until};

use crate::both::both;
use crate::server_days::*;

/// A port that nobody listens on: one that a server just had.
fn nobodys_port() -> u16 {
    let server = RedisServer::start().unwrap();
    server.kill().unwrap();
    server.port()
}

mod bodies {
    use super::*;

    /// What every form says while the server cannot serve: an error that says so, by its deadline.
    #[track_caller]
    fn says_unavailable<K: Subject>(client: &Client, kind: K, name: &str) {
        // Each on a lock of its own, so that none waits for another.
        let lock = |n: usize| client.lock_with_kind(&format!("{name}{n}"), kind);
        thread::scope(|scope| {
            scope.spawn(|| {
                let tried = on_time("try_lock", COMMAND, || lock(0).try_lock().map(|it| it.is_some()));
                error_of(tried, ErrorKind::Unavailable, &format!("{name}0"));
            });
            for (n, wait) in [(1, 50), (2, 700)] {
                scope.spawn(move || {
                    let timed = on_time("try_lock_for", ms(wait), || {
                        lock(n).try_lock_for(ms(wait)).map(|it| it.is_some())
                    });
                    error_of(timed, ErrorKind::Unavailable, &format!("{name}{n}"));
                });
            }
            let asked = on_time("is_locked", COMMAND, || lock(3).is_locked());
            error_of(asked, ErrorKind::Unavailable, &format!("{name}3"));
        });
    }

    // ---- gone ------------------------------------------------------------------------------

    pub fn a_server_that_dies_and_comes_back_is_used_again<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = brisk(&server.url()).unreachable_timeout(ms(600)).connect().unwrap();
        let patient = connect(&server.url());
        let lock = client.lock_with_kind("gone", kind);
        let guard = lock.lock().unwrap();
        server.kill().unwrap();
        says_unavailable(&client, kind, "other");
        // The patience begins with the first request that failed, and the last one is waited for.
        let forever = client.lock_with_kind("other", kind);
        let untimed = on_time("lock", ms(600) + COMMAND * 2, || forever.lock());
        error_of(untimed, ErrorKind::Unavailable, "other");
        let unlocked = on_time("unlock", COMMAND, || guard.unlock());
        // By the last connection that is left, which may have been the server's end, or by none.
        let error = unlocked.unwrap_err();
        assert!([ErrorKind::OutcomeUnknown, ErrorKind::Unavailable].contains(&error.kind()), "{error}");
        // Who has more patience gets in when it is back.
        thread::scope(|scope| {
            let wanted = patient.lock_with_kind("gone", kind);
            let waiting = scope.spawn(move || wanted.lock().unwrap().unlock());
            thread::sleep(ms(300));
            server.restart().unwrap();
            waiting.join().unwrap().unwrap();
        });
        another_gets_in(&server, kind, "gone", SURELY);
        lock.lock().unwrap().unlock().unwrap();
        drop((lock, forever));
        nothing_stays(&server, &[&client, &patient]);
    }

    /// What the append-only file has kept is held on, and an unlock that nobody answered is done.
    pub fn a_hold_outlives_a_restart_that_keeps_the_data<K: Subject>(kind: K) {
        let server = RedisServer::builder().appendonly(true).start().unwrap();
        let ear = Ear::default();
        let client = brisk(&server.url()).lease(ms(6000)).observer(ear.clone()).connect().unwrap();
        let (kept, given_back) =
            (client.lock_with_kind("kept", kind), client.lock_with_kind("given-back", kind));
        let (guard, unlucky) = (kept.lock().unwrap(), given_back.lock().unwrap());
        server.kill().unwrap();
        let unlocked = on_time("unlock", COMMAND, || unlucky.unlock());
        error_of(unlocked, ErrorKind::OutcomeUnknown, "given-back");
        server.restart().unwrap();
        ear.wait_for_renewals(1);
        let state = key("given-back");
        wait_until(SURELY, "the release in the background", || ask::<u64>(&server, &["EXISTS", &state]) == 0);
        assert!(!guard.is_lost() && !guard.lost().is_cancelled());
        assert!(connect(&server.url()).lock_with_kind("kept", kind).try_lock().unwrap().is_none());
        guard.unlock().unwrap();
        assert!(ear.losses().is_empty());
        drop((kept, given_back));
        nothing_stays(&server, &[&client]);
    }

    pub fn a_hold_that_a_restart_forgot_is_lost<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let ear = Ear::default();
        let client = brisk(&server.url()).lease(ms(1500)).observer(ear.clone()).connect().unwrap();
        let lock = client.lock_with_kind("forgotten", kind);
        let guard = lock.lock().unwrap();
        let (token, lost) = (guard.token(), guard.lost());
        server.restart().unwrap();
        assert!(lost.wait_timeout(SURELY));
        assert!(another_gets_in(&server, kind, "forgotten", SURELY) > token);
        error_of(on_time("unlock", ms(0), || guard.unlock()), ErrorKind::LeaseLost, "forgotten");
        assert_eq!(ear.losses().len(), 1);
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    // ---- silent ----------------------------------------------------------------------------

    pub fn an_unlock_that_a_stopped_server_leaves_open_is_done_when_it_goes_on<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = brisk(&server.url()).lease(Duration::from_secs(15)).connect().unwrap();
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
        let client =
            brisk(&server.url()).waiter_timeout(ms(1500)).command_timeout(ms(1500)).connect().unwrap();
        let lock = client.lock_with_kind("behind", kind);
        server.stop().unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| lock.try_lock_for(ms(1200)).map(drop));
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
        let client = brisk(&server.url()).lease(SHORT_LEASE).observer(ear.clone()).connect().unwrap();
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
            let waiting = scope.spawn(|| {
                let guard = wanted.lock().unwrap();
                let token = guard.token();
                guard.unlock().unwrap();
                token
            });
            wait_for_queue(&server, "bear");
            server.stop().unwrap();
            // Longer than a beat and a command: the waiter has met the silence.
            thread::sleep(ms(300) + COMMAND);
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
        let client = brisk(&server.url())
            .lease(ms(1500))
            .waiter_timeout(ms(2000))
            .command_timeout(ms(2000))
            .observer(ear.clone());
        let client = client.connect().unwrap();
        let (held, other) = (client.lock_with_kind("held", kind), client.lock_with_kind("other", kind));
        for what in ["ALL", "WRITE"] {
            let guard = held.lock().unwrap();
            ask::<()>(&server, &["CLIENT", "PAUSE", "500", what]);
            let start = Instant::now();
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
        for what in ["ALL", "WRITE"] {
            let ear = Ear::default();
            let client = brisk(&server.url()).lease(SHORT_LEASE).observer(ear.clone()).connect().unwrap();
            let held = client.lock_with_kind("held", kind);
            let guard = held.lock().unwrap();
            ask::<()>(&server, &["CLIENT", "PAUSE", "2000", what]);
            let start = Instant::now();
            let other = client.lock_with_kind("other", kind);
            let timed = on_time("try_lock_for", ms(500), || other.try_lock_for(ms(500)));
            error_of(timed, ErrorKind::Unavailable, "other");
            error_of(on_time("try_lock", COMMAND, || other.try_lock()), ErrorKind::Unavailable, "other");
            assert!(guard.lost().wait_timeout(SURELY));
            error_of(on_time("unlock", ms(0), || guard.unlock()), ErrorKind::LeaseLost, "held");
            assert!(start.elapsed() < ms(2000), "the pause was over");
            // Late copies of what was asked for above run when the pause ends.
            ask::<String>(&server, &["PING"]);
            another_gets_in(&server, kind, "held", SURELY);
            another_gets_in(&server, kind, "other", SURELY);
            wait_until(SURELY, "the loss is told", || ear.losses() == [LossReason::Expired]);
            drop((held, other));
            nothing_stays(&server, &[&client]);
        }
    }

    // ---- will not --------------------------------------------------------------------------

    /// It is for good, as far as we know, and so told at once to those who wait, too. What is held is not given up.
    pub fn a_new_password_keeps_us_out_until_it_is_ours_again<K: Subject>(kind: K) {
        let server = RedisServer::builder().password("first").start().unwrap();
        let client = brisk(&server.url()).lease(ms(6000)).connect().unwrap();
        let (held, lock) = (client.lock_with_kind("held", kind), client.lock_with_kind("password", kind));
        let guard = held.lock().unwrap();
        let mut admin = server.connection().unwrap();
        on::<()>(&mut admin, &["CONFIG", "SET", "requirepass", "second"]);
        on::<u64>(&mut admin, &["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
        for outcome in [lock.try_lock().map(drop), lock.try_lock_for(SURELY).map(drop), lock.lock().map(drop)]
        {
            error_of(outcome, ErrorKind::Unavailable, "password");
        }
        error_of(lock.is_locked(), ErrorKind::Unavailable, "password");
        on::<()>(&mut admin, &["CONFIG", "SET", "requirepass", "first"]);
        lock.lock().unwrap().unlock().unwrap();
        guard.unlock().unwrap();
        drop((held, lock));
        nothing_stays(&server, &[&client]);
    }

    pub fn a_replica_refuses_and_serves_again_once_promoted<K: Subject>(kind: K) {
        let (server, primary) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
        configure(&primary, "repl-diskless-sync-delay", "0");
        let client = brisk(&server.url()).lease(ms(6000)).connect().unwrap();
        let lock = client.lock_with_kind("replica", kind);
        lock.lock().unwrap().unlock().unwrap();
        ask::<()>(&server, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        wait_until(SURELY, "the link to the primary", || {
            ask::<String>(&server, &["INFO", "replication"]).contains("master_link_status:up")
        });
        says_writes_fail(&client, kind, "replica", "READONLY");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.lock().unwrap().unlock());
            wait_until(SURELY, "a waiting thread", || lock.local_queue_length() == 1);
            thread::sleep(ms(200));
            assert!(!waiting.is_finished());
            ask::<()>(&server, &["REPLICAOF", "NO", "ONE"]);
            waiting.join().unwrap().unwrap();
        });
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// As [`says_unavailable`], where reading works.
    #[track_caller]
    pub fn says_writes_fail<K: Subject>(client: &Client, kind: K, name: &str, told: &str) {
        let lock = client.lock_with_kind(name, kind);
        let error = error_of(on_time("try_lock", ms(0), || lock.try_lock()), ErrorKind::Unavailable, name);
        assert!(format!("{error:#}").to_uppercase().contains(told), "{error:#}");
        let timed = on_time("try_lock_for", ms(300), || lock.try_lock_for(ms(300)));
        let error = error_of(timed, ErrorKind::Unavailable, name);
        assert!(format!("{error:#}").to_uppercase().contains(told), "{error:#}");
        assert!(!on_time("is_locked", ms(0), || lock.is_locked()).unwrap());
    }

    /// Demoted with its data, and promoted back before the lease ends: nothing is lost.
    pub fn a_hold_outlives_a_short_demotion<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let ear = Ear::default();
        let client = brisk(&server.url()).lease(ms(4800)).observer(ear.clone()).connect().unwrap();
        let (held, unlucky) = (client.lock_with_kind("held", kind), client.lock_with_kind("unlucky", kind));
        let (guard, second) = (held.lock().unwrap(), unlucky.lock().unwrap());
        ear.wait_for_renewals(1);
        // Of a primary that is not there, so that it keeps its data.
        ask::<()>(&server, &["REPLICAOF", "127.0.0.1", &nobodys_port().to_string()]);
        error_of(on_time("unlock", COMMAND, || second.unlock()), ErrorKind::Unavailable, "unlucky");
        thread::sleep(ms(900));
        ask::<()>(&server, &["REPLICAOF", "NO", "ONE"]);
        ear.wait_for_renewals(2);
        wait_until(SURELY, "the release", || ask::<u64>(&server, &["EXISTS", &key("unlucky")]) == 0);
        assert!(!guard.is_lost());
        guard.unlock().unwrap();
        assert!(ear.losses().is_empty());
        drop((held, unlucky));
        nothing_stays(&server, &[&client]);
    }

    pub fn a_server_that_loads_its_data_is_waited_for<K: Subject>(kind: K) {
        // An event loop's turn for every 2 MB, which are 26 keys, and five milliseconds' work for each key. A
        // disk that is busy may take longer than that.
        let server = RedisServer::builder().arg("rdbcompression", "no").start().unwrap();
        let ear = Ear::default();
        let client = brisk(&server.url())
            .lease(ms(15_000))
            .renew_every(ms(2000))
            .observer(ear.clone())
            .connect()
            .unwrap();
        let (held, unlucky, free) = (
            client.lock_with_kind("held", kind),
            client.lock_with_kind("unlucky", kind),
            client.lock_with_kind("free", kind),
        );
        let (guard, second) = (held.lock().unwrap(), unlucky.lock().unwrap());
        free.lock().unwrap().unlock().unwrap();
        ask::<()>(&server, &["DEBUG", "POPULATE", "400", "key", "80000"]);
        configure(&server, "key-load-delay", "5000");
        thread::scope(|scope| {
            let mut loader = server.connection().unwrap();
            loader.set_read_timeout(Some(SURELY)).unwrap();
            scope.spawn(move || on::<()>(&mut loader, &["DEBUG", "RELOAD"]));
            let is_loading = || ask::<String>(&server, &["INFO", "persistence"]).contains("loading:1");
            wait_until(SURELY, "the server loads", is_loading);
            let error = on_time("try_lock", ms(0), || free.try_lock()).map(drop);
            let error = error_of(error, ErrorKind::Unavailable, "free");
            assert!(format!("{error:#}").to_lowercase().contains("loading"), "{error:#}");
            let timed = on_time("try_lock_for", ms(300), || free.try_lock_for(ms(300)));
            error_of(timed, ErrorKind::Unavailable, "free");
            error_of(on_time("unlock", COMMAND, || second.unlock()), ErrorKind::Unavailable, "unlucky");
            assert!(is_loading(), "it was loaded too soon");
            free.lock().unwrap().unlock().unwrap();
            assert!(!is_loading());
        });
        ear.wait_for_renewals(1);
        wait_until(SURELY, "the release", || ask::<u64>(&server, &["EXISTS", &key("unlucky")]) == 0);
        guard.unlock().unwrap();
        assert!(ear.losses().is_empty());
        drop((held, unlucky, free));
        let spared: Vec<String> = (0..400).map(|n| format!("key:{n}")).collect();
        nothing_stays_but(&spared.iter().map(String::as_str).collect::<Vec<_>>(), &server, &[&client]);
    }

    // ---- full ------------------------------------------------------------------------------

    pub fn a_full_server_refuses_newcomers<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = brisk(&server.url()).unreachable_timeout(ms(300)).connect().unwrap();
        let lock = client.lock_with_kind("full", kind);
        lock.lock().unwrap().unlock().unwrap();
        configure(&server, "maxmemory", "1");
        for outcome in [
            on_time("try_lock", ms(0), || lock.try_lock().map(drop)),
            on_time("try_lock_for", ms(300), || lock.try_lock_for(ms(300)).map(drop)),
            on_time("lock", ms(300), || lock.lock().map(drop)),
        ] {
            let error = error_of(outcome, ErrorKind::Unavailable, "full");
            assert!(format!("{error:#}").contains("OOM"), "{error:#}");
        }
        assert!(!lock.is_locked().unwrap());
        configure(&server, "maxmemory", "0");
        lock.lock().unwrap().unlock().unwrap();
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// Who was there before is let go, kept, and let in.
    pub fn a_full_server_still_renews_releases_and_hands_over<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let ear = Ear::default();
        let mine = brisk(&server.url()).lease(ms(1500)).observer(ear.clone()).connect().unwrap();
        let yours = brisk(&server.url()).waiter_timeout(ms(1800)).connect().unwrap();
        let (held, alone) = (mine.lock_with_kind("handed-over", kind), mine.lock_with_kind("alone", kind));
        let wanted = yours.lock_with_kind("handed-over", kind);
        let (guard, lonely) = (held.lock().unwrap(), alone.lock().unwrap());
        let token = guard.token();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                let guard = wanted.lock().unwrap();
                let token = guard.token();
                // A full server takes this too.
                guard.unlock().unwrap();
                token
            });
            wait_for_queue(&server, "handed-over");
            configure(&server, "maxmemory", "1");
            // More than a window and more than a lease: beats and renewals are what it lives by.
            let full = Instant::now();
            ear.wait_for_renewals(4);
            wait_until(SURELY, "the time of a window", || full.elapsed() > ms(2000));
            assert!(!waiting.is_finished());
            assert!(is_queued(&server, "handed-over"), "the place was lost");
            let released = Instant::now();
            guard.unlock().unwrap();
            assert!(waiting.join().unwrap() > token);
            eprintln!("handed over after {:?}", released.elapsed());
        });
        lonely.renew_for(ms(5000)).unwrap();
        lonely.unlock().unwrap();
        assert!(ear.losses().is_empty());
        configure(&server, "maxmemory", "0");
        drop((held, alone, wanted));
        nothing_stays(&server, &[&mine, &yours]);
    }

    // ---- busy, forgetful -------------------------------------------------------------------

    pub fn a_server_busy_with_a_script_is_waited_for<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        configure(&server, "lua-time-limit", "20");
        let ear = Ear::default();
        let client = brisk(&server.url()).lease(ms(6000)).observer(ear.clone()).connect().unwrap();
        let (held, unlucky, free) = (
            client.lock_with_kind("held", kind),
            client.lock_with_kind("unlucky", kind),
            client.lock_with_kind("free", kind),
        );
        let (guard, second) = (held.lock().unwrap(), unlucky.lock().unwrap());
        let mut killer = server.connection().unwrap();
        thread::scope(|scope| {
            let mut busy = server.connection().unwrap();
            scope.spawn(move || {
                let endless = redis::cmd("EVAL").arg("while true do end").arg(0).query::<()>(&mut busy);
                endless.unwrap_err();
            });
            wait_until(SURELY, "the server is busy", || {
                redis::cmd("PING").query::<String>(&mut killer).is_err()
            });
            let error = on_time("try_lock", COMMAND, || free.try_lock()).map(drop);
            let error = error_of(error, ErrorKind::Unavailable, "free");
            assert!(format!("{error:#}").contains("BUSY"), "{error:#}");
            let timed = on_time("try_lock_for", ms(300), || free.try_lock_for(ms(300)));
            error_of(timed, ErrorKind::Unavailable, "free");
            error_of(on_time("unlock", COMMAND, || second.unlock()), ErrorKind::Unavailable, "unlucky");
            let waiting = scope.spawn(|| free.lock().unwrap().unlock());
            wait_until(SURELY, "a waiting thread", || free.local_queue_length() == 1);
            thread::sleep(ms(300));
            assert!(!waiting.is_finished());
            on::<()>(&mut killer, &["SCRIPT", "KILL"]);
            waiting.join().unwrap().unwrap();
        });
        ear.wait_for_renewals(1);
        wait_until(SURELY, "the release", || ask::<u64>(&server, &["EXISTS", &key("unlucky")]) == 0);
        guard.unlock().unwrap();
        assert!(ear.losses().is_empty());
        drop((held, unlucky, free));
        nothing_stays(&server, &[&client]);
    }

    pub fn scripts_that_the_server_forgot_are_sent_again<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let ear = Ear::default();
        let (mine, yours) = (
            brisk(&server.url()).lease(ms(900)).observer(ear.clone()).connect().unwrap(),
            connect(&server.url()),
        );
        let (lock, other) = (mine.lock_with_kind("flushed", kind), yours.lock_with_kind("flushed", kind));
        let flush = || ask::<()>(&server, &["SCRIPT", "FLUSH"]);
        let guard = lock.lock().unwrap();
        ear.wait_for_renewals(1);
        for _ in 0..3 {
            flush();
            ear.wait_for_renewals(1);
        }
        flush();
        assert!(other.try_lock().unwrap().is_none());
        flush();
        assert!(other.is_locked().unwrap());
        flush();
        guard.renew_for(ms(900)).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| other.lock().unwrap().unlock());
            wait_for_queue(&server, "flushed");
            flush();
            // Through a beat of the waiter.
            thread::sleep(ms(400));
            flush();
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
        flush();
        let taken = lock.lock().unwrap();
        flush();
        assert!(other.force_unlock().unwrap().was_held());
        error_of(taken.unlock(), ErrorKind::LeaseLost, "flushed");
        flush();
        let last = lock.lock().unwrap();
        flush();
        mine.close().unwrap();
        error_of(last.unlock(), ErrorKind::Closed, "flushed");
        assert!(!other.is_locked().unwrap());
        // Who has learned it first: the listener from the message, or the unlock from Redis.
        assert!(
            matches!(ear.losses()[..], [LossReason::Forced | LossReason::Revoked, LossReason::Closed]),
            "{:?}",
            ear.losses()
        );
        drop((lock, other));
        nothing_stays(&server, &[&mine, &yours]);
    }

    // ---- rights ----------------------------------------------------------------------------

    /// A server with a user whose rights can be taken away without ours, and the user's URL.
    fn with_user() -> (RedisServer, String) {
        let server = RedisServer::start().unwrap();
        ask::<()>(&server, &["ACL", "SETUSER", "locks", "on", ">pw", "~*", "&*", "+@all"]);
        let url = format!("redis://locks:pw@127.0.0.1:{}/", server.port());
        (server, url)
    }

    pub fn rights_that_are_taken_away_are_told_and_missed_no_longer_than_that<K: Subject>(kind: K) {
        let (server, url) = with_user();
        let ear = Ear::default();
        let client = brisk(&url).lease(ms(3000)).observer(ear.clone()).connect().unwrap();
        let (held, lock) = (client.lock_with_kind("held", kind), client.lock_with_kind("rights", kind));
        let rights = |rights: &[&str]| {
            ask::<()>(&server, &[&["ACL", "SETUSER", "locks"], rights].concat());
        };
        let no_commands: [&str; 2] = ["-evalsha", "-eval"];
        for (taken, given) in [
            (&no_commands[..], &["+evalsha", "+eval"][..]),
            (&["resetkeys"], &["~*"]),
            (&["-set", "-hset"], &["+@all"]),
        ] {
            let guard = held.lock().unwrap();
            rights(taken);
            for outcome in [
                on_time("try_lock", ms(0), || lock.try_lock().map(drop)),
                on_time("try_lock_for", ms(300), || lock.try_lock_for(ms(300)).map(drop)),
                on_time("lock", ms(300), || lock.lock().map(drop)),
            ] {
                let error = error_of(outcome, ErrorKind::Unavailable, "rights");
                // A command inside a script has a text of its own.
                let told = format!("{error:#}");
                let names = ["NoPerm", "NOPERM", "can't run this command", "ACL failure in script"];
                assert!(names.iter().any(|name| told.contains(name)), "{taken:?}: {error}");
            }
            // What a script ran before it was refused something stays.
            match taken[0] {
                "-set" => guard.unlock().unwrap(),
                _ => {
                    error_of(on_time("unlock", COMMAND, || guard.unlock()), ErrorKind::Unavailable, "held");
                }
            }
            rights(given);
            another_gets_in(&server, kind, "held", SURELY);
            lock.lock().unwrap().unlock().unwrap();
        }
        assert!(ear.losses().is_empty());
        drop((held, lock));
        nothing_stays(&server, &[&client]);
    }

    pub fn without_the_right_to_publish_waiters_get_in_by_their_timer<K: Subject>(kind: K) {
        let (server, url) = with_user();
        let (mine, yours) = (connect(&url), connect(&url));
        let (held, wanted) = (mine.lock_with_kind("mute", kind), yours.lock_with_kind("mute", kind));
        for right in ["-publish", "resetchannels"] {
            let guard = held.lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| wanted.lock().unwrap().unlock());
                wait_for_queue(&server, "mute");
                ask::<()>(&server, &["ACL", "SETUSER", "locks", right]);
                guard.unlock().unwrap();
                // A beat, and whatever the machine takes.
                on_time("the waiter", ms(1500), || waiting.join().unwrap().unwrap());
            });
            ask::<()>(&server, &["ACL", "SETUSER", "locks", "+publish", "&*"]);
        }
        drop((held, wanted));
        nothing_stays(&server, &[&mine, &yours]);
    }

    pub fn without_the_right_to_subscribe_waiting_is_refused_at_once<K: Subject>(kind: K) {
        let (server, url) = with_user();
        ask::<()>(&server, &["ACL", "SETUSER", "locks", "resetchannels"]);
        let (mine, yours) = (connect(&server.url()), connect(&url));
        let (held, wanted) = (mine.lock_with_kind("deaf", kind), yours.lock_with_kind("deaf", kind));
        let guard = held.lock().unwrap();
        let started = Instant::now();
        for outcome in [
            on_time("lock", ms(300), || wanted.lock().map(drop)),
            on_time("try_lock_for", ms(300), || wanted.try_lock_for(SURELY).map(drop)),
        ] {
            let error = error_of(outcome, ErrorKind::Unavailable, "deaf");
            assert!(error.to_string().contains("subscribe"), "{error}");
        }
        eprintln!("refused after {:?}", started.elapsed());
        // Who does not wait needs no channel.
        assert!(wanted.try_lock().unwrap().is_none());
        guard.unlock().unwrap();
        wanted.lock().unwrap().unlock().unwrap();
        ask::<()>(&server, &["ACL", "SETUSER", "locks", "&*"]);
        let guard = held.lock().unwrap();
        thread::scope(|scope| {
            // The listener tries again each second.
            let waiting = scope.spawn(|| {
                eventually(SURELY, || wanted.try_lock_for(SURELY).ok()).expect("released").unlock().unwrap();
            });
            wait_for_queue(&server, "deaf");
            guard.unlock().unwrap();
            waiting.join().unwrap();
        });
        drop((held, wanted));
        nothing_stays(&server, &[&mine, &yours]);
    }

    // ---- no room ---------------------------------------------------------------------------

    pub fn no_client_slots_left_is_unavailable_until_there_are<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let ear = Ear::default();
        let client = brisk(&server.url()).lease(ms(6000)).observer(ear.clone()).connect().unwrap();
        let (held, lock) = (client.lock_with_kind("held", kind), client.lock_with_kind("slots", kind));
        let guard = held.lock().unwrap();
        let mut admin = server.connection().unwrap();
        on::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "1"]);
        for kind in ["normal", "pubsub"] {
            on::<u64>(&mut admin, &["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        }
        says_unavailable(&client, kind, "slots");
        thread::scope(|scope| {
            let waiting = scope.spawn(|| lock.lock().map(drop));
            wait_until(SURELY, "a waiting thread", || lock.local_queue_length() == 1);
            thread::sleep(ms(500));
            on::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "1000"]);
            waiting.join().unwrap().unwrap();
        });
        guard.unlock().unwrap();
        assert!(ear.losses().is_empty());
        drop((held, lock));
        nothing_stays(&server, &[&client]);
    }

    /// The listener cannot connect for lack of a slot: that passes, so who waits goes on waiting.
    pub fn a_waiter_bears_that_its_listener_finds_no_slot<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let (mine, yours) = (connect(&server.url()), connect(&server.url()));
        let (held, wanted) = (mine.lock_with_kind("no-ear", kind), yours.lock_with_kind("no-ear", kind));
        let guard = held.lock().unwrap();
        // Now the pool has a connection, and only the listener's is missing.
        assert!(wanted.try_lock().unwrap().is_none());
        let mut admin = server.connection().unwrap();
        on::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "1"]);
        let timed = on_time("try_lock_for", ms(700), || wanted.try_lock_for(ms(700)).map(|it| it.is_some()));
        if let Err(error) = &timed {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| wanted.lock().map(drop));
            wait_until(SURELY, "a waiting thread", || wanted.local_queue_length() == 1);
            thread::sleep(ms(300));
            on::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "1000"]);
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert!(!timed.unwrap_or(false));
        drop((held, wanted));
        nothing_stays(&server, &[&mine, &yours]);
    }

    // ---- keys taken away -------------------------------------------------------------------

    /// What somebody does to the key under a holder, and what then is there.
    fn tamperings(name: &str) -> Vec<(Vec<String>, bool)> {
        let key = key(name);
        let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        vec![
            (words(&["DEL", &key]), false),
            (words(&["SET", &key, "theirs"]), true),
            (
                words(&[
                    "EVAL",
                    "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'theirs')",
                    "1",
                    &key,
                ]),
                true,
            ),
            (
                words(&[
                    "EVAL",
                    "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'kind', 'reentrant lock', 'owner', 'theirs:1', 'number', '1', 'record', '')",
                    "1",
                    &key,
                ]),
                true,
            ),
        ]
    }

    fn tamper(server: &RedisServer, words: &[String]) {
        ask::<redis::Value>(server, &words.iter().map(String::as_str).collect::<Vec<_>>());
    }

    pub fn a_hold_whose_key_is_taken_away_is_lost_by_the_next_renewal<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        for (words, stays) in tamperings("taken") {
            let ear = Ear::default();
            let client = brisk(&server.url()).lease(SHORT_LEASE).observer(ear.clone()).connect().unwrap();
            let lock = client.lock_with_kind("taken", kind);
            let guard = lock.lock().unwrap();
            let lost = guard.lost();
            ear.wait_for_renewals(1);
            tamper(&server, &words);
            let dump = || ask::<Option<Vec<u8>>>(&server, &["DUMP", &key("taken")]);
            let before = dump();
            assert_eq!(before.is_some(), stays);
            on_time("lost()", SHORT_LEASE / 3, || assert!(lost.wait_timeout(SURELY)));
            assert!(guard.is_lost());
            error_of(guard.unlock(), ErrorKind::LeaseLost, "taken");
            wait_until(SURELY, "the loss is told", || !ear.losses().is_empty());
            drop(lock);
            nothing_stays_but(&[&key("taken")], &server, &[&client]);
            assert_eq!(ear.losses(), [LossReason::Revoked], "{words:?}");
            assert_eq!(dump(), before, "{words:?}");
            server.flush_all().unwrap();
        }
    }

    pub fn an_unlock_finds_out_that_the_key_was_taken_away<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        for (words, stays) in tamperings("taken") {
            let ear = Ear::default();
            let client = brisk(&server.url()).observer(ear.clone()).connect().unwrap();
            let lock = client.lock_with_kind("taken", kind);
            let guard = lock.lock().unwrap();
            let lost = guard.lost();
            tamper(&server, &words);
            let dump = || ask::<Option<Vec<u8>>>(&server, &["DUMP", &key("taken")]);
            let before = dump();
            assert_eq!(before.is_some(), stays);
            error_of(guard.unlock(), ErrorKind::LeaseLost, "taken");
            assert_eq!(ear.losses(), [LossReason::Revoked], "{words:?}");
            // Whoever works under it must hear that it was in vain, also if it is told so late.
            assert!(lost.is_cancelled(), "{words:?}: lost() did not fire");
            drop(lock);
            nothing_stays_but(&[&key("taken")], &server, &[&client]);
            assert_eq!(dump(), before, "{words:?}");
            server.flush_all().unwrap();
        }
    }

    /// A guard that is dropped tells the observer what an unlock would have said.
    pub fn a_guard_dropped_after_the_loss_tells_the_observer<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let ear = Ear::default();
        let client = brisk(&server.url()).observer(ear.clone()).connect().unwrap();
        let lock = client.lock_with_kind("dropped", kind);
        let guard = lock.lock().unwrap();
        server.flush_all().unwrap();
        drop(guard);
        let failed = ear.unlock_failed.lock().clone();
        assert_eq!(
            failed.iter().map(redis_concurrent::Error::kind).collect::<Vec<_>>(),
            [ErrorKind::LeaseLost]
        );
        assert_eq!(ear.losses(), [LossReason::Revoked]);
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// All keys are gone, positions too: the waiters come in, and in order of the tokens.
    pub fn waiters_outlive_that_all_keys_are_deleted<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let clients: Vec<Client> = (0..3).map(|_| connect(&server.url())).collect();
        let held = clients[0].lock_with_kind("flushed", kind);
        let guard = held.lock().unwrap();
        let token = guard.token();
        thread::scope(|scope| {
            let waiting: Vec<_> = clients[1..]
                .iter()
                .map(|client| {
                    let lock = client.lock_with_kind("flushed", kind);
                    scope.spawn(move || {
                        let guard = lock.lock().unwrap();
                        let token = guard.token();
                        guard.unlock().map(|()| token)
                    })
                })
                .collect();
            let queue = format!("{}:queue", key("flushed"));
            wait_until(SURELY, "two places", || ask::<u64>(&server, &["ZCARD", &queue]) == 2);
            server.flush_all().unwrap();
            for waiter in waiting {
                assert!(waiter.join().unwrap().unwrap() > token);
            }
        });
        error_of(guard.unlock(), ErrorKind::LeaseLost, "flushed");
        drop(held);
        nothing_stays(&server, &clients.iter().collect::<Vec<_>>());
    }
}

both! {
    a_server_that_dies_and_comes_back_is_used_again;
    a_hold_outlives_a_restart_that_keeps_the_data;
    a_hold_that_a_restart_forgot_is_lost;
    an_unlock_that_a_stopped_server_leaves_open_is_done_when_it_goes_on;
    a_waiter_behind_an_unanswered_request_says_unavailable_too;
    a_hold_that_a_stopped_server_lets_lapse_is_lost_while_it_is_silent;
    waiters_bear_a_server_that_stops_and_goes_on;
    a_pause_shorter_than_the_lease_costs_only_time;
    a_pause_longer_than_the_lease_costs_the_hold_and_nothing_more;
    a_new_password_keeps_us_out_until_it_is_ours_again;
    a_replica_refuses_and_serves_again_once_promoted;
    a_hold_outlives_a_short_demotion;
    a_server_that_loads_its_data_is_waited_for;
    a_full_server_refuses_newcomers;
    a_full_server_still_renews_releases_and_hands_over;
    a_server_busy_with_a_script_is_waited_for;
    scripts_that_the_server_forgot_are_sent_again;
    rights_that_are_taken_away_are_told_and_missed_no_longer_than_that;
    without_the_right_to_publish_waiters_get_in_by_their_timer;
    without_the_right_to_subscribe_waiting_is_refused_at_once;
    no_client_slots_left_is_unavailable_until_there_are;
    a_waiter_bears_that_its_listener_finds_no_slot;
    a_hold_whose_key_is_taken_away_is_lost_by_the_next_renewal;
    an_unlock_finds_out_that_the_key_was_taken_away;
    a_guard_dropped_after_the_loss_tells_the_observer;
    waiters_outlive_that_all_keys_are_deleted;
}

#[test]
fn a_server_that_is_not_there_is_told_on_connecting() {
    let url = format!("redis://127.0.0.1:{}/", nobodys_port());
    let error = on_time("connect", ms(0), || brisk(&url).connect()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // There, and silent.
    let server = RedisServer::start().unwrap();
    server.stop().unwrap();
    let error = on_time("connect", COMMAND * 2, || brisk(&server.url()).connect()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[test]
fn a_wrong_password_is_told_on_connecting_and_not_repeated() {
    let server = RedisServer::builder().password("right").start().unwrap();
    let port = server.port();
    for (login, told) in
        [(":wr0ng-secret@", "WRONGPASS"), ("", "NOAUTH"), ("nobody:wr0ng-secret@", "WRONGPASS")]
    {
        let url = format!("redis://{login}127.0.0.1:{port}/");
        let error = on_time("connect", ms(0), || brisk(&url).connect()).map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = format!("{error} {error:?}");
        assert!(text.contains(told) || text.to_lowercase().contains("authentication"), "{text}");
        assert!(!text.contains("wr0ng-secret"), "{text}");
    }
    connect(&server.url()).simple_lock("right").lock().unwrap().unlock().unwrap();
}

/// One thread renews for all clients of a process: one server's silence must not cost the hold
/// on another server, whatever its lease.
#[test]
fn a_silent_server_costs_no_hold_on_another_one() {
    let (silent, lively) = (RedisServer::start().unwrap(), RedisServer::start().unwrap());
    let patient = brisk(&silent.url())
        .lease(Duration::from_secs(30))
        .renew_every(ms(100))
        .waiter_timeout(Duration::from_secs(4))
        .command_timeout(Duration::from_secs(4))
        .connect()
        .unwrap();
    let ear = Ear::default();
    // Longer than a loaded machine stands still, and shorter than one request to the silent server may take.
    let hasty = brisk(&lively.url()).lease(ms(3000)).observer(ear.clone()).connect().unwrap();
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

/// Whoever has killed all connections, the holder among them, has not taken its lock.
#[test]
fn killed_connections_are_replaced_without_a_word() {
    let server = RedisServer::start().unwrap();
    let ear = Ear::default();
    let client = brisk(&server.url()).lease(ms(900)).observer(ear.clone()).connect().unwrap();
    let lock = client.reentrant_lock("killed");
    let guard = lock.lock().unwrap();
    ear.wait_for_renewals(1);
    server.kill_clients(ClientKind::Normal).unwrap();
    server.kill_clients(ClientKind::PubSub).unwrap();
    ear.wait_for_renewals(2);
    server.kill_clients(ClientKind::Normal).unwrap();
    guard.unlock().unwrap();
    assert!(ear.losses().is_empty());
    drop(lock);
    nothing_stays(&server, &[&client]);
}
