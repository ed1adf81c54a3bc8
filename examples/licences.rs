//! Ten licences for a program that many want to run: a semaphore.
//!
//! `cargo run --example licences`, on the server that `REDIS_URL` names or on a private one. Twenty-four
//! jobs, through clients that are like processes to Redis, some of which need two licences at once. There are
//! never more than ten in use, and at the end all are returned.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::{env, thread, time::Duration};

use redis_concurrent::{Client, Error, Semaphore};
use redis_concurrent_testkit::RedisServer;

const LICENCES: u32 = 10;
const JOBS: u32 = 24;

type Failure = Box<dyn std::error::Error>;

/// How many licences are in use, as the jobs see it, and the most that ever were.
#[derive(Default)]
struct Count(AtomicU32, AtomicU32);

fn main() -> Result<(), Failure> {
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("licences-{}", std::process::id());

    // The first process sets how many there are. Permits are user state: they stay until they are deleted.
    // Here they expire if no process comes back to do that.
    let office = Client::connect(&url)?.semaphore(&name);
    office.try_set_permits(LICENCES)?;
    office.expire_after(Duration::from_secs(600))?;

    let clients = [Client::connect(&url)?, Client::connect(&url)?, Client::connect(&url)?];
    let count = Count::default();
    thread::scope(|scope| {
        let jobs: Vec<_> = (0..JOBS)
            .zip(clients.iter().cycle())
            .map(|(i, client)| {
                let (licences, count) = (client.semaphore(&name), &count);
                scope.spawn(move || run(&licences, 1 + i % 2, count))
            })
            .collect();
        // Any client can see the holders and the waiters.
        let held: usize = office.holders()?.iter().filter(|it| it.process.is_some()).count();
        println!("{held} jobs run, {} wait", office.queue_length()?);
        jobs.into_iter().try_for_each(|job| job.join().expect("a job does not panic"))
    })?;

    println!("at most {} of {LICENCES} licences were out at a time", count.1.load(SeqCst));
    assert!(count.1.load(SeqCst) <= LICENCES);
    assert_eq!(office.available()?, i64::from(LICENCES));
    println!("all {LICENCES} are back");
    office.delete()?;
    Ok(())
}

/// Runs a job with as many licences as it needs. It gets all of them at once, or waits, in order of arrival.
fn run(licences: &Semaphore, n: u32, count: &Count) -> Result<(), Error> {
    let permit = licences.acquire(n)?;
    count.1.fetch_max(count.0.fetch_add(permit.permits(), SeqCst) + permit.permits(), SeqCst);
    thread::sleep(Duration::from_millis(20));
    count.0.fetch_sub(permit.permits(), SeqCst);
    // Dropping the permit would return them, too; those of a job that dies are returned when its lease
    // expires.
    permit.release()
}
