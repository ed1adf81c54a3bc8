//! Each well-known wrong way of locking with Redis fails, and a right one holds: what `make pitfalls`
//! prints, demanded.

#[path = "../../demo/examples/pitfalls/mod.rs"]
mod wrong_ways;

use std::time::Duration;

use redis_concurrent::ErrorKind;
use wrong_ways::fixture::Fixture;
use wrong_ways::half_a_script::{Books, Refused};
use wrong_ways::holders::Holders;
use wrong_ways::no_lock::Sale;
use wrong_ways::one_mark::Passed;
use wrong_ways::reentry::{Inner, Reentrancy};
use wrong_ways::report::{self, Row};
use wrong_ways::watch::{Beaten, Updates};
use wrong_ways::*;

/// What the table says, told at more length.
const PAGE: &str = include_str!("../../docs/pitfalls.md");

/// What a half comes to on a server of its own.
#[track_caller]
fn of<F>(half: fn(&Fixture) -> Result<F, Failure>) -> F {
    half(&Fixture::open().unwrap()).unwrap()
}

/// A half comes to exactly this, and the page shows it.
#[track_caller]
fn comes_to<F: Finding + PartialEq>(half: fn(&Fixture) -> Result<F, Failure>, expected: F) {
    assert_eq!(of(half), expected);
    assert!(PAGE.contains(&expected.to_string()), "docs/pitfalls.md does not show: {expected}");
}

const ONE: Holders = Holders { at_once: 1, error: None };
const TWO: Holders = Holders { at_once: 2, error: None };

#[test]
fn without_a_lock_more_is_sold_than_there_is() {
    comes_to(no_lock::wrong, Sale { sold: 12, left: 9 });
    comes_to(no_lock::right, Sale { sold: 10, left: 0 });
}

#[test]
fn exists_then_set_lets_two_in() {
    comes_to(exists_then_set::wrong, TWO);
    comes_to(exists_then_set::right, ONE);
}

#[test]
fn a_crash_between_setnx_and_expire_leaves_a_lock_for_ever() {
    assert_eq!(of(setnx_then_expire::wrong).next_after, None);
    assert!(of(setnx_then_expire::right).next_after.is_some());
}

#[test]
fn the_timestamp_lock_lets_in_whose_clock_is_ahead() {
    comes_to(getset_timestamp::wrong, TWO);
    // It is the clock that does it.
    let fixture = Fixture::open().unwrap();
    assert_eq!(getset_timestamp::with_the_second_ahead(&fixture, Duration::ZERO).unwrap(), ONE);
    comes_to(getset_timestamp::right, ONE);
}

#[test]
fn unlocking_by_del_frees_what_is_somebody_elses() {
    comes_to(unlock::wrong_by_del, TWO);
    comes_to(unlock::right_unlooked, Holders { at_once: 1, error: Some(ErrorKind::LeaseLost) });
}

#[test]
fn looking_before_the_del_does_not_help() {
    comes_to(unlock::wrong_by_get_then_del, TWO);
    comes_to(unlock::right_looked, Holders { at_once: 1, error: Some(ErrorKind::LeaseLost) });
}

#[test]
fn a_thread_that_locks_twice_waits_for_itself_and_then_frees_its_own_lock() {
    comes_to(reentry::wrong, Reentrancy { inner: Inner::Refused(100), at_once: 2 });
    comes_to(reentry::right, Reentrancy { inner: Inner::In { requests: 0 }, at_once: 1 });
    let error = Inner::Failed(ErrorKind::WouldDeadlock);
    comes_to(reentry::right_refused, Reentrancy { inner: error, at_once: 1 });
}

#[test]
fn a_lease_shorter_than_the_work_is_renewed_or_lost() {
    let wrong = of(short_lease::wrong);
    assert_eq!((wrong.holders, wrong.renewals), (TWO, 0));
    let right = of(short_lease::right);
    assert_eq!(right.holders, ONE);
    assert!(right.took > short_lease::LEASE && right.renewals > 0, "{} renewals", right.renewals);
}

#[test]
fn a_script_that_errs_keeps_what_it_wrote() {
    comes_to(half_a_script::wrong, Books { left: 9, sold: 0 });
    comes_to(half_a_script::right, Books { left: 10, sold: 0 });
    let refused = Refused { error: ErrorKind::WrongType, changed: false };
    comes_to(half_a_script::right_by_the_lock, refused);
}

#[test]
fn a_counted_reader_that_dies_is_counted_for_ever() {
    let wrong = of(reader_count::wrong);
    assert_eq!((wrong.counted, wrong.writer_in), (1, None));
    let right = of(reader_count::right);
    assert!(right.counted == 0 && right.writer_in.is_some(), "{right:?}");
}

#[test]
fn one_mark_for_all_writers_is_taken_away_by_the_first_that_gives_up() {
    comes_to(one_mark::wrong, Passed { readers: 100 });
    comes_to(one_mark::right, Passed { readers: 0 });
}

#[test]
fn spinning_costs_many_times_what_waiting_does() {
    let (wrong, right) = (of(spinning::wrong), of(spinning::right));
    // Each time that somebody waits, at least 20 are refused; nobody may wait while the last process takes
    // its last ten turns of 80.
    assert!(wrong.requests > 15.0, "{wrong:?}");
    assert!(right.requests >= 2.0 && right.is_kept(), "{right:?}");
}

#[test]
fn a_lock_that_its_replica_does_not_know_is_granted_twice() {
    comes_to(failover::wrong, TWO);
    comes_to(failover::right_by_replicas, Holders { at_once: 1, error: Some(ErrorKind::NotReplicated) });
    comes_to(failover::right_by_multi_lock, ONE);
    comes_to(failover::right_by_red_lock, ONE);
    comes_to(failover::right_by_token, failover::Writes { holders: 2, late_refused: true });
}

#[test]
fn a_watcher_without_a_limit_may_be_beaten_for_ever() {
    comes_to(watch::wrong, Updates { tries: 3200, done: 100, counted: 100, fewest: 0 });
    comes_to(watch::right, Updates { tries: 128, done: 128, counted: 128, fewest: 4 });
    let right = of(watch::right_with_a_limit);
    assert!(right.tries >= 128, "{right:?}");
    assert_eq!(right, Updates { tries: right.tries, done: 128, counted: 128, fewest: 4 });
    comes_to(watch::right_when_beaten, Beaten { tries: 10, error: ErrorKind::Conflict });
}

/// One row is enough: of the others the tests above know.
#[test]
fn the_table_shows_both_halves_and_complains_of_neither() {
    let all = wrong_ways::all();
    let row = Row::of(&all[0]).unwrap();
    assert_eq!(row.complaints(), [""; 0]);
    let text = report::text(&[row]);
    let line = text.lines().last().unwrap();
    for cell in [all[0].name, "12 of 10 sold", all[0].right[0].name, "10 of 10 sold"] {
        assert!(line.contains(cell), "{cell}: {text}");
    }
}

#[test]
fn the_page_tells_of_every_row() {
    for pitfall in wrong_ways::all() {
        assert!(!pitfall.right.is_empty(), "{}", pitfall.name);
        assert!(PAGE.contains(&format!("\n## {}\n", pitfall.name)), "{}", pitfall.name);
        // In the table behind the wrong way, the first right one in the same row.
        for right in &pitfall.right {
            assert!(PAGE.lines().any(|row| row.contains(&format!("| {} |", right.name))), "{}", right.name);
        }
    }
}
