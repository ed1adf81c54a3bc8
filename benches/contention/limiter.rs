//! Decisions of a rate limiter, compared with the same script on a bare socket.

use std::error::Error;
use std::hint::black_box;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent::rate_limiter::Rate;

use super::args::Args;
use super::bare::{Bare, request};
use super::clock::{cpu, now};
use super::recorder::heard;
use super::row::Row;
use super::server::Watched;
use super::stats::median;

/// Consecutive decisions of one side: so few that other load on the machine affects both sides alike.
const BATCH: usize = 100;

/// Both kinds of rate, high enough that every request is allowed.
pub(crate) const RATES: [(&str, Rate); 2] = [
    ("fixed window", Rate::fixed_window(2_000_000_000, Duration::from_secs(3600))),
    ("smooth", Rate::smooth(2_000_000_000, Duration::from_secs(3600))),
];

pub(crate) fn run(args: &Args, rate: Rate) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut server = Watched::start()?;
    let client = Client::connect(&server.url())?;
    let limiter = client.rate_limiter("bench:limit:1", rate);
    let decide = || limiter.try_acquire(1).map(|decision| black_box(decision.allowed));
    decide()?;
    let port = server.redis.port();
    let calls = heard(port, |client| client.rate_limiter("bench:floor:1", rate).acquire(1))?;
    let floor = request(calls.first().ok_or("the library's request was not heard")?);
    let mut bare = Bare::connect(port)?;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let end = now() + (args.seconds * 1e9) as u64;
        let (mut times, mut cpus, mut turns) = ([Vec::new(), Vec::new()], [0, 0], 0);
        let before = client.request_count();
        server.reset_stats()?;
        while turns == 0 || now() < end {
            let (t0, c0) = (now(), cpu());
            for _ in 0..BATCH {
                decide()?;
            }
            let (t1, c1) = (now(), cpu());
            for _ in 0..BATCH {
                // The beginning of the reply to a request that is allowed.
                if !bare.exchange(&floor)?.starts_with(b"*4\r\n:1\r\n") {
                    return Err("the floor was refused".into());
                }
            }
            let (t2, c2) = (now(), cpu());
            for (times, took) in times.iter_mut().zip([t1 - t0, t2 - t1]) {
                times.push(took as f64 / 1e3 / BATCH as f64);
            }
            cpus = [cpus[0] + c1 - c0, cpus[1] + c2 - c1];
            turns += 1;
        }
        let decisions = (turns * BATCH) as f64;
        let [ours, floor] = times.map(|times| median(&times));
        rounds.push(Row {
            acquisitions_per_s: ours.map(|us| 1e6 / us),
            commands_per_acquisition: Some((client.request_count() - before) as f64 / decisions),
            pings: Some(server.pings()? as f64),
            pair_us: ours,
            floor_us: floor,
            ratio_floor: ours.zip(floor).map(|(ours, floor)| ours / floor),
            // The script is the same on both sides.
            inside_redis_us: Some(server.script_us()? / decisions / 2.0),
            client_cpu_us: Some(cpus[0] as f64 / 1e3 / decisions),
            floor_client_cpu_us: Some(cpus[1] as f64 / 1e3 / decisions),
            ..Row::default()
        });
    }
    Ok(rounds)
}
