//! Many processes that wait at a latch, or for each other at a barrier.

use std::error::Error;
use std::time::Duration;

use redis::Commands;
use redis_concurrent::Client;
use redis_concurrent_testkit::{Child, wait_until};
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::children::{hear, job, order, spawn, tell};
use super::clock::now;
use super::row::Row;
use super::server::Watched;
use super::stats::Spread;

const ROLE: &str = "starter";
const PROCESSES: usize = 32;
const LONG: Duration = Duration::from_secs(60);
const LATCH: &str = "bench:start";
const BARRIER: &str = "bench:line";

#[derive(Serialize, Deserialize)]
struct Job {
    url: String,
    latch: bool,
    parties: usize,
}

/// One wait: when it began, when it ended, how many requests it took.
#[derive(Serialize, Deserialize)]
struct Waited(u64, u64, u64);

/// Measures from the count-down that opens a latch until all 32 waiting processes have continued.
pub(crate) fn latch(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let (server, mut children) = gather(args, true)?;
    let client = Client::connect(&server.url())?;
    let latch = client.count_down_latch(LATCH);
    let mut redis = server.redis.connection()?;
    rounds(args, || {
        latch.try_set_count(1)?;
        go(&mut children)?;
        let queue = format!("rc:{{{LATCH}}}:queue");
        wait_until(LONG, "all wait", || redis.zcard(&queue).unwrap_or(0) == children.len());
        let began = now();
        latch.count_down()?;
        let waited = come_back(&children)?;
        latch.delete()?;
        Ok((began, waited))
    })
}

/// Measures from the last arrival at a barrier until all 32 processes have continued.
pub(crate) fn barrier(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let (_server, mut children) = gather(args, false)?;
    rounds(args, || {
        go(&mut children)?;
        let waited = come_back(&children)?;
        let last = waited.iter().map(|Waited(began, ..)| *began).max().unwrap_or(0);
        Ok((last, waited))
    })
}

type Round = Result<(u64, Vec<Waited>), Box<dyn Error>>;

fn rounds(args: &Args, mut round: impl FnMut() -> Round) -> Result<Vec<Row>, Box<dyn Error>> {
    // A first round, which does not count, opens the connections and loads the scripts.
    round()?;
    let mut rows = Vec::new();
    for _ in 0..args.rounds {
        let (mut all, mut requests, mut n) = (Spread::default(), 0, 0);
        for _ in 0..if args.smoke { 1 } else { 10 } {
            let (began, waited) = round()?;
            all.add(waited.iter().map(|Waited(_, ended, _)| *ended).max().unwrap_or(0) - began);
            requests += waited.iter().map(|Waited(.., requests)| requests).sum::<u64>();
            n += waited.len();
        }
        rows.push(Row {
            processes: n / if args.smoke { 1 } else { 10 },
            commands_per_acquisition: Some(requests as f64 / n as f64),
            wait_us_p50: all.quantile(0.5).map(|ns| ns / 1e3),
            longest_wait_us: all.max().map(|ns| ns / 1e3),
            ..Row::default()
        });
    }
    Ok(rows)
}

fn gather(args: &Args, latch: bool) -> Result<(Watched, Vec<Child>), Box<dyn Error>> {
    let server = Watched::start()?;
    let parties = if args.smoke { 4 } else { PROCESSES };
    let job = Job { url: server.url(), latch, parties };
    let children = (0..parties).map(|_| spawn(ROLE, &job)).collect::<Result<Vec<_>, _>>()?;
    for child in &children {
        let _: bool = hear(child, 0.0)?;
    }
    Ok((server, children))
}

fn go(children: &mut [Child]) -> Result<(), Box<dyn Error>> {
    for child in children {
        child.say("true")?;
    }
    Ok(())
}

fn come_back(children: &[Child]) -> Result<Vec<Waited>, Box<dyn Error>> {
    children.iter().map(|child| hear(child, 0.0)).collect()
}

/// In a child: waits whenever the parent says so, if that is its role. Returns whether it is.
pub(crate) fn play() -> Result<bool, Box<dyn Error>> {
    let Some(job) = job::<Job>(ROLE)? else { return Ok(false) };
    let client = Client::connect(&job.url)?;
    let (latch, barrier) = (client.count_down_latch(LATCH), client.cyclic_barrier(BARRIER, job.parties));
    tell(&true)?;
    while order::<bool>()?.is_some() {
        let (began, before) = (now(), client.request_count());
        if job.latch {
            latch.wait()?;
        } else {
            barrier.wait()?;
        }
        let ended = now();
        tell(&Waited(began, ended, client.request_count() - before))?;
    }
    client.close()?;
    Ok(true)
}
