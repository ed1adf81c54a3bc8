//! Runs of the simulation, each from a seed.
//!
//! `make simulate SEEDS=1000` plays so many, from `SEED=<n>` on; `SECONDS=60` for as long as that takes instead. A run
//! that fails is played again without each of its faults in turn, as long as it still fails in the same way, and the
//! command is printed that repeats what is left of it; with `TRACE=1` it also prints what goes over the network. After
//! three failures it ends; with `FAILURES=200` after so many, which are then only counted by what they say. In six
//! hundred seeds each of the rare situations (`checks.rs`) must have come about.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use shuttle::scheduler::RandomScheduler;
use shuttle::{Config, FailurePersistence, MaxSteps, Runner};

use super::checks;
use super::faults::MOST;
use super::scene::Scene;
use crate::sync::time;

const SEEDS: u64 = 30;
/// After so many failures a run ends, unless it counts them.
const FEW: usize = 3;
/// In so many seeds, each situation must come about.
const ALL: u64 = 600;

fn variable<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Plays a scene, in an OS thread of its own: one that failed leaves behind what is a thread's. Returns how much time
/// passed in it, and what happened, in one number.
fn play(scene: &Scene) -> Result<(Duration, u64), String> {
    let before = checks::take();
    let plays = || {
        checks::put(before);
        (play_here(scene), checks::take())
    };
    let (played, after) = thread::scope(|all| all.spawn(plays).join()).expect("its panics are caught");
    checks::put(after);
    played
}

fn play_here(scene: &Scene) -> Result<(Duration, u64), String> {
    let mut config = Config::new();
    // Lua runs on the stack of the thread whose request it is.
    config.stack_size = 1024 * 1024;
    config.failure_persistence = FailurePersistence::None;
    config.max_steps = MaxSteps::FailAfter(20_000_000);
    config.silence_warnings = true;
    let passed = Arc::new(Mutex::new(Duration::ZERO));
    let (plays, sums) = (scene.clone(), passed.clone());
    let played = catch_unwind(AssertUnwindSafe(|| {
        Runner::new(RandomScheduler::new_from_seed(scene.seed, 1), config).run(move || {
            plays.play();
            *sums.lock().unwrap() += time::elapsed();
        });
    }));
    let passed = *passed.lock().unwrap();
    played.map(|()| (passed, checks::trace())).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned())).unwrap_or_default()
    })
}

/// The name of what has failed.
fn check(why: &str) -> &str {
    why.split(':').next().unwrap_or_default()
}

/// Leaves out each fault in turn, as long as the scene still fails in the same way.
fn shrunk(seed: u64, why: &str, mut without: Vec<usize>) -> Vec<usize> {
    for i in 0..MOST {
        let fewer: Vec<usize> = without.iter().copied().chain([i]).collect();
        let fails = |other: String| check(&other) == check(why);
        if !without.contains(&i) && play(&Scene::of(seed, &fewer)).is_err_and(fails) {
            without = fewer;
        }
    }
    without
}

/// Says why a run failed, and how to repeat what is left of it.
fn report(seed: u64, why: &str, without: &[usize]) -> String {
    let left = shrunk(seed, why, without.to_vec());
    let list = left.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let scene = Scene::of(seed, &left);
    format!("{why}\n{scene:#?}\nagain: make simulate SEEDS=1 SEED={seed} WITHOUT={list}")
}

#[test]
fn simulate() {
    let first: u64 = variable("SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |now| now.as_secs() * 100_000)
    });
    let without: String = variable("WITHOUT").unwrap_or_default();
    let without: Vec<usize> = without.split(',').filter_map(|i| i.parse().ok()).collect();
    let seeds = variable("SEEDS").unwrap_or(SEEDS);
    let limit = variable("SECONDS").map(Duration::from_secs);
    let most = variable("FAILURES").unwrap_or(FEW);
    let (began, mut passed, mut runs) = (Instant::now(), Duration::ZERO, 0);
    let (mut failures, mut by_check) = (Vec::new(), BTreeMap::<String, u64>::new());
    println!("SEED={first}");
    while limit.map_or(runs < seeds, |limit| began.elapsed() < limit) && failures.len() < most {
        let seed = first + runs;
        match play(&Scene::of(seed, &without)) {
            Ok((time, _)) => passed += time,
            Err(why) => {
                *by_check.entry(check(&why).to_owned()).or_default() += 1;
                // Those that are only counted are not shrunk.
                failures.push(if most == FEW {
                    report(seed, &why, &without)
                } else {
                    format!("SEED={seed} {why}")
                });
            }
        }
        runs += 1;
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{runs} seeds, {:.1} simulated hours in {took:.1} s: {:.0} simulated seconds a second",
        passed.as_secs_f64() / 3600.0,
        passed.as_secs_f64() / took
    );
    for (what, times) in checks::seen() {
        println!("{times:>8}  sometimes {what}");
    }
    for (what, times) in checks::all_drawn() {
        println!("{times:>8}  times {what}");
    }
    for (check, times) in by_check {
        println!("{times:>8}  failed: {check}");
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let missing: Vec<_> = checks::seen().into_iter().filter(|(_, times)| *times == 0).collect();
    assert!(runs < ALL || missing.is_empty(), "not once in {runs} seeds: {missing:?}");
}

#[test]
fn a_seed_repeats_exactly() {
    // The last one plays at a cluster, with channels of single locks.
    for seed in (1..6).chain([159]) {
        let scene = Scene::of(seed, &[]);
        assert_eq!(play(&scene), play(&scene), "seed {seed}");
    }
}

#[test]
fn a_run_that_failed_leaves_nothing_to_the_next() {
    // Its threads warn of terms that end.
    let (scene, mut fails) = (Scene::of(82, &[]), Scene::of(82, &[]));
    fails.fails = Some(Duration::from_secs(2));
    let before = play(&scene);
    play(&fails).expect_err("it is to");
    assert_eq!(before, play(&scene));
}
