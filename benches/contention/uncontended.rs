//! Uncontended lock and unlock, compared with the same on bare sockets.

use std::error::Error;
use std::hint::black_box;
use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::kinds::{Exclusive, Kind};
use redis_concurrent::{Client, RedisLock};

use super::args::Args;
use super::clock::{cpu, now, sleep_until};
use super::pair::Pair;
use super::row::Row;
use super::server::Watched;
use super::stats::{jain, median};

/// Consecutive pairs of one side: so few that other load on the machine affects all sides alike.
const BATCH: usize = 50;
/// Pairs between two readings of the server's own times.
const LONG_BATCH: usize = 1_000;

/// One thread alternates between the library, the same two scripts, and the smallest two.
pub(crate) fn alone<K: Exclusive>(
    args: &Args,
    lock: impl Fn(&Client) -> RedisLock<K>,
) -> Result<Vec<Row>, Box<dyn Error>> {
    let mut server = Watched::start()?;
    let port = server.redis.port();
    let url = match args.one_way_us {
        Some(us) => far_away(port, Duration::from_micros(us))?,
        None => server.url(),
    };
    let client = Client::builder().url(&url).drop_waits(!args.drops).connect()?;
    let lock = lock(&client);
    let mut floor = Pair::floor(port, args.simple(), "bench:floor:1")?;
    let mut smallest = Pair::smallest(port, "bench:least:1")?;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let mut row = timed(args, &client, &lock, &mut floor, &mut smallest)?;
        inside(args, &mut server, &lock, &mut smallest, &mut row)?;
        rounds.push(row);
    }
    Ok(rounds)
}

fn timed<K: Exclusive>(
    args: &Args,
    client: &Client,
    lock: &RedisLock<K>,
    floor: &mut Pair,
    smallest: &mut Pair,
) -> Result<Row, Box<dyn Error>> {
    let end = now() + (args.seconds * 1e9) as u64;
    let (mut times, mut cpus) = ([const { Vec::new() }; 4], [0, 0]);
    let (mut turns, mut requests) = (0, 0);
    while turns == 0 || now() < end {
        let requests_before = client.request_count();
        let (t0, c0) = (now(), cpu());
        for _ in 0..BATCH {
            pair(lock)?;
        }
        let (t1, c1) = (now(), cpu());
        for _ in 0..BATCH {
            floor.run()?;
        }
        let (t2, c2) = (now(), cpu());
        for _ in 0..BATCH {
            smallest.run()?;
        }
        let t3 = now();
        let requests_of_pairs = client.request_count() - requests_before;
        for _ in 0..if args.drops { BATCH } else { 0 } {
            black_box(lock.lock()?.token());
        }
        let t4 = now();
        for (times, took) in times.iter_mut().zip([t1 - t0, t2 - t1, t3 - t2, t4 - t3]) {
            times.push(took as f64 / 1e3 / BATCH as f64);
        }
        cpus = [cpus[0] + c1 - c0, cpus[1] + c2 - c1];
        requests += requests_of_pairs;
        turns += 1;
    }
    let [pair, floor, smallest, dropped] = times.map(|t| median(&t));
    let dropped = dropped.filter(|_| args.drops);
    let over = |a: Option<f64>, b: Option<f64>| Some(a? / b?);
    let pairs = (turns * BATCH) as f64;
    Ok(Row {
        acquisitions_per_s: pair.map(|us| 1e6 / us),
        commands_per_acquisition: Some(requests as f64 / pairs),
        pair_us: pair,
        floor_us: floor,
        dropped_us: dropped,
        ratio_dropped: over(dropped, pair),
        smallest_us: smallest,
        ratio_floor: over(pair, floor),
        ratio_smallest: over(pair, smallest),
        client_cpu_us: Some(cpus[0] as f64 / 1e3 / pairs),
        floor_client_cpu_us: Some(cpus[1] as f64 / 1e3 / pairs),
        ..Row::default()
    })
}

/// Measures the time that the server reports for the scripts, and in all.
fn inside<K: Exclusive>(
    args: &Args,
    server: &mut Watched,
    lock: &RedisLock<K>,
    smallest: &mut Pair,
    row: &mut Row,
) -> Result<(), Box<dyn Error>> {
    let end = now() + (args.seconds * 1e9) as u64 / 2;
    let (mut library, mut least, mut cpus, mut pings) = (Vec::new(), Vec::new(), Vec::new(), 0);
    let per_pair = |us: f64| us / LONG_BATCH as f64;
    while library.is_empty() || now() < end {
        server.reset_stats()?;
        let before = server.cpu_us()?;
        for _ in 0..LONG_BATCH {
            pair(lock)?;
        }
        cpus.push(per_pair(server.cpu_us()? - before));
        library.push(per_pair(server.script_us()?));
        pings += server.pings()?;
        server.reset_stats()?;
        for _ in 0..LONG_BATCH {
            smallest.run()?;
        }
        least.push(per_pair(server.script_us()?));
    }
    let (library, least) = (median(&library), median(&least));
    row.pings = Some(pings as f64);
    row.server_cpu_us = median(&cpus);
    row.inside_redis_us = library;
    row.inside_smallest_us = least;
    row.ratio_inside = library.zip(least).map(|(a, b)| a / b);
    Ok(())
}

/// What a user's code does to protect something, which includes the token.
fn pair<K: Exclusive>(lock: &RedisLock<K>) -> Result<(), redis_concurrent::Error> {
    let guard = lock.lock()?;
    black_box(guard.token());
    guard.unlock()
}

/// Several threads, each with a lock of its own, and the same on as many bare sockets: all of them switch
/// sides together, every few milliseconds.
pub(crate) fn together<K: Kind>(
    args: &Args,
    threads: usize,
    lock: impl Fn(&Client, usize) -> RedisLock<K>,
) -> Result<Vec<Row>, Box<dyn Error>> {
    const PHASE: u64 = 20_000_000;
    let mut server = Watched::start()?;
    let port = server.redis.port();
    let builder = Client::builder().url(&server.url());
    let client = match args.connections {
        Some(connections) => builder.max_connections(connections),
        None => builder,
    };
    let client = client.connect()?;
    let mut lanes = Vec::new();
    for i in 0..threads {
        let floor = Pair::floor(port, args.simple(), &format!("bench:floor:{i}"))?;
        let lock = lock(&client, i);
        lock.lock()?.unlock()?;
        lanes.push((lock, floor));
    }
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let begin = now() + 10_000_000;
        let end = begin + ((args.seconds * 1e9) as u64).max(2 * PHASE).next_multiple_of(2 * PHASE);
        let requests_before = client.request_count();
        let before = server.cpu_us()?;
        let counts = thread::scope(|scope| {
            let lane = |(lock, floor): &mut (RedisLock<K>, Pair)| -> Result<[u64; 2], String> {
                let mut counts = [0, 0];
                sleep_until(begin);
                loop {
                    let at = now();
                    if at >= end {
                        return Ok(counts);
                    }
                    let which = ((at - begin) / PHASE % 2) as usize;
                    if which == 0 {
                        let guard = lock.lock().map_err(|e| e.to_string())?;
                        guard.unlock().map_err(|e| e.to_string())?;
                    } else {
                        floor.run().map_err(|e| e.to_string())?;
                    }
                    counts[which] += 1;
                }
            };
            let lane = Arc::new(lane);
            let running: Vec<_> = lanes
                .iter_mut()
                .map(|it| {
                    let lane = lane.clone();
                    scope.spawn(move || lane(it))
                })
                .collect();
            running
                .into_iter()
                .map(|t| t.join().unwrap_or_else(|_| Err("a thread panicked".to_owned())))
                .collect::<Result<Vec<_>, _>>()
        })?;
        let cpu = server.cpu_us()? - before;
        let each: Vec<u64> = counts.iter().map(|c| c[0]).collect();
        let pairs: u64 = each.iter().sum();
        let floor: u64 = counts.iter().map(|c| c[1]).sum();
        let seconds = (end - begin) as f64 / 2e9;
        rounds.push(Row {
            acquisitions_per_s: Some(pairs as f64 / seconds),
            floor_pairs_per_s: Some(floor as f64 / seconds),
            ratio_floor: Some(pairs as f64 / floor as f64),
            commands_per_acquisition: Some((client.request_count() - requests_before) as f64 / pairs as f64),
            jain_threads: jain(&each),
            server_cpu_us: Some(cpu / (pairs + floor) as f64),
            ..Row::default()
        });
    }
    Ok(rounds)
}

/// Lock and unlock of a lock that the thread already holds.
pub(crate) fn reentry(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let server = Watched::start()?;
    let client = Client::connect(&server.url())?;
    let lock = client.reentrant_lock("bench:again");
    let _held = lock.lock()?;
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let end = now() + (args.seconds * 1e9) as u64;
        let requests_before = client.request_count();
        let mut times = Vec::new();
        while times.is_empty() || now() < end {
            let begin = now();
            for _ in 0..LONG_BATCH {
                lock.lock()?.unlock()?;
            }
            times.push((now() - begin) as f64 / LONG_BATCH as f64);
        }
        let pairs = times.len() * LONG_BATCH;
        rounds.push(Row {
            reentry_ns: median(&times),
            acquisitions_per_s: median(&times).map(|ns| 1e9 / ns),
            commands_per_acquisition: Some((client.request_count() - requests_before) as f64 / pairs as f64),
            ..Row::default()
        });
    }
    Ok(rounds)
}

/// Starts a proxy that passes everything on `one_way` later, in both directions. Returns its URL.
fn far_away(port: u16, one_way: Duration) -> io::Result<String> {
    let listener = TcpListener::bind(("127.0.0.1", 0))?;
    let url = format!("redis://{}/", listener.local_addr()?);
    // Ends with this process.
    thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
            let directions = [(client.try_clone(), server.try_clone()), (Ok(server), Ok(client))];
            for (from, to) in directions {
                let (Ok(from), Ok(to)) = (from, to) else { continue };
                thread::spawn(move || late(from, to, one_way));
            }
        }
    });
    Ok(url)
}

/// Passes on what is read, `one_way` after it was read, while more is read.
fn late(mut from: TcpStream, mut to: TcpStream, one_way: Duration) -> io::Result<()> {
    to.set_nodelay(true)?;
    let (sender, receiver) = mpsc::channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || -> io::Result<()> {
        for (read_at, bytes) in receiver {
            thread::sleep((read_at + one_way).saturating_duration_since(Instant::now()));
            to.write_all(&bytes)?;
        }
        to.shutdown(Shutdown::Both)
    });
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = from.read(&mut buffer)?;
        if n == 0 || sender.send((Instant::now(), buffer[..n].to_vec())).is_err() {
            return Ok(());
        }
    }
}
