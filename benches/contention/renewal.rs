//! Many locks held at once: what renewing them costs this process, the server and its other clients.

use std::error::Error;
use std::time::Duration;

use redis_concurrent::kinds::Kind;
use redis_concurrent::{Client, OwnedGuard, RedisLock};
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::bare::{Bare, request};
use super::children::{hear, job, order, spawn, tell};
use super::clock::{cpu, now, sleep_until};
use super::memory::resident;
use super::row::Row;
use super::server::Watched;
use super::stats::Spread;

const ROLE: &str = "keeper";
/// The longest measurement without renewals, in seconds, for comparison.
const LONGEST_IDLE: f64 = 15.0;

#[derive(Serialize, Deserialize)]
struct Job {
    url: String,
    locks: usize,
    lease_ms: u64,
    simple: bool,
}

/// What a child is to do next.
#[derive(Serialize, Deserialize)]
enum Order {
    /// Acquire all locks, spread evenly over the time in which each is renewed once.
    Take,
    /// Do nothing until this time.
    Keep(u64),
    GiveBack,
}

#[derive(Default, Serialize, Deserialize)]
struct Report {
    requests: u64,
    cpu: u64,
    lapsed: usize,
    rss: u64,
}

pub(crate) fn run(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut server = Watched::start()?;
    let mut other = Bare::connect(server.redis.port())?;
    let job = Job { url: server.url(), locks: args.locks, lease_ms: args.lease_ms, simple: args.simple() };
    let mut child = spawn(ROLE, &job)?;
    let empty: Report = hear(&child, 0.0)?;
    let mut rounds = Vec::new();
    for round in 0..args.rounds {
        let idle = ((args.seconds / 2.0).min(LONGEST_IDLE) * 1e9) as u64;
        let without = ping(&mut other, now() + idle)?;
        child.say(&serde_json::to_string(&Order::Take)?)?;
        let full: Report = hear(&child, args.lease_ms as f64 / 1e3)?;

        let end = now() + (args.seconds * 1e9) as u64;
        let before = server.cpu_us()?;
        child.say(&serde_json::to_string(&Order::Keep(end))?)?;
        let with = ping(&mut other, end)?;
        let server_cpu = server.cpu_us()? - before;
        let kept: Report = hear(&child, args.seconds)?;

        child.say(&serde_json::to_string(&Order::GiveBack)?)?;
        let _: Report = hear(&child, 0.0)?;
        let p99 = |pings: &Spread| pings.quantile(0.99).map(|ns| ns / 1e3);
        // Only the first round shows it: later rounds reuse the memory that the process has kept since.
        let grown = (round == 0).then(|| full.rss.saturating_sub(empty.rss) as f64 / args.locks as f64);
        rounds.push(Row {
            locks: Some(args.locks as u64),
            lease_ms: Some(args.lease_ms),
            renewals_per_s: Some(kept.requests as f64 / args.seconds),
            client_cpu_percent: Some(kept.cpu as f64 / 1e7 / args.seconds),
            server_cpu_percent: Some(server_cpu / 1e4 / args.seconds),
            lapsed: Some(kept.lapsed as f64),
            rss_per_lock_bytes: grown,
            ping_us_p99_without: p99(&without),
            ping_us_p99_with: p99(&with),
            ping_us_p99_added: p99(&with).zip(p99(&without)).map(|(a, b)| a - b),
            ..Row::default()
        });
    }
    Ok(rounds)
}

/// Sends PINGs as another client of the server until `end`, half a millisecond apart. Returns how long they
/// took.
fn ping(bare: &mut Bare, end: u64) -> Result<Spread, Box<dyn Error>> {
    let ping = request(&["PING"]);
    let mut times = Spread::default();
    while now() < end {
        std::thread::sleep(Duration::from_micros(500));
        let sent = now();
        bare.exchange(&ping)?;
        times.add(now() - sent);
    }
    Ok(times)
}

/// In a child: holds the locks, if that is its role. Returns whether it is.
pub(crate) fn play() -> Result<bool, Box<dyn Error>> {
    let Some(job) = job::<Job>(ROLE)? else { return Ok(false) };
    let client = Client::builder().url(&job.url).lease(Duration::from_millis(job.lease_ms)).connect()?;
    if job.simple {
        keep(&job, &client, |i| client.simple_lock(&format!("bench:keep:{i:06}")))?;
    } else {
        keep(&job, &client, |i| client.reentrant_lock(&format!("bench:keep:{i:06}")))?;
    }
    client.close()?;
    Ok(true)
}

fn keep<K: Kind>(
    job: &Job,
    client: &Client,
    lock: impl Fn(usize) -> RedisLock<K>,
) -> Result<(), Box<dyn Error>> {
    // Uses one lock first, so that one-time memory is not counted with that of the many.
    lock(0).lock_owned()?.unlock()?;
    let mut guards: Vec<OwnedGuard<K>> = Vec::with_capacity(job.locks);
    tell(&Report { rss: resident()?, ..Report::default() })?;
    while let Some(order) = order::<Order>()? {
        match order {
            Order::Take => {
                let begin = now();
                let period = job.lease_ms * 1_000_000 / 3;
                for i in 0..job.locks {
                    sleep_until(begin + period / job.locks as u64 * i as u64);
                    guards.push(lock(i).lock_owned()?);
                }
                tell(&Report { rss: resident()?, ..Report::default() })?;
            }
            Order::Keep(end) => {
                let before = (client.request_count(), cpu());
                sleep_until(end);
                let (requests, cpu) = (client.request_count() - before.0, cpu() - before.1);
                let lapsed = guards.iter().filter(|g| g.is_lost()).count();
                tell(&Report { requests, cpu, lapsed, rss: resident()? })?;
            }
            Order::GiveBack => {
                guards.clear();
                tell(&Report::default())?;
            }
        }
    }
    Ok(())
}
