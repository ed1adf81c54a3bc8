//! Processes that name the same locks in opposite orders: nobody waits for ever, nobody is in there twice.

use std::time::{Duration, Instant};

use redis::Commands;
use redis_concurrent::{Client, MultiLock};
use redis_concurrent_testkit::{Child, RedisServer, is_role, tell_parent};

use crate::support::{builder, connect, connected, env, nothing_left};

const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Far more than a round takes, even where both stand in each other's way again and again.
const ROUND: Duration = Duration::from_secs(30);

/// How many rounds each process takes: 10,000 with `ROUNDS=10000`.
fn rounds() -> u64 {
    std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(400)
}

/// Takes its rounds, and counts in Redis by two steps that somebody else must not come between.
#[test]
#[ignore = "a role, played by a child process"]
fn role_takes_turns() {
    if !is_role("multi_lock::deadlock::role_takes_turns") {
        return;
    }
    let (url, clients) = (env("URL"), env("CLIENTS").parse::<usize>().unwrap());
    let clients: Vec<_> = (0..clients).map(|_| connected(|| builder(&url))).collect();
    let mut locks: Vec<_> =
        NAMES.iter().enumerate().map(|(i, name)| clients[i % clients.len()].reentrant_lock(name)).collect();
    if env("BACKWARDS") == "true" {
        locks.reverse();
    }
    let it = MultiLock::new(&[&locks[0], &locks[1], &locks[2], &locks[3]]);
    let mut redis = redis::Client::open(url).unwrap().get_connection().unwrap();
    tell_parent("ready").unwrap();
    let (began, mut longest) = (Instant::now(), Duration::ZERO);
    for round in 0..rounds() {
        let called = Instant::now();
        let guard = it.try_lock_for(ROUND).unwrap().unwrap_or_else(|| panic!("a deadlock in round {round}"));
        longest = longest.max(called.elapsed());
        let n: u64 = redis.get::<_, Option<u64>>("count").unwrap().unwrap_or(0);
        let _: () = redis.set("count", n + 1).unwrap();
        guard.unlock().unwrap();
    }
    let requests: u64 = clients.iter().map(Client::request_count).sum();
    let took = began.elapsed();
    tell_parent(&format!("{took:?}, the longest wait {longest:?}, {requests} requests")).unwrap();
}

/// Two processes in opposite orders, each with so many clients for the four names.
fn in_opposite_orders(clients: usize) {
    let server = RedisServer::start().unwrap();
    let children = ["false", "true"].map(|backwards| {
        let (url, clients) = (server.url(), clients.to_string());
        let env = [("URL", &*url), ("CLIENTS", &*clients), ("BACKWARDS", backwards)];
        Child::spawn("multi_lock::deadlock::role_takes_turns", &env).unwrap()
    });
    let limit = ROUND + Duration::from_millis(150) * rounds() as u32;
    for mut child in children {
        assert_eq!(child.read_line_within(ROUND).unwrap(), "ready");
        println!("{clients} clients: {}", child.read_line_within(limit).unwrap());
        assert!(child.wait_within(ROUND).unwrap().success());
    }
    let count: u64 = server.connection().unwrap().get("count").unwrap();
    assert_eq!(count, 2 * rounds());
    let _: () = server.connection().unwrap().del("count").unwrap();
    nothing_left(&server);
    connect(&server).close().unwrap();
}

#[test]
fn two_processes_in_opposite_orders_do_not_deadlock() {
    in_opposite_orders(1);
}

#[test]
fn two_processes_that_try_them_one_by_one_do_not_deadlock() {
    in_opposite_orders(4);
}
