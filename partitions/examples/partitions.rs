//! A consumer of sharded streams: three workers share eight streams of orders; one of them leaves while orders still
//! come in, and no order is lost, handled twice, or handled out of turn.
//!
//! `cargo run --package redis-concurrent-partitions --example partitions`. Real workers are processes of their own.

use std::thread;
use std::time::Duration;

use redis_concurrent::redis::{Client as Redis, RedisResult, cmd};
use redis_concurrent::{CancellationToken, Client, Error};
use redis_concurrent_partitions::{Partition, Partitions};
use redis_concurrent_testkit::{RedisServer, wait_until};

const SHARDS: u32 = 8;
const ORDERS: u32 = 400;

/// Handles one order, and moves the shard's position: both in one step, which the token of an earlier owner cannot take.
/// The position is kept beside what it is about, so the next owner goes on where this one stopped.
const HANDLE: &str = "redis.call('HSET', KEYS[1], 'position', ARGV[1])
    return redis.call('RPUSH', KEYS[2], ARGV[2])";

/// Consumes a shard until it must be given back.
fn consume(
    worker: &str,
    client: &Client,
    redis: &Redis,
    shard: &Partition,
) -> Result<(), Box<dyn std::error::Error>> {
    let k = shard.number();
    let (stream, state, done) = (
        format!("rc:{{shard:{k}}}:stream"),
        format!("rc:{{shard:{k}}}:state"),
        format!("rc:{{shard:{k}}}:done"),
    );
    let handle = client.fenced(&format!("shard:{k}")).script(HANDLE);
    let mut connection = redis.get_connection()?;
    let position: Option<String> = cmd("HGET").arg(&state).arg("position").query(&mut connection)?;
    let (mut position, mut handled) = (position.unwrap_or_else(|| "0".to_owned()), 0);
    while !shard.revoked().is_cancelled() {
        let mut read = cmd("XREAD");
        read.arg("COUNT").arg(1).arg("BLOCK").arg(50).arg("STREAMS").arg(&stream).arg(&position);
        type Entries = Vec<(String, Vec<(String, Vec<String>)>)>;
        let entries: RedisResult<Option<Entries>> = read.query(&mut connection);
        for (id, fields) in entries?.into_iter().flatten().flat_map(|(_, entries)| entries) {
            handle.run::<u64>(shard.token(), &[&state, &done], (&id, &fields[1]))?;
            (position, handled) = (id, handled + 1);
        }
    }
    println!("{worker} gives shard {k} back, after {handled} orders under token {}", shard.token());
    Ok(())
}

fn work(worker: &str, url: &str, stop: &CancellationToken) -> Result<(), Error> {
    let client = Client::connect(url)?;
    let redis = Redis::open(url).expect("a valid address");
    let share = Partitions::new(&client, "shard", SHARDS).join(worker)?;
    share.run(stop, |shard| {
        if let Err(error) = consume(worker, &client, &redis, shard) {
            eprintln!("{worker}, shard {}: {error}", shard.number());
        }
    })?;
    client.close()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = RedisServer::start()?;
    let url = server.url();
    let stops = [(); 3].map(|()| CancellationToken::new());
    let mut redis = server.connection()?;
    thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        let workers: Vec<_> = ["a", "b", "c"]
            .into_iter()
            .zip(&stops)
            .map(|(name, stop)| (scope.spawn(|| work(name, &url, stop)), stop))
            .collect();
        for order in 0..ORDERS {
            let stream = format!("rc:{{shard:{}}}:stream", order % SHARDS);
            let _: String = cmd("XADD").arg(stream).arg("*").arg("order").arg(order).query(&mut redis)?;
            thread::sleep(Duration::from_millis(2));
            if order == ORDERS / 2 {
                println!("b leaves");
                stops[1].cancel();
            }
        }
        let mut done = |k: u32| -> Vec<u32> {
            let all = cmd("LRANGE").arg(format!("rc:{{shard:{k}}}:done")).arg(0).arg(-1).query(&mut redis);
            all.unwrap_or_default()
        };
        let expected = |k: u32| (0..ORDERS).filter(move |order| order % SHARDS == k);
        wait_until(Duration::from_secs(60), "all orders are handled, once and in turn", || {
            (0..SHARDS).all(|k| done(k).into_iter().eq(expected(k)))
        });
        println!("{ORDERS} orders are handled, each once, each shard's in turn");
        stops.iter().for_each(CancellationToken::cancel);
        for (worker, _) in workers {
            worker.join().expect("no panic")?;
        }
        Ok(())
    })
}
