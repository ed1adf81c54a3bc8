//! The control: holders that are stopped for longer than their lease and then write, without a look
//! at `is_lost()`. Unguarded, counts are lost, and the checks see it; guarded, none is.

use redis_concurrent_testkit::wait_until;

use crate::history::checker::nothing_is_lost;
use crate::history::counter::Tally;
use crate::history::fixture::Fixture;
use crate::history::log::Event;
use crate::history::plan::LOCKS;
use crate::history::processes::Processes;
use crate::history::rounds::Style;
use crate::history::run::orders;
use crate::support::{LONG, Random, SOON};

/// How often it is tried to catch a holder between its reading and its writing, where it mostly is.
const TRIES: usize = 12;

/// Stops holders, one after the other, until `seen` says that it is enough; returns what is wrong
/// with the counter in the end.
fn stop_holders(guarded: bool, seen: fn(&Fixture) -> bool) -> Vec<String> {
    let fixture = Fixture::set().unwrap();
    let orders = orders(&fixture, [true; 3], guarded, Style::Slow);
    let mut processes = Processes::start(&fixture, orders, 2, Random::new("control"));
    let writes = || Tally::of(&fixture.counters, LOCKS[0]).writes.len();
    for _ in 0..TRIES {
        let mut holder = None;
        wait_until(SOON, "somebody holds", || {
            holder = processes.holder(LOCKS[0]);
            holder.is_some()
        });
        let slot = holder.unwrap();
        processes.stop(slot);
        let before = writes();
        wait_until(LONG, "the other process counts", || writes() > before + 3);
        processes.go_on(slot);
        // What it writes now it writes at once; the next ones are in order again.
        let before = writes();
        wait_until(LONG, "they go on", || writes() > before + 3);
        if seen(&fixture) {
            break;
        }
    }
    processes.end();
    assert!(processes.wrong.is_empty(), "{:?}", processes.wrong);
    assert!(seen(&fixture), "no holder was caught before its write");
    nothing_is_lost(&Tally::of(&fixture.counters, LOCKS[0]))
}

/// A test that the checks can fail.
#[test]
fn control_without_tokens_counts_are_lost() {
    let lost = |fixture: &Fixture| !nothing_is_lost(&Tally::of(&fixture.counters, LOCKS[0])).is_empty();
    let wrong = stop_holders(false, lost);
    assert!(wrong.iter().any(|it| it.contains("both written over")), "{wrong:?}");
}

#[test]
fn control_with_tokens_none_is() {
    let refused =
        |fixture: &Fixture| fixture.lines().iter().any(|line| matches!(line.event, Event::Refused { .. }));
    let wrong = stop_holders(true, refused);
    assert!(wrong.is_empty(), "{wrong:?}");
}
