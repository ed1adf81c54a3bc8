//! A bounded buffer between processes: the classic use of conditions. `cargo run --example bounded_buffer`,
//! on the server that `REDIS_URL` names or a private one; it fails if an item is lost or duplicated.

use std::{collections::BTreeSet, env, time::Duration};

use redis::Commands;
use redis_concurrent::kinds::Reentrant;
use redis_concurrent::{Client, Condition, ReentrantLock};
use redis_concurrent_testkit::{Child, RedisServer, is_role, tell_parent};

const SIZE: usize = 4;
const ITEMS: usize = 200;
type Failure = Box<dyn std::error::Error>;

struct Buffer {
    lock: ReentrantLock,
    not_full: Condition<Reentrant>,
    not_empty: Condition<Reentrant>,
    redis: redis::Connection,
    list: String,
}

impl Buffer {
    fn put(&mut self, item: usize) -> Result<(), Failure> {
        let mut guard = self.lock.lock()?;
        while self.redis.llen::<_, usize>(&self.list)? == SIZE {
            self.not_full.wait(&mut guard)?;
        }
        assert!(self.redis.rpush::<_, _, usize>(&self.list, item)? <= SIZE);
        self.not_empty.signal(&guard)?;
        Ok(guard.unlock()?)
    }

    fn take(&mut self) -> Result<usize, Failure> {
        let mut guard = self.lock.lock()?;
        while self.redis.llen::<_, usize>(&self.list)? == 0 {
            self.not_empty.wait(&mut guard)?;
        }
        let item = self.redis.lpop(&self.list, None)?;
        self.not_full.signal(&guard)?;
        Ok(guard.unlock().map(|()| item)?)
    }
}

/// Runs a child process, which handles the odd or the even items.
fn work(url: &str, name: &str, produces: bool) -> Result<(), Failure> {
    let lock = Client::connect(url)?.reentrant_lock(name);
    let (not_full, not_empty) = (lock.condition("not_full"), lock.condition("not_empty"));
    let redis = redis::Client::open(url)?.get_connection()?;
    let mut buffer = Buffer { lock, not_full, not_empty, redis, list: format!("{name}:items") };
    for item in (env::var("BUFFER_FIRST")?.parse()?..ITEMS).step_by(2) {
        if produces { buffer.put(item)? } else { tell_parent(&buffer.take()?.to_string())? }
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    if let (Ok(url), Ok(name)) = (env::var("BUFFER_URL"), env::var("BUFFER_NAME")) {
        return work(&url, &name, is_role("producer"));
    }
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("buffer-{}", std::process::id());
    let child = |role: &str, first: &str| {
        Child::spawn(role, &[("BUFFER_URL", &url), ("BUFFER_NAME", &name), ("BUFFER_FIRST", first)])
    };
    let _producers = [child("producer", "0")?, child("producer", "1")?];
    let mut items = BTreeSet::new();
    for consumer in [child("consumer", "0")?, child("consumer", "1")?] {
        for _ in 0..ITEMS / 2 {
            let item = consumer.read_line_within(Duration::from_secs(30))?;
            assert!(items.insert(item.parse::<usize>()?), "{item} came twice");
        }
    }
    assert!(items.into_iter().eq(0..ITEMS), "an item was lost");
    println!(
        "{ITEMS} items by 2 producers and 2 consumers, {SIZE} at most in between: none lost, none twice"
    );
    Ok(())
}
