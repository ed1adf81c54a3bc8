//! What a lock costs, in counts and ratios that hold on any machine. Times are for the benches.

#[path = "../../benches/contention/bare.rs"]
mod bare;
mod many_holds;
#[path = "../../benches/contention/pair.rs"]
mod pair;
#[path = "../../benches/contention/recorder.rs"]
mod recorder;

use std::thread;
use std::time::Instant;

use redis_concurrent::internals::lock_count;
use redis_concurrent::kinds::{Kind, Permits};
use redis_concurrent::observe::AcquiredVia;
use redis_concurrent::{Client, RedisLock};
use redis_concurrent_testkit::{Barrier, RedisServer};

use crate::support::{Event, LONG, Recorder, builder, connected};
use pair::Pair;

fn start() -> (RedisServer, Client) {
    let server = RedisServer::start().unwrap();
    let client = quiet(&server);
    (server, client)
}

/// A client that asks for nothing by itself, and never twice, when the machine stands still for seconds: that would be
/// counted, too.
fn quiet(server: &RedisServer) -> Client {
    connected(|| builder(&server.url()).waiter_timeout(3 * LONG).command_timeout(LONG))
}

fn pair<K: Kind>(lock: &RedisLock<K>) {
    lock.lock().unwrap().unlock().unwrap();
}

/// What `work` has this client send.
fn requests(client: &Client, work: impl FnOnce()) -> u64 {
    let before = client.request_count();
    work();
    client.request_count() - before
}

// ---- nobody in the way ----

fn a_pair_is_two_requests<K: Kind>(lock: impl Fn(&Client) -> RedisLock<K>) {
    const PAIRS: u64 = 100;
    let (server, client) = start();
    let lock = lock(&client);
    pair(&lock); // makes the connection, and the scripts known
    server.reset_stats().unwrap();
    assert_eq!(requests(&client, || (0..PAIRS).for_each(|_| pair(&lock))), 2 * PAIRS);
    // As the server counts: that many scripts, and around them nothing.
    let calls = server.command_calls().unwrap();
    assert_eq!(calls.get("evalsha"), Some(&(2 * PAIRS)), "{calls:?}");
    for idle in ["ping", "eval", "script|load", "hello", "auth", "select", "subscribe", "publish"] {
        assert_eq!(calls.get(idle), None, "{calls:?}");
    }
}

#[test]
fn an_uncontended_pair_is_two_requests_and_no_ping() {
    a_pair_is_two_requests(|client| client.simple_lock("a"));
    a_pair_is_two_requests(|client| client.reentrant_lock("a"));
    a_pair_is_two_requests(|client| {
        client.semaphore("a").set_permits(1).unwrap();
        client.lock_with_kind("a", Permits::default())
    });
}

#[test]
fn reading_the_token_and_the_time_left_asks_nothing() {
    let (_server, client) = start();
    let lock = client.reentrant_lock("a");
    let guard = lock.lock().unwrap();
    let sent = requests(&client, || {
        assert!(guard.token() > 0);
        assert!(!guard.remaining().is_zero() && !guard.is_lost());
        assert!(lock.is_held_by_current_thread() && lock.hold_count() == 1);
    });
    assert_eq!(sent, 0);
}

#[test]
fn re_entry_asks_nothing() {
    let (server, client) = start();
    let lock = client.reentrant_lock("a");
    let _held = lock.lock().unwrap();
    server.reset_stats().unwrap();
    assert_eq!(requests(&client, || (0..100).for_each(|_| pair(&lock))), 0);
    assert_eq!(server.command_calls().unwrap().get("evalsha"), None);
}

#[test]
fn a_forgotten_script_costs_one_request_more_once() {
    let (server, client) = start();
    let lock = client.reentrant_lock("a");
    pair(&lock);
    let mut outside = server.connection().unwrap();
    let _: () = redis::cmd("SCRIPT").arg("FLUSH").query(&mut outside).unwrap();
    let first = requests(&client, || pair(&lock));
    assert!(first > 2, "the scripts were not forgotten");
    assert!(first <= 4, "{first}");
    assert_eq!(requests(&client, || pair(&lock)), 2);
}

// ---- always contended ----

/// Requests an acquisition, of several clients with several threads each that all want one lock.
fn contended<K: Kind>(clients: usize, threads: usize, lock: impl Fn(&Client) -> RedisLock<K> + Sync) -> f64 {
    const TURNS: usize = 200;
    let server = RedisServer::start().unwrap();
    let clients: Vec<_> = (0..clients).map(|_| quiet(&server)).collect();
    let all = clients.len() * threads;
    let (ready, counted) = (Barrier::new(all + 1), Barrier::new(all + 1));
    let sent = || clients.iter().map(Client::request_count).sum::<u64>();
    let mut before = 0;
    thread::scope(|scope| {
        for client in clients.iter().flat_map(|client| (0..threads).map(move |_| client)) {
            let (lock, ready, counted) = (&lock, &ready, &counted);
            scope.spawn(move || {
                let lock = lock(client);
                // The first turns start the listener and teach the server the scripts.
                (0..10).for_each(|_| pair(&lock));
                ready.wait();
                counted.wait();
                (0..TURNS).for_each(|_| pair(&lock));
            });
        }
        ready.wait();
        before = sent();
        counted.wait();
    });
    (sent() - before) as f64 / (all * TURNS) as f64
}

#[test]
fn two_processes_always_contending_need_two_requests_an_acquisition() {
    // To Redis, two clients are like two processes.
    let each = contended(2, 1, |client| client.reentrant_lock("a").fair());
    assert!(each <= 2.05, "{each}");
    let each = contended(2, 1, |client| client.simple_lock("a").fair());
    assert!(each <= 2.05, "{each}");
}

#[test]
fn more_processes_need_no_more_requests() {
    let each = contended(6, 1, |client| client.reentrant_lock("a").fair());
    assert!(each <= 2.05, "{each}");
}

#[test]
fn waiting_threads_let_a_release_ask_for_the_next_in_the_same_request() {
    let each = contended(2, 8, |client| client.reentrant_lock("a").fair());
    assert!(each <= 1.1, "{each}");
}

#[test]
fn threads_of_one_process_hand_over_without_redis() {
    const THREADS: usize = 8;
    const TURNS: usize = 200;
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&server.url()).observer(recorder.clone()));
    let lock = client.reentrant_lock("a");
    pair(&lock);
    // As many as there is time for in a hand-off period: on a busy machine few.
    let (mut handed_off, mut all) = (0, 0);
    let (began, mut sent) = (Instant::now(), 0);
    while handed_off == 0 && began.elapsed() < LONG {
        sent += requests(&client, || {
            thread::scope(|scope| {
                for _ in 0..THREADS {
                    scope.spawn(|| (0..TURNS).for_each(|_| pair(&lock)));
                }
            });
        });
        all += THREADS * TURNS;
        handed_off = recorder.count(Event::Acquired(AcquiredVia::HandedOff));
    }
    assert!(handed_off > 0, "no thread was handed the lock in {:?}", began.elapsed());
    // Every other hold is asked for and left; and a head says once a second that it is there.
    let (granted, seconds) = (all - handed_off, began.elapsed().as_secs() + 1);
    println!("{all} holds, {handed_off} of them handed off, {sent} requests");
    assert!(sent <= 2 * granted as u64 + 2 * seconds, "{sent} requests for {granted} of {all} holds");
}

// ---- inside Redis ----

/// The server's own time for a pair of ours, over that of the smallest pair: taken in turns, and
/// of each the middle one, as a turn that something else interrupted says nothing.
fn times_the_smallest(server: &RedisServer, ours: &mut Pair, smallest: &mut Pair) -> f64 {
    let mut turns = [Vec::new(), Vec::new()];
    for _ in 0..9 {
        for (turns, pair) in turns.iter_mut().zip([&mut *ours, &mut *smallest]) {
            server.reset_stats().unwrap();
            (0..200).for_each(|_| pair.run().unwrap());
            turns.push(server.usec("evalsha").unwrap());
        }
    }
    let [ours, smallest] = turns.map(|mut turns| {
        turns.sort_unstable();
        turns[turns.len() / 2] as f64
    });
    ours / smallest
}

/// Sends what the library sends from a bare socket: what this process does between two requests
/// makes the server's caches cold, and more so in a build that is not optimized.
fn inside_redis_at_most(limit: f64, simple: bool) {
    let server = RedisServer::start().unwrap();
    let mut ours = Pair::floor(server.port(), simple, "a").unwrap();
    let mut smallest = Pair::smallest(server.port(), "b").unwrap();
    let mut tried = Vec::new();
    let found = (0..5).any(|_| {
        tried.push(times_the_smallest(&server, &mut ours, &mut smallest));
        tried.last().is_some_and(|times| *times <= limit)
    });
    assert!(found, "{tried:?}");
}

#[test]
fn inside_redis_a_simple_pair_takes_at_most_2_8_times_the_smallest() {
    inside_redis_at_most(2.8, true);
}

#[test]
fn inside_redis_a_reentrant_pair_takes_at_most_3_2_times_the_smallest() {
    inside_redis_at_most(3.2, false);
}

// ---- what stays ----

#[test]
fn many_names_leave_nothing_but_fences_that_end() {
    const NAMES: usize = 5_000;
    let (server, client) = start();
    for i in 0..NAMES {
        let name = format!("name {i}");
        if i % 2 == 0 {
            pair(&client.simple_lock(&name));
        } else {
            pair(&client.reentrant_lock(&name));
        }
    }
    assert_eq!(lock_count(&client), 0);
    let keys = server.keys().unwrap();
    assert_eq!(keys.len(), NAMES);
    let mut ends = redis::pipe();
    for key in &keys {
        assert!(key.ends_with(":fence"), "{key}");
        ends.pttl(key);
    }
    let left: Vec<i64> = ends.query(&mut server.connection().unwrap()).unwrap();
    assert!(left.iter().all(|ms| *ms > 0), "a fence without an end");
}
