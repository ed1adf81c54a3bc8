//! While all connections are in use, the requests of the threads that wait for one go together, and each thread has its
//! own reply.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::*;

use crate::support::*;

const THREADS: usize = 8;
const ROUNDS: u64 = 10;

/// A server, a proxy in front of it, and a client of one connection.
fn fixture() -> (RedisServer, Proxy, Client) {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).max_connections(1));
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
    let (server, proxy, client) = fixture();
    // Redis knows the scripts.
    client.reentrant_lock("another").lock().unwrap().unlock().unwrap();
    // So slow that all have asked before the first has its reply, on a busy machine too.
    proxy.delay(ms(20));
    let (chunks, requests) = (proxy.request_count(), client.request_count());
    all_ask(&server, &client, |_| ());
    let (chunks, requests) = (proxy.request_count() - chunks, client.request_count() - requests);
    assert_eq!(requests * 2, 3 * THREADS as u64 * ROUNDS, "nothing is asked twice");
    assert!(chunks * 2 < requests, "{requests} requests in {chunks} writes");
    nothing_left(&server);
}

#[test]
fn what_a_lost_connection_takes_along_is_asked_again() {
    let (server, proxy, client) = fixture();
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
    let (server, proxy, client) = fixture();
    proxy.delay(ms(2));
    all_ask(&server, &client, |_| {
        let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut server.connection().unwrap()).unwrap();
    });
    nothing_left(&server);
}

#[test]
fn a_follower_that_gives_up_waits_no_longer_than_it_said() {
    let (server, proxy, client) = fixture();
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

/// It is no Redis: one cannot be made to send a reply that nobody can read, or one that is late by less than a
/// millisecond. What came behind that is other threads', so that nothing more is asked there, not even by the one whose
/// script was not known.
#[test]
fn nothing_is_sent_behind_a_reply_that_could_not_be_read() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://{}/", listener.local_addr().unwrap());
    let (spoilt, seen) = (AtomicBool::new(false), AtomicBool::new(false));
    let client = builder(&url).max_connections(1).connect_later().unwrap();
    thread::scope(|scope| {
        let (spoilt, seen, listener) = (&spoilt, &seen, &listener);
        scope.spawn(move || {
            // The last one is the test's own, and says nothing.
            while let Ok((connection, _)) = listener.accept()
                && !serve(connection, spoilt, seen)
            {}
        });
        let asks = |n: usize| {
            let limiter = client.rate_limiter(&format!("its-own-{n}"), Rate::fixed_window(1, SOON));
            scope.spawn(move || {
                let began = Instant::now();
                while !spoilt.load(SeqCst) && began.elapsed() < LONG {
                    // What it is told is no answer to that.
                    let _ = limiter.available();
                }
            })
        };
        let asking: Vec<_> = (0..THREADS).map(asks).collect();
        for asks in asking {
            asks.join().unwrap();
        }
        drop(TcpStream::connect(listener.local_addr().unwrap()).unwrap());
        client.close().unwrap();
    });
    assert!(spoilt.load(SeqCst), "three requests went together");
    assert!(!seen.load(SeqCst));
}

/// Answers what comes on this connection, slowly; the first three requests of threads that come together so that the
/// second reply cannot be read, once. Whether nothing came at all.
fn serve(mut connection: TcpStream, spoilt: &AtomicBool, seen: &AtomicBool) -> bool {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    let (mut came, mut here) = (false, false);
    while let Some(first) = command(&mut reader) {
        came = true;
        let mut verbs = vec![first];
        while !reader.buffer().is_empty() {
            verbs.extend(command(&mut reader));
        }
        seen.fetch_or(here, SeqCst);
        thread::sleep(ms(5));
        let scripts = verbs.iter().filter(|verb| *verb == "EVALSHA").count();
        let spoils = scripts == verbs.len() && scripts > 2 && !spoilt.swap(true, SeqCst);
        let replies = if spoils { "-NOSCRIPT\r\n?\r\n".to_owned() } else { "+OK\r\n".repeat(verbs.len()) };
        here |= spoils;
        if connection.write_all(replies.as_bytes()).is_err() {
            break;
        }
    }
    !came
}

/// The first word of the next command.
fn command(reader: &mut impl BufRead) -> Option<String> {
    let number = |reader: &mut dyn BufRead| {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        line.trim_end().get(1..)?.parse::<usize>().ok()
    };
    let mut words = Vec::new();
    for _ in 0..number(reader)? {
        let mut word = vec![0; number(reader)? + 2];
        reader.read_exact(&mut word).ok()?;
        words.push(String::from_utf8_lossy(&word).trim_end().to_owned());
    }
    words.into_iter().next()
}
