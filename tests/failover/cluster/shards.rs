//! Each lock's messages are in its shard, on channels with its hash tag.

use std::thread;

use redis::cmd;
use redis_concurrent::Client;
use redis_concurrent_testkit::{RedisCluster, RedisServer, wait_until};

use super::{channels_of_locks, connect, has_shards, home, key};
use crate::support::{LONG, builder, channels, connected, queued};

/// A client that would need half a minute to find by itself what it was not told.
fn drowsy(cluster: &RedisCluster) -> Client {
    connected(|| builder(&cluster.url()).waiter_timeout(5 * LONG).lease(15 * LONG))
}

/// How many messages this node has sent to the others, as classic ones are.
fn sent(node: &RedisServer) -> u64 {
    let info: String = cmd("CLUSTER").arg("INFO").query(&mut node.connection().unwrap()).unwrap();
    let line = info.lines().find_map(|line| line.strip_prefix("cluster_stats_messages_publish_sent:"));
    line.map_or(0, |n| n.trim().parse().unwrap())
}

/// The channels of this lock at that node.
fn heard(node: &RedisServer, name: &str) -> usize {
    channels_of_locks(node).iter().filter(|channel| channel.starts_with(&key(name))).count()
}

/// The waiter of a lock whose slot moves, twice, is told by the node that has the slot now.
#[test]
fn a_waiter_follows_its_slot_at_once() {
    let cluster = RedisCluster::start(2).unwrap();
    let nodes = cluster.nodes();
    if !has_shards(&nodes[0]) {
        return; // Without such channels nothing tells a waiter that its slot has moved but its heartbeat.
    }
    let name = "followed";
    let slot = cluster.slot_of(&key(name)).unwrap();
    let (holder, waiter) = (drowsy(&cluster), drowsy(&cluster));
    let lock = holder.reentrant_lock(name);
    let first = home(&cluster, name);
    let second = nodes.iter().find(|node| node.port() != first.port()).unwrap();
    for to in [second, &first, second] {
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.reentrant_lock(name).lock().unwrap().unlock().unwrap());
            queued(&lock, 1);
            let from = home(&cluster, name);
            wait_until(LONG, "it is heard where it is", || heard(&from, name) == 1);
            cluster.move_slot(slot, to).unwrap();
            wait_until(LONG, "it is heard there, and only there", || {
                heard(to, name) == 1 && heard(&from, name) == 0
            });
            guard.unlock().unwrap();
            wait_until(LONG, "the waiter is told", || waiting.is_finished());
        });
    }
}

/// The modes of a lock share its channel: whoever waits while it is heard for another mode needs it, too.
#[test]
fn so_does_a_reader_after_a_writer_of_its_process() {
    let cluster = RedisCluster::start(2).unwrap();
    let name = "shared";
    let first = home(&cluster, name);
    if !has_shards(&first) {
        return;
    }
    let second = cluster.nodes().into_iter().find(|node| node.port() != first.port()).unwrap();
    let slot = cluster.slot_of(&key(name)).unwrap();
    let (holder, waiter) = (drowsy(&cluster).read_write_lock(name), drowsy(&cluster).read_write_lock(name));
    let writes = || waiter.write_lock().lock().unwrap().unlock().unwrap();
    let reads = || waiter.read_lock().lock().unwrap().unlock().unwrap();
    for (waits, to) in [(&writes as &(dyn Fn() + Sync), None), (&reads, Some(&second))] {
        let guard = holder.write_lock().lock().unwrap();
        thread::scope(|scope| {
            let waiting = scope.spawn(waits);
            queued(holder.write_lock(), 1);
            wait_until(LONG, "it is heard where it is", || heard(&first, name) == 1);
            if let Some(to) = to {
                cluster.move_slot(slot, to).unwrap();
                wait_until(LONG, "it is heard there", || heard(to, name) == 1);
            }
            guard.unlock().unwrap();
            wait_until(LONG, "the waiter is told", || waiting.is_finished());
        });
    }
}

/// What is told goes to no other node; and several locks of one node are heard on one connection.
#[test]
fn messages_stay_where_they_are_of_use() {
    let cluster = RedisCluster::start(2).unwrap();
    let node = cluster.nodes().remove(0);
    let names: Vec<_> = (0..)
        .map(|i| format!("own {i}"))
        .filter(|it| home(&cluster, it).port() == node.port())
        .take(3)
        .collect();
    let (holder, waiter) = (drowsy(&cluster), connect(&cluster));
    let mut before = 0;
    // The first time they are subscribed.
    for round in 0..2 {
        for name in &names {
            let lock = holder.reentrant_lock(name);
            let guard = lock.lock().unwrap();
            thread::scope(|scope| {
                let waiting = scope.spawn(|| waiter.reentrant_lock(name).lock().unwrap().unlock().unwrap());
                queued(&lock, 1);
                guard.unlock().unwrap();
                wait_until(LONG, "the waiter is told", || waiting.is_finished());
            });
            assert_eq!(heard(&node, name), 1);
        }
        if round == 0 {
            before = sent(&node);
        }
    }
    if has_shards(&node) {
        assert_eq!(sent(&node), before);
        assert!(channels(&node).iter().all(|channel| channel.starts_with("rc:inbox:")));
    }
    let clients: String =
        cmd("CLIENT").arg("LIST").arg("TYPE").arg("PUBSUB").query(&mut node.connection().unwrap()).unwrap();
    assert_eq!(clients.lines().count(), 1, "{clients}");
}

/// The connection that listens breaks: what was granted meanwhile is asked for.
#[test]
fn a_gap_is_asked_about() {
    let cluster = RedisCluster::start(1).unwrap();
    let node = cluster.nodes().remove(0);
    let (holder, waiter) = (drowsy(&cluster), drowsy(&cluster));
    let names = ["gap 1", "gap 2"];
    let locks = names.map(|name| holder.reentrant_lock(name));
    for _ in 0..3 {
        let guards = [0, 1].map(|i| locks[i].lock().unwrap());
        thread::scope(|scope| {
            let waiting = names
                .map(|name| scope.spawn(|| waiter.reentrant_lock(name).lock().unwrap().unlock().unwrap()));
            locks.iter().for_each(|lock| queued(lock, 1));
            cmd("CLIENT")
                .arg("KILL")
                .arg("TYPE")
                .arg("PUBSUB")
                .exec(&mut node.connection().unwrap())
                .unwrap();
            for guard in guards {
                guard.unlock().unwrap();
            }
            wait_until(LONG, "both get in", || waiting.iter().all(|waiting| waiting.is_finished()));
        });
    }
}
