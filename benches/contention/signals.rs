//! Two processes that take turns waking each other through conditions.

use std::error::Error;
use std::thread;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent::kinds::{Kind, Reentrant};
use redis_concurrent_testkit::Child;
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::bare::{Bare, request};
use super::bare_peer::BarePeer;
use super::children::{hear, job, order, spawn, tell};
use super::clock::now;
use super::peer::{ByLibrary, Done, Signaller};
use super::row::Row;
use super::server::Watched;
use super::stats::Spread;

const ROLE: &str = "signaller";

#[derive(Serialize, Deserialize)]
struct Job {
    url: String,
    port: u16,
    /// Whether it is the first of the two, which begins.
    first: bool,
    /// Whether it uses the same scripts on bare sockets.
    bare: bool,
}

/// What a child did in a round: when each signal began, when each wait returned, and how many requests that
/// took.
#[derive(Serialize, Deserialize)]
struct Turns {
    signalled: Vec<u64>,
    woke: Vec<u64>,
    requests: u64,
}

/// Measures from the beginning of a signal in one process to the end of the wait in the other.
pub(crate) fn run(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut server = Watched::start()?;
    let mut bare = Bare::connect(server.redis.port())?;
    let sha = bare.load("return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0")?;
    let trip = request(&["EVALSHA", &sha, "1", "bench:none", "nobody"]);
    let (url, port) = (server.url(), server.redis.port());
    let child = |first, bare| -> Done<Child> {
        let job = Job { url: url.clone(), port, first, bare };
        let child = spawn(ROLE, &job)?;
        let _: bool = hear(&child, 0.0)?;
        Ok(child)
    };
    let mut ours = [child(true, false)?, child(false, false)?];
    let mut bares = [child(true, true)?, child(false, true)?];
    let switches = ((args.seconds * 1_000.0) as usize).max(20);
    let mut rows = Vec::new();
    for _ in 0..args.rounds {
        let (took, requests) = switch(args, &mut ours, switches)?;
        server.reset_stats()?;
        let (floor, _) = switch(args, &mut bares, switches)?;
        let scripts = server.script_us()?;
        // The time of a round trip after everything has been idle for as long as between two switches.
        let mut trips = Spread::default();
        let pause = Duration::from_nanos(took.quantile(0.5).unwrap_or_default() as u64);
        for _ in 0..switches {
            thread::sleep(pause);
            let sent = now();
            bare.exchange(&trip)?;
            trips.add(now() - sent);
        }
        let round_trip = trips.quantile(0.5).map(|ns| ns / 1e3);
        let [p50, floor] = [&took, &floor].map(|spread| spread.quantile(0.5).map(|ns| ns / 1e3));
        rows.push(Row {
            commands_per_acquisition: Some(requests as f64 / (2 * switches) as f64),
            handoff_us_p50: p50,
            handoff_us_p99: took.quantile(0.99).map(|ns| ns / 1e3),
            round_trip_us: round_trip,
            ratio_round_trip: p50.zip(round_trip).map(|(a, b)| a / b),
            inside_redis_us: Some(scripts / (2 * switches) as f64),
            floor_us: floor,
            ratio_floor: p50.zip(floor).map(|(a, b)| a / b),
            processes: 2,
            ..Row::default()
        });
    }
    Ok(rows)
}

/// Returns how long each of this many switches took, and how many requests.
fn switch(args: &Args, children: &mut [Child; 2], switches: usize) -> Done<(Spread, u64)> {
    for child in children.iter_mut() {
        child.say(&switches.to_string())?;
    }
    let [a, b] = [hear::<Turns>(&children[0], args.seconds)?, hear::<Turns>(&children[1], args.seconds)?];
    let mut took = Spread::default();
    for (signals, wakes) in [(&a.signalled, &b.woke), (&b.signalled, &a.woke)] {
        signals.iter().zip(wakes).for_each(|(from, to)| took.add(to.saturating_sub(*from)));
    }
    Ok((took, a.requests + b.requests))
}

/// In a child: takes turns with the other process, if that is its role. Returns whether it is.
pub(crate) fn play() -> Result<bool, Box<dyn Error>> {
    let Some(job) = job::<Job>(ROLE)? else { return Ok(false) };
    if job.bare {
        let mut peer = BarePeer::connect(job.port, Reentrant::RULE, "bench:bare", false)?;
        take_turns(&job, &mut peer)?;
        return Ok(true);
    }
    let client = Client::connect(&job.url)?;
    take_turns(&job, &mut ByLibrary::new(&client, &client.reentrant_lock("bench:court")))?;
    client.close()?;
    Ok(true)
}

fn take_turns(job: &Job, peer: &mut dyn Signaller) -> Done<()> {
    // The condition that each process waits for.
    let (mine, other) = if job.first { (1, 0) } else { (0, 1) };
    tell(&true)?;
    while let Some(switches) = order::<usize>()? {
        let mut done = Turns { signalled: Vec::new(), woke: Vec::new(), requests: 0 };
        peer.lock()?;
        if job.first {
            while !peer.has_waiters(other)? {
                peer.unlock()?;
                thread::sleep(Duration::from_millis(1));
                peer.lock()?;
            }
        } else {
            peer.wait(mine)?;
            done.woke.push(now());
        }
        let before = peer.requests();
        for i in 0..switches {
            // The first process is woken last; the other one has nothing left to wait for.
            done.signalled.push(now());
            peer.signal(other)?;
            if job.first || i + 1 < switches {
                peer.wait(mine)?;
                done.woke.push(now());
            }
        }
        done.requests = peer.requests() - before;
        peer.unlock()?;
        tell(&done)?;
    }
    Ok(())
}
