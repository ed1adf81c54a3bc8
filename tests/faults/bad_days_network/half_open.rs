//! One end of a connection does not know that it is gone.

use std::sync::atomic::Ordering::SeqCst;
use std::thread;

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::{Proxy, wait_until};

use super::behind_proxy;
use crate::both::both;
use crate::server_days::*;
use crate::support::NOBODYS_PORT;

mod bodies {
    use super::*;

    pub fn a_half_open_connection_is_noticed_and_replaced<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = connected(|| brisk(&proxy.url()).lease(ms(60_000)));
        let (lock, other) = (client.lock_with_kind("half-open", kind), client.lock_with_kind("other", kind));
        let guard = lock.lock().unwrap();
        proxy.black_hole(true);
        // Twice: a thread that stands still for all of its time asks nothing.
        for _ in 0..2 {
            let timed = on_time("try_lock_for", ms(300), || other.try_lock_for(ms(300)).map(drop));
            error_of(timed, ErrorKind::Unavailable, "other");
        }
        // The connection was given up, and there is no other: Redis is sure not to have run the release.
        error_of(on_time("unlock", COMMAND, || guard.unlock()), ErrorKind::Unavailable, "half-open");
        error_of(on_time("try_lock", COMMAND, || other.try_lock()), ErrorKind::Unavailable, "other");
        error_of(on_time("is_locked", COMMAND, || other.is_locked()), ErrorKind::Unavailable, "other");
        proxy.heal().unwrap();
        // The renewal thread has gone on: not the lease of a minute sets it free.
        another_gets_in(&server, kind, "half-open", SURELY);
        gives_back(on_time("lock", ms(1000), || other.lock()).unwrap());
        drop((lock, other));
        nothing_stays(&server, &[&client]);
    }

    pub fn a_waiter_with_a_half_open_listener_gets_in_by_its_timer<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let hole = Proxy::start(server.port()).unwrap();
        let counters = Counters::default();
        let few = || lively(&proxy.url()).lease(ms(30_000)).max_connections(1).observer(counters.clone());
        let client = connected(few);
        let owner = connect(&server.url());
        let (held, awaited) = (owner.lock_with_kind("deaf", kind), client.lock_with_kind("deaf", kind));
        let guard = held.lock().unwrap();
        // The pool has its one connection; what is made from now on goes by the other proxy.
        assert!(awaited.try_lock().unwrap().is_none());
        proxy.set_target(hole.port());
        thread::scope(|scope| {
            let waiting = scope.spawn(|| awaited.lock().unwrap().unlock());
            wait_for_queue(&server, "deaf");
            assert!(hole.connections() > 0, "the listener's");
            hole.black_hole(true);
            guard.unlock().unwrap();
            // A heartbeat, and whatever the machine takes.
            on_time("the waiter", HEARD / 3, || waiting.join().unwrap().unwrap());
        });
        wait_until(SURELY, "the grant is lost", || hole.struck() > 0);
        // Unanswered pings: within two seconds it is replaced.
        hole.heal().unwrap();
        proxy.set_target(server.port());
        wait_until(SURELY, "a new listener", || counters.reconnected.load(SeqCst) > 0 || hole.struck() > 0);
        drop((held, awaited));
        nothing_stays(&server, &[&client, &owner]);
    }

    /// The listener cannot connect, but a caller's own request can: it gets a lock that is free.
    pub fn a_free_lock_is_there_for_a_waiter_without_a_listener<K: Subject>(kind: K) {
        let (server, proxy) = behind_proxy();
        let client = connected(|| lively(&proxy.url()).lease(ms(30_000)).max_connections(1));
        let owner = connect(&server.url());
        let (held, awaited) = (owner.lock_with_kind("no-ear", kind), client.lock_with_kind("no-ear", kind));
        let guard = held.lock().unwrap();
        assert!(awaited.try_lock().unwrap().is_none());
        proxy.set_target(NOBODYS_PORT);
        let timed = on_time("try_lock_for", ms(600), || awaited.try_lock_for(ms(600)).map(|it| it.is_some()));
        match timed {
            Ok(got) => assert!(!got),
            Err(error) => assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}"),
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| {
                on_time("try_lock_for", SURELY, || awaited.try_lock_for(SURELY).map(|it| it.is_some()))
            });
            wait_until(SURELY, "a waiting thread", || awaited.local_queue_length() == 1);
            guard.unlock().unwrap();
            // The lock is free, and the connection that asks for it is fine.
            assert!(waiting.join().unwrap().unwrap(), "the lock is free, and it was not taken");
        });
        drop((held, awaited));
        nothing_stays(&server, &[&client, &owner]);
    }
}

both! {
    a_half_open_connection_is_noticed_and_replaced;
    a_waiter_with_a_half_open_listener_gets_in_by_its_timer;
    a_free_lock_is_there_for_a_waiter_without_a_listener;
}
