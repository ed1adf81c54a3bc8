//! A semaphore with two permits: the first thread of each process requests one, the second both.

use super::{check, none, world};
use crate::engine::model::World;
use crate::engine::model::state::Faults;

fn shared() -> World {
    World { threads: 2, ticks: 0, permits: 2, ..world() }
}

#[test]
fn threads_ask_for_other_numbers() {
    let small = World { faults: Faults { time_outs: 1, ..none() }, ..shared() };
    let longer = World { ticks: 1, ..small.clone() };
    let late = World { faults: Faults { time_outs: 1, lost: 1, ..none() }, ..small.clone() };
    check(small, [longer, late]);
}

#[test]
fn grants_and_answers_are_lost() {
    let small =
        World { processes: 1, ticks: 2, faults: Faults { time_outs: 1, lost: 1, ..none() }, ..shared() };
    let two = World { processes: 2, ticks: 1, ..small.clone() };
    check(small, [two]);
}
