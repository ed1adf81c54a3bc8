//! A cache that many processes read and one at a time refills: the classic use of a read/write lock. A
//! process that finds the cache stale refills it. Then it downgrades its write lock to a read lock, so that
//! it reads what it wrote, with no other writer in between.
//!
//! `cargo run --example cached`, on the server that `REDIS_URL` names or on a private one.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::{env, thread, time::Duration};

use redis::{Commands, Connection};
use redis_concurrent::{Client, ReadWriteLock};
use redis_concurrent_testkit::RedisServer;

type Failure = Box<dyn std::error::Error + Send + Sync>;

static FILLED: AtomicU64 = AtomicU64::new(0);
static STALE: AtomicU64 = AtomicU64::new(0);

fn main() -> Result<(), Failure> {
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("cached-{}", std::process::id());
    // To Redis, two clients are like two processes.
    let locks = [Client::connect(&url)?, Client::connect(&url)?].map(|it| it.read_write_lock(&name));
    let redis = redis::Client::open(url.as_str())?;
    thread::scope(|scope| {
        let (locks, redis) = (&locks, &redis);
        let workers: Vec<_> = (0..8).map(|i| scope.spawn(move || work(&locks[i % 2], redis, i))).collect();
        workers.into_iter().try_for_each(|it| it.join().expect("a worker does not panic"))
    })?;
    let mut redis = redis.get_connection()?;
    square(&locks[0], &mut redis)?;
    let () = redis.del(&keys(&locks[0]))?;
    let (stale, filled) = (STALE.load(SeqCst), FILLED.load(SeqCst));
    println!("read 401 times, stale {stale} times, filled {filled} times");
    if filled == stale + 1 { Ok(()) } else { Err("not filled once each time".into()) }
}

/// Reads fifty times, and twice makes the cache stale.
fn work(lock: &ReadWriteLock, redis: &redis::Client, worker: usize) -> Result<(), Failure> {
    let mut redis = redis.get_connection()?;
    for round in 0..50 {
        let (number, square) = square(lock, &mut redis)?;
        if square != number * number {
            return Err(format!("half written: {square} is not the square of {number}").into());
        }
        if round % 25 == 3 * worker {
            let _write = lock.write_lock().lock()?;
            STALE.fetch_add(redis.del(&keys(lock)[1])?, SeqCst);
        }
    }
    Ok(())
}

/// The cached data: a number, and its square, which takes long to compute.
fn square(lock: &ReadWriteLock, redis: &mut Connection) -> Result<(u64, u64), Failure> {
    let [number, square] = keys(lock);
    let mut read = lock.read_lock().lock()?;
    if !redis.exists(&square)? {
        // A reader cannot wait for the write lock, so it stops reading first.
        read.unlock()?;
        let write = lock.write_lock().lock()?;
        // Another process may have refilled it in between.
        if !redis.exists(&square)? {
            let n = FILLED.fetch_add(1, SeqCst);
            let () = redis.set(&number, n)?;
            thread::sleep(Duration::from_millis(1));
            let () = redis.set(&square, n * n)?;
        }
        read = lock.downgrade(write)?;
    }
    let cached = (redis.get(number)?, redis.get(square)?);
    read.unlock()?;
    Ok(cached)
}

fn keys(lock: &ReadWriteLock) -> [String; 2] {
    ["number", "square"].map(|part| format!("{}:{part}", lock.name()))
}
