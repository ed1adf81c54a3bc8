//! A hold that is kept in Redis for a while after its release.

use super::{Driver, at, ms, request, terms};
use crate::engine::state::lock_state::{Exit, PendingRelease, Request, Step, Terms};

const LEAST: u64 = 400;

fn keeping(thread: u64) -> Request {
    Request { terms: Terms { fair: true, at_least: ms(LEAST).into(), ..terms() }, ..request(thread) }
}

fn left(exit: Exit) -> PendingRelease {
    match exit {
        Exit::Leave(leaving, None) => leaving,
        other => panic!("{other:?}"),
    }
}

#[test]
fn it_counts_from_when_its_thread_was_in_and_nobody_is_asked_for_with_it() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(keeping(1), 7, 0);
    driver.lock_state.came_in(acquired.ticket, at(10));
    let next = driver.enter(request(2), 20);
    assert!(matches!(driver.turn(next, 20), Step::Park(_)));
    let leaving = left(driver.exit(acquired, 100));
    assert_eq!(leaving.stays_until, at(10 + LEAST));
    assert_eq!(leaving.rest(|| at(100)), Some(ms(10 + LEAST - 100)));
    assert_eq!(leaving.rest(|| at(10 + LEAST)), None, "then it leaves as any other");
    // Once that is answered, the next thread asks under an id of its own.
    assert_eq!(driver.lock_state.left().wake, Some(next));
    assert_ne!(driver.asks(next, 110).owner, acquired.owner);
}

#[test]
fn released_late_it_leaves_and_the_next_is_asked_for() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(keeping(1), 7, 0);
    driver.lock_state.came_in(acquired.ticket, at(10));
    let next = driver.enter(request(2), 20);
    assert!(matches!(driver.turn(next, 20), Step::Park(_)));
    match driver.exit(acquired, 10 + LEAST) {
        Exit::Leave(leaving, Some(_)) => assert_eq!(leaving.rest(|| at(10 + LEAST)), None),
        other => panic!("{other:?}"),
    }
}

/// By its lease, it ends here slightly before it does in Redis.
#[test]
fn one_that_expires_before_stays_too() {
    let mut driver = Driver::new();
    let mut request = keeping(1);
    request.terms.at_least = terms().lease.into();
    let acquired = driver.come_in(request, 7, 0);
    driver.lock_state.came_in(acquired.ticket, at(10));
    let end = driver.valid_until(acquired);
    let then = driver.lock_state.expire(acquired.owner, end);
    assert_eq!(then.background.unwrap().stays_until, at(10).after(terms().lease));
}

#[test]
fn a_gate_that_closes_says_so_too() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(keeping(1), 7, 0);
    driver.lock_state.came_in(acquired.ticket, at(10));
    let leaving = driver.lock_state.close(at(20));
    assert_eq!(leaving.iter().map(|l| l.stays_until).collect::<Vec<_>>(), [at(10 + LEAST)]);
}
