//! While all connections are in use, the requests of the threads that wait for one go together, and each thread has its
//! own reply.

use std::thread;
use std::time::Instant;

use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::*;

use crate::support::*;

const THREADS: usize = 8;
const ROUNDS: u64 = 10;

/// A server, a proxy in front of it, and a client of one connection.
fn scene() -> (RedisServer, Proxy, Client) {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = builder(&proxy.url()).max_connections(1).connect().unwrap();
    (server, proxy, client)
}

/// Each thread asks for a lock of its own, again and again. Another client holds those of every second thread: a reply
/// that another thread was to have would be seen. `between` is done by the first thread after each round.
fn all_ask(server: &RedisServer, client: &Client, between: impl Fn(u64) + Sync) {
    let name = |n: usize| format!("its-own-{n}");
    let rival = connect(server);
    let locks: Vec<_> = (0..THREADS).step_by(2).map(|n| rival.reentrant_lock(&name(n))).collect();
    let held: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    thread::scope(|scope| {
        for n in 0..THREADS {
            let (lock, between) = (client.reentrant_lock(&name(n)), &between);
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let taken = lock.try_lock().unwrap();
                    assert_eq!(taken.is_some(), n % 2 == 1, "the reply is its own");
                    taken.map_or(Ok(()), |guard| guard.unlock()).unwrap();
                    if n == 0 {
                        between(round);
                    }
                }
            });
        }
    });
    held.into_iter().for_each(|guard| guard.unlock().unwrap());
}

#[test]
fn one_connection_serves_many() {
    let (server, proxy, client) = scene();
    // Redis knows the scripts.
    client.reentrant_lock("another").lock().unwrap().unlock().unwrap();
    // So slow that all have asked before the first has its reply.
    proxy.delay(ms(5));
    let (chunks, requests) = (proxy.request_count(), client.request_count());
    all_ask(&server, &client, |_| ());
    let (chunks, requests) = (proxy.request_count() - chunks, client.request_count() - requests);
    assert_eq!(requests * 2, 3 * THREADS as u64 * ROUNDS, "nothing is asked twice");
    assert!(chunks * 2 < requests, "{requests} requests in {chunks} writes");
    nothing_left(&server);
}

#[test]
fn what_a_lost_connection_takes_along_is_asked_again() {
    let (server, proxy, client) = scene();
    proxy.delay(ms(2));
    proxy.only_matching(b"EVALSHA");
    let connections = proxy.connections();
    // Once, as nothing is asked more than twice.
    all_ask(&server, &client, |round| {
        if round == 2 {
            proxy.swallow_next_reply_and_reset();
        }
    });
    assert!(proxy.connections() > connections, "one was lost");
    nothing_left(&server);
}

#[test]
fn a_script_that_redis_forgot_is_sent_in_full_by_each() {
    let (server, proxy, client) = scene();
    proxy.delay(ms(2));
    all_ask(&server, &client, |_| {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.connection().unwrap()).unwrap();
    });
    nothing_left(&server);
}

#[test]
fn a_follower_that_gives_up_waits_no_longer_than_it_said() {
    let (server, proxy, client) = scene();
    let lock = |name: &str| client.reentrant_lock(name);
    let hasty = |name: &str| {
        let (lock, began) = (lock(name), Instant::now());
        let outcome = lock.try_lock_for(ms(300)).map(|guard| guard.is_some());
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
        outcome
    };
    lock("first").is_locked().unwrap();
    proxy.only_matching(b"EVALSHA");
    proxy.hold_requests(true);
    thread::scope(|scope| {
        // It has the connection; the second waits for that, and the others for the second.
        let first = scope.spawn(|| lock("first").try_lock_for(LONG).map(drop));
        wait_until(LONG, "it is sent", || proxy.held() == 1);
        let second = scope.spawn(|| lock("second").try_lock_for(LONG).map(drop));
        let third = scope.spawn(|| hasty("third"));
        let error = third.join().unwrap().unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, "third"), "{error}");
        // Whoever comes later goes in one write with the second, and is answered no earlier.
        let fourth = scope.spawn(|| lock("fourth").try_lock_for(LONG).map(drop));
        proxy.hold_requests(false);
        for waits in [first, second, fourth] {
            waits.join().unwrap().unwrap();
        }
    });
    nothing_left(&server);
}
