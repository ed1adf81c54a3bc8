//! The models: small ones for every day, and larger ones for `make models`.

mod conditions;
mod kept;
mod permits;
mod read_write;

use std::time::Duration;

use super::properties::goes_through;
use super::state::Faults;
use super::{TICK, World, explore};
use crate::engine::small_redis::{FOR_EVER, millis};

fn check(small: World, large: impl IntoIterator<Item = World>) {
    explore::check(small, large, goes_through);
}

fn world() -> World {
    World {
        processes: 2,
        threads: 1,
        rounds: 1,
        others_once: false,
        ticks: 2,
        local_handoff: Duration::ZERO,
        waiter_timeout: FOR_EVER,
        fair: false,
        terms_differ: false,
        counts: false,
        permits: 0,
        max_waiters: None,
        priorities: false,
        roles: &[],
        plans: Vec::new(),
        conditions: 1,
        prompt: false,
        behind: false,
        linger: 0,
        faults: none(),
    }
}

fn none() -> Faults {
    Faults::default()
}

#[test]
fn replies_are_lost_and_requests_come_late() {
    let small = World { faults: Faults { lost: 1, ..none() }, ..world() };
    let later = World { ticks: 3, ..small.clone() };
    let more = World { faults: Faults { lost: 2, ..none() }, ..world() };
    check(small, [later, more]);
}

#[test]
fn a_leave_with_its_next_is_late() {
    let small = World { processes: 1, threads: 2, faults: Faults { lost: 1, ..none() }, ..world() };
    let others = World { processes: 2, ticks: 1, ..small.clone() };
    let more = World { ticks: 3, faults: Faults { lost: 2, ..none() }, ..small.clone() };
    check(small, [others, more]);
}

#[test]
fn a_process_dies() {
    let small = World { ticks: 3, faults: Faults { crashes: 1, ..none() }, ..world() };
    let late = World { ticks: 2, faults: Faults { crashes: 1, lost: 1, ..none() }, ..world() };
    let deaf = World { ticks: 3, faults: Faults { crashes: 1, breaks: 1, ..none() }, ..world() };
    check(small, [late, deaf]);
}

#[test]
fn an_inbox_breaks() {
    let small = World { faults: Faults { breaks: 1, ..none() }, ..world() };
    let late = World { faults: Faults { breaks: 1, lost: 1, ..none() }, ..world() };
    let again = World { ticks: 3, faults: Faults { breaks: 2, ..none() }, ..world() };
    check(small, [late, again]);
}

/// To a replica; the former primary lives on as a replica too, whose subscribers hear everything the new one
/// publishes.
#[test]
fn the_primary_moves() {
    let small = World { faults: Faults { moves: 1, ..none() }, ..world() };
    let late = World { faults: Faults { moves: 1, lost: 1, ..none() }, ..world() };
    let three = World { processes: 3, ticks: 1, faults: Faults { moves: 2, ..none() }, ..world() };
    check(small, [late, three]);
}

#[test]
fn waiting_threads_give_up() {
    let small = World { faults: Faults { time_outs: 1, ..none() }, ..world() };
    let late = World { faults: Faults { time_outs: 2, lost: 1, ..none() }, ..world() };
    let again = World { rounds: 2, faults: Faults { time_outs: 2, ..none() }, ..world() };
    check(small, [late, again]);
}

/// The second thread of each process is more urgent, and passes those that came at most two arrivals earlier.
#[test]
fn the_urgent_come_first() {
    let small = World { threads: 2, ticks: 1, priorities: true, ..world() };
    let local = World { local_handoff: TICK, ..small.clone() };
    let late = World { faults: Faults { lost: 1, ..none() }, ..small.clone() };
    let gives_up = World { threads: 3, ticks: 0, faults: Faults { time_outs: 1, ..none() }, ..small.clone() };
    check(small, [local, late, gives_up]);
}

/// Callers are turned away where as many wait as may; who waits is not.
#[test]
fn few_may_wait() {
    let gives_up = Faults { time_outs: 1, ..none() };
    let small = World { processes: 3, ticks: 1, max_waiters: Some(1), faults: gives_up, ..world() };
    let threads = World { processes: 2, threads: 2, local_handoff: TICK, ..small.clone() };
    let late = World { faults: Faults { lost: 1, ..none() }, ..threads.clone() };
    check(small, [threads, late]);
}

#[test]
fn one_attempt_is_made() {
    let small = World { rounds: 2, ticks: 1, faults: Faults { tries: 2, ..none() }, ..world() };
    let late = World { faults: Faults { tries: 2, lost: 1, ..none() }, ..world() };
    let three =
        World { processes: 3, ticks: 1, faults: Faults { tries: 2, time_outs: 1, ..none() }, ..world() };
    check(small, [late, three]);
}

/// Nobody waits for the reply to the release, and the next request goes behind it.
#[test]
fn guards_are_dropped() {
    let small = World { rounds: 2, ticks: 1, faults: Faults { drops: 2, ..none() }, ..world() };
    let threads = World { threads: 2, rounds: 1, ..small.clone() };
    let tries = World { faults: Faults { tries: 2, ..small.faults.clone() }, ..small.clone() };
    let late = World { faults: Faults { lost: 1, ..small.faults.clone() }, ..small.clone() };
    let dies = World { ticks: 2, faults: Faults { crashes: 1, ..small.faults.clone() }, ..small.clone() };
    let gives_up =
        World { threads: 2, faults: Faults { time_outs: 1, ..small.faults.clone() }, ..threads.clone() };
    check(small, [threads, tries, late, dies, gives_up]);
}

#[test]
fn leases_are_renewed() {
    let small = World { faults: Faults { renewals: 1, ..none() }, ..world() };
    let late = World { faults: Faults { renewals: 2, lost: 1, ..none() }, ..world() };
    let longer = World { ticks: 4, faults: Faults { renewals: 2, ..none() }, ..world() };
    check(small, [late, longer]);
}

/// What was revoked ends with its lease, or with its last thread, and its process learns of it.
#[test]
fn holds_are_revoked() {
    let small = World { faults: Faults { renewals: 1, revocations: 1, ..none() }, ..world() };
    let late = World { faults: Faults { lost: 1, ..small.faults.clone() }, ..small.clone() };
    let two = World { threads: 2, local_handoff: TICK, ticks: 1, ..small.clone() };
    check(small, [late, two]);
}

#[test]
fn threads_hand_over() {
    let small = World { threads: 2, local_handoff: TICK, ticks: 1, counts: true, ..world() };
    let longer = World { ticks: 2, counts: false, ..small.clone() };
    let late = World { counts: false, faults: Faults { lost: 1, ..none() }, ..small.clone() };
    check(small, [longer, late]);
}

#[test]
fn fair_threads_take_one_turn_each() {
    let small = World { threads: 2, local_handoff: TICK, fair: true, ticks: 1, counts: true, ..world() };
    let longer = World { ticks: 2, counts: false, ..small.clone() };
    check(small, [longer]);
}

#[test]
fn the_lead_is_passed_on() {
    let small = World { threads: 2, ticks: 1, faults: Faults { time_outs: 1, ..none() }, ..world() };
    let again = World { local_handoff: TICK, faults: Faults { time_outs: 2, ..none() }, ..small.clone() };
    let alone =
        World { processes: 1, ticks: 3, faults: Faults { time_outs: 1, lost: 2, ..none() }, ..small.clone() };
    check(small, [again, alone]);
}

#[test]
fn threads_ask_on_other_terms() {
    let small = World { threads: 2, terms_differ: true, local_handoff: TICK, ticks: 1, ..world() };
    let given_up = World { faults: Faults { time_outs: 1, ..none() }, ..small.clone() };
    let alone = World { processes: 1, ticks: 4, faults: Faults { lost: 2, ..none() }, ..small.clone() };
    check(small, [given_up, alone]);
}

#[test]
fn positions_fall_silent() {
    let small = World { waiter_timeout: millis(TICK) * 3 / 2, ticks: 3, ..world() };
    let longer = World { ticks: 5, ..small.clone() };
    let three = World { processes: 3, ..small.clone() };
    check(small, [longer, three]);
}

/// The others are admitted in order of arrival, and none waits for a dead waiter longer than its waiter
/// timeout.
#[test]
fn heads_of_the_queue_die() {
    let faults = Faults { vanishes: 1, ..none() };
    let waiter_timeout = millis(TICK) * 3 / 2;
    let small = World { processes: 3, fair: true, prompt: true, waiter_timeout, ticks: 3, faults, ..world() };
    let both = World { ticks: 4, faults: Faults { crashes: 1, vanishes: 1, ..none() }, ..small.clone() };
    let four = World { processes: 4, ..small.clone() };
    let again = World { rounds: 2, ..small.clone() };
    check(small, [both, four, again]);
}

/// Queue positions are lost although their owners live: a heartbeat was late, or a message was not heard.
#[test]
fn positions_come_back() {
    let faults = Faults { breaks: 1, ..none() };
    let waiter_timeout = millis(TICK) * 3 / 4;
    let small = World { fair: true, prompt: true, waiter_timeout, ticks: 2, faults, ..world() };
    let three = World { processes: 3, ..small.clone() };
    let slow = World { prompt: false, ..small.clone() };
    check(small, [three, slow]);
}

#[test]
fn three_processes() {
    let small = World { processes: 3, ticks: 1, ..world() };
    let late = World { faults: Faults { lost: 1, ..none() }, ..small.clone() };
    let die = World { ticks: 2, faults: Faults { crashes: 1, ..none() }, ..small.clone() };
    check(small, [late, die]);
}

#[test]
fn nobody_is_passed_by_more_than_once() {
    let small = World { processes: 3, ticks: 1, counts: true, ..world() };
    let again = World { rounds: 2, ..small.clone() };
    let often = World { processes: 2, rounds: 4, ..small.clone() };
    check(small, [again, often]);
}
