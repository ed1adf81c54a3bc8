//! Locks on a Redis Cluster: each on the primary of its slot, wherever that is.

mod contract;
mod failover;
mod input;
mod kinds;
mod moving;
mod parted;
mod redisson;
mod renewals;
mod rights;
mod shards;
mod waiting;

use std::sync::{Arc, OnceLock};

use redis_concurrent::{Client, ClientBuilder};
use redis_concurrent_testkit::{RedisCluster, RedisServer};

use super::support::{builder, connected, ms};

/// Three primaries that stay as they are.
fn calm() -> &'static RedisCluster {
    static CLUSTER: OnceLock<RedisCluster> = OnceLock::new();
    CLUSTER.get_or_init(|| RedisCluster::start(3).unwrap())
}

fn connect(cluster: &RedisCluster) -> Client {
    connected(|| builder(&cluster.url()))
}

/// A client that may be cut off for as long as a failover takes on a busy machine.
fn patient(cluster: &RedisCluster) -> ClientBuilder {
    Client::builder().url(&cluster.url()).unreachable_timeout(ms(60_000))
}

/// The key of the lock `name`.
fn key(name: &str) -> String {
    format!("rc:{{{name}}}")
}

/// The primary of the lock `name`.
fn home(cluster: &RedisCluster, name: &str) -> Arc<RedisServer> {
    cluster.primary_of(&key(name)).unwrap().expect("every slot has a primary")
}

/// Whether it knows sharded channels, as servers from 7.0 on do.
fn has_shards(node: &RedisServer) -> bool {
    let ask = || redis::cmd("PUBSUB").arg("SHARDCHANNELS").query::<Vec<String>>(&mut node.connection()?);
    ask().is_ok()
}

/// The channels of locks to which somebody listens at this node.
fn channels_of_locks(node: &RedisServer) -> Vec<String> {
    let what = if has_shards(node) { "SHARDCHANNELS" } else { "CHANNELS" };
    let mut connection = node.connection().unwrap();
    redis::cmd("PUBSUB").arg(what).arg("rc:{*").query(&mut connection).unwrap()
}

/// Names that begin so, one on each primary.
fn spread(cluster: &RedisCluster, name: &str) -> Vec<String> {
    let primaries = cluster.primaries().unwrap();
    let on = |primary: &Arc<RedisServer>| {
        let mut names = (0..).map(|i| format!("{name} {i}"));
        names.find(|name| home(cluster, name).port() == primary.port()).unwrap()
    };
    primaries.iter().map(on).collect()
}
