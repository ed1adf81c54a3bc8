//! What it costs to keep many holds on several primaries.

use std::thread;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent_testkit::{RedisCluster, RedisServer};

use crate::support::{Ears, Heard};

const HELD: usize = 10_000;
const MEASURED: Duration = Duration::from_secs(20);

/// The CPU time of this process so far.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPU time that renewals take in that time, and how many there were.
fn of_renewals(url: &str) -> (Duration, usize) {
    let ears = Ears::default();
    let lease = Duration::from_secs(30);
    let client = Client::builder().url(url).lease(lease).observer(ears.clone()).connect().unwrap();
    let locks: Vec<_> = (0..HELD).map(|i| client.reentrant_lock(&format!("held {i}"))).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let (before, began) = (ears.count(Heard::Renewed), cpu());
    thread::sleep(MEASURED);
    let (renewed, took) = (ears.count(Heard::Renewed) - before, cpu() - began);
    assert_eq!(ears.losses(), 0);
    drop(guards);
    (took, renewed)
}

/// `cargo test --release --test faults -- --ignored --exact --nocapture
/// cluster::renewals::ten_thousand_holds_on_six_primaries_and_on_one_server`
#[test]
#[ignore = "a figure"]
fn ten_thousand_holds_on_six_primaries_and_on_one_server() {
    let per_renewal = |url: &str| {
        let (took, renewed) = of_renewals(url);
        let each = took / renewed.max(1) as u32;
        println!("{renewed} renewals in {MEASURED:?}, {took:?} of CPU time, {each:?} each");
        each.as_secs_f64()
    };
    let server = RedisServer::start().unwrap();
    let one = per_renewal(&server.url());
    drop(server);
    let cluster = RedisCluster::start(6).unwrap();
    let six = per_renewal(&cluster.url());
    println!("six primaries: {:.2} of the CPU time of one server", six / one);
}
