//! Order classes: the first of a process's waiters is the one with the lowest class, and the process's queue
//! position is moved when that class changes.

use super::*;

fn of_class(thread: u64, class: u8) -> Request {
    Request {
        terms: Terms { class: Some(class), args: class.to_string().into(), ..terms() },
        ..request(thread)
    }
}

#[test]
fn waiters_of_one_class_come_in_by_arrival_and_lower_classes_first() {
    let mut driver = Driver::new();
    let holder = driver.enter(request(9), 0);
    let asking = driver.asks(holder, 0);
    driver.lock_state.answered(asking.owner, granted_in(5, LEASE), at(0));
    driver.is_in(holder, 0);
    let tickets: Vec<_> =
        [5, 3, 0, 4, 3, 0, 7].into_iter().map(|class| driver.enter(of_class(1, class), 1)).collect();
    let order = [2, 5, 1, 4, 3, 0, 6];
    for (i, next) in order.iter().zip(&order[1..]) {
        assert_eq!(out(driver.lock_state.give_up(tickets[*i], at(2))).wake, Some(tickets[*next]));
    }
}

#[test]
fn the_urgent_pass_those_that_came_less_than_half_a_minute_earlier_a_step() {
    let urgent = |thread, priority| Request { terms: Terms { priority, ..terms() }, ..request(thread) };
    let mut driver = Driver::new();
    let asking_before = driver.enter(request(9), 0);
    let asking = driver.asks(asking_before, 0);
    driver.lock_state.answered(asking.owner, granted_in(5, 200_000), at(0));
    driver.is_in(asking_before, 0);
    let came = [(0, 0), (0, -1), (29_999, 1), (30_001, 1), (30_002, 0), (59_990, 3)];
    let tickets: Vec<_> = came.into_iter().map(|(now, p)| driver.enter(urgent(1, p), now)).collect();
    let order = [5, 2, 0, 3, 1, 4];
    for (i, next) in order.iter().zip(&order[1..]) {
        assert_eq!(out(driver.lock_state.give_up(tickets[*i], at(60_000))).wake, Some(tickets[*next]));
    }
}

#[test]
fn a_hold_is_handed_on_to_none_that_is_less_urgent() {
    let urgent = |thread, priority| Request { terms: Terms { priority, ..terms() }, ..request(thread) };
    for (next, goes) in [(2, true), (1, true), (0, false)] {
        let mut driver = Driver::new();
        let acquired = driver.come_in(urgent(1, 1), 5, 0);
        let ticket = driver.enter(urgent(2, next), 1);
        assert_eq!(driver.exit(acquired, 2) == Exit::HandedOn(ticket), goes, "{next}");
    }
}

#[test]
fn a_better_class_moves_the_position_and_the_old_one_comes_back_to_its_arrival() {
    let mut driver = Driver::new();
    let (slow, first) = driver.queue_up(of_class(1, 5), 5, 0);
    let fast = driver.enter(of_class(2, 1), 1);
    let moved = driver.asks_anew(fast, &first, 1);
    assert_eq!((moved.how, moved.terms.class, moved.arrival.as_str()), (AcquireMode::Wait, Some(1), ""));
    let late = Answer::Busy { last_number: 5, again: ms(1_000), arrival: "99".into(), others: 0 };
    driver.lock_state.answered(moved.owner, late, at(1));
    assert_eq!(out(driver.lock_state.give_up(fast, at(2))).wake, Some(slow));
    let back = driver.asks_anew(slow, &moved, 2);
    assert_eq!((back.how, back.terms.class, back.arrival.as_str()), (AcquireMode::Wait, Some(5), "77"));
}

#[test]
fn an_arrival_is_nobodys_once_its_waiters_are_gone() {
    let mut driver = Driver::new();
    let (slow, first) = driver.queue_up(of_class(1, 5), 5, 0);
    let fast = driver.enter(of_class(2, 1), 1);
    let moved = driver.asks_anew(fast, &first, 1);
    driver.lock_state.answered(moved.owner, busy(5), at(1));
    assert!(matches!(driver.lock_state.give_up(slow, at(2)), GaveUp::Out(_)));
    let newcomer = driver.enter(of_class(3, 5), 3);
    assert_eq!(out(driver.lock_state.give_up(fast, at(4))).wake, Some(newcomer));
    assert_eq!(driver.asks_anew(newcomer, &moved, 4).arrival, "");
}

#[test]
fn a_grant_that_is_there_is_its_heads_also_when_others_come() {
    let mut driver = Driver::new();
    let (slow, first) = driver.queue_up(of_class(1, 5), 5, 0);
    driver.message(first.owner, 6);
    let fast = driver.enter(of_class(2, 1), 1);
    assert!(matches!(driver.turn(fast, 1), Step::Park(_)));
    assert_eq!(driver.is_in(slow, 1).owner, first.owner);
}
