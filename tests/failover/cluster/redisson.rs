//! Redisson and ours, at one lock of a cluster. Redisson announces a release on a sharded channel where the server has such,
//! and on a classic one otherwise, or if it is told to.

use std::time::Duration;

use redis::{Connection, Value, cmd};
use redis_concurrent::interop::RedissonLock;
use redis_concurrent_testkit::{RedisServer, wait_until};

use super::{calm, has_shards, spread};
use crate::redisson::jvm::Jvm;
use crate::server_days::ask;
use crate::support::{LONG, builder, connected, queued};

/// A waiter that is not told would find out by itself in more than a minute.
const LEASE: Duration = Duration::from_secs(5 * LONG.as_secs());

fn lock(key: &str) -> RedissonLock {
    let client = connected(|| builder(&calm().url()).waiter_timeout(4 * LONG).lease(LEASE));
    client.redisson_lock(key)
}

fn channel(key: &str) -> String {
    format!("redisson_lock__channel:{{{key}}}")
}

/// How releases may be announced, as publisher and as listener.
fn ways(node: &RedisServer) -> Vec<[&'static str; 3]> {
    let mut ways = vec![["PUBLISH", "SUBSCRIBE", "NUMSUB"]];
    ways.extend(has_shards(node).then_some(["SPUBLISH", "SSUBSCRIBE", "SHARDNUMSUB"]));
    ways
}

/// The next message that this connection hears.
fn heard(listener: &mut Connection) -> String {
    listener.set_read_timeout(Some(LONG)).unwrap();
    loop {
        let Value::Array(message) = listener.recv_response().unwrap() else { continue };
        let message: Vec<String> = redis::from_redis_value(Value::Array(message)).unwrap();
        if message[0].ends_with("message") {
            return message[2].clone();
        }
    }
}

#[test]
fn a_release_is_heard_both_ways_on_either_sort_of_channel() {
    for key in spread(calm(), "other's") {
        let node = calm().primary_of(&key).unwrap().unwrap();
        let mine = lock(&key);
        for [publish, subscribe, count] in ways(&node) {
            // A hold of Redisson's, and a waiter that it wakes up.
            let java = "67e55044-10b1-426f-9247-bb680e5fe0c8:1";
            ask::<()>(&node, &["HSET", &key, java, "1"]);
            ask::<()>(&node, &["PEXPIRE", &key, &LEASE.as_millis().to_string()]);
            std::thread::scope(|scope| {
                let waits =
                    scope.spawn(|| mine.try_lock_for(3 * LONG).unwrap().expect("it is told").unlock());
                wait_until(LONG, "it listens", || {
                    ask::<(String, usize)>(&node, &["PUBSUB", count, &channel(&key)]).1 == 1
                });
                ask::<()>(&node, &["DEL", &key]);
                ask::<()>(&node, &[publish, &channel(&key), "0"]);
                wait_until(LONG, "it is told", || waits.is_finished());
                waits.join().unwrap().unwrap();
            });
            // A waiter of Redisson's.
            let mut listener = node.connection().unwrap();
            cmd(subscribe).arg(channel(&key)).exec(&mut listener).unwrap();
            mine.lock().unwrap().unlock().unwrap();
            assert_eq!(heard(&mut listener), "0", "{subscribe}");
            // It has its turn, of which a caller that does not wait sees nothing.
            wait_until(LONG, "its turn is over", || mine.try_lock().unwrap().is_some());
        }
    }
}

#[test]
fn redisson_itself_and_ours_are_one_lock() {
    const ROUNDS: usize = 5;
    let name = "cluster::redisson::redisson_itself_and_ours_are_one_lock";
    let ports: Vec<_> = calm().nodes().iter().map(|node| node.port().to_string()).collect();
    let (key, watchdog) = ("redisson in a cluster", LEASE.as_millis().to_string());
    let Some(mut java) = Jvm::start("Peer", &[&ports.join(","), key, &watchdog], name) else { return };
    let node = calm().primary_of(key).unwrap().unwrap();
    let mine = lock(key);
    let listeners = || {
        let of = |way: [&str; 3]| ask::<(String, usize)>(&node, &["PUBSUB", way[2], &channel(key)]).1;
        ways(&node).into_iter().map(of).collect::<Vec<_>>()
    };
    for _ in 0..ROUNDS {
        assert_eq!(java.does(1, "lock"), "in");
        assert!(mine.try_lock().unwrap().is_none());
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| mine.lock_owned_with(3 * LONG).unwrap().expect("it is told"));
            queued(&mine, 1);
            wait_until(LONG, "ours listen", || listeners().iter().all(|n| *n > 0));
            assert_eq!(java.does(1, "unlock"), "out");
            wait_until(LONG, "Java's release is heard", || waits.is_finished());
            let guard = waits.join().unwrap();
            java.say(1, "lock");
            // (Or has not unsubscribed yet since the last round, and comes in by itself.)
            wait_until(LONG, "Java listens", || listeners().iter().any(|n| *n > 1));
            guard.unlock().unwrap();
            assert_eq!(java.receives(1), "in");
        });
        assert_eq!(java.does(1, "unlock"), "out");
    }
}
