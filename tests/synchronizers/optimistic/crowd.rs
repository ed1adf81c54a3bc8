//! Many at once: each update is counted, once.

use std::thread;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent_testkit::{Child, RedisServer, hear_parent, is_role, tell_parent};

use crate::optimistic::fixture::{KEY, add_one};
use crate::support::*;

const WRITERS: usize = 32;
/// What a crowd of processes takes on the busiest machine, unless it hangs.
const AGES: Duration = Duration::from_secs(300);

fn value(server: &RedisServer) -> usize {
    redis::cmd("GET").arg(KEY).query(&mut server.connection().unwrap()).unwrap()
}

/// Returns how many tries they took.
fn write(client: &Client, threads: usize, updates: usize) -> u32 {
    let each = |_| {
        let update = client.optimistic(&[KEY]).max_attempts(10_000);
        (0..updates).map(|_| update.run(add_one).unwrap().attempts).sum::<u32>()
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..threads).map(|i| scope.spawn(move || each(i))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    })
}

#[test]
fn every_update_of_32_threads_counts_once() {
    let server = RedisServer::start().unwrap();
    let client = patiently(&server.url());
    let tries = write(&client, WRITERS, 20);
    assert_eq!(value(&server), WRITERS * 20);
    assert!(tries as usize > WRITERS * 20, "they never met: {tries} tries");
}

#[test]
fn every_update_of_32_processes_counts_once() {
    let server = RedisServer::start().unwrap();
    let role = "optimistic::crowd::role_writer";
    let mut children: Vec<_> =
        (0..WRITERS).map(|_| Child::spawn(role, &[("SERVER", &server.url())]).unwrap()).collect();
    for child in &children {
        assert_eq!(child.read_line_within(3 * LONG).unwrap(), "ready");
    }
    for child in &mut children {
        child.say("go").unwrap();
    }
    let tries: usize =
        children.iter().map(|it| it.read_line_within(AGES).unwrap().parse::<usize>().unwrap()).sum();
    assert_eq!(value(&server), WRITERS * 10);
    assert!(tries > WRITERS * 10, "they never met: {tries} tries");
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_writer() {
    if !is_role("optimistic::crowd::role_writer") {
        return;
    }
    let client = patiently(&env("SERVER"));
    tell_parent("ready").unwrap();
    hear_parent().unwrap();
    tell_parent(&write(&client, 1, 10).to_string()).unwrap();
}
