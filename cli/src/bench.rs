//! `bench`: measures the latencies of this server, in a namespace of its own, to tell the network, Redis and
//! the locks apart.

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::observe::{LockInfo, Observer};
use redis_concurrent::{Client, redis};
use serde_json::json;

use crate::args::{Bench, Global};
use crate::connect::{self, Servers};
use crate::exit::Failure;
use crate::say;

/// How often the hold whose renewals are watched is renewed.
const OFTEN: Duration = Duration::from_millis(100);

const PAIR: &str = "pair";
const RELAY: &str = "relay";
const RENEWED: &str = "renewed";

/// A measurement: its figures, sorted.
pub struct Measured {
    name: &'static str,
    sorted: Vec<Duration>,
}

impl Measured {
    pub fn new(name: &'static str, mut all: Vec<Duration>) -> Measured {
        all.sort();
        Measured { name, sorted: all }
    }

    /// Returns the duration that this part of the figures does not exceed.
    pub fn quantile(&self, part: f64) -> Duration {
        let at = (self.sorted.len() as f64 * part) as usize;
        self.sorted.get(at.min(self.sorted.len().saturating_sub(1))).copied().unwrap_or_default()
    }
}

pub fn bench(global: &Global, args: &Bench) -> Result<ExitCode, Failure> {
    let servers = Servers::of(global)?;
    let own = format!("{}:bench-{}", servers.namespace(), std::process::id());
    let measured = measure(&servers, args.seconds, &own);
    let removed = remove(&servers, &own);
    let measured = measured?;
    removed?;
    let ping = measured[0].quantile(0.5).as_secs_f64().max(1e-9);
    let ms = |it: Duration| format!("{:.3}", it.as_secs_f64() * 1e3);
    if global.json {
        say::objects(measured.iter().map(|it| {
            let [p50, p99, max] = [0.5, 0.99, 1.0].map(|part| it.quantile(part).as_secs_f64());
            json!({
                "measure": it.name, "n": it.sorted.len(), "p50_s": p50, "p99_s": p99, "max_s": max,
                "pings": (p50 / ping * 100.0).round() / 100.0,
            })
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    let head = ["", "n", "p50 ms", "p99 ms", "max ms", "of a PING"].map(str::to_owned);
    let rows = measured.iter().map(|it| {
        let times = format!("{:.1}", it.quantile(0.5).as_secs_f64() / ping);
        let n = it.sorted.len().to_string();
        [it.name.to_owned(), n, ms(it.quantile(0.5)), ms(it.quantile(0.99)), ms(it.quantile(1.0)), times]
    });
    say::table(std::iter::once(head).chain(rows), &[])?;
    Ok(ExitCode::SUCCESS)
}

fn measure(servers: &Servers, seconds: Duration, own: &str) -> Result<Vec<Measured>, Failure> {
    let part = seconds / 4;
    let builder = || servers.builder().namespace(own);
    let client = || servers.connected(builder());
    let one = client()?;
    // In a cluster, to the primary of the measured lock.
    let mut connection = connect::to(one.primary_of(PAIR)?)?;
    Ok(vec![
        Measured::new("PING", pings(&mut connection, part)?),
        Measured::new("lock and unlock", pairs(&one, part)?),
        Measured::new("hand-off", hand_offs([client()?, client()?], part)?),
        Measured::new("renewal lag", lags(&servers.connected(builder().renew_every(OFTEN))?, part)?),
    ])
}

/// Measures round trips, one after another.
pub fn pings(connection: &mut redis::Connection, during: Duration) -> Result<Vec<Duration>, Failure> {
    let end = Instant::now() + during;
    let mut all = Vec::new();
    while all.is_empty() || Instant::now() < end {
        let began = Instant::now();
        redis::cmd("PING").exec(connection)?;
        all.push(began.elapsed());
    }
    Ok(all)
}

fn pairs(client: &Client, during: Duration) -> Result<Vec<Duration>, Failure> {
    let lock = client.reentrant_lock(PAIR);
    lock.lock()?.unlock()?; // loads the scripts
    let end = Instant::now() + during;
    let mut all = Vec::new();
    while all.is_empty() || Instant::now() < end {
        let began = Instant::now();
        lock.lock()?.unlock()?;
        all.push(began.elapsed());
    }
    Ok(all)
}

/// Measures from a release to the next holder, between two clients that both always wait. To Redis they are
/// two processes.
fn hand_offs(clients: [Client; 2], during: Duration) -> Result<Vec<Duration>, Failure> {
    let (origin, end) = (Instant::now(), Instant::now() + during);
    // The client that released last, and when, in nanoseconds.
    let released = AtomicU64::new(0);
    let all = Mutex::new(Vec::new());
    let turns = |me: u64, client: &Client| -> Result<(), Failure> {
        let lock = client.reentrant_lock(RELAY).fair();
        while Instant::now() < end {
            let guard = lock.lock()?;
            let now = origin.elapsed().as_nanos() as u64;
            let before = released.load(Ordering::SeqCst);
            if before != 0 && before & 1 != me {
                let took = Duration::from_nanos(now.saturating_sub(before >> 1));
                all.lock().unwrap_or_else(|e| e.into_inner()).push(took);
            }
            released.store((origin.elapsed().as_nanos() as u64) << 1 | me, Ordering::SeqCst);
            guard.unlock()?;
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads = [0, 1].map(|me| {
            let (turns, client) = (&turns, &clients[me as usize]);
            scope.spawn(move || turns(me, client))
        });
        threads.into_iter().try_for_each(|it| it.join().unwrap_or_else(|_| Err(Failure::internal("a panic"))))
    })?;
    Ok(all.into_inner().unwrap_or_else(|e| e.into_inner()))
}

/// Measures how late renewals are sent.
fn lags(client: &Client, during: Duration) -> Result<Vec<Duration>, Failure> {
    #[derive(Clone, Default)]
    struct Lags(Arc<Mutex<Vec<Duration>>>, Arc<AtomicBool>);
    impl Observer for Lags {
        fn renewed(&self, _: LockInfo<'_>, lag: Duration, _: Duration) {
            self.0.lock().unwrap_or_else(|e| e.into_inner()).push(lag);
            self.1.store(true, Ordering::SeqCst);
        }
    }
    let lags = Lags::default();
    let watching = client.observe(lags.clone());
    let guard = client.reentrant_lock(RENEWED).lock_owned()?;
    // Until at least one renewal was sent, on a server that answers.
    let lost = guard.lost();
    let mut over = lost.wait_timeout(during);
    while !over && !lags.1.load(Ordering::SeqCst) {
        over = lost.wait_timeout(OFTEN);
    }
    guard.unlock()?;
    drop(watching);
    let all = lags.0.lock().unwrap_or_else(|e| e.into_inner()).clone();
    Ok(all)
}

/// Removes what is left in Redis: the last grant numbers.
fn remove(servers: &Servers, own: &str) -> Result<(), Failure> {
    let client = servers.connected(servers.builder().namespace(own))?;
    for name in [PAIR, RELAY, RENEWED] {
        let keys = client.inspect(name)?.map_or_else(Vec::new, |found| found.keys);
        if !keys.is_empty() {
            let keys: Vec<_> = keys.into_iter().map(|it| it.key).collect();
            redis::cmd("UNLINK").arg(keys).exec(&mut connect::to(client.primary_of(name)?)?)?;
        }
    }
    Ok(())
}

/// Formats a duration for people: `0.12 ms`.
pub fn in_ms(it: Duration) -> String {
    format!("{:.2} ms", it.as_secs_f64() * 1e3)
}

/// Formats the p50 and the p99 for a check.
pub fn summary(measured: &Measured) -> String {
    format!("p50 {}, p99 {}", in_ms(measured.quantile(0.5)), in_ms(measured.quantile(0.99)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_figures() {
        let it = Measured::new("it", (1..=100).rev().map(Duration::from_millis).collect());
        assert_eq!([0.5, 0.99, 1.0].map(|part| it.quantile(part).as_millis()), [51, 100, 100]);
        assert_eq!(Measured::new("none", Vec::new()).quantile(0.5), Duration::ZERO);
    }
}
