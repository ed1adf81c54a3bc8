//! What a service can see of its locks: events through `tracing`, figures through `metrics`.
//!
//! `cargo run --example observe`, on the server that `REDIS_URL` names or on a private one. With
//! `RUST_LOG=warn` the loss is the only event that is shown.

use std::{env, thread, time::Duration};

use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use redis_concurrent::observe::MetricsObserver;
use redis_concurrent::{Client, Error};
use redis_concurrent_testkit::RedisServer;

type Failure = Box<dyn std::error::Error>;

fn main() -> Result<(), Failure> {
    let level = env::var("RUST_LOG").map_or(Ok(tracing::Level::TRACE), |level| level.parse())?;
    tracing_subscriber::fmt().with_max_level(level).with_ansi(false).without_time().init();
    // A service installs its exporter here, for instance the one for Prometheus.
    let recorder = DebuggingRecorder::new();
    let figures = recorder.snapshotter();
    recorder.install()?;

    let server = if env::var("REDIS_URL").is_ok() { None } else { Some(RedisServer::start()?) };
    let url = server.as_ref().map_or_else(|| env::var("REDIS_URL"), |it| Ok(it.url()))?;
    let name = format!("observed-{}", std::process::id());
    // To Redis, two clients are like two processes.
    let (one, other) = (watched(&url)?, watched(&url)?);
    contend(&one, &other, &name)?;
    lose(&one, &other, &name)?;
    one.close()?;
    other.close()?;
    print(&figures);
    Ok(())
}

/// Events are emitted by default; figures need an observer.
fn watched(url: &str) -> Result<Client, Error> {
    let builder = Client::builder().url(url).lease(Duration::from_secs(3));
    builder.renew_every(Duration::from_millis(100)).observer(MetricsObserver::default()).connect()
}

fn contend(one: &Client, other: &Client, name: &str) -> Result<(), Error> {
    thread::scope(|scope| {
        let turns = [one, one, other].map(|client| {
            scope.spawn(|| {
                let lock = client.reentrant_lock(name);
                (0..3).try_for_each(|_| lock.with(|_| thread::sleep(Duration::from_micros(300))))
            })
        });
        turns.into_iter().try_for_each(|it| it.join().expect("a turn does not panic"))
    })
}

/// Holds the lock until it has been renewed, and then loses it by force.
fn lose(one: &Client, other: &Client, name: &str) -> Result<(), Error> {
    let lock = one.reentrant_lock(name);
    let guard = lock.lock()?;
    assert!(other.reentrant_lock(name).try_lock_for(Duration::from_millis(1200))?.is_none());
    other.reentrant_lock(name).force_unlock()?;
    guard.lost().wait_timeout(Duration::from_secs(10));
    println!("{}", guard.unlock().expect_err("it is lost"));
    Ok(())
}

fn print(figures: &Snapshotter) {
    for (key, _, _, value) in figures.snapshot().into_vec() {
        let labels: Vec<_> = key.key().labels().map(|it| format!("{}={:?}", it.key(), it.value())).collect();
        let name = format!("{}{{{}}}", key.key().name(), labels.join(","));
        match value {
            DebugValue::Counter(count) => println!("{name} {count}"),
            DebugValue::Gauge(value) => println!("{name} {value}"),
            DebugValue::Histogram(all) => {
                let most = all.iter().max().map_or(0.0, |it| it.0);
                println!("{name} {} times, at most {:.1} ms", all.len(), most * 1e3);
            }
        }
    }
}
