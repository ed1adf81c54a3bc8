//! The same storm, or the same failovers, for other libraries' locks: for `make peers`, which prints the tables of
//! `docs/vs.md`.
//!
//! A hold is what its thread relies on: from the return of `lock` until it calls `unlock`, or until its process is told
//! that it is lost, or killed.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent_testkit::{RedisServer, is_role, tell_parent, wait_until};

use crate::flock::{follow, info, promote};
use crate::foreign::redis_py;
use crate::history::fixture::Fixture;
use crate::history::holds::History;
use crate::history::log::{Event, Line, Who};
use crate::history::plan::{LOCKS, PROCESSES, Plan, THREADS};
use crate::history::processes::Processes;
use crate::history::role::Role;
use crate::history::rounds::{Style, how};
use crate::history::run::{orders, storm};
use crate::history::times::Span;
use crate::history::worker::connect;
use crate::redisson::jvm;
use crate::support::{LONG, Random, clock, env, ms};

pub const ROLE: &str = "history::peers::role_peer";

const LIBRARIES: [&str; 5] = ["redis-concurrent", "redis-py", "Redisson", "redsync", "rslock"];
/// How long a caller waits.
const PATIENCE: Duration = ms(2000);

/// What a worker with this library is started by, apart from what it is told; `None` for this one.
fn program(library: &str) -> Result<Option<Command>, String> {
    match library {
        "redis-py" => {
            let mut command = Command::new(redis_py::interpreter()?);
            command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/foreign/contender.py"));
            Ok(Some(command))
        }
        "Redisson" => {
            let mut command = Command::new("java");
            command.args(["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx128m", "-cp"]);
            command.args([jvm::class_path().as_ref()?, "Contender"]);
            Ok(Some(command))
        }
        "redsync" | "rslock" => Ok(Some(Command::new(jvm::output_of("ci/peers.sh", &[library])?))),
        _ => Ok(None),
    }
}

#[test]
#[ignore = "a role, played by a child process"]
fn role_peer() {
    if !is_role(ROLE) {
        return;
    }
    let Some(mut command) = program(&env("LIBRARY")).unwrap() else { return play() };
    let url = env("URL");
    let port = url.trim_end_matches('/').rsplit(':').next().unwrap();
    tell_parent("ready").unwrap();
    // In the same process, so that faults strike it.
    panic!("{}", command.args([port, &env("LOG"), &env("PROCESS"), &env("SEED")]).exec());
}

/// What the others do, by this library.
fn play() {
    let mut random = Random::new(ROLE);
    let role = Role::new();
    let client = connect(&role);
    role.play(THREADS, |mut who| {
        let (mut random, client, journal) = (random.fork(), &client, &role.journal);
        move || {
            who.round += 1;
            let note = |event| journal.note(clock(), who, event);
            let name = [LOCKS[0], LOCKS[0], LOCKS[1], LOCKS[2]][random.below(4) as usize];
            note(Event::Called { lock: name.into(), form: "TryLockFor".into() });
            match client.reentrant_lock(name).try_lock_for(PATIENCE) {
                Ok(Some(guard)) => {
                    note(Event::Held { token: guard.token(), left: 0 });
                    thread::sleep(work(&mut random));
                    note(Event::Release { left: 0 });
                    note(Event::Released { how: how(&guard.unlock()) });
                    thread::sleep(random.micros(2000));
                }
                Ok(None) => note(Event::Ended { how: "none".into() }),
                Err(error) => {
                    note(Event::Ended { how: how(&Err::<(), _>(error)) });
                    thread::sleep(ms(20));
                }
            }
        }
    });
    let _ = client.close();
}

fn work(random: &mut Random) -> Duration {
    match random.below(1000) {
        0..3 => ms(900) + random.micros(450_000),
        3..700 => random.micros(1000),
        700..850 => random.micros(10_000),
        _ => random.micros(100_000),
    }
}

/// What came of it for one library.
#[derive(Default)]
struct Counts {
    holds: usize,
    /// Holds whose process was stopped meanwhile.
    stopped: usize,
    /// Holds during which another began: by whether their process was stopped meanwhile.
    beside: [usize; 2],
    /// Of these, those that were told of nothing, beside one that was not told either.
    untold: [usize; 2],
    /// Who waited in vain, or for an error.
    in_vain: usize,
    /// How long those waited who got in, in microseconds, in order.
    waits: Vec<u64>,
}

/// A hold as its thread relied on it.
struct Relied {
    span: Span,
    notified: bool,
    stopped: bool,
}

fn count(lines: Vec<Line>, ends: &BTreeMap<u64, u64>, stops: &[(u64, Span)], end: u64) -> Counts {
    let lost: Vec<(u64, String, u64)> = lines
        .iter()
        .filter_map(|line| match &line.event {
            Event::Lost { lock, .. } => Some((line.who.process, lock.clone(), line.at)),
            _ => None,
        })
        .collect();
    let released: BTreeMap<Who, u64> = lines
        .iter()
        .filter(|line| matches!(line.event, Event::Release { .. }))
        .map(|line| (line.who, line.at))
        .collect();
    let history = History::of(lines, ends, end);
    let mut counts = Counts { holds: history.holds.len(), ..Counts::default() };
    for lock in LOCKS {
        let of_lock = history.holds.iter().filter(|hold| hold.lock == lock);
        let relied: Vec<Relied> = of_lock
            .map(|hold| {
                let process = hold.who.process;
                let gone = ends.get(&process).copied().unwrap_or(end);
                let until = released.get(&hold.who).copied().unwrap_or(gone);
                let heard = lost.iter().find(|(by, name, at)| {
                    *by == process && name == lock && (hold.held..=until).contains(at)
                });
                let span = (hold.held, heard.map_or(until, |(_, _, at)| *at));
                let failed = hold.released.as_ref().is_some_and(|(_, how)| how != "ok");
                let stopped =
                    stops.iter().any(|(by, (from, to))| *by == process && *from < until && hold.held < *to);
                Relied { span, notified: heard.is_some() || failed, stopped }
            })
            .collect();
        for (i, hold) in relied.iter().enumerate() {
            counts.stopped += usize::from(hold.stopped);
            let beside = || relied[i + 1..].iter().filter(|it| it.span.0 < hold.span.1);
            if beside().next().is_some() {
                let stopped = usize::from(hold.stopped);
                counts.beside[stopped] += 1;
                counts.untold[stopped] += usize::from(!hold.notified && beside().any(|it| !it.notified));
            }
        }
    }
    let got = history.waits.iter().filter(|wait| wait.how == "held");
    counts.waits = got.map(|wait| wait.ended - wait.called).collect();
    counts.waits.sort_unstable();
    counts.in_vain = history.waits.len() - counts.waits.len();
    counts
}

/// How much of the last that the primary has been told is missing at its successor.
const LAG: Duration = ms(300);

/// One server after the other takes the place of the one before, at its address, until the time is up: with all of its
/// data, without the last of it, with nothing.
fn fail_over(fixture: &Fixture, random: &mut Random, length: Duration) {
    let other = RedisServer::start().unwrap();
    let (start, mut servers) = (Instant::now(), [&fixture.locks, &other]);
    for turn in 0.. {
        let [old, new] = servers;
        follow(new, old.port());
        wait_until(LONG, "a replica", || info(new).contains("master_link_status:up"));
        thread::sleep(ms(2000) + random.micros(2_000_000));
        if start.elapsed() >= length {
            return;
        }
        if turn % 3 > 0 {
            promote(new);
            thread::sleep(LAG);
        }
        old.kill().unwrap();
        promote(new);
        if turn % 3 == 2 {
            new.flush_all().unwrap();
        }
        fixture.proxy.set_target(new.port());
        fixture.proxy.cut_all();
        old.restart().unwrap();
        servers = [new, old];
    }
}

fn run(library: &'static str, seed: u64, length: Duration, fails_over: bool) -> Counts {
    let mut random = Random::of(seed);
    let plan = Plan::of(&mut random, length);
    let mut fixture = Fixture::set().unwrap();
    fixture.direct = !fails_over;
    let mut orders = orders(&fixture, [true; 3], true, Style::Mixed);
    orders.library = Some(library);
    let mut processes = Processes::start(&fixture, orders, PROCESSES, random.fork());
    if fails_over {
        fail_over(&fixture, &mut random, length);
        processes.end();
    } else {
        storm(&fixture, &mut processes, &plan, length);
    }
    for wrong in &processes.wrong {
        eprintln!("{library}: {wrong}");
    }
    count(fixture.lines(), &processes.ends, &processes.stops, clock())
}

/// For `make peers`; `FAILOVERS=1`: failovers instead of a storm.
#[test]
#[ignore = "takes a minute for each library: make peers"]
fn peers_of_the_given_seed() {
    let seed = std::env::var("SEED").ok().and_then(|it| it.parse().ok()).unwrap_or_else(clock);
    let length = super::length(60);
    let fails_over = std::env::var_os("FAILOVERS").is_some();
    let mut table = String::from(
        "| | holds | two at once | … neither was told | stopped while it held | two at once then | \
         … neither was told | waits: median, longest | in vain |\n\
         | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- | ---: |\n",
    );
    for library in LIBRARIES {
        if let Err(why) = program(library) {
            println!("\n#### SKIPPED, AND SHOWS NOTHING: {library}: {why}\n");
            continue;
        }
        let Counts { holds, stopped, beside, untold, in_vain, waits } =
            run(library, seed, length, fails_over);
        let (median, longest) = (waits.get(waits.len() / 2).unwrap_or(&0), waits.last().unwrap_or(&0));
        table += &format!(
            "| {library} | {holds} | {} | {} | {stopped} | {} | {} | {} ms, {} ms | {in_vain} |\n",
            beside[0],
            untold[0],
            beside[1],
            untold[1],
            median / 1000,
            longest / 1000,
        );
    }
    println!("\nSEED={seed} SECONDS={} FAILOVERS={fails_over}\n\n{table}", length.as_secs());
}
