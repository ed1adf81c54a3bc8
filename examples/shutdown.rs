//! The ways in which a worker may end while it holds a lock, and when the next one has the lock after each.
//!
//! `cargo run --example shutdown`, on the server that `REDIS_URL` names or on a private one. Each worker is a
//! process of its own; all of them end at once.

use std::time::{Duration, Instant};
use std::{env, process, thread};

use redis_concurrent::{CancellationToken, Client, Error};
use redis_concurrent_testkit::{Child, RedisServer, hear_parent, is_role, tell_parent, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::SIGTERM;
use signal_hook::iterator::Signals;

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// How long a dead worker blocks the next one.
const LEASE: Duration = Duration::from_secs(5);
/// How long a step of the work takes.
const STEP: Duration = Duration::from_millis(50);
const LIMIT: Duration = Duration::from_secs(60);

/// How a worker ends, and what causes it.
const ENDS: [(&str, &str); 6] = [
    ("stops", "SIGTERM, and the work stops after its step"),
    ("closes", "SIGTERM, and close() while the work goes on"),
    ("panics", "a panic"),
    ("dies", "SIGTERM, which nothing handles"),
    ("exits", "process::exit() while the lock is held"),
    ("is killed", "SIGKILL"),
];

fn main() -> Result<(), Failure> {
    if is_role("worker") {
        return work(&env::var("SHUTDOWN_END")?);
    }
    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    println!("a lease of {LEASE:?}; the next one has the lock after");
    let lines = thread::scope(|scope| {
        let ends = ENDS.map(|(end, cause)| {
            let url = &url;
            scope.spawn(move || Ok::<_, Failure>(format!("{cause:<44} {}", end_one(url, end)?)))
        });
        ends.map(|end| end.join().expect("it does not panic"))
    });
    for line in lines {
        println!("{}", line?);
    }
    Ok(())
}

/// Runs a worker until it ends in this way.
fn work(end: &str) -> Result<(), Failure> {
    let client = Client::builder().url(&env::var("SHUTDOWN_URL")?).lease(LEASE).connect()?;
    let stop = CancellationToken::new();
    if end == "stops" || end == "closes" {
        let (stop, client, closes) = (stop.clone(), client.clone(), end == "closes");
        let mut signals = Signals::new([SIGTERM])?;
        thread::spawn(move || {
            signals.forever().next();
            if closes {
                let _ = client.close();
            } else {
                stop.cancel();
            }
        });
    }
    let lock = client.reentrant_lock(&env::var("SHUTDOWN_NAME")?);
    let guard = lock.lock_interruptibly(&stop)?;
    tell_parent("at work")?;
    if end == "panics" || end == "exits" {
        hear_parent()?;
        assert_ne!(end, "panics", "as it is meant to");
        process::exit(1);
    }
    // The work, which checks after each step whether it should stop, or has lost the lock.
    let lost = guard.lost();
    while !stop.is_cancelled() && !lost.is_cancelled() {
        thread::sleep(STEP);
    }
    tell_parent(&outcome(guard.unlock()))?;
    client.close()?;
    Ok(())
}

fn outcome(unlocked: Result<(), Error>) -> String {
    match unlocked {
        Ok(()) => "the worker released it".to_owned(),
        Err(error) => format!("the worker was told: {:?}", error.kind()),
    }
}

/// Ends a worker, and returns when the next one had the lock.
fn end_one(url: &str, end: &str) -> Result<String, Failure> {
    let client = Client::builder().url(url).lease(LEASE).connect()?;
    let name = format!("shutdown-{}-{end}", process::id());
    let lock = client.reentrant_lock(&name);
    let variables =
        [("SHUTDOWN_URL", url), ("SHUTDOWN_NAME", &name), ("SHUTDOWN_END", end), ("RUST_BACKTRACE", "0")];
    let mut worker = Child::spawn("worker", &variables)?;
    worker.read_line_within(LIMIT)?;
    thread::scope(|scope| {
        let next = scope.spawn(|| {
            let guard = lock.lock()?;
            let at = Instant::now();
            guard.unlock().map(|()| at)
        });
        wait_until(LIMIT, "the next one waits", || lock.queue_length().is_ok_and(|waiting| waiting == 1));
        let began = Instant::now();
        match end {
            "is killed" => drop(worker.kill9()?),
            "panics" | "exits" => worker.say("now")?,
            _ => kill_process(Pid::from_raw(worker.pid().cast_signed()).ok_or("no process")?, Signal::TERM)?,
        }
        let after = next.join().expect("it does not panic")?.duration_since(began);
        let outcome = match end {
            "stops" | "closes" => worker.read_line_within(LIMIT)?,
            "panics" => "the guard was dropped".to_owned(),
            _ => "the lease had to expire".to_owned(),
        };
        Ok(format!("{:>7.0} ms: {outcome}", after.as_secs_f64() * 1000.0))
    })
}
