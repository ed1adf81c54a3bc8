//! The models: small ones for every day, and larger ones for `make models`.

use std::time::Duration;

use stateright::{Checker, HasDiscoveries, Model};

use super::properties::goes_through;
use super::state::Faults;
use super::{TICK, World};
use crate::engine::small_redis::{FOR_EVER, millis};

/// Explores `small`, or with `MODELS=large` (`make models`) `large`, breadth first: what it finds
/// is the shortest way to it.
fn check(small: World, large: World) {
    let is_large = std::env::var("MODELS").is_ok_and(|v| v == "large");
    let (world, most, threads) = if is_large {
        (large, 40_000_000, std::thread::available_parallelism().map_or(1, Into::into))
    } else {
        (small, 500_000, 1)
    };
    assert!(goes_through(&world), "the model gets nowhere");
    let checker = world.clone().checker().threads(threads).target_state_count(most);
    let checker = checker.finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let (states, different) = (checker.state_count(), checker.unique_state_count());
    let all = if states < most { ", which is all" } else { "" };
    println!("{world:?}: {states} states, {different} different, {} steps deep{all}", checker.max_depth());
    let found = checker.discoveries().into_iter();
    let found = found.map(|(property, path)| (path.clone().into_actions().len(), property, path));
    if let Some((steps, property, path)) = found.min_by_key(|(steps, property, _)| (*steps, *property)) {
        panic!("not {property}, in {steps} steps: {path}");
    }
}

fn world() -> World {
    World {
        processes: 2,
        threads: 1,
        rounds: 1,
        ticks: 2,
        slice: Duration::ZERO,
        window: FOR_EVER,
        fair: false,
        terms_differ: false,
        counts: false,
        faults: none(),
    }
}

fn none() -> Faults {
    Faults::default()
}

#[test]
fn replies_are_lost_and_requests_come_late() {
    let small = World { faults: Faults { lost: 1, ..none() }, ..world() };
    check(small.clone(), World { ticks: 4, faults: Faults { lost: 2, ..none() }, ..small });
}

#[test]
fn a_process_dies() {
    let small = World { ticks: 3, faults: Faults { crashes: 1, ..none() }, ..world() };
    check(small.clone(), World { faults: Faults { crashes: 1, lost: 1, ..none() }, ..small });
}

#[test]
fn an_inbox_breaks() {
    let small = World { faults: Faults { breaks: 1, ..none() }, ..world() };
    check(small.clone(), World { ticks: 3, faults: Faults { breaks: 2, lost: 1, ..none() }, ..small });
}

#[test]
fn waiting_threads_give_up() {
    let small = World { faults: Faults { time_outs: 1, ..none() }, ..world() };
    let faults = Faults { time_outs: 2, lost: 1, ..none() };
    check(small.clone(), World { rounds: 2, faults, ..small });
}

#[test]
fn one_attempt_is_made() {
    let small = World { rounds: 2, ticks: 1, faults: Faults { tries: 2, ..none() }, ..world() };
    let faults = Faults { tries: 2, lost: 1, time_outs: 1, ..none() };
    check(small.clone(), World { ticks: 2, faults, ..small });
}

#[test]
fn leases_are_renewed() {
    let small = World { faults: Faults { renewals: 1, ..none() }, ..world() };
    check(small.clone(), World { ticks: 4, faults: Faults { renewals: 2, lost: 1, ..none() }, ..small });
}

#[test]
fn threads_hand_over() {
    let small = World { threads: 2, slice: TICK, ticks: 1, counts: true, ..world() };
    let faults = Faults { time_outs: 1, ..none() };
    check(small.clone(), World { ticks: 2, counts: false, faults, ..small });
}

#[test]
fn fair_threads_take_one_turn_each() {
    let small = World { threads: 2, slice: TICK, fair: true, ticks: 1, counts: true, ..world() };
    check(small.clone(), World { rounds: 2, ..small });
}

#[test]
fn the_lead_is_passed_on() {
    let small = World { threads: 2, ticks: 1, faults: Faults { time_outs: 1, ..none() }, ..world() };
    check(small.clone(), World { faults: Faults { time_outs: 1, lost: 1, ..none() }, ..small });
}

#[test]
fn threads_ask_on_other_terms() {
    let small = World { threads: 2, terms_differ: true, slice: TICK, ticks: 1, ..world() };
    check(small.clone(), World { ticks: 2, faults: Faults { time_outs: 1, ..none() }, ..small });
}

#[test]
fn places_fall_silent() {
    let small = World { window: millis(TICK) * 3 / 2, ticks: 3, ..world() };
    check(small.clone(), World { processes: 3, ticks: 4, ..small });
}

#[test]
fn three_processes() {
    let small = World { processes: 3, ticks: 1, ..world() };
    check(small.clone(), World { ticks: 2, faults: Faults { lost: 1, crashes: 1, ..none() }, ..small });
}

#[test]
fn nobody_is_passed_by_more_than_once() {
    let small = World { rounds: 3, ticks: 1, counts: true, ..world() };
    check(small.clone(), World { processes: 3, rounds: 2, ..small });
}
