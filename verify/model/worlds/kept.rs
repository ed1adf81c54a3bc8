//! A process keeps the lock while no other caller wants it. (In the first world the lock is acquired again.
//! In the others, where much can go wrong, each process acquires it once, which leads to just as many ways of
//! giving back what was kept.)

use super::super::modes::Role;
use super::super::state::Faults;
use super::super::{TICK, World};
use super::{check, none, world};

fn kept() -> World {
    World { linger: 1, ticks: 1, others_once: true, ..world() }
}

#[test]
fn a_lock_is_kept() {
    let small = World { rounds: 2, ..kept() };
    let longer = World { ticks: 4, linger: 3, ..small.clone() };
    let three = World { processes: 3, ..small.clone() };
    check(small, [longer, three]);
}

#[test]
fn messages_that_it_is_wanted_are_lost_and_late() {
    let small = World { faults: Faults { lost: 1, ..none() }, ..kept() };
    let again = World { rounds: 2, ..small.clone() };
    let longer = World { linger: 3, ticks: 3, ..small.clone() };
    let moves = World { faults: Faults { moves: 1, ..none() }, ..small.clone() };
    check(small, [again, moves, longer]);
}

#[test]
fn the_inbox_of_its_process_breaks() {
    let small = World { faults: Faults { breaks: 1, ..none() }, ..kept() };
    let again = World { rounds: 2, faults: Faults { breaks: 2, ..none() }, ..small.clone() };
    check(small, [again]);
}

#[test]
fn it_is_renewed_while_it_is_kept() {
    let small = World { faults: Faults { renewals: 1, ..none() }, ..kept() };
    let again = World { rounds: 2, linger: 2, ..small.clone() };
    let late = World { faults: Faults { renewals: 1, lost: 1, ..none() }, ..small.clone() };
    check(small, [again, late]);
}

#[test]
fn it_is_revoked_while_it_is_kept() {
    let small = World { linger: 3, faults: Faults { renewals: 1, revocations: 1, ..none() }, ..kept() };
    let again = World { rounds: 2, ..small.clone() };
    let late = World { faults: Faults { lost: 1, ..small.faults.clone() }, ..small.clone() };
    check(small, [again, late]);
}

#[test]
fn its_process_dies() {
    let small = World { ticks: 2, faults: Faults { crashes: 1, ..none() }, ..kept() };
    let vanishes = World { ticks: 3, faults: Faults { vanishes: 1, ..none() }, ..small.clone() };
    check(small, [vanishes]);
}

/// For longer than its lease: time passes, but nothing else happens in that process.
#[test]
fn its_process_stands_still() {
    let small = World { ticks: 2, linger: 3, ..kept() };
    let again = World { rounds: 2, ticks: 3, ..small.clone() };
    let late = World { ticks: 3, faults: Faults { lost: 1, ..none() }, ..small.clone() };
    check(small, [again, late]);
}

#[test]
fn others_make_one_attempt() {
    let small = World { faults: Faults { tries: 1, ..none() }, ..kept() };
    let again = World { rounds: 2, faults: Faults { tries: 2, ..none() }, ..kept() };
    let late = World { faults: Faults { tries: 2, lost: 1, ..none() }, ..small.clone() };
    check(small, [again, late]);
}

#[test]
fn others_wait_behind_each_other() {
    let small = World { processes: 3, ticks: 0, prompt: true, ..kept() };
    let slow = World { prompt: false, ..small.clone() };
    check(small, [slow]);
}

#[test]
fn threads_take_it_in_turn() {
    let small = World { processes: 1, threads: 3, local_handoff: TICK, ..kept() };
    let others = World { processes: 2, threads: 2, ..small.clone() };
    let late = World { faults: Faults { lost: 1, ..none() }, ..others.clone() };
    let given_up = World { faults: Faults { time_outs: 1, ..none() }, ..others.clone() };
    check(small, [others, late, given_up]);
}

#[test]
fn threads_want_it_on_other_terms() {
    let faults = Faults { lost: 1, time_outs: 1, ..none() };
    let small = World { processes: 1, threads: 2, terms_differ: true, faults, ..kept() };
    let others = World { processes: 2, faults: none(), ..small.clone() };
    let late = World { processes: 2, ..small.clone() };
    check(small, [others, late]);
}

#[test]
fn redis_loses_its_data() {
    let small = World { ticks: 0, faults: Faults { flushes: 1, ..none() }, ..kept() };
    let again = World { rounds: 2, ticks: 1, ..small.clone() };
    let renewed = World { ticks: 2, faults: Faults { flushes: 1, renewals: 1, ..none() }, ..small.clone() };
    check(small, [again, renewed]);
}

#[test]
fn waiters_for_signals_want_it() {
    let small = World { ticks: 0, plans: vec![vec!["w"], vec!["s"]], ..kept() };
    let late = World { ticks: 1, faults: Faults { lost: 1, ..none() }, ..small.clone() };
    check(small, [late]);
}

#[test]
fn readers_want_it() {
    let roles = &[Role::Writes, Role::Reads, Role::Away, Role::Reads];
    let small = World { threads: 2, ticks: 0, roles, ..kept() };
    let late = World { ticks: 1, faults: Faults { lost: 1, ..none() }, ..small.clone() };
    let writers = World { roles: &[Role::Writes, Role::Reads, Role::Writes, Role::Reads], ..small.clone() };
    check(small, [writers, late]);
}
