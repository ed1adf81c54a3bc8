//! The server has no connection left, or kills those that it has.

use std::thread;
use std::time::Instant;

use parking_lot::Mutex;
use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::{ClientKind, Proxy, RedisServer, wait_until};

use super::says_unavailable;
use crate::both::both;
use crate::server_days::*;
use crate::support::builder;

mod bodies {
    use super::*;

    pub fn no_client_slots_left_is_unavailable_until_there_are<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let counters = Counters::default();
        let client = connected(|| brisk(&server.url()).lease(ms(20_000)).observer(counters.clone()));
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
        gives_back(guard);
        assert!(counters.losses().is_empty());
        drop((held, lock));
        nothing_stays(&server, &[&client]);
    }

    /// The listener cannot connect for lack of a slot: that passes, so a waiter goes on waiting.
    pub fn a_waiter_bears_that_its_listener_finds_no_slot<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let (mine, yours) = (connect(&server.url()), connect(&server.url()));
        let (held, awaited) = (mine.lock_with_kind("no-ear", kind), yours.lock_with_kind("no-ear", kind));
        let guard = held.lock().unwrap();
        // Now the pool has a connection, and only the listener's is missing.
        assert!(awaited.try_lock().unwrap().is_none());
        let mut admin = server.connection().unwrap();
        on::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "1"]);
        let timed = on_time("try_lock_for", ms(700), || awaited.try_lock_for(ms(700)).map(|it| it.is_some()));
        if let Err(error) = &timed {
            assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        }
        thread::scope(|scope| {
            let waiting = scope.spawn(|| awaited.lock().map(drop));
            wait_until(SURELY, "a waiting thread", || awaited.local_queue_length() == 1);
            thread::sleep(ms(300));
            on::<()>(&mut admin, &["CONFIG", "SET", "maxclients", "1000"]);
            guard.unlock().unwrap();
            waiting.join().unwrap().unwrap();
        });
        assert!(!timed.unwrap_or(false));
        drop((held, awaited));
        nothing_stays(&server, &[&mine, &yours]);
    }
}

/// Each confirms that it listens, and ends: connecting again at once would be a stampede, of its waiters too.
#[test]
fn a_listener_whose_connections_end_at_once_connects_a_few_times_a_second() {
    let server = RedisServer::start().unwrap();
    let (holder, waiter) = (connect(&server.url()), connect(&server.url()));
    let guard = holder.simple_lock("deaf").lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| waiter.simple_lock("deaf").lock().map(drop));
        wait_until(SURELY, "a listener", || {
            server.clients(ClientKind::PubSub).is_ok_and(|it| !it.is_empty())
        });
        let mut admin = server.connection().unwrap();
        let (mut killed, until) = (0, Instant::now() + ms(3_000));
        while Instant::now() < until {
            killed += on::<u64>(&mut admin, &["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
        assert!((3..=30).contains(&killed), "{killed} connections in three seconds");
        guard.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });
}

/// Each leads to the server, and ends with the first renewal that is sent on it.
#[test]
fn a_line_of_renewals_whose_connections_end_at_once_connects_a_few_times_a_second() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = builder(&proxy.url()).lease(ms(12_000)).renew_every(ms(100)).connect().unwrap();
    let guard = client.simple_lock("cut").lock_owned().unwrap();
    proxy.only_matching(b"rc:{cut}");
    (0..10_000).for_each(|_| proxy.reset_before_next_request());
    let before = proxy.connections();
    thread::sleep(ms(3_000));
    let connected = proxy.connections() - before;
    assert!((3..=40).contains(&connected), "{connected} connections in three seconds");
    proxy.heal().unwrap();
    guard.unlock().unwrap();
}

both! {
    no_client_slots_left_is_unavailable_until_there_are;
    a_waiter_bears_that_its_listener_finds_no_slot;
}

/// Killing all connections, the holder's among them, does not take its lock.
#[test]
fn killed_connections_are_replaced_without_a_word() {
    let server = RedisServer::start().unwrap();
    let counters = Counters::default();
    // What was killed is known to be at once: no answer has to be awaited for so long.
    let client = connected(|| unhurried(&server.url()).renew_every(ms(300)).observer(counters.clone()));
    let lock = client.reentrant_lock("killed");
    let guard = lock.lock().unwrap();
    counters.wait_for_renewals(1);
    server.kill_clients(ClientKind::Normal).unwrap();
    server.kill_clients(ClientKind::PubSub).unwrap();
    counters.wait_for_renewals(2);
    server.kill_clients(ClientKind::Normal).unwrap();
    guard.unlock().unwrap();
    assert!(counters.losses().is_empty());
    drop(lock);
    nothing_stays(&server, &[&client]);
}

/// The inboxes of all waiters break, and the lock is released before the first of them is back: none passes one
/// that came before it.
#[test]
fn waiters_whose_inboxes_break_together_get_in_in_the_order_in_which_they_came() {
    let server = RedisServer::start().unwrap();
    let holder = connect(&server.url());
    let holds = holder.reentrant_lock("order");
    let clients: Vec<_> = (0..6).map(|_| connect(&server.url())).collect();
    for round in 0..8 {
        let held = holds.lock().unwrap();
        let came = Mutex::new(Vec::new());
        thread::scope(|scope| {
            for (n, client) in clients.iter().enumerate() {
                let (lock, came) = (client.reentrant_lock("order").fair(), &came);
                scope.spawn(move || {
                    let guard = lock.lock().unwrap();
                    came.lock().push(n);
                    guard.unlock().unwrap();
                });
                wait_until(SURELY, "its position", || {
                    on::<usize>(&mut server.connection().unwrap(), &["ZCARD", "rc:{order}:queue"]) == n + 1
                });
            }
            server.kill_clients(ClientKind::PubSub).unwrap();
            held.unlock().unwrap();
        });
        assert_eq!(came.into_inner(), [0, 1, 2, 3, 4, 5], "round {round}");
    }
}
