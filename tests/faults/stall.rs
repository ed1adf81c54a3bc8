//! A server that stands still for longer than its waiters' timeout: the silence was its own, and
//! nobody loses a queue position by it.

use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent::{Client, ClientBuilder};
use redis_concurrent_testkit::{
    Child, RedisServer, hear_parent, is_role, released_all, tell_parent, wait_until,
};

use crate::support::{LONG, builder, connected, env, ms};

/// Longer than a loaded machine stands still.
const WAITER_TIMEOUT: Duration = ms(3000);
/// The server stands still for longer than queue positions once lived of which nothing was heard.
const STANDS: Duration = ms(10_000);
const URL: &str = "STALL_URL";

/// Its waiters are more patient than the server stands still.
fn settings(url: &str) -> ClientBuilder {
    let settings = builder(url).waiter_timeout(WAITER_TIMEOUT).command_timeout(WAITER_TIMEOUT);
    settings.lease(3 * LONG).unreachable_timeout(3 * LONG)
}

fn client(server: &RedisServer) -> Client {
    connected(|| settings(&server.url()))
}

fn stands_still(server: &RedisServer) {
    server.stop().unwrap();
    let began = Instant::now();
    wait_until(LONG, "it stood still", || began.elapsed() >= STANDS);
    server.cont().unwrap();
}

/// The lock comes free while the server stands still, and newcomers ask for it meanwhile: the first to
/// ask afterwards passes nobody.
#[test]
fn a_waiter_keeps_its_position_when_the_server_stood_still() {
    let server = RedisServer::start().unwrap();
    let clients: Vec<_> = (0..6).map(|_| client(&server)).collect();
    let locks: Vec<_> = clients.iter().map(|client| client.reentrant_lock("it")).collect();
    for client in &clients {
        // So that each has its connection, and its request is there when the server goes on.
        released_all(&client.reentrant_lock("other").lock().unwrap().unlock());
    }
    let held = locks[0].with_lease(3 * LONG).lock_owned().unwrap();
    let order = Mutex::new(Vec::new());
    let comes_in = |i: usize| {
        let guard = locks[i].lock().unwrap();
        order.lock().push(i);
        released_all(&guard.unlock());
    };
    thread::scope(|scope| {
        for i in 1..=3 {
            scope.spawn(move || comes_in(i));
            wait_until(LONG, "it waits", || locks[0].queue_length().is_ok_and(|n| n == i));
        }
        scope.spawn(|| {
            wait_until(LONG, "the server stands still", || locks[4].queue_length().is_err());
            thread::scope(|scope| {
                for i in 4..=5 {
                    scope.spawn(move || comes_in(i));
                }
            });
        });
        held.renew_for(ms(4000)).unwrap();
        stands_still(&server);
    });
    let order = order.into_inner();
    assert_eq!(order[..3], [1, 2, 3], "{order:?}");
    assert!(held.is_lost());
}

/// Holds the queue position of one that waits, and dies only when it is killed.
#[test]
#[ignore = "a role, played by a child process"]
fn role_waiter() {
    if !is_role("stall::role_waiter") {
        return;
    }
    let client = connected(|| settings(&env(URL)));
    tell_parent("waits").unwrap();
    let _ = client.reentrant_lock("it").lock();
    let _ = hear_parent();
}

/// A waiter that dies while the server stands still costs those behind it one more waiter timeout, and not a lease.
#[test]
fn a_waiter_that_died_meanwhile_costs_one_more_window() {
    let server = RedisServer::start().unwrap();
    let (holder, waits) = (client(&server), client(&server));
    let (lock, mine) = (holder.reentrant_lock("it"), waits.reentrant_lock("it"));
    let held = lock.lock_owned().unwrap();
    let mut child = Child::spawn("stall::role_waiter", &[(URL, &server.url())]).unwrap();
    wait_until(LONG, "it waits", || lock.queue_length().is_ok_and(|n| n == 1));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| released_all(&mine.lock().unwrap().unlock()));
        wait_until(LONG, "both wait", || lock.queue_length().is_ok_and(|n| n == 2));
        // It stands still too, with its connections open: nobody but its silence tells.
        child.stop().unwrap();
        stands_still(&server);
        let began = Instant::now();
        released_all(&held.unlock());
        waiter.join().unwrap();
        // One waiter timeout, a heartbeat, and what a busy machine adds: far less than a lease.
        assert!(began.elapsed() < WAITER_TIMEOUT + WAITER_TIMEOUT / 3 + LONG, "{:?}", began.elapsed());
    });
    child.kill9().unwrap();
}
