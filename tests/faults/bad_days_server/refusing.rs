//! The server refuses: another password, a replica, data that is still being loaded.

use std::thread;

use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::both::both;
use crate::server_days::*;
use crate::support::NOBODYS_PORT;

mod bodies {
    use super::*;

    /// It is permanent as far as the client knows, so waiters get the error at once, too. Holds are not given up.
    pub fn a_new_password_keeps_us_out_until_it_is_ours_again<K: Subject>(kind: K) {
        let server = RedisServer::builder().password("first").start().unwrap();
        let client = connected(|| lively(&server.url()).lease(ms(20_000)));
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
        let client = connected(|| unhurried(&server.url()).lease(ms(6000)));
        let lock = client.lock_with_kind("replica", kind);
        lock.lock().unwrap().unlock().unwrap();
        ask::<()>(&server, &["REPLICAOF", "127.0.0.1", &primary.port().to_string()]);
        wait_until(SURELY, "the link to the primary", || {
            ask::<String>(&server, &["INFO", "replication"]).contains("master_link_status:up")
        });
        says_writes_fail(&client, kind, "replica", "readonly");
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
    pub fn says_writes_fail<K: Subject>(client: &Client, kind: K, name: &str, why: &str) {
        let lock = client.lock_with_kind(name, kind);
        refused_for(&[why], name, || on_time("try_lock", ms(0), || lock.try_lock().map(drop)));
        let timed = || on_time("try_lock_for", ms(300), || lock.try_lock_for(ms(300)).map(drop));
        refused_for(&[why], name, timed);
        assert!(!on_time("is_locked", ms(0), || lock.is_locked()).unwrap());
    }

    /// Demoted with its data, and promoted back before the lease ends: nothing is lost.
    pub fn a_hold_outlives_a_short_demotion<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let counters = Counters::default();
        let often =
            || lively(&server.url()).lease(ms(60_000)).renew_every(ms(500)).observer(counters.clone());
        let client = connected(often);
        let primary = NOBODYS_PORT.to_string();
        let (held, unlucky) = (client.lock_with_kind("held", kind), client.lock_with_kind("unlucky", kind));
        let (guard, second) = (held.lock().unwrap(), unlucky.lock().unwrap());
        counters.wait_for_renewals(1);
        // Of a primary that is not there, so that it keeps its data.
        ask::<()>(&server, &["REPLICAOF", "127.0.0.1", &primary]);
        error_of(on_time("unlock", COMMAND, || second.unlock()), ErrorKind::Unavailable, "unlucky");
        thread::sleep(ms(900));
        ask::<()>(&server, &["REPLICAOF", "NO", "ONE"]);
        counters.wait_for_renewals(2);
        wait_until(SURELY, "the release", || ask::<u64>(&server, &["EXISTS", &key("unlucky")]) == 0);
        assert!(!guard.is_lost());
        guard.unlock().unwrap();
        assert!(counters.losses().is_empty());
        drop((held, unlucky));
        nothing_stays(&server, &[&client]);
    }

    pub fn a_server_that_loads_its_data_is_waited_for<K: Subject>(kind: K) {
        // An event loop's turn for every 2 MB, which are 26 keys, and 15 milliseconds' work for each key, until
        // all has been seen. A disk that is busy may take longer than that.
        let server = RedisServer::builder().arg("rdbcompression", "no").start().unwrap();
        let counters = Counters::default();
        let client = connected(|| {
            lively(&server.url()).lease(ms(60_000)).renew_every(ms(2000)).observer(counters.clone())
        });
        let asks = connected(|| unhurried(&server.url()));
        let (held, unlucky, free) = (
            client.lock_with_kind("held", kind),
            client.lock_with_kind("unlucky", kind),
            asks.lock_with_kind("free", kind),
        );
        let (guard, second) = (held.lock().unwrap(), unlucky.lock().unwrap());
        free.lock().unwrap().unlock().unwrap();
        ask::<()>(&server, &["DEBUG", "POPULATE", "400", "key", "80000"]);
        configure(&server, "key-load-delay", "15000");
        thread::scope(|scope| {
            let mut loader = server.connection().unwrap();
            loader.set_read_timeout(Some(SURELY)).unwrap();
            scope.spawn(move || on::<()>(&mut loader, &["DEBUG", "RELOAD"]));
            let is_loading = || ask::<String>(&server, &["INFO", "persistence"]).contains("loading:1");
            wait_until(SURELY, "the server loads", is_loading);
            let tried = on_time("try_lock", ms(0), || free.try_lock().map(drop));
            let error = error_of(tried, ErrorKind::Unavailable, "free");
            assert!(format!("{error:#}").to_lowercase().contains("loading"), "{error:#}");
            let timed = on_time("try_lock_for", ms(300), || free.try_lock_for(ms(300)));
            error_of(timed, ErrorKind::Unavailable, "free");
            error_of(on_time("unlock", COMMAND, || second.unlock()), ErrorKind::Unavailable, "unlucky");
            assert!(is_loading(), "it was loaded too soon");
            configure(&server, "key-load-delay", "0");
            free.lock().unwrap().unlock().unwrap();
            assert!(!is_loading());
        });
        counters.wait_for_renewals(1);
        wait_until(SURELY, "the release", || ask::<u64>(&server, &["EXISTS", &key("unlucky")]) == 0);
        guard.unlock().unwrap();
        assert!(counters.losses().is_empty());
        drop((held, unlucky, free));
        let spared: Vec<String> = (0..400).map(|n| format!("key:{n}")).collect();
        let spared: Vec<_> = spared.iter().map(String::as_str).collect();
        nothing_stays_but(&spared, &server, &[&client, &asks]);
    }
}

both! {
    a_new_password_keeps_us_out_until_it_is_ours_again;
    a_replica_refuses_and_serves_again_once_promoted;
    a_hold_outlives_a_short_demotion;
    a_server_that_loads_its_data_is_waited_for;
}

#[test]
fn a_wrong_password_is_told_on_connecting_and_not_repeated() {
    let server = RedisServer::builder().password("right").start().unwrap();
    let port = server.port();
    for (login, why) in
        [(":wr0ng-secret@", "WRONGPASS"), ("", "NOAUTH"), ("nobody:wr0ng-secret@", "WRONGPASS")]
    {
        let url = format!("redis://{login}127.0.0.1:{port}/");
        let error = on_time("connect", ms(0), || unhurried(&url).connect()).map(drop).unwrap_err();
        assert!(error.is_unavailable() && !error.is_retryable(), "{error:?}");
        let later = Client::builder().url(&url).command_timeout(SURELY).connect_later().unwrap();
        let later = later.simple_lock("right").try_lock().map(drop).unwrap_err();
        assert!(later.is_unavailable() && !later.is_retryable(), "{later:?}");
        let text = format!("{error} {error:?}");
        assert!(text.contains(why) || text.to_lowercase().contains("authentication"), "{text}");
        assert!(!text.contains("wr0ng-secret"), "{text}");
    }
    connect(&server.url()).simple_lock("right").lock().unwrap().unlock().unwrap();
}
