//! A run: workers, one failover after the other, and in the end the check.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use redis_concurrent_testkit::{Child, eventually};

use crate::failover::check::{Evidence, Failover, check};
use crate::failover::topology::{Strike, Topology, named};
use crate::failover::worker::{COMMAND, LEASE, PERMITS, spawn};
use crate::history::export;
use crate::history::holds::History;
use crate::history::log::{Event, read_all};
use crate::history::pulse;
use crate::history::times::Span;
use crate::support::{LONG, Random, SetOnDrop, builder, clock, ms};

const PROCESSES: u64 = 3;

/// How long nothing happens between two failovers: long enough to see what goes on.
const CALM: Duration = ms(3000);

/// How long the clients of a former primary may take to know of it, when its successor is known to the test.
pub const SETTLES: Duration = ms(2000);

/// How long it may take beyond that until clients that reached no sentinel reach one again: an attempt is for a second, and
/// so is the pause after it.
const FINDS_BACK: Duration = ms(2000);

/// How long it may take after that until everything is as usual: a request that goes out just before the end is waited
/// for in vain, and then a heartbeat passes.
const RECOVERS: Duration = ms(COMMAND.as_millis() as u64 + 1500);

/// How many of the things that are wrong are told.
const MOST_SHOWN: usize = 10;

/// Runs this seed; prints what it counted as a line of JSON, and panics with what is wrong.
pub fn run(kind: &str, seed: u64, length: Duration, replicas: u64) {
    let mut random = Random::of(seed);
    let only = std::env::var("STRIKE").ok();
    let topology = named(kind, only.as_deref());
    let folder = tempfile::Builder::new().prefix("failover-").tempdir().unwrap();
    // On a busy machine a server may take long to answer at first.
    eventually(LONG, || builder(&topology.url()).connect().ok()?.semaphore("s").set_permits(PERMITS).ok());
    let mut workers: Vec<Child> = Vec::new();
    for process in 1..=PROCESSES {
        let seed = random.below(u64::MAX);
        workers.push(spawn(process, &topology.url_of(process), seed, replicas, folder.path()).unwrap());
    }
    for worker in &workers {
        worker.read_line_within(LONG).unwrap();
    }
    let stalls: Mutex<Vec<Span>> = Mutex::default();
    let failovers = during(&stalls, || strikes(&*topology, &mut random, length, replicas, only.as_deref()));
    let mut wrong = end(&mut workers);
    let end = clock();
    let lines = read_all(folder.path());
    let mut stalls = stalls.into_inner();
    stalls.extend(lines.iter().filter_map(|line| match line.event {
        Event::Stalled { from } => Some((from, line.at)),
        _ => None,
    }));
    let stalls =
        stalls.into_iter().map(|(from, until)| (from, until + RECOVERS.as_micros() as u64)).collect();
    export::write(&format!("failover-{kind}-{seed}"), &lines, &failovers, |lock| lock != "b");
    let history = History::of(lines, &BTreeMap::new(), end);
    let evidence = Evidence { history, failovers, stalls };
    let (counts, found) = check(&evidence);
    wrong.extend(found);
    println!("\n{}", counts.json(kind, seed, length.as_secs()));
    if replicas > 0 && counts.double_holds > 0 {
        wrong.push(format!("{} double holds, although {replicas} replicas had each", counts.double_holds));
    }
    if counts.holds < 10 * usize::try_from(length.as_secs()).unwrap() {
        wrong.push(format!("too few holds to tell anything: {}", counts.holds));
    }
    if !wrong.is_empty() {
        eprintln!("the logs of the run are kept in {}", folder.keep().display());
    }
    let list = wrong[..wrong.len().min(MOST_SHOWN)].join("\n");
    assert!(wrong.is_empty(), "SEED={seed}: {} things are wrong:\n{list}\nSEED={seed}", wrong.len());
}

/// Does it, and notes meanwhile when the machine stands still.
fn during<T>(stalls: &Mutex<Vec<Span>>, act: impl FnOnce() -> T) -> T {
    let over = std::sync::atomic::AtomicBool::new(false);
    thread::scope(|scope| {
        let pulse = || pulse::of_process(&over, |span| stalls.lock().push(span));
        thread::Builder::new().name("machine pulse".into()).spawn_scoped(scope, pulse).unwrap();
        let _over = SetOnDrop(&over);
        act()
    })
}

/// One failover after the other, until the time is up.
fn strikes(
    topology: &dyn Topology,
    random: &mut Random,
    length: Duration,
    replicas: u64,
    only: Option<&str>,
) -> Vec<Failover> {
    let start = Instant::now();
    let (mut done, mut deck) = (Vec::new(), Vec::new());
    loop {
        thread::sleep(CALM);
        if start.elapsed() >= length {
            return done;
        }
        if deck.is_empty() {
            deck = topology.strikes();
            // A primary that lives on may have acknowledgements of replicas that are not promoted.
            deck.retain(|it| replicas == 0 || *it == Strike::Kill);
            deck.retain(|it| only.is_none_or(|only| it.is_called(only)));
            assert!(!deck.is_empty(), "STRIKE={only:?} is none of {:?}", topology.strikes());
        }
        let strike = deck.swap_remove(random.below(deck.len() as u64) as usize);
        for time in 0..topology.times(strike) {
            if time > 0 {
                thread::sleep(CALM);
            }
            topology.prepare(strike);
            let from = clock();
            topology.strike(strike);
            let settles = if strike == Strike::Minority { SETTLES + FINDS_BACK } else { SETTLES };
            let settled = clock() + settles.as_micros() as u64;
            // That it comes back is part of it: nobody is to believe it.
            topology.mend(strike, random);
            // Clients that were cut off may be with the others only now.
            let whole = if strike.parts_clients() { settled.max(clock()) } else { settled };
            let until = whole + (LEASE + RECOVERS).as_micros() as u64;
            let (unsettled, costs) = ((from, settled), (from, until));
            done.push(Failover {
                unsettled,
                costs,
                parts: strike.parts_clients(),
                what: format!("{strike:?}"),
            });
            eprintln!("{}", done[done.len() - 1]);
        }
    }
}

/// Has all workers end, and waits until they have. Returns what is wrong with that.
fn end(workers: &mut [Child]) -> Vec<String> {
    let mut wrong = Vec::new();
    for worker in workers.iter_mut() {
        wrong.extend(worker.say("stop").err().map(|error| error.to_string()));
    }
    for worker in workers {
        match worker.wait_within(3 * LONG) {
            Ok(status) if status.success() => {}
            Ok(status) => wrong.push(format!("process {} ended with {status}", worker.pid())),
            Err(error) => wrong.push(format!("process {} does not end: {error}", worker.pid())),
        }
    }
    wrong
}
