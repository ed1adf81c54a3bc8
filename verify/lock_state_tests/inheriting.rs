//! What the next head inherits from one that gave up: everything if it asks for the same, and otherwise
//! nothing.

use super::*;

/// Returns a head's request and the next one's, which differ in one thing that a grant depends on.
fn pairs() -> [(&'static str, Request, Request); 8] {
    let on = |terms: Terms| (request(1), Request { terms, ..request(2) });
    let other_mode = |instead| (Request { from: Some(77), instead, ..request(1) }, request(2));
    [
        ("permits", on(Terms { args: "3".into(), ..terms() })),
        ("a longer lease", on(Terms { lease: ms(9_000), ..terms() })),
        ("a shorter lease", on(Terms { lease: ms(200), ..terms() })),
        ("a fixed lease", on(Terms { fixed: true, ..terms() })),
        ("fairness", on(Terms { fair: true, ..terms() })),
        ("a shortest hold", on(Terms { at_least: ms(500).into(), ..terms() })),
        ("another mode beside", other_mode(false)),
        ("another mode instead", other_mode(true)),
    ]
    .map(|(what, (first, second))| (what, first, second))
}

impl Driver {
    /// What was asked before for another request leaves, and the new request is sent under an id of its own.
    #[track_caller]
    pub(super) fn asks_anew(&mut self, ticket: Ticket, before: &Asking, now: u64) -> Asking {
        let Step::Leave(leaving) = self.turn(ticket, now) else { panic!("it must leave") };
        assert_eq!(leaving.owner, before.owner);
        self.lock_state.left();
        let anew = self.asks(ticket, now);
        assert_ne!(anew.owner, before.owner);
        anew
    }
}

/// A head with a position, and a thread behind it.
fn two(first: Request, second: Request) -> (Driver, Ticket, Asking, Ticket) {
    let mut driver = Driver::new();
    let (head, asking) = driver.queue_up(first, 5, 0);
    let second = driver.enter(second, 1);
    (driver, head, asking, second)
}

/// What it asks Redis for.
fn of(asking: &Asking) -> (&Terms, Option<u64>, bool) {
    (&asking.terms, asking.from, asking.instead)
}

fn by(request: &Request) -> (&Terms, Option<u64>, bool) {
    (&request.terms, request.from, request.instead)
}

#[test]
fn the_next_head_keeps_the_position() {
    let (mut driver, head, asking, second) = two(request(1), request(2));
    assert_eq!(out(driver.lock_state.give_up(head, at(2))).wake, Some(second));
    let heartbeat = driver.asks(second, 2);
    assert_eq!((heartbeat.owner, heartbeat.how, heartbeat.threads), (asking.owner, AcquireMode::Keep, 1));
}

#[test]
fn the_next_head_inherits_the_grant() {
    let (mut driver, head, asking, second) = two(request(1), request(2));
    driver.message(asking.owner, 6);
    assert_eq!(out(driver.lock_state.give_up(head, at(2))).wake, Some(second));
    assert_eq!(driver.is_in(second, 2).owner, asking.owner);
}

#[test]
fn a_position_for_another_request_is_given_up() {
    for (what, first, next) in pairs() {
        let (mut driver, head, asking, second) = two(first.clone(), next.clone());
        assert_eq!(out(driver.lock_state.give_up(head, at(2))).wake, Some(second), "{what}");
        let anew = driver.asks_anew(second, &asking, 2);
        assert_eq!((anew.how, anew.arrival.as_str()), (AcquireMode::Wait, ""), "{what}");
        assert_eq!(of(&anew), by(&next), "{what}");
    }
}

#[test]
fn a_grant_for_another_request_is_given_back_however_it_is_heard_of() {
    for (what, first, next) in pairs() {
        // By a message, before or after the head gave up.
        for late in [false, true] {
            let (mut driver, head, asking, second) = two(first.clone(), next.clone());
            if !late {
                driver.message(asking.owner, 6);
            }
            out(driver.lock_state.give_up(head, at(2)));
            driver.message(asking.owner, 6);
            let anew = driver.asks_anew(second, &asking, 3);
            driver.message(asking.owner, 7);
            driver.answer(&anew, busy(7), 4);
            assert!(matches!(driver.turn(second, 4), Step::Park(_)), "{what}");
        }
        // By the reply to a heartbeat, or to a request that was in flight when the head gave up.
        let (mut driver, head, asking, second) = two(first.clone(), next.clone());
        let heartbeat = driver.asks(head, 1_100);
        out(driver.lock_state.give_up(head, at(1_100)));
        assert!(matches!(driver.turn(second, 1_100), Step::Park(_)), "{what}: it is on its way");
        assert_eq!(driver.answer(&heartbeat, granted_in(6, LEASE), 1_101).wake, Some(second));
        driver.asks_anew(second, &asking, 1_102);
    }
}

#[test]
fn what_a_leave_was_granted_for_its_next_is_that_ones() {
    for (what, first, next) in pairs() {
        let mut driver = Driver::new();
        let held = driver.come_in(request(9), 1, 0);
        let head = driver.enter(first, 1);
        let (_, asking) = leaves(driver.exit(held, 200));
        let asking = asking.unwrap();
        let second = driver.enter(next, 201);
        out(driver.lock_state.give_up(head, at(202)));
        driver.answer(&asking, granted_in(2, LEASE), 203);
        assert!(matches!(driver.turn(second, 203), Step::Park(_)), "{what}: the leave is on its way");
        driver.lock_state.left();
        driver.asks_anew(second, &asking, 204);
    }
}

#[test]
fn what_may_have_been_granted_without_an_answer_gets_a_tombstone() {
    for (what, first, next) in pairs() {
        let (mut driver, head, asking, second) = two(first, next);
        let heartbeat = driver.asks(head, 1_100);
        driver.answer(&heartbeat, Answer::Unanswered, 1_200);
        out(driver.lock_state.give_up(head, at(1_200)));
        let Step::Leave(leaving) = driver.turn(second, 1_200) else { panic!("{what}: it must leave") };
        assert_eq!((leaving.owner, leaving.maybe_in_flight), (asking.owner, true), "{what}");
    }
}

#[test]
fn what_redis_does_not_know_of_is_not_left() {
    for (what, first, next) in pairs() {
        let mut driver = Driver::new();
        let head = driver.enter(first, 0);
        let second = driver.enter(next.clone(), 0);
        let asking = driver.asks(head, 0);
        driver.answer(&asking, Answer::Failed, 1);
        out(driver.lock_state.give_up(head, at(2)));
        assert_eq!(of(&driver.asks(second, 2)), by(&next), "{what}");
    }
}

/// An attempt of its own would be one more than it has time for.
#[test]
fn a_thread_with_no_time_left_leaves_it_to_the_one_behind() {
    let other = Terms { args: "3".into(), ..terms() };
    let (mut driver, head, asking, second) = two(request(1), Request { terms: other, ..request(2) });
    let third = driver.enter(request(3), 1);
    driver.message(asking.owner, 6);
    out(driver.lock_state.give_up(head, at(2)));
    assert_eq!(driver.turn_with(second, 2, true, true), Step::GiveUp);
    out(driver.lock_state.give_up(second, at(2)));
    assert_eq!(driver.is_in(third, 2).owner, asking.owner);
}
