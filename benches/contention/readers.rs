//! A writer among readers that never pause, and a writer that downgrades to a reader.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use redis_concurrent::{Client, ReadWriteLock};
use redis_concurrent_testkit::wait_until;

use super::args::Args;
use super::clock::now;
use super::row::Row;
use super::server::Watched;
use super::stats::Spread;

/// The number of readers. Each has a client of its own, which Redis takes for a process.
const READERS: usize = 12;
const READ: Duration = Duration::from_millis(60);
/// How many writes, or downgrades, a round has.
const WRITES: usize = 50;
const LONG: Duration = Duration::from_secs(60);

/// Measures how long a writer waits while twelve readers read without a pause, 60 ms each.
pub(crate) fn writer(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let server = Watched::start()?;
    let readers = locks(&server, READERS)?;
    let writer = lock(&server)?;
    (0..args.rounds).map(|_| write_among(&readers, &writer, writes(args))).collect()
}

/// Measures how long after a downgrade the last of twelve waiting readers acquires the lock.
pub(crate) fn downgrade(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let server = Watched::start()?;
    let readers = locks(&server, READERS)?;
    let writer = lock(&server)?;
    let mut rows = Vec::new();
    for _ in 0..args.rounds {
        let mut waits = Spread::default();
        for _ in 0..writes(args) {
            waits.add(exchange(&readers, &writer)?);
        }
        rows.push(row(&waits, None));
    }
    Ok(rows)
}

fn writes(args: &Args) -> usize {
    if args.smoke { 3 } else { WRITES }
}

fn lock(server: &Watched) -> Result<ReadWriteLock, redis_concurrent::Error> {
    Ok(Client::connect(&server.url())?.read_write_lock("bench:page"))
}

fn locks(server: &Watched, n: usize) -> Result<Vec<ReadWriteLock>, redis_concurrent::Error> {
    (0..n).map(|_| lock(server)).collect()
}

fn row(waits: &Spread, within: Option<f64>) -> Row {
    Row {
        processes: READERS + 1,
        wait_us_p50: waits.quantile(0.5).map(|ns| ns / 1e3),
        wait_us_p99: waits.quantile(0.99).map(|ns| ns / 1e3),
        longest_wait_us: waits.max().map(|ns| ns / 1e3),
        within_70_ms: within,
        ..Row::default()
    }
}

fn write_among(
    readers: &[ReadWriteLock],
    writer: &ReadWriteLock,
    writes: usize,
) -> Result<Row, Box<dyn Error>> {
    let over = AtomicBool::new(false);
    let mut waits = Vec::new();
    thread::scope(|scope| {
        let reading: Vec<_> = (0..)
            .zip(readers)
            .map(|(i, lock)| {
                let over = &over;
                scope.spawn(move || {
                    // Staggered, so that there is no moment without a reader.
                    thread::sleep(READ / READERS as u32 * i);
                    while !over.load(Ordering::Relaxed) {
                        let guard = lock.read_lock().lock()?;
                        thread::sleep(READ);
                        guard.unlock()?;
                    }
                    Ok::<_, redis_concurrent::Error>(())
                })
            })
            .collect();
        thread::sleep(2 * READ);
        let written = (0..writes).try_for_each(|i| {
            let called = now();
            let guard = writer.write_lock().lock()?;
            waits.push(now() - called);
            guard.unlock()?;
            // Not in step with the readers.
            thread::sleep(READ / 2 + Duration::from_millis(i as u64 % 7));
            Ok::<_, redis_concurrent::Error>(())
        });
        over.store(true, Ordering::Relaxed);
        for reader in reading {
            reader.join().map_err(|_| "a reader panicked")??;
        }
        written.map_err(Box::<dyn Error>::from)
    })?;
    let mut spread = Spread::default();
    waits.iter().for_each(|wait| spread.add(*wait));
    let within = waits.iter().filter(|wait| **wait <= 70_000_000).count();
    Ok(row(&spread, Some(within as f64 / waits.len() as f64)))
}

/// Returns the nanoseconds from the beginning of a downgrade until all waiting readers have the lock.
fn exchange(readers: &[ReadWriteLock], writer: &ReadWriteLock) -> Result<u64, Box<dyn Error>> {
    let last = Mutex::new(0);
    let inside = Mutex::new(0);
    let write = writer.write_lock().lock()?;
    let began = thread::scope(|scope| {
        let waiting: Vec<_> = readers
            .iter()
            .map(|lock| {
                scope.spawn(|| {
                    let guard = lock.read_lock().lock()?;
                    let mut last = last.lock();
                    *last = now().max(*last);
                    drop(last);
                    *inside.lock() += 1;
                    guard.unlock()
                })
            })
            .collect();
        wait_until(LONG, "all readers wait", || matches!(writer.read_lock().queue_length(), Ok(READERS)));
        let began = now();
        let read = writer.downgrade(write)?;
        wait_until(LONG, "all readers were in", || *inside.lock() == READERS);
        read.unlock()?;
        for reader in waiting {
            reader.join().map_err(|_| "a reader panicked")??;
        }
        Ok::<_, Box<dyn Error>>(began)
    })?;
    Ok(last.into_inner() - began)
}
