//! The read/write lock. In the small worlds, a hand-off period is one tick, out of one or two.

use super::{check, millis, none, world};
use crate::engine::model::modes::Role::{Away, Downgrades, Reads, ReadsInOrder, ReadsToo, Writes};
use crate::engine::model::state::Faults;
use crate::engine::model::{TICK, World};

/// Two processes with one thread each: a reader and a writer.
fn shared() -> World {
    World { local_handoff: TICK, ticks: 1, roles: &[Reads, Writes], ..world() }
}

#[test]
fn readers_and_a_writer() {
    let small = World { processes: 3, counts: true, roles: &[Reads, Reads, Writes], ..shared() };
    let writers = World { roles: &[Writes, Reads, Writes], ..small.clone() };
    let again = World { processes: 2, rounds: 2, ticks: 2, ..shared() };
    check(small, [writers, again]);
}

#[test]
fn readers_that_let_no_later_writer_pass() {
    let small = World { roles: &[ReadsInOrder, Writes], ticks: 2, ..shared() };
    let three = World { processes: 3, ticks: 1, roles: &[ReadsInOrder, Writes, Reads], ..small.clone() };
    let late = World { faults: Faults { lost: 1, ..none() }, ..small.clone() };
    check(small, [three, late]);
}

#[test]
fn threads_of_a_process_read_together() {
    let small = World { threads: 2, counts: true, roles: &[Reads, Reads, Writes, Away], ..shared() };
    let together = World { roles: &[Reads, Reads, Writes, Reads], ..small.clone() };
    let mixed = World { roles: &[Reads, Writes, Reads, Writes], ..small.clone() };
    let longer = World { ticks: 2, ..small.clone() };
    check(small, [together, mixed, longer]);
}

#[test]
fn nobody_joins_past_a_writer_of_the_same_process() {
    let small = World { processes: 1, threads: 3, roles: &[Reads, Reads, Writes], ..shared() };
    let deaf = World { faults: Faults { breaks: 1, ..none() }, ..small.clone() };
    let late = World { faults: Faults { lost: 1, time_outs: 1, ..none() }, ..small.clone() };
    check(small, [deaf, late]);
}

#[test]
fn shares_are_asked_for_late() {
    let faults = Faults { lost: 1, ..none() };
    let small = World { processes: 1, threads: 2, ticks: 2, roles: &[Reads, Reads], faults, ..shared() };
    let more = World { ticks: 3, faults: Faults { lost: 2, ..none() }, ..small.clone() };
    let writer = World { processes: 2, ticks: 1, roles: &[Reads, Reads, Writes, Away], ..small.clone() };
    check(small, [more, writer]);
}

#[test]
fn a_reader_that_joins_late_in_a_slice_asks_ahead() {
    let local_handoff = TICK * 3 / 2;
    let faults = Faults { lost: 1, ..none() };
    let small = World {
        processes: 1,
        threads: 2,
        local_handoff,
        ticks: 2,
        roles: &[Reads, Reads],
        faults,
        ..shared()
    };
    let three = World { threads: 3, roles: &[Reads, Reads, Reads], ..small.clone() };
    let faults = none();
    let here = World { counts: true, roles: &[Reads, Reads, Writes], faults, ..three.clone() };
    let there = World { processes: 2, threads: 2, roles: &[Reads, Reads, Writes, Away], ..here.clone() };
    check(small, [three, here, there]);
}

#[test]
fn a_writer_reads_beside_itself() {
    let small = World { roles: &[ReadsToo, Reads], ..shared() };
    let longer = World { ticks: 2, ..small.clone() };
    let late = World { roles: &[ReadsToo, Writes], faults: Faults { lost: 1, ..none() }, ..longer.clone() };
    let threads = World { threads: 2, roles: &[ReadsToo, Reads, Writes, Away], ..small.clone() };
    check(small, [longer, late, threads]);
}

#[test]
fn nobody_reads_with_a_thread_that_writes() {
    let small = World { processes: 1, threads: 2, roles: &[ReadsToo, Reads], ..shared() };
    let late = World { ticks: 2, faults: Faults { lost: 1, ..none() }, ..small.clone() };
    check(small, [late]);
}

#[test]
fn a_writer_gives_up_to_read_beside() {
    let faults = Faults { lost: 1, time_outs: 1, ..none() };
    let small = World { processes: 1, threads: 2, ticks: 0, roles: &[ReadsToo, Reads], faults, ..shared() };
    let longer = World { ticks: 1, ..small.clone() };
    let instead = World { roles: &[Downgrades, Reads], ..longer.clone() };
    check(small, [longer, instead]);
}

#[test]
fn an_exchange_comes_too_late() {
    let small = World { processes: 1, threads: 2, ticks: 2, roles: &[Downgrades, Reads], ..shared() };
    let late = World { faults: Faults { lost: 1, ..none() }, ..small.clone() };
    check(small, [late]);
}

#[test]
fn a_write_lock_is_exchanged() {
    let small = World { roles: &[Downgrades, Writes], ..shared() };
    let readers = World { ticks: 2, roles: &[Downgrades, Reads], ..small.clone() };
    let late = World { ticks: 2, faults: Faults { lost: 1, ..none() }, ..small.clone() };
    let threads = World { threads: 2, roles: &[Downgrades, Writes, Reads, Away], ..small.clone() };
    let dies = World { ticks: 2, faults: Faults { crashes: 1, ..none() }, ..small.clone() };
    check(small, [readers, late, threads, dies]);
}

#[test]
fn what_is_exchanged_is_renewed() {
    let faults = Faults { renewals: 1, ..none() };
    let small = World { processes: 1, ticks: 2, roles: &[Downgrades], faults, ..shared() };
    let others = World { processes: 2, roles: &[Downgrades, Writes], ..small.clone() };
    let late = World { faults: Faults { renewals: 2, lost: 1, ..none() }, ..small.clone() };
    check(small, [others, late]);
}

#[test]
fn readers_are_answered_late() {
    let small = World { faults: Faults { lost: 1, ..none() }, ..shared() };
    let longer = World { ticks: 2, ..small.clone() };
    let three = World { processes: 3, roles: &[Reads, Reads, Writes], ..small.clone() };
    check(small, [longer, three]);
}

#[test]
fn readers_and_writers_die() {
    let small = World { ticks: 2, faults: Faults { crashes: 1, ..none() }, ..shared() };
    let longer = World { ticks: 3, ..small.clone() };
    let silent = World {
        processes: 3,
        ticks: 2,
        waiter_timeout: millis(TICK) * 3 / 2,
        roles: &[Reads, Writes, Reads],
        ..small.clone()
    };
    check(small, [longer, silent]);
}

#[test]
fn readers_and_writers_give_up() {
    let faults = Faults { time_outs: 1, tries: 1, ..none() };
    let small = World { roles: &[ReadsToo, Writes], faults, ..shared() };
    let exchanged = World { ticks: 2, roles: &[Downgrades, Writes], ..small.clone() };
    let writers = World { processes: 3, roles: &[Writes, Writes, Reads], ..small.clone() };
    check(small, [exchanged, writers]);
}

#[test]
fn one_of_two_writers_gives_up() {
    let faults = Faults { time_outs: 1, ..none() };
    let roles = &[Reads, Writes, Writes, Reads];
    let small = World { threads: 2, ticks: 0, prompt: true, roles, faults, ..shared() };
    let longer = World { ticks: 1, ..small.clone() };
    let slow = World { prompt: false, ..small.clone() };
    let apart = World { processes: 4, threads: 1, ..longer.clone() };
    check(small, [longer, slow, apart]);
}

#[test]
fn a_writer_dies_waiting() {
    let small = World {
        processes: 3,
        prompt: true,
        waiter_timeout: millis(TICK) * 3 / 4,
        roles: &[Reads, Writes, Reads],
        faults: Faults { crashes: 1, ..none() },
        ..shared()
    };
    let longer = World { ticks: 3, ..small.clone() };
    check(small, [longer]);
}

#[test]
fn readers_ask_on_other_terms() {
    let faults = Faults { time_outs: 1, ..none() };
    let small = World {
        processes: 1,
        threads: 2,
        ticks: 2,
        terms_differ: true,
        roles: &[Reads, Reads],
        faults,
        ..shared()
    };
    let late = World { ticks: 4, faults: Faults { time_outs: 1, lost: 1, ..none() }, ..small.clone() };
    let writer = World { processes: 2, ticks: 2, roles: &[Reads, Reads, Writes, Away], ..small.clone() };
    check(small, [late, writer]);
}

#[test]
fn the_clock_was_set_back() {
    let small = World { behind: true, ticks: 2, ..shared() };
    let three = World { processes: 3, roles: &[Reads, Reads, Writes], ..small.clone() };
    let late = World { faults: Faults { lost: 1, ..none() }, ..small.clone() };
    check(small, [three, late]);
}
