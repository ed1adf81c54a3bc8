//! Conditions: what each thread of each process does while it holds the lock.

use super::{check, millis, none};
use crate::engine::model::state::Faults;
use crate::engine::model::{Plans, TICK, World};

fn world<const N: usize>(plans: [Plans; N]) -> World {
    with(World { ticks: 1, ..super::world() }, plans)
}

fn with<const N: usize>(world: World, plans: [Plans; N]) -> World {
    World { processes: N as u8, plans: plans.into(), ..world }
}

fn lost(lost: u8) -> Faults {
    Faults { lost, ..none() }
}

fn time_outs(time_outs: u8) -> Faults {
    Faults { time_outs, ..none() }
}

fn crashes(crashes: u8) -> Faults {
    Faults { crashes, ..none() }
}

fn breaks(breaks: u8) -> Faults {
    Faults { breaks, ..none() }
}

#[test]
fn a_signal_comes_from_another_process() {
    let small = World { ticks: 2, ..world([vec!["w"], vec!["s"]]) };
    let both = world([vec!["w", "w"], vec!["s", "a"]]);
    let again = World { rounds: 2, ..world([vec!["w"], vec!["s"]]) };
    check(small, [both, again]);
}

#[test]
fn threads_of_one_process_wait_and_signal() {
    let small = world([vec!["w", "s"]]);
    let late = World { faults: lost(1), ..small.clone() };
    let hand_over = World { local_handoff: TICK, ..world([vec!["w", "ws", "a"]]) };
    let two = world([vec!["w", "s"], vec!["w", "s"]]);
    check(small, [late, hand_over, two]);
}

#[test]
fn all_are_signalled_in_turn() {
    let small = World { ticks: 0, ..world([vec!["w"], vec!["w"], vec!["a"]]) };
    let one = world([vec!["w"], vec!["w"], vec!["s"]]);
    let late = World { ticks: 0, faults: lost(1), ..world([vec!["w"], vec!["w"], vec!["ss"]]) };
    check(small, [one, late]);
}

#[test]
fn a_wait_times_out() {
    let small = World { faults: time_outs(1), ..world([vec!["w"], vec!["s"]]) };
    let more = World { ticks: 2, faults: time_outs(2), ..world([vec!["ww"], vec!["ss"]]) };
    let late = World { faults: Faults { time_outs: 1, lost: 1, ..none() }, ..small.clone() };
    let three = World { ticks: 0, faults: time_outs(1), ..world([vec!["w"], vec!["w"], vec!["s"]]) };
    check(small, [more, late, three]);
}

#[test]
fn replies_are_lost_and_requests_come_late() {
    let small = World { faults: lost(1), ..world([vec!["w"], vec!["s"]]) };
    let more = World { ticks: 2, faults: lost(2), ..small.clone() };
    let two = World { faults: lost(1), ..world([vec!["w", "w"], vec!["s"]]) };
    check(small, [more, two]);
}

#[test]
fn a_process_dies() {
    let small = World { ticks: 2, faults: crashes(1), ..world([vec!["w"], vec!["s"]]) };
    let late = World { faults: Faults { crashes: 1, lost: 1, ..none() }, ..small.clone() };
    check(small, [late]);
}

#[test]
fn a_signalled_waiter_dies() {
    let small = World { ticks: 0, faults: crashes(1), ..world([vec!["w"], vec!["w", "s"]]) };
    let three = World { ticks: 0, faults: crashes(1), ..world([vec!["w"], vec!["w"], vec!["s"]]) };
    let late = World { faults: Faults { crashes: 1, lost: 1, ..none() }, ..small.clone() };
    check(small, [three, late]);
}

/// Its connections stay open, so nobody notices at once that it is dead.
#[test]
fn a_waiter_let_in_by_a_signal_is_dead() {
    let faults = Faults { vanishes: 1, ..none() };
    // A first lease expires after a tick, and nobody counts as silent by then.
    let waiter_timeout = millis(TICK);
    let small = World { waiter_timeout, ticks: 1, faults, ..world([vec!["w"], vec!["w", "s"]]) };
    let longer = World { ticks: 3, ..small.clone() };
    let three = with(small.clone(), [vec!["w"], vec!["w"], vec!["s"]]);
    check(small, [longer, three]);
}

#[test]
fn an_inbox_breaks() {
    let small = World { faults: breaks(1), ..world([vec!["w"], vec!["s"]]) };
    let three = World { ticks: 0, faults: breaks(1), ..world([vec!["w"], vec!["w"], vec!["s"]]) };
    check(small, [three]);
}

#[test]
fn a_wait_does_not_begin_in_time() {
    let faults = Faults { breaks: 1, time_outs: 1, ..none() };
    let small = World { ticks: 2, faults, ..world([vec!["w"]]) };
    let signalled = with(small.clone(), [vec!["w"], vec!["s"]]);
    check(small, [signalled]);
}

#[test]
fn positions_fall_silent() {
    let waiter_timeout = millis(TICK) * 3 / 2;
    let small = World { waiter_timeout, ticks: 2, ..world([vec!["w"], vec!["s"]]) };
    let three = World { waiter_timeout, ticks: 2, ..world([vec!["w"], vec!["w"], vec!["s"]]) };
    let timed = World { ticks: 3, faults: time_outs(1), ..small.clone() };
    check(small, [three, timed]);
}

#[test]
fn redis_does_not_answer_a_wait() {
    let faults = Faults { lost: 1, time_outs: 1, ..none() };
    let small = World { ticks: 0, faults: faults.clone(), ..world([vec!["w"], vec!["s"]]) };
    let others = World { ticks: 0, faults, ..world([vec!["w"], vec!["w"], vec!["s"]]) };
    check(small, [others]);
}
