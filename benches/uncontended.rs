//! Uncontended lock and unlock in one process, measured with criterion; each compared with the same two
//! requests on a bare socket.
//!
//! `PIN=same` puts client and server on one core: without it the figures depend on where the system happens
//! to put them. For ratios use `contention --workload uncontended`, in which both sides alternate every few
//! milliseconds.

#[path = "contention/bare.rs"]
mod bare;
#[path = "contention/pair.rs"]
mod pair;
#[path = "contention/pin.rs"]
mod pin;
#[path = "contention/recorder.rs"]
mod recorder;

use std::error::Error;

use criterion::Criterion;
use redis_concurrent::Client;
use redis_concurrent_testkit::RedisServer;

use pair::Pair;

fn main() -> Result<(), Box<dyn Error>> {
    if std::env::var("PIN").is_ok_and(|pin| pin == "same") {
        pin::to_one_core()?;
    }
    let server = RedisServer::start()?;
    let client = Client::connect(&server.url())?;
    let mut criterion = Criterion::default().configure_from_args();
    let criterion = &mut criterion;

    let mut group = criterion.benchmark_group("pair");
    let simple = client.simple_lock("bench:simple");
    group.bench_function("simple", |b| b.iter(|| simple.lock().and_then(|guard| guard.unlock())));
    let mut floor = Pair::floor(server.port(), true, "bench:floor:1")?;
    group.bench_function("simple, bare socket", |b| b.iter(|| floor.run()));
    let again = client.reentrant_lock("bench:reentrant");
    group.bench_function("reentrant", |b| b.iter(|| again.lock().and_then(|guard| guard.unlock())));
    let mut floor = Pair::floor(server.port(), false, "bench:floor:2")?;
    group.bench_function("reentrant, bare socket", |b| b.iter(|| floor.run()));
    let mut smallest = Pair::smallest(server.port(), "bench:least")?;
    group.bench_function("smallest scripts, bare socket", |b| b.iter(|| smallest.run()));
    group.finish();

    let held = again.lock()?;
    criterion.bench_function("re-entry", |b| b.iter(|| again.lock().and_then(|guard| guard.unlock())));
    let elsewhere = Client::connect(&server.url())?;
    let busy = elsewhere.reentrant_lock("bench:reentrant");
    criterion.bench_function("try_lock, busy", |b| b.iter(|| busy.try_lock().map(|guard| guard.is_some())));
    held.unlock()?;
    criterion.final_summary();
    Ok(())
}
