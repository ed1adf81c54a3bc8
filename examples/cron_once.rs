//! A job that every node starts by its own clock, but only one of them runs: a lock with a minimum hold time.
//!
//! `cargo run --example cron_once`, on the server that `REDIS_URL` names or on a private one. There are three
//! nodes, as clients, which are like processes to Redis. The job takes only a moment; a node whose clock is
//! late comes long after it has ended, and must not run it again.

use std::{env, thread, time::Duration};

use redis_concurrent::{Client, Error};
use redis_concurrent_testkit::RedisServer;

/// How late each node's clock is.
const LATE: [Duration; 3] = [Duration::ZERO, Duration::from_millis(50), Duration::from_millis(300)];
/// Longer than any clock is late, shorter than from one run of the job to the next.
const AT_LEAST: Duration = Duration::from_secs(30);

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("cron-{}:report", std::process::id());

    let nodes = LATE.map(|late| (late, Client::connect(&url)));
    let runs = thread::scope(|scope| {
        let nodes: Vec<_> = nodes
            .into_iter()
            .map(|(late, client)| {
                let name = &name;
                scope.spawn(move || {
                    thread::sleep(late);
                    at_the_hour(&client?, name, late)
                })
            })
            .collect();
        nodes
            .into_iter()
            .map(|node| node.join().expect("a node does not panic"))
            .try_fold(0, |runs, ran| Ok::<_, Error>(runs + u32::from(ran?)))
    })?;
    println!("the report was sent {runs} time");
    assert_eq!(runs, 1);

    // The example has no next run, so it does not leave the lock to its minimum hold time.
    Client::connect(&url)?.simple_lock(&name).force_unlock()?;
    Ok(())
}

/// What a node does when its clock strikes. Returns whether it ran the job.
fn at_the_hour(client: &Client, name: &str, late: Duration) -> Result<bool, Error> {
    let lock = client.simple_lock(name).min_hold(AT_LEAST);
    let Some(guard) = lock.try_lock()? else {
        println!("the node that is {late:?} late leaves it");
        return Ok(false);
    };
    println!("the node that is {late:?} late sends the report");
    // Returns at once; in Redis the lock stays held for the rest of its time.
    guard.unlock()?;
    Ok(true)
}
