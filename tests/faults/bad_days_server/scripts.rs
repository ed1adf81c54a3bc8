//! The server is busy with a script, or forgot ours.

use std::thread;

use redis_concurrent::ErrorKind;
use redis_concurrent::observe::LossReason;
use redis_concurrent_testkit::{RedisServer, closes_in_time, wait_until};

use crate::both::both;
use crate::server_days::*;

mod bodies {
    use super::*;

    pub fn a_server_busy_with_a_script_is_waited_for<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        configure(&server, "lua-time-limit", "20");
        let counters = Counters::default();
        let often =
            || lively(&server.url()).lease(ms(60_000)).renew_every(ms(500)).observer(counters.clone());
        let client = connected(often);
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
            refused_for(&["busy"], "free", || on_time("try_lock", COMMAND, || free.try_lock().map(drop)));
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
        counters.wait_for_renewals(1);
        wait_until(SURELY, "the release", || ask::<u64>(&server, &["EXISTS", &key("unlucky")]) == 0);
        guard.unlock().unwrap();
        assert!(counters.losses().is_empty());
        drop((held, unlucky, free));
        nothing_stays(&server, &[&client]);
    }

    pub fn scripts_that_the_server_forgot_are_sent_again<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let counters = Counters::default();
        let (mine, yours) = (
            connected(|| {
                lively(&server.url()).lease(ms(9000)).renew_every(ms(300)).observer(counters.clone())
            }),
            connect(&server.url()),
        );
        let (lock, other) = (mine.lock_with_kind("flushed", kind), yours.lock_with_kind("flushed", kind));
        let flush = || ask::<()>(&server, &["SCRIPT", "FLUSH"]);
        let guard = lock.lock().unwrap();
        counters.wait_for_renewals(1);
        for _ in 0..3 {
            flush();
            counters.wait_for_renewals(1);
        }
        flush();
        assert!(other.try_lock().unwrap().is_none());
        flush();
        assert!(other.is_locked().unwrap());
        flush();
        guard.renew_for(ms(9000)).unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| other.lock().unwrap().unlock());
            wait_for_queue(&server, "flushed");
            flush();
            // Through a heartbeat of the waiter.
            thread::sleep(HEARD / 3 + ms(100));
            flush();
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
        flush();
        let taken = lock.lock().unwrap();
        flush();
        assert!(other.force_unlock().unwrap().holders > 0);
        error_of(taken.unlock(), ErrorKind::LeaseLost, "flushed");
        closes_in_time(|| {
            let counters = Counters::default();
            let theirs = connected(|| brisk(&server.url()).observer(counters.clone()));
            let lock = theirs.lock_with_kind("flushed", kind);
            flush();
            let last = lock.lock().unwrap();
            flush();
            let closed = theirs.close();
            error_of(last.unlock(), ErrorKind::Closed, "flushed");
            assert_eq!(counters.losses(), [LossReason::Closed]);
            closed?;
            assert!(!other.is_locked().unwrap());
            Ok(())
        });
        // Either the listener learned it first, from the message, or the unlock, from Redis.
        assert!(
            matches!(counters.losses()[..], [LossReason::Forced | LossReason::Revoked]),
            "{:?}",
            counters.losses()
        );
        drop((lock, other));
        nothing_stays(&server, &[&mine, &yours]);
    }
}

both! {
    a_server_busy_with_a_script_is_waited_for;
    scripts_that_the_server_forgot_are_sent_again;
}
