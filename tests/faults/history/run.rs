//! A run: workers, faults, and in the end the checks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent_testkit::RedisServer;

use crate::failover::worker::PERMITS;
use crate::history::checker::{Evidence, check};
use crate::history::counter::Tally;
use crate::history::export;
use crate::history::faults::strike;
use crate::history::fixture::Fixture;
use crate::history::holds::History;
use crate::history::log::{Event, Line};
use crate::history::plan::{LOCKS, PROCESSES, Plan};
use crate::history::processes::Processes;
use crate::history::pulse;
use crate::history::report::summary;
use crate::history::rounds::Style;
use crate::history::worker::Orders;
use crate::server_days::{connected, key};
use crate::support::{Random, SetOnDrop, builder, clock, nothing_left};

/// How many of the things that are wrong are told.
const MOST_SHOWN: usize = 20;

/// Runs the plan of this seed, and checks what the processes wrote down. Panics with all that is
/// wrong; the logs are then kept.
pub fn run(seed: u64, length: Duration) {
    println!("history: SEED={seed} SECONDS={}", length.as_secs());
    let mut random = Random::of(seed);
    let plan = Plan::of(&mut random, length);
    let fixture = Fixture::set().unwrap();
    let permits = connected(|| builder(&fixture.locks.url())).semaphore("s");
    permits.set_permits(PERMITS).unwrap();
    let orders = orders(&fixture, plan.reentrant, true, Style::Mixed);
    let mut processes = Processes::start(&fixture, orders, PROCESSES, random.fork());
    storm(&fixture, &mut processes, &plan, length);
    let end = clock();
    let lines = fixture.lines();
    forget(&fixture.locks, &lines);
    let stays = catch_unwind(AssertUnwindSafe(|| nothing_left(&fixture.locks)));
    export::write(&format!("history-{seed}"), &lines, &[], |lock| {
        LOCKS.iter().zip(plan.reentrant).any(|(name, reentrant)| *name == lock && reentrant)
    });
    let mut history = History::of(lines, &processes.ends, end);
    // The others have rules of their own.
    history.holds.retain(|it| LOCKS.contains(&&*it.lock));
    history.waits.retain(|it| LOCKS.contains(&&*it.lock));
    let tallies = LOCKS.iter().map(|lock| Tally::of(&fixture.counters, lock)).collect();
    let evidence = Evidence { history, shadows: fixture.shadows(), tallies };
    let mut wrong = std::mem::take(&mut processes.wrong);
    if stays.is_err() {
        wrong.push(format!("left behind: {:?}", fixture.locks.keys()));
    }
    wrong.extend(check(&evidence));
    for (lock, token) in processes.last_tokens() {
        let before = evidence.history.holds.iter().filter(|it| it.lock == lock).map(|it| it.token).max();
        if before >= Some(token) {
            wrong.push(format!("{lock}: in the end token {token}, after {before:?}"));
        }
    }
    println!("{}", summary(seed, &evidence));
    let few = usize::try_from(length.as_secs()).unwrap() * 3;
    if evidence.history.holds.len() < few {
        wrong.push(format!("too few holds to tell anything: {}", evidence.history.holds.len()));
    }
    let list = wrong[..wrong.len().min(MOST_SHOWN)].join("\n");
    assert!(wrong.is_empty(), "SEED={seed}: {} things are wrong:\n{list}\nSEED={seed}", wrong.len());
}

/// Lets everything happen that the plan says, and ends the processes.
pub fn storm(fixture: &Fixture, processes: &mut Processes<'_>, plan: &Plan, length: Duration) {
    let over = AtomicBool::new(false);
    let start = Instant::now();
    thread::scope(|scope| {
        // Also if something panics in here: the scope waits for its threads.
        let _over = SetOnDrop(&over);
        named(scope, "machine pulse", || {
            pulse::of_process(&over, |span| fixture.stall(span, "slow machine"));
        });
        named(scope, "server pulse", || pulse::of_server(fixture, &over));
        named(scope, "troubles", || {
            for (at, trouble) in &plan.troubles {
                sleep_until(start + *at);
                strike(fixture, *trouble);
            }
        });
        for (at, blow) in &plan.blows {
            sleep_until(start + *at);
            processes.suffer(*blow);
        }
        sleep_until(start + length);
        processes.end();
    });
}

/// Deletes what stays until its user deletes it, or for a minute: permits, with those of processes that were killed;
/// answers; the state of a barrier.
fn forget(server: &RedisServer, lines: &[Line]) {
    let mut connection = server.connection().unwrap();
    let names = lines.iter().filter_map(|line| match &line.event {
        Event::Called { lock, .. } if lock.starts_with("once") => Some(&**lock),
        _ => None,
    });
    for name in names.chain(["s", "meet"]) {
        let (state, ends) = (key(name), key(name) + ":conditions");
        redis::cmd("DEL").arg(&[state, ends]).exec(&mut connection).unwrap();
    }
}

/// What all workers of a run are told.
pub fn orders(fixture: &Fixture, reentrant: [bool; 3], guarded: bool, style: Style) -> Orders {
    let counter = fixture.counters.url();
    Orders { url: String::new(), counter, seed: 0, process: 0, reentrant, guarded, style, library: None }
}

fn named<'a>(scope: &'a thread::Scope<'a, '_>, name: &str, work: impl FnOnce() + Send + 'a) {
    thread::Builder::new().name(name.into()).spawn_scoped(scope, work).unwrap();
}

fn sleep_until(moment: Instant) {
    thread::sleep(moment.saturating_duration_since(Instant::now()));
}
