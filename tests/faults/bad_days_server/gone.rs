//! The server is not there, dies, or comes back without its data.

use std::thread;

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::{RedisServer, eventually, wait_until};

use super::says_unavailable;
use crate::both::both;
use crate::server_days::*;
use crate::support::{NOWHERE, in_brief};

mod bodies {
    use super::*;

    pub fn a_server_that_dies_and_comes_back_is_used_again<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connected(|| brisk(&server.url()).unreachable_timeout(ms(600)));
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
        // A caller with a longer timeout gets in when the server is back.
        thread::scope(|scope| {
            let awaited = patient.lock_with_kind("gone", kind);
            let waiting = scope.spawn(move || awaited.lock().unwrap().unlock());
            thread::sleep(ms(300));
            server.restart().unwrap();
            waiting.join().unwrap().unwrap();
        });
        another_gets_in(&server, kind, "gone", SURELY);
        gives_back(eventually(SURELY, || in_brief(lock.lock().map(Some))));
        drop((lock, forever));
        nothing_stays(&server, &[&client, &patient]);
    }

    /// What the append-only file has kept is held on, and an unlock that nobody answered is done.
    pub fn a_hold_outlives_a_restart_that_keeps_the_data<K: Subject>(kind: K) {
        let server = RedisServer::builder().appendonly(true).start().unwrap();
        let counters = Counters::default();
        let often = || brisk(&server.url()).lease(ms(60_000)).renew_every(ms(500)).observer(counters.clone());
        let client = connected(often);
        let (kept, given_back) =
            (client.lock_with_kind("kept", kind), client.lock_with_kind("given-back", kind));
        let (guard, unlucky) = (kept.lock().unwrap(), given_back.lock().unwrap());
        server.kill().unwrap();
        let unlocked = on_time("unlock", COMMAND, || unlucky.unlock());
        error_of(unlocked, ErrorKind::OutcomeUnknown, "given-back");
        server.restart().unwrap();
        counters.wait_for_renewals(1);
        let state = key("given-back");
        wait_until(SURELY, "the release in the background", || ask::<u64>(&server, &["EXISTS", &state]) == 0);
        assert!(!guard.is_lost() && !guard.lost().is_cancelled());
        assert!(connect(&server.url()).lock_with_kind("kept", kind).try_lock().unwrap().is_none());
        gives_back(guard);
        assert!(counters.losses().is_empty());
        drop((kept, given_back));
        nothing_stays(&server, &[&client]);
    }

    pub fn a_hold_that_a_restart_forgot_is_lost<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let counters = Counters::default();
        let client = connected(|| lively(&server.url()).lease(ms(1500)).observer(counters.clone()));
        let lock = client.lock_with_kind("forgotten", kind);
        let guard = lock.lock().unwrap();
        let (token, lost) = (guard.token(), guard.lost());
        server.restart().unwrap();
        assert!(lost.wait_timeout(SURELY));
        assert!(another_gets_in(&server, kind, "forgotten", SURELY) > token);
        error_of(on_time("unlock", ms(0), || guard.unlock()), ErrorKind::LeaseLost, "forgotten");
        assert_eq!(counters.losses().len(), 1);
        drop(lock);
        nothing_stays(&server, &[&client]);
    }
}

both! {
    a_server_that_dies_and_comes_back_is_used_again;
    a_hold_outlives_a_restart_that_keeps_the_data;
    a_hold_that_a_restart_forgot_is_lost;
}

#[test]
fn a_server_that_is_not_there_is_told_on_connecting() {
    let error = on_time("connect", ms(0), || brisk(NOWHERE).connect()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    // There, and silent.
    let server = RedisServer::start().unwrap();
    server.stop().unwrap();
    let error = on_time("connect", COMMAND * 2, || brisk(&server.url()).connect()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}
