//! A batch job whose workers, each a process of its own, start together and are awaited: two latches.
//!
//! `cargo run --example batch_start`, on the server that `REDIS_URL` names or on a private one.

use std::env;
use std::time::Duration;

use redis_concurrent::{Client, CountDownLatch, Error};
use redis_concurrent_testkit::{Child, RedisServer, is_role, tell_parent};

type Failure = Box<dyn std::error::Error>;

const WORKERS: u64 = 4;
const LIMIT: Duration = Duration::from_secs(30);

fn main() -> Result<(), Failure> {
    if is_role("worker") { work() } else { coordinate() }
}

/// The latches of one job: the first opens when the input is ready, the second when every worker has done its
/// part.
fn latches(client: &Client, job: &str) -> [CountDownLatch; 2] {
    ["start", "done"].map(|latch| client.count_down_latch(&format!("{job}:{latch}")))
}

fn work() -> Result<(), Failure> {
    let client = Client::connect(&env::var("BATCH_URL")?)?;
    let [start, done] = latches(&client, &env::var("BATCH_JOB")?);
    tell_parent("ready")?;
    if !start.wait_with(LIMIT)? {
        return Err("the job never began".into());
    }
    tell_parent("works")?;
    done.count_down()?;
    client.close()?;
    Ok(())
}

fn coordinate() -> Result<(), Failure> {
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let job = format!("batch-{}", std::process::id());
    let client = Client::connect(&url)?;
    let [start, done] = latches(&client, &job);
    prepare(&start, &done)?;

    let variables = [("BATCH_URL", &*url), ("BATCH_JOB", &job)];
    let workers: Vec<_> =
        (0..WORKERS).map(|_| Child::spawn("worker", &variables)).collect::<Result<_, _>>()?;
    for worker in &workers {
        println!("process {}: {}", worker.pid(), worker.read_line_within(LIMIT)?);
    }
    println!("the input is there");
    start.count_down()?;
    if !done.wait_with(LIMIT)? {
        return Err(format!("after {LIMIT:?} {:?} parts are open", done.count()?).into());
    }
    for mut worker in workers {
        println!("process {}: {}", worker.pid(), worker.read_line_within(LIMIT)?);
        worker.wait_within(LIMIT)?;
    }
    println!("all {WORKERS} parts are done");
    start.delete()?;
    done.delete()?;
    client.close()?;
    Ok(())
}

/// Sets the counts before any worker needs them. The latches of a job that is never cleaned up expire after
/// an hour.
fn prepare(start: &CountDownLatch, done: &CountDownLatch) -> Result<(), Error> {
    done.try_set_count(WORKERS)?;
    start.try_set_count(1)?;
    for latch in [start, done] {
        latch.expire_after(Duration::from_secs(3600))?;
    }
    Ok(())
}
