//! What it costs to keep many holds on several primaries.

use std::thread;
use std::time::Duration;

use redis_concurrent::Client;
use redis_concurrent_testkit::{RedisCluster, RedisServer};

use crate::support::{Event, Recorder};

const HELD: usize = 10_000;
const MEASURED: Duration = Duration::from_secs(10);
const ROUNDS: usize = 3;

/// The CPU time of this process so far.
fn cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The CPU time that renewals take in that time, and how many there were.
fn of_renewals(url: &str) -> (Duration, usize) {
    let recorder = Recorder::default();
    let lease = Duration::from_secs(30);
    let client = Client::builder().url(url).lease(lease).observer(recorder.clone()).connect().unwrap();
    let locks: Vec<_> = (0..HELD).map(|i| client.reentrant_lock(&format!("held {i}"))).collect();
    let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
    let (before, began) = (recorder.count(Event::Renewed), cpu());
    thread::sleep(MEASURED);
    let (renewed, took) = (recorder.count(Event::Renewed) - before, cpu() - began);
    assert_eq!(recorder.losses(), 0);
    drop(guards);
    client.close().unwrap();
    (took, renewed)
}

/// `cargo test --release --test faults -- --ignored --exact --nocapture
/// cluster::renewals::ten_thousand_holds_on_six_primaries_and_on_one_server`
#[test]
#[ignore = "a figure"]
fn ten_thousand_holds_on_six_primaries_and_on_one_server() {
    let (server, cluster) = (RedisServer::start().unwrap(), RedisCluster::start(6).unwrap());
    let mut all = [(Duration::ZERO, 0); 2];
    for _ in 0..ROUNDS {
        for (url, (took, renewed)) in [server.url(), cluster.url()].iter().zip(&mut all) {
            let (round, renewals) = of_renewals(url);
            println!("{renewals} renewals in {MEASURED:?}, {round:?} of CPU time");
            *took += round;
            *renewed += renewals;
        }
    }
    let [one, six] = all.map(|(took, renewed)| took / renewed.max(1) as u32);
    let ratio = six.as_secs_f64() / one.as_secs_f64();
    println!("a renewal: {one:?} on one server, {six:?} on six primaries, {ratio:.2} times");
}
