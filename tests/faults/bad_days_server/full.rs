//! The server's memory is full.

use std::thread;
use std::time::Instant;

use redis_concurrent::Error;
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::both::both;
use crate::server_days::*;

mod bodies {
    use super::*;

    pub fn a_full_server_refuses_newcomers<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connected(|| unhurried(&server.url()).unreachable_timeout(ms(300)));
        let lock = client.lock_with_kind("full", kind);
        lock.lock().unwrap().unlock().unwrap();
        configure(&server, "maxmemory", "1");
        let calls: [&dyn Fn() -> Result<(), Error>; 3] = [
            &|| on_time("try_lock", ms(0), || lock.try_lock().map(drop)),
            &|| on_time("try_lock_for", ms(300), || lock.try_lock_for(ms(300)).map(drop)),
            &|| on_time("lock", ms(300), || lock.lock().map(drop)),
        ];
        for call in calls {
            refused_for(&["oom"], "full", call);
        }
        assert!(!lock.is_locked().unwrap());
        configure(&server, "maxmemory", "0");
        lock.lock().unwrap().unlock().unwrap();
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// Its holders are renewed and released, and its waiters are admitted.
    pub fn a_full_server_still_renews_releases_and_hands_over<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let counters = Counters::default();
        let mine = connected(|| lively(&server.url()).renew_every(ms(300)).observer(counters.clone()));
        let yours = connect(&server.url());
        let (held, alone) = (mine.lock_with_kind("handed-over", kind), mine.lock_with_kind("alone", kind));
        let awaited = yours.lock_with_kind("handed-over", kind);
        let (guard, lonely) = (held.lock().unwrap(), alone.lock().unwrap());
        let token = guard.token();
        thread::scope(|scope| {
            // A full server takes its unlock, too.
            let waiting = scope.spawn(|| takes_a_turn(&awaited));
            wait_for_queue(&server, "handed-over");
            configure(&server, "maxmemory", "1");
            // More than a waiter timeout: heartbeats and renewals are what it lives by.
            let full = Instant::now();
            counters.wait_for_renewals(4);
            wait_until(SURELY, "the time of a waiter timeout", || full.elapsed() > HEARD);
            assert!(!waiting.is_finished());
            // A waiter that stood still for as long asks again; a full server would refuse it a new position.
            wait_for_queue(&server, "handed-over");
            let released = Instant::now();
            guard.unlock().unwrap();
            assert!(waiting.join().unwrap() > token);
            eprintln!("handed on after {:?}", released.elapsed());
        });
        lonely.renew_for(ms(9000)).unwrap();
        lonely.unlock().unwrap();
        assert!(counters.losses().is_empty());
        configure(&server, "maxmemory", "0");
        drop((held, alone, awaited));
        nothing_stays(&server, &[&mine, &yours]);
    }
}

both! {
    a_full_server_refuses_newcomers;
    a_full_server_still_renews_releases_and_hands_over;
}
