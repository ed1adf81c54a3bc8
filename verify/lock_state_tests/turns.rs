//! Whose turn it is: local hand-off, giving up, a single attempt.

use super::*;

// ---- local hand-off -------------------------------------------------------------------------------
/// Whether a grant on the terms `first` is handed on to a request on the terms `second`, `held` ms after it
/// began.
fn handed(local_handoff: u64, first: Terms, second: Terms, held: u64) -> bool {
    let mut driver = Driver::of(Shape { local_handoff: ms(local_handoff), ..shape() });
    let acquired = driver.come_in(Request { terms: first, ..request(1) }, 1, 0);
    let waiter = driver.enter(Request { terms: second, ..request(2) }, 0);
    match driver.exit(acquired, held) {
        Exit::HandedOn(ticket) => {
            let next = driver.is_in(waiter, held);
            assert_eq!((ticket, next.owner, next.via), (waiter, acquired.owner, AcquiredVia::HandedOff));
            assert_eq!(next.token, acquired.token + 1);
            true
        }
        Exit::Leave(_, Some(next)) => {
            assert_ne!(next.owner, acquired.owner);
            false
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hold_is_handed_on_while_its_slice_lasts() {
    assert!(handed(100, terms(), terms(), 99));
    assert!(!handed(100, terms(), terms(), 100));
    assert!(!handed(0, terms(), terms(), 0));
}

#[test]
fn only_a_healthy_lease_is_handed_on() {
    // More than a third of the lease must be left.
    assert!(handed(60_000, terms(), terms(), 2 * LEASE / 3 - DRIFT - 1));
    assert!(!handed(60_000, terms(), terms(), 2 * LEASE / 3 - DRIFT));
}

#[test]
fn only_renewed_holds_on_equal_terms_are_handed_on_and_never_fairly() {
    let other = |change: fn(&mut Terms)| {
        let mut it = terms();
        change(&mut it);
        it
    };
    let fixed = other(|t| t.fixed = true);
    let fair = other(|t| t.fair = true);
    let longer = other(|t| t.lease *= 2);
    let more = other(|t| t.args = "2".into());
    for it in [fixed, fair, longer, more] {
        assert!(!handed(100, terms(), it.clone(), 1), "to {it:?}");
        assert!(!handed(100, it.clone(), terms(), 1), "from {it:?}");
    }
    for it in [other(|t| t.fixed = true), other(|t| t.fair = true)] {
        assert!(!handed(100, it.clone(), it, 1), "among equals");
    }
}

#[test]
fn a_grant_is_handed_on_4095_times_at_most_and_tokens_rise() {
    let mut driver = Driver::of(Shape { local_handoff: Duration::MAX, ..shape() });
    let mut acquired = driver.come_in(request(0), 7, 0);
    for n in 1..=u64::from(MOST_HAND_OVERS) {
        let waiter = driver.enter(request(n), 0);
        assert_eq!(driver.exit(acquired, 1), Exit::HandedOn(waiter), "{n}");
        acquired = driver.is_in(waiter, 1);
        assert_eq!(acquired.token, 7 << 12 | n);
    }
    driver.enter(request(5_000), 0);
    assert!(leaves(driver.exit(acquired, 1)).1.is_some());
    assert_eq!(MOST_HAND_OVERS, 4_095);
}

#[test]
fn a_thread_that_gives_up_after_being_handed_the_hold_has_it() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    let waiter = driver.enter(request(2), 0);
    assert_eq!(driver.exit(acquired, 1), Exit::HandedOn(waiter));
    let GaveUp::In(next) = driver.lock_state.give_up(waiter, at(2)) else { panic!("it was handed the hold") };
    assert!(matches!(driver.exit(next, 3), Exit::Leave(..)));
}

// ---- giving up -------------------------------------------------------------------------------------
#[test]
fn a_grant_in_the_instant_of_giving_up_is_passed_on() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    driver.message(asking.owner, 6);
    let leaving = out(driver.lock_state.give_up(ticket, at(1))).leave.unwrap();
    assert_eq!(leaving.owner, asking.owner);
    // Later messages find nobody.
    assert_eq!(driver.message(asking.owner, 7), Effects::default());
    driver.lock_state.left();
    assert!(driver.lock_state.is_idle());
}

#[test]
fn a_grant_is_used_even_when_the_time_is_up() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    assert_eq!(driver.turn_with(ticket, 10, true, true), Step::GiveUp);
    driver.message(asking.owner, 6);
    assert!(matches!(driver.turn_with(ticket, 11, true, true), Step::In(..)));
}

#[test]
fn an_orphaned_next_ask_leaves_when_it_is_answered() {
    let answers = [busy(1), granted_in(2, LEASE), Answer::Unanswered];
    for answer in answers {
        let mut driver = Driver::new();
        let acquired = driver.come_in(request(1), 1, 0);
        let waiter = driver.enter(request(2), 0);
        let next = leaves(driver.exit(acquired, 500)).1.unwrap();
        // The head gives up while the leave with its request is in flight.
        assert_eq!(out(driver.lock_state.give_up(waiter, at(501))), Effects::default());
        let unknown = answer == Answer::Unanswered;
        let leaving = driver.answer(&next, answer.clone(), 502).leave;
        let leaving = leaving.unwrap_or_else(|| panic!("{answer:?}: it is left in Redis"));
        assert_eq!((leaving.owner, leaving.maybe_in_flight), (next.owner, unknown), "{answer:?}");
        driver.lock_state.left();
        driver.lock_state.left();
        assert!(driver.lock_state.is_idle(), "{answer:?}");
    }
}

#[test]
fn an_orphaned_next_ask_goes_to_the_next_comer() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    let waiter = driver.enter(request(2), 0);
    let next = leaves(driver.exit(acquired, 500)).1.unwrap();
    out(driver.lock_state.give_up(waiter, at(501)));
    let late = driver.enter(request(3), 502);
    assert!(matches!(driver.turn(late, 502), Step::Park(_)));
    assert_eq!(driver.answer(&next, granted_in(2, LEASE), 503).leave, None);
    driver.lock_state.left();
    assert_eq!(driver.is_in(late, 504).owner, next.owner);
}

#[test]
fn a_thread_that_is_not_the_head_gives_up_without_a_trace() {
    let mut driver = Driver::new();
    let (head, asking) = driver.queue_up(request(1), 5, 0);
    let second = driver.enter(request(2), 1);
    assert_eq!(out(driver.lock_state.give_up(second, at(2))), Effects::default());
    driver.message(asking.owner, 6);
    driver.is_in(head, 3);
}

// ---- one attempt -----------------------------------------------------------------------------------
#[test]
fn one_attempt_is_one_request_and_no_position() {
    let mut driver = Driver::new();
    let ticket = driver.enter(once(1), 0);
    let asking = driver.asks(ticket, 0);
    assert_eq!(asking.how, AcquireMode::Try);
    assert!(!asking.enqueues());
    driver.answer(
        &asking,
        Answer::Busy { last_number: 1, again: ms(500), arrival: String::new(), others: 0 },
        1,
    );
    assert_eq!(driver.turn(ticket, 1), Step::Busy);
    assert_eq!(out(driver.lock_state.give_up(ticket, at(2))), Effects::default());
    assert!(driver.lock_state.is_idle());
}

#[test]
fn one_attempt_never_barges() {
    let mut driver = Driver::new();
    let (head, _) = driver.queue_up(request(1), 5, 0);
    assert_eq!(driver.lock_state.enter(&once(2), at(1)), Ok(Entered::Busy));
    out(driver.lock_state.give_up(head, at(2)));
    driver.lock_state.left();
    let acquired = driver.come_in(request(3), 6, 3);
    assert_eq!(driver.lock_state.enter(&once(4), at(4)), Ok(Entered::Busy), "a local thread holds it");
    driver.exit(acquired, 5);
}

#[test]
fn one_attempt_is_not_asked_for_by_a_leave() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    driver.lock_state.lose(acquired.owner, LossReason::Forced, at(1));
    let ticket = driver.enter(once(2), 2);
    let asking = driver.asks(ticket, 2);
    assert_eq!(asking.how, AcquireMode::Try);
}

#[test]
fn one_attempt_does_not_wait_for_an_inherited_ask() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    let waiter = driver.enter(request(2), 0);
    let next = leaves(driver.exit(acquired, 500)).1.unwrap();
    out(driver.lock_state.give_up(waiter, at(501)));
    let ticket = driver.enter(once(3), 502);
    driver.answer(&next, busy(1), 503);
    driver.lock_state.left();
    let turn = driver.turn(ticket, 504);
    assert!(matches!(turn, Step::Ask(_) | Step::Busy), "{turn:?}");
}

#[test]
fn what_may_be_answered_at_once_needs_no_inbox() {
    let mut driver = Driver::new();
    let ticket = driver.enter(request(1), 0);
    let Step::Ask(asking) = driver.turn_with(ticket, 0, false, false) else { panic!("it asks") };
    assert_eq!((asking.how, asking.enqueues()), (AcquireMode::Try, false));
    driver.answer(
        &asking,
        Answer::Busy { last_number: 1, again: ms(500), arrival: String::new(), others: 0 },
        1,
    );
    let Step::Ask(asking) = driver.turn_with(ticket, 1, false, false) else { panic!("it asks again") };
    // The sender of this request sees to the inbox first.
    assert_eq!((asking.how, asking.enqueues()), (AcquireMode::Wait, true));
}

#[test]
fn an_ask_that_was_on_its_way_when_the_inbox_came_back_is_asked_again() {
    let mut driver = Driver::new();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    // Redis has answered, the lock was then granted to it, and nobody was there to hear of that.
    assert_eq!(driver.lock_state.ask_again(at(1)).wake, Some(ticket));
    driver.answer(&asking, busy(5), 2);
    assert_eq!(driver.asks(ticket, 2).how, AcquireMode::Keep);
    // Once is enough.
    driver.answer(&asking, busy(5), 3);
    assert!(matches!(driver.turn(ticket, 4), Step::Park(until) if until > at(1_000)));
}

#[test]
fn a_newcomer_is_turned_away_where_enough_wait_and_who_waits_never_is() {
    let limited = |thread, most| Request { most: Some(most), ..request(thread) };
    let mut driver = Driver::new();
    let (head, asking) = driver.queue_up(limited(1, 3), 5, 0);
    assert_eq!(asking.most, Some(3), "Redis decides about the first");
    assert_eq!(driver.lock_state.enter(&limited(2, 1), at(1)), Err(Refusal::QueueFull(1)));
    let second = driver.enter(limited(2, 2), 1);
    let heartbeat = driver.asks(head, 1_500);
    assert_eq!(heartbeat.most, Some(usize::MAX), "it has its place");
    driver.answer(
        &heartbeat,
        Answer::Busy { last_number: 5, again: ms(1_000), arrival: "77".into(), others: 4 },
        1_500,
    );
    assert_eq!(driver.lock_state.enter(&limited(3, 6), at(1_501)), Err(Refusal::QueueFull(6)));
    let third = driver.enter(limited(3, 7), 1_501);
    // Those behind the head have places, too, whatever others do meanwhile.
    driver.message(asking.owner, 6);
    let acquired = driver.is_in(head, 1_600);
    driver.lock_state.exit(acquired.ticket, at(5_000), false, || 9);
    driver.lock_state.left();
    assert_eq!(driver.asks(second, 5_000).most, Some(usize::MAX));
    assert!(third > second);
}

/// While Redis has said nothing, it also decides about those behind the first.
#[test]
fn those_behind_a_head_that_is_turned_away_are_asked_for_too() {
    let limited = |thread, most| Request { most: Some(most), ..request(thread) };
    let mut driver = Driver::new();
    let head = driver.enter(limited(1, 3), 0);
    let asking = driver.asks(head, 0);
    let second = driver.enter(limited(2, 3), 0);
    driver.answer(&asking, Answer::Refused("queue-full-3-threads-wait".into()), 1);
    assert!(matches!(driver.turn(head, 1), Step::Refused(_)));
    out(driver.lock_state.give_up(head, at(1)));
    assert_eq!(driver.asks(second, 2).most, Some(3));
}
