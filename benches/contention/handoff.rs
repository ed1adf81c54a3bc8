//! The hand-off between two processes: from one's unlock to the other's lock.

use std::error::Error;
use std::thread;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent::kinds::{Kind, Reentrant, Simple};
use redis_concurrent_testkit::Child;
use serde::{Deserialize, Serialize};

use super::args::{Args, Workload};
use super::bare::{Bare, request};
use super::bare_peer::BarePeer;
use super::children::{hear, job, order, spawn, tell};
use super::clock::now;
use super::list_peer::ListPeer;
use super::peer::{ByLibrary, Done, Peer};
use super::row::Row;
use super::server::Watched;
use super::stats::{Spread, jain};

const ROLE: &str = "passer";

#[derive(Serialize, Deserialize)]
struct Job {
    url: String,
    port: u16,
    hold_us: u64,
    simple: bool,
    by: By,
}

/// What passes the lock on.
#[derive(Clone, Copy, Serialize, Deserialize)]
enum By {
    Library,
    /// The same scripts on bare sockets.
    Scripts,
    List,
}

/// One hold: when it was requested, when it was granted, when its release began, and its token.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Held(u64, u64, u64, u64);

pub(crate) fn run(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut server = Watched::start()?;
    let mut bare = Bare::connect(server.redis.port())?;
    let sha = bare.load("return redis.call('GET', KEYS[1]) == ARGV[1] and 1 or 0")?;
    let trip = request(&["EVALSHA", &sha, "1", "bench:none", "nobody"]);
    let (url, port, hold_us) = (server.url(), server.redis.port(), args.hold_us(Workload::Handoff));
    let two = |by| -> Done<[Child; 2]> {
        let job = Job { url: url.clone(), port, hold_us, simple: args.simple(), by };
        let children = [spawn(ROLE, &job)?, spawn(ROLE, &job)?];
        for child in &children {
            let _: bool = hear(child, 0.0)?;
        }
        Ok(children)
    };
    ListPeer::begin(&mut bare)?;
    let (mut children, mut floor, mut list) = (two(By::Library)?, two(By::Scripts)?, two(By::List)?);
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let before = server.cpu_us()?;
        let mut row = pass_on(args, &mut children)?;
        let took = server.cpu_us()? - before;
        row.server_cpu_us = row.acquisitions_per_s.map(|n| took / (n * args.seconds));
        server.reset_stats()?;
        let of_floor = pass_on(args, &mut floor)?;
        let scripts = server.script_us()?;
        row.inside_redis_us = of_floor.acquisitions_per_s.map(|n| scripts / (n * args.seconds));
        row.floor_us = of_floor.handoff_us_p50;
        row.ratio_floor = row.handoff_us_p50.zip(row.floor_us).map(|(a, b)| a / b);
        row.list_us = pass_on(args, &mut list)?.handoff_us_p50;
        row.ratio_list = row.handoff_us_p50.zip(row.list_us).map(|(a, b)| a / b);
        // The time of a round trip after everything has been idle for as long as a hold.
        let mut trips = Spread::default();
        let end = now() + (args.seconds * 1e9) as u64 / 2;
        while trips.max().is_none() || now() < end {
            thread::sleep(Duration::from_micros(hold_us));
            let sent = now();
            bare.exchange(&trip)?;
            trips.add(now() - sent);
        }
        row.round_trip_us = trips.quantile(0.5).map(|ns| ns / 1e3);
        row.ratio_round_trip = row.handoff_us_p50.zip(row.round_trip_us).map(|(a, b)| a / b);
        rounds.push(row);
    }
    Ok(rounds)
}

fn pass_on(args: &Args, children: &mut [Child]) -> Result<Row, Box<dyn Error>> {
    let end = now() + (args.seconds * 1e9) as u64;
    for child in children.iter_mut() {
        child.say(&end.to_string())?;
    }
    let mut all = Vec::new();
    let mut counts = Vec::new();
    for (who, child) in children.iter().enumerate() {
        let held: Vec<Held> = hear(child, args.seconds)?;
        counts.push(held.len() as u64);
        all.extend(held.into_iter().map(|h| (h, who)));
    }
    all.sort_by_key(|(held, _)| held.1);
    let (mut handoffs, mut passed) = (Spread::default(), 0);
    for pair in all.windows(2) {
        let ((Held(_, _, released, token), who), (Held(called, came, _, next), other)) = (pair[0], pair[1]);
        if came < released || next <= token {
            return Err("two held the lock at once, or tokens fell".into());
        }
        if who != other && called < released {
            handoffs.add(came - released);
            passed += 1;
        }
    }
    Ok(Row {
        acquisitions_per_s: Some(all.len() as f64 / args.seconds),
        jain_processes: jain(&counts),
        handoffs: Some(f64::from(passed)),
        handoff_us_p50: handoffs.quantile(0.5).map(|ns| ns / 1e3),
        handoff_us_p99: handoffs.quantile(0.99).map(|ns| ns / 1e3),
        ..Row::default()
    })
}

/// In a child: takes turns with the other process, if that is its role. Returns whether it is.
pub(crate) fn play() -> Result<bool, Box<dyn Error>> {
    let Some(job) = job::<Job>(ROLE)? else { return Ok(false) };
    match job.by {
        By::Library => {
            let client = Client::connect(&job.url)?;
            if job.simple {
                take_turns(&job, &mut ByLibrary::new(&client, &client.simple_lock("bench:baton")))?;
            } else {
                take_turns(&job, &mut ByLibrary::new(&client, &client.reentrant_lock("bench:baton")))?;
            }
            client.close()?;
        }
        By::Scripts => {
            let rule = if job.simple { Simple::RULE } else { Reentrant::RULE };
            take_turns(&job, &mut BarePeer::connect(job.port, rule, "bench:bare", false)?)?;
        }
        By::List => take_turns(&job, &mut ListPeer::connect(job.port)?)?,
    }
    Ok(true)
}

fn take_turns(job: &Job, peer: &mut dyn Peer) -> Done<()> {
    // Sleeps even for a short time: the machine must be as idle as it is before each measured round trip.
    let idle = |us| {
        if us > 0 {
            thread::sleep(Duration::from_micros(us));
        }
    };
    tell(&true)?;
    while let Some(end) = order::<u64>()? {
        let mut all = Vec::new();
        loop {
            let called = now();
            if called >= end {
                break;
            }
            let token = peer.lock()?;
            let came = now();
            idle(job.hold_us);
            let released = now();
            peer.unlock()?;
            all.push(Held(called, came, released, token));
            // Not at once: this measures the wake-up of the other process, not our own enqueueing beside it.
            idle(job.hold_us / 2);
        }
        tell(&all)?;
    }
    Ok(())
}
