//! A lock that its process keeps, compared with one that it releases each time: alternating, in the same
//! round.

use std::error::Error;
use std::thread;
use std::time::Duration;

use redis_concurrent::kinds::{Exclusive, Kind, Simple};
use redis_concurrent::{Client, RedisLock};
use redis_concurrent_testkit::Child;
use serde::{Deserialize, Serialize};

use super::args::Args;
use super::bare_peer::BarePeer;
use super::children::{hear, job, order, spawn, tell};
use super::clock::{now, pass};
use super::pair::Pair;
use super::peer::{ByLibrary, Peer};
use super::row::Row;
use super::server::Watched;
use super::stats::{Spread, median};

const ROLE: &str = "lingers";
const LINGER: Duration = Duration::from_secs(1);
/// Pairs between two readings of the clock: a pair on a kept lock takes less time than such a reading.
const MANY: usize = 1_000;
/// The same for pairs with requests.
const FEW: usize = 20;
/// What bare sockets lock.
const BARE: &str = "bench:bare";
/// The number of threads, and of locks.
const EIGHT: u64 = 8;

#[derive(Serialize, Deserialize)]
struct Job {
    url: String,
    port: u16,
    me: usize,
}

/// What a keeper does next.
#[derive(Serialize, Deserialize)]
enum Order {
    /// Acquires and releases the lock twice. If it lingers, the process then keeps it, and keeping it has
    /// paid.
    Touch {
        lingers: bool,
    },
    /// Holds the lock until it is told to release it.
    Hold {
        bare: bool,
    },
    LetGo,
    /// Keeps the lock, without the library, until another process wants it.
    Keep,
    /// Works until `end`: uses its own lock `own` times out of a hundred, and otherwise the other keeper's.
    Work {
        lingers: bool,
        end: u64,
        own: u64,
        pause_us: u64,
    },
}

pub(crate) fn run(args: &Args) -> Result<Vec<Row>, Box<dyn Error>> {
    let server = Watched::start()?;
    let (url, port) = (server.url(), server.redis.port());
    let client = Client::connect(&url)?;
    // The same clients in all rounds: what they learn about a lock is part of what is measured.
    let others = [Client::connect(&url)?, Client::connect(&url)?];
    let mut floor = Pair::floor(port, true, "bench:floor")?;
    let mut bare = BarePeer::connect(port, Simple::RULE, BARE, false)?;
    let mut keepers = Vec::new();
    for me in 0..2 {
        keepers.push(spawn(ROLE, &Job { url: url.clone(), port, me })?);
    }
    for keeper in &keepers {
        let _: bool = hear(keeper, 0.0)?;
    }
    let mut rounds = Vec::new();
    for _ in 0..args.rounds {
        let mut row = Row { processes: 2, ..Row::default() };
        pairs(args, &client, &mut floor, &mut row)?;
        eight(args, &client, &mut row)?;
        other(args, &client, &mut bare, &mut keepers[0], &mut row)?;
        in_turn(args, &others, &mut row)?;
        affine(args, &mut keepers, &mut row)?;
        rounds.push(row);
    }
    Ok(rounds)
}

fn pair<K: Exclusive>(lock: &RedisLock<K>) -> Result<(), redis_concurrent::Error> {
    lock.lock()?.unlock()
}

/// Returns when a part of the round, a fifth of it, ends if it begins now.
fn part(args: &Args) -> u64 {
    now() + (args.seconds * 1e9) as u64 / 5
}

/// Pairs of one thread.
fn pairs(args: &Args, client: &Client, floor: &mut Pair, row: &mut Row) -> Result<(), Box<dyn Error>> {
    let (plain, kept) = (client.simple_lock("bench:plain"), client.simple_lock("bench:kept").linger(LINGER));
    for _ in 0..FEW {
        pair(&kept)?;
        thread::sleep(Duration::from_millis(1));
    }
    let reentrant = client.reentrant_lock("bench:again");
    let outer = reentrant.lock()?;
    let mut times = [const { Vec::new() }; 4];
    let (mut requests, mut pairs, end) = (0, 0, part(args));
    while pairs == 0 || now() < end {
        let (t0, before) = (now(), client.request_count());
        for _ in 0..MANY {
            pair(&kept)?;
        }
        let (t1, after) = (now(), client.request_count());
        for _ in 0..MANY {
            pair(&reentrant)?;
        }
        let t2 = now();
        for _ in 0..FEW {
            pair(&plain)?;
        }
        let t3 = now();
        for _ in 0..FEW {
            floor.run()?;
        }
        let t4 = now();
        for (times, (took, n)) in
            times.iter_mut().zip([(t1 - t0, MANY), (t2 - t1, MANY), (t3 - t2, FEW), (t4 - t3, FEW)])
        {
            times.push(took as f64 / n as f64);
        }
        (requests, pairs) = (requests + after - before, pairs + MANY);
    }
    outer.unlock()?;
    let [kept, again, plain, floor] = times.map(|times| median(&times));
    row.pair_ns = kept;
    row.reentry_ns = again;
    row.requests_per_pair = Some(requests as f64 / pairs as f64);
    row.pair_us = plain.map(|ns| ns / 1e3);
    row.floor_us = floor.map(|ns| ns / 1e3);
    Ok(())
}

/// 8 threads that lock 8 locks at random.
fn eight(args: &Args, client: &Client, row: &mut Row) -> Result<(), Box<dyn Error>> {
    let rate = |lingers: bool| -> Result<f64, Box<dyn Error>> {
        let lock = |i| client.simple_lock(&format!("bench:eight:{i}"));
        let locks: Vec<_> =
            (0..EIGHT).map(lock).map(|lock| if lingers { lock.linger(LINGER) } else { lock }).collect();
        let (begin, end) = (now(), part(args));
        let works = |thread: u64| -> Result<u64, redis_concurrent::Error> {
            let (mut chance, mut done) = (thread * 7_919 + 1, 0);
            while done == 0 || now() < end {
                pair(&locks[below(&mut chance, EIGHT) as usize])?;
                done += 1;
            }
            Ok(done)
        };
        let done = thread::scope(|scope| {
            let all: Vec<_> = (0..EIGHT).map(|thread| scope.spawn(move || works(thread))).collect();
            all.into_iter().map(|it| it.join().map_err(|_| "a thread panicked")).collect::<Vec<_>>()
        });
        let mut all = 0;
        for done in done {
            all += done??;
        }
        Ok(all as f64 * 1e9 / (now() - begin) as f64)
    };
    row.eight_plain_per_s = Some(rate(false)?);
    row.eight_kept_per_s = Some(rate(true)?);
    Ok(())
}

/// What it costs to acquire a lock that another process keeps, compared with a free lock, and with one that
/// its holder hands over; also with the same scripts on bare sockets.
fn other(
    args: &Args,
    client: &Client,
    bare: &mut BarePeer,
    keeper: &mut Child,
    row: &mut Row,
) -> Result<(), Box<dyn Error>> {
    let lock = client.simple_lock("bench:0");
    let mut ours = ByLibrary::new(client, &lock);
    let mut times = [(); 5].map(|()| Spread::default());
    let end = part(args);
    while times[0].max().is_none() || now() < end {
        for (at, order) in
            [Order::Touch { lingers: false }, Order::Touch { lingers: true }, Order::Keep].iter().enumerate()
        {
            let peer: &mut dyn Peer = if matches!(order, Order::Keep) { bare } else { &mut ours };
            say(keeper, order)?;
            let _: u64 = hear(keeper, 0.0)?;
            let called = now();
            peer.lock()?;
            times[at].add(now() - called);
            peer.unlock()?;
        }
        for (peer, is_bare, at) in [(&mut ours as &mut dyn Peer, false, 3), (bare, true, 4)] {
            say(keeper, &Order::Hold { bare: is_bare })?;
            let _: u64 = hear(keeper, 0.0)?;
            say(keeper, &Order::LetGo)?;
            peer.lock()?;
            let came = now();
            peer.unlock()?;
            let released: u64 = hear(keeper, 0.0)?;
            times[at].add(came.saturating_sub(released));
        }
    }
    let [free, kept, bare_kept, over, bare_over] = times.map(|times| times.quantile(0.5).map(|ns| ns / 1e3));
    (row.free_p50_us, row.other_p50_us, row.handover_p50_us) = (free, kept, over);
    row.other_to_handover = kept.zip(over).map(|(a, b)| a / b);
    (row.floor_other_p50_us, row.floor_handover_p50_us) = (bare_kept, bare_over);
    row.floor_other_to_handover = bare_kept.zip(bare_over).map(|(a, b)| a / b);
    Ok(())
}

/// Two clients that lock strictly in turn: what lingering costs where it cannot help.
fn in_turn(args: &Args, clients: &[Client; 2], row: &mut Row) -> Result<(), Box<dyn Error>> {
    let plain = clients.each_ref().map(|client| client.simple_lock("bench:turn:plain"));
    let kept = clients.each_ref().map(|client| client.simple_lock("bench:turn:kept").linger(LINGER));
    let mut times = [Vec::new(), Vec::new()];
    let end = part(args);
    while times[0].is_empty() || now() < end {
        for (locks, times) in [&plain, &kept].into_iter().zip(&mut times) {
            let began = now();
            for _ in 0..FEW {
                locks.iter().try_for_each(pair)?;
            }
            times.push((now() - began) as f64);
        }
    }
    // The mean, as the cost arises rarely.
    let [plain, kept] = times.map(|times| times.iter().sum::<f64>() / times.len() as f64);
    row.pingpong_ratio = Some(kept / plain);
    Ok(())
}

/// Two processes, each of which mostly uses a lock of its own.
fn affine(args: &Args, keepers: &mut [Child], row: &mut Row) -> Result<(), Box<dyn Error>> {
    let mut rate = |own, pause_us| -> Result<Option<f64>, Box<dyn Error>> {
        let mut rates = [0.0; 2];
        for (lingers, rate) in [false, true].into_iter().zip(&mut rates) {
            let (begin, end) = (now(), now() + (args.seconds * 1e9) as u64 / 10);
            for keeper in keepers.iter_mut() {
                say(keeper, &Order::Work { lingers, end, own, pause_us })?;
            }
            let mut done = 0;
            for keeper in keepers.iter() {
                done += hear::<u64>(keeper, args.seconds)?;
            }
            *rate = done as f64 / (now() - begin) as f64;
        }
        Ok(Some(rates[1] / rates[0]))
    };
    row.affine_90_ratio = rate(90, 0)?;
    row.affine_99_ratio = rate(99, 0)?;
    row.affine_90_working_ratio = rate(90, 90)?;
    row.affine_99_working_ratio = rate(99, 90)?;
    Ok(())
}

fn say(child: &mut Child, order: &Order) -> Result<(), Box<dyn Error>> {
    Ok(child.say(&serde_json::to_string(order)?)?)
}

fn below(chance: &mut u64, n: u64) -> u64 {
    *chance = chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*chance >> 33) % n
}

/// In a child: carries out its orders, if that is its role. Returns whether it is.
pub(crate) fn play() -> Result<bool, Box<dyn Error>> {
    let Some(Job { url, port, me }) = job::<Job>(ROLE)? else { return Ok(false) };
    let client = Client::connect(&url)?;
    let plain = [0, 1].map(|i| client.simple_lock(&format!("bench:{i}")));
    let kept = plain.each_ref().map(|lock| lock.linger(LINGER));
    let mut ours = ByLibrary::new(&client, &plain[me]);
    let mut bare = BarePeer::connect(port, Simple::RULE, BARE, false)?;
    let mut keeps = BarePeer::connect(port, Simple::RULE, BARE, true)?;
    // Makes the client listen to its inbox.
    pair(&kept[me])?;
    tell(&true)?;
    let mut chance = me as u64 * 31 + 5;
    while let Some(next) = order::<Order>()? {
        match next {
            Order::Touch { lingers } => {
                let lock = if lingers { &kept[me] } else { &plain[me] };
                pair(lock)?;
                pair(lock)?;
                tell(&now())?;
            }
            Order::Keep => {
                keeps.lock()?;
                tell(&now())?;
                keeps.until_wanted()?;
                keeps.unlock()?;
            }
            Order::Hold { bare: is_bare } => {
                let peer: &mut dyn Peer = if is_bare { &mut bare } else { &mut ours };
                peer.lock()?;
                tell(&now())?;
                // Until the other process waits.
                let _: Option<Order> = order()?;
                thread::sleep(Duration::from_millis(2));
                let released = now();
                peer.unlock()?;
                tell(&released)?;
            }
            Order::LetGo => {}
            Order::Work { lingers, end, own, pause_us } => {
                let locks = if lingers { &kept } else { &plain };
                let mut done = 0_u64;
                while now() < end {
                    let at_home = below(&mut chance, 100) < own;
                    pair(&locks[if at_home { me } else { 1 - me }])?;
                    done += 1;
                    pass(pause_us);
                }
                tell(&done)?;
            }
        }
    }
    client.close()?;
    Ok(true)
}
