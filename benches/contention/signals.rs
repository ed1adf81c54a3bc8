//! Two processes that wake each other by conditions, in turn.

use std::error::Error;
use std::thread;
use std::time::Duration;

use redis_concurrent::{Client, Condition, Guard, Reentrant};
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::bare::{Bare, request};
use super::children::{hear, job, order, spawn, tell};
use super::clock::now;
use super::row::Row;
use super::server::Watched;
use super::stats::Spread;

const ROLE: &str = "signaller";

#[derive(Serialize, Deserialize)]
struct Job {
    url: String,
    /// The first of the two, which begins.
    first: bool,
}

/// What a child did in a round: when it began each signal, when it came back from each wait, and how many
/// requests that took.
#[derive(Serialize, Deserialize)]
struct Done {
    signalled: Vec<u64>,
    woke: Vec<u64>,
    requests: u64,
}

/// From the beginning of a signal in one process to the end of the wait in the other.
pub(crate) fn run(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let server = Watched::start()?;
    let mut bare = Bare::connect(server.redis.port())?;
    let sha = bare.load("return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0")?;
    let trip = request(&["EVALSHA", &sha, "1", "bench:none", "nobody"]);
    let child = |first| spawn(ROLE, &Job { url: server.redis.url(), first });
    let mut children = [child(true)?, child(false)?];
    for child in &children {
        let _: bool = hear(child, 0.0)?;
    }
    let switches = ((args.seconds * 1_000.0) as usize).max(20);
    let mut rows = Vec::new();
    for _ in 0..args.rounds {
        for child in &mut children {
            child.say(&switches.to_string())?;
        }
        let [a, b] = [hear::<Done>(&children[0], args.seconds)?, hear::<Done>(&children[1], args.seconds)?];
        let mut took = Spread::default();
        for (signals, wakes) in [(&a.signalled, &b.woke), (&b.signalled, &a.woke)] {
            signals.iter().zip(wakes).for_each(|(from, to)| took.add(to.saturating_sub(*from)));
        }
        // What one round trip takes when everything has been idle for as long as between two switches.
        let mut trips = Spread::default();
        let pause = Duration::from_nanos(took.quantile(0.5).unwrap_or_default() as u64);
        for _ in 0..switches {
            thread::sleep(pause);
            let sent = now();
            bare.exchange(&trip)?;
            trips.add(now() - sent);
        }
        let round_trip = trips.quantile(0.5).map(|ns| ns / 1e3);
        let p50 = took.quantile(0.5).map(|ns| ns / 1e3);
        rows.push(Row {
            commands_per_acquisition: Some((a.requests + b.requests) as f64 / (2 * switches) as f64),
            handoff_us_p50: p50,
            handoff_us_p99: took.quantile(0.99).map(|ns| ns / 1e3),
            round_trip_us: round_trip,
            ratio_round_trip: p50.zip(round_trip).map(|(a, b)| a / b),
            processes: 2,
            ..Row::default()
        });
    }
    Ok(rows)
}

/// In a child: takes turns with the other one, if that is its role. Returns whether it was.
pub(crate) fn play() -> Result<bool, Box<dyn Error>> {
    let Some(job) = job::<Job>(ROLE)? else { return Ok(false) };
    let client = Client::connect(&job.url)?;
    let lock = client.reentrant_lock("bench:court");
    let (ping, pong) = (lock.condition("ping"), lock.condition("pong"));
    tell(&true)?;
    while let Some(switches) = order::<usize>()? {
        let mut done = Done { signalled: Vec::new(), woke: Vec::new(), requests: 0 };
        let mut guard = lock.lock()?;
        if job.first {
            while !pong.has_waiters(&guard)? {
                guard.unlock()?;
                thread::sleep(Duration::from_millis(1));
                guard = lock.lock()?;
            }
        } else {
            pong.wait(&mut guard)?;
            done.woke.push(now());
        }
        let (mine, other) = if job.first { (&ping, &pong) } else { (&pong, &ping) };
        let before = client.request_count();
        for i in 0..switches {
            // The thread that began is woken last, and the other one has nothing to wait for any more.
            signal(other, &guard, &mut done)?;
            if job.first || i + 1 < switches {
                mine.wait(&mut guard)?;
                done.woke.push(now());
            }
        }
        done.requests = client.request_count() - before;
        guard.unlock()?;
        tell(&done)?;
    }
    client.close()?;
    Ok(true)
}

fn signal(
    other: &Condition<Reentrant>,
    guard: &Guard<'_, Reentrant>,
    done: &mut Done,
) -> Result<(), redis_concurrent::Error> {
    done.signalled.push(now());
    other.signal(guard)
}
