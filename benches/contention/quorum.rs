//! An uncontended lock over five servers, compared with the same scripts on five bare sockets; and with two
//! of the servers stopped.

use std::error::Error;
use std::io;

use redis_concurrent::{Client, RedLock, RedLockClient};
use redis_concurrent_testkit::{RedisServer, eventually};

use super::args::Args;
use super::clock::{cpu, now};
use super::pair::Pair;
use super::row::Row;
use super::stats::median;

const SERVERS: usize = 5;
/// How many of them are stopped in the second half of a round.
const STOPPED: usize = 2;
/// Consecutive pairs of one side: so few that other load on the machine affects all sides alike.
const BATCH: usize = 25;
/// How long it may take until stopped servers are used again.
const BACK: std::time::Duration = std::time::Duration::from_secs(20);

/// Runs both halves in each round, one after the other, so that they can be compared.
pub(crate) fn run(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let servers = (0..SERVERS).map(|_| RedisServer::start()).collect::<io::Result<Vec<_>>>()?;
    let clients = servers.iter().map(|s| Client::connect(&s.url())).collect::<Result<Vec<_>, _>>()?;
    // These servers have not granted anything before.
    let lock = RedLockClient::new(&clients)?.skip_startup_delay().lock("bench:quorum");
    let floors = servers.iter().map(|server| Pair::floor(server.port(), true, "bench:floor"));
    let mut floors = floors.collect::<io::Result<Vec<_>>>()?;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let mut row = well(args, &clients, &lock, &mut floors)?;
        for server in &servers[..STOPPED] {
            server.stop()?;
        }
        let outcome = stopped(args, &lock);
        for server in &servers[..STOPPED] {
            server.cont()?;
        }
        row.stopped_us = outcome?;
        row.ratio_stopped = row.stopped_us.zip(row.pair_us).map(|(a, b)| a / b);
        // A background probe finds that the servers answer again.
        eventually(BACK, || lock.lock().is_ok_and(|guard| guard.servers() == SERVERS).then_some(()));
        rounds.push(row);
    }
    Ok(rounds)
}

/// All servers are up: the library and the floor alternate.
fn well(args: &Args, clients: &[Client], lock: &RedLock, floors: &mut [Pair]) -> Result<Row, Box<dyn Error>> {
    let count = || clients.iter().map(Client::request_count).sum::<u64>();
    let end = now() + (args.seconds * 1e9) as u64;
    let (mut times, mut cpus, mut requests) = ([Vec::new(), Vec::new()], [0, 0], 0);
    while times[0].is_empty() || now() < end {
        let before = count();
        let (t0, c0) = (now(), cpu());
        for _ in 0..BATCH {
            pair(lock)?;
        }
        let (t1, c1) = (now(), cpu());
        for _ in 0..BATCH {
            together(floors)?;
        }
        let (t2, c2) = (now(), cpu());
        for (times, took) in times.iter_mut().zip([t1 - t0, t2 - t1]) {
            times.push(took as f64 / 1e3 / BATCH as f64);
        }
        cpus = [cpus[0] + c1 - c0, cpus[1] + c2 - c1];
        requests += count() - before;
    }
    let pairs = (times[0].len() * BATCH) as f64;
    let [pair, floor] = times.map(|t| median(&t));
    Ok(Row {
        acquisitions_per_s: pair.map(|us| 1e6 / us),
        commands_per_acquisition: Some(requests as f64 / pairs),
        pair_us: pair,
        floor_us: floor,
        ratio_floor: pair.zip(floor).map(|(a, b)| a / b),
        client_cpu_us: Some(cpus[0] as f64 / 1e3 / pairs),
        floor_client_cpu_us: Some(cpus[1] as f64 / 1e3 / pairs),
        ..Row::default()
    })
}

/// Locks and unlocks. If the machine stalls for a moment, the servers' short timeouts pass and the release
/// continues in the background.
fn pair(lock: &RedLock) -> Result<(), redis_concurrent::Error> {
    match lock.lock()?.unlock() {
        Err(error) if !error.is_outcome_unknown() => Err(error),
        _ => Ok(()),
    }
}

/// Locks and unlocks on all bare sockets. Each request is written to all of them before a reply is read.
fn together(floors: &mut [Pair]) -> io::Result<()> {
    for half in 0..2 {
        for floor in &mut *floors {
            floor.write(half)?;
        }
        for floor in &mut *floors {
            floor.read()?;
        }
    }
    Ok(())
}

/// Some servers are stopped, and the client knows that: a first acquisition, which is not measured, has found
/// it out.
fn stopped(args: &Args, lock: &RedLock) -> Result<Option<f64>, Box<dyn Error>> {
    pair(lock)?;
    let end = now() + (args.seconds * 1e9) as u64 / 2;
    let mut times = Vec::new();
    while times.is_empty() || now() < end {
        let begin = now();
        for _ in 0..BATCH {
            pair(lock)?;
        }
        times.push((now() - begin) as f64 / 1e3 / BATCH as f64);
    }
    Ok(median(&times))
}
