//! The share: threads of a process that together hold one grant of a [`Sharing::SharedPerProcess`] kind.

mod answers;
mod other_mode;

use super::*;

const LOCAL_HANDOFF: u64 = 100;

fn driver() -> Driver {
    desk_with(ms(LOCAL_HANDOFF))
}

fn desk_with(local_handoff: Duration) -> Driver {
    Driver::of(Shape { sharing: Sharing::SharedPerProcess, local_handoff, ..shape() })
}

fn fixed(thread: u64) -> Request {
    Request { terms: Terms { fixed: true, ..terms() }, ..request(thread) }
}

fn fair(thread: u64) -> Request {
    Request { terms: Terms { fair: true, ..terms() }, ..request(thread) }
}

/// Beside the hold `from` that its own thread has in the other mode.
fn other_mode(from: u64, thread: u64) -> Request {
    Request { from: Some(from), ..request(thread) }
}

impl Driver {
    /// A thread that Redis does not know of came to wait for the other mode, and has a position there now.
    fn stood_behind(&mut self) {
        assert_eq!(self.lock_state.stand_behind(true, None), None);
        self.lock_state.stand_behind(false, None);
    }
}

/// It joins at once; returns also the question that it has to send, if there is one.
#[track_caller]
fn joins(driver: &mut Driver, request: Request, now: u64) -> (Acquired, Option<Asking>) {
    match driver.lock_state.enter(&request, at(now)) {
        Ok(Entered::Joined(acquired, ahead)) => (acquired, ahead),
        other => panic!("{other:?}"),
    }
}

/// It neither joins nor asks whether it may: it wants a hold of its own.
#[track_caller]
fn asks_for_itself(driver: &mut Driver, request: Request, now: u64) -> Asking {
    let ticket = driver.enter(request, now);
    let asking = driver.asks(ticket, now);
    assert_ne!(asking.how, AcquireMode::Share);
    assert!(driver.lock_state.grant(asking.owner).is_none(), "under an id of its own");
    asking
}

#[test]
fn threads_join_within_the_slice_and_have_what_the_first_one_has() {
    let mut driver = driver();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    driver.answer(&asking, Answer::In { number: 5, left: ms(LEASE), value: 42 }, 10);
    let first = driver.is_in(ticket, 10);
    for (thread, now) in [(2, 10), (3, 40)] {
        let (acquired, ahead) = joins(&mut driver, request(thread), now);
        assert_eq!((acquired.owner, acquired.token, acquired.value), (first.owner, first.token, 42));
        assert_eq!((acquired.via, acquired.count, ahead), (AcquiredVia::Joined, 1, None));
        assert!(driver.lock_state.holds_valid(acquired.ticket, at(now)));
    }
    // A single attempt joins as well, and so does a guard.
    joins(&mut driver, once(4), 40);
    joins(&mut driver, Request { holder: HolderId::Guard, ..request(5) }, 40);
    assert_eq!(driver.lock_state.holders(at(40)), 5);
}

#[test]
fn the_slice_counts_from_before_the_request_and_then_it_is_asked_for() {
    let mut driver = driver();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    driver.answer(&asking, granted_in(5, LEASE), 90);
    let first = driver.is_in(ticket, 90);
    let late = driver.enter(request(2), LOCAL_HANDOFF);
    let asking = driver.asks(late, LOCAL_HANDOFF);
    assert_eq!((asking.how, asking.owner, asking.enqueues()), (AcquireMode::Share, first.owner, false));
    assert_eq!(driver.answer(&asking, granted_in(5, LEASE), LOCAL_HANDOFF + 20).wake, Some(late));
    let acquired = driver.is_in(late, LOCAL_HANDOFF + 20);
    assert_eq!((acquired.owner, acquired.via), (first.owner, AcquiredVia::Joined));
    // The next hand-off period counts from before that request.
    joins(&mut driver, request(3), 2 * LOCAL_HANDOFF - 1);
    assert_eq!(driver.valid_until(acquired), at(LEASE - DRIFT), "and the lease is none the longer");
}

#[test]
fn a_reply_that_comes_after_the_slice_lets_in_those_that_came_before_its_question() {
    let mut driver = driver();
    let first = driver.come_in(request(1), 5, 0);
    let [second, third] = [request(2), request(3)].map(|request| driver.enter(request, LOCAL_HANDOFF));
    let asking = driver.asks(second, LOCAL_HANDOFF);
    let later = driver.enter(request(4), LOCAL_HANDOFF + 1);
    assert_eq!(driver.answer(&asking, granted_in(5, LEASE), 3 * LOCAL_HANDOFF).wake, Some(second));
    for ticket in [second, third] {
        assert_eq!(driver.is_in(ticket, 3 * LOCAL_HANDOFF).owner, first.owner);
    }
    // A waiter of another process may have come before this thread, which asks for itself.
    let asking = driver.asks(later, 3 * LOCAL_HANDOFF);
    assert_eq!((asking.how, asking.owner), (AcquireMode::Share, first.owner));
    // If the share is closed meanwhile, the reply admits nobody.
    driver.answer(&asking, granted_in(5, LEASE), 5 * LOCAL_HANDOFF);
    driver.lock_state.yields(first.owner);
    assert_ne!(driver.asks(later, 5 * LOCAL_HANDOFF).owner, first.owner);
}

#[test]
fn in_its_second_half_a_joining_thread_asks_ahead_and_only_one() {
    let mut driver = driver();
    driver.come_in(request(1), 5, 0);
    assert_eq!(joins(&mut driver, request(2), LOCAL_HANDOFF / 2).1, None);
    let (acquired, ahead) = joins(&mut driver, request(3), LOCAL_HANDOFF / 2 + 1);
    let ahead = ahead.unwrap();
    assert_eq!((ahead.how, ahead.owner), (AcquireMode::Share, acquired.owner));
    assert_eq!(joins(&mut driver, request(4), 70).1, None, "it is asked already");
    driver.answer(&ahead, granted_in(5, LEASE), 80);
    assert_eq!(joins(&mut driver, request(5), 90).1, None, "the hand-off period is young again");
    let (_, again) = joins(&mut driver, request(6), LOCAL_HANDOFF + LOCAL_HANDOFF / 2);
    assert!(again.is_some(), "from before the request, not from its answer");
}

#[test]
fn a_thread_that_comes_when_the_slice_is_over_waits_for_the_answer_on_its_way() {
    for (answer, joined) in [(granted_in(5, LEASE), true), (busy(9), false)] {
        let mut driver = driver();
        let first = driver.come_in(request(1), 5, 0);
        let ahead = joins(&mut driver, request(2), 60).1.unwrap();
        let late = driver.enter(request(3), 110);
        assert!(matches!(driver.turn(late, 110), Step::Park(_)));
        assert_eq!(driver.answer(&ahead, answer, 120).wake, Some(late));
        if joined {
            assert_eq!(driver.is_in(late, 120).owner, first.owner);
        } else {
            assert_ne!(driver.asks(late, 120).owner, first.owner);
        }
    }
}

#[test]
fn a_share_that_may_not_go_on_takes_nobody_in_any_more() {
    // Also if Redis did not say.
    for answer in [busy(9), Answer::Gone, Answer::Ended, Answer::Failed, Answer::Unanswered] {
        let mut driver = driver();
        let first = driver.come_in(request(1), 5, 0);
        let late = driver.enter(request(2), LOCAL_HANDOFF);
        let asking = driver.asks(late, LOCAL_HANDOFF);
        driver.answer(&asking, answer.clone(), LOCAL_HANDOFF + 1);
        let own = driver.asks(late, LOCAL_HANDOFF + 1);
        assert!(own.how != AcquireMode::Share && own.owner != first.owner, "{answer:?}: {own:?}");
        // The share itself continues, for its holder.
        assert!(driver.lock_state.holds_valid(first.ticket, at(LOCAL_HANDOFF + 1)), "{answer:?}");
        assert!(
            matches!(driver.lock_state.enter(&request(1), at(LOCAL_HANDOFF + 2)), Ok(Entered::Again(_))),
            "{answer:?}"
        );
    }
}

#[test]
fn a_waiter_elsewhere_shuts_it_and_a_holder_re_enters() {
    for by_message in [true, false] {
        let mut driver = driver();
        let first = driver.come_in(request(1), 5, 0);
        joins(&mut driver, request(2), 1);
        // A message from Redis, or a thread of this process that wants to write.
        if by_message {
            driver.lock_state.yields(first.owner);
        } else {
            driver.stood_behind();
        }
        for thread in [1, 2] {
            assert!(matches!(driver.lock_state.enter(&request(thread), at(2)), Ok(Entered::Again(_))));
        }
        asks_for_itself(&mut driver, request(3), 2);
    }
}

#[test]
fn one_that_waits_elsewhere_shuts_also_what_is_not_granted_yet() {
    for by_message in [true, false] {
        let mut driver = driver();
        let ticket = driver.enter(request(1), 0);
        let asking = driver.asks(ticket, 0);
        // It may arrive before the reply with the grant that it is about.
        if by_message {
            driver.lock_state.yields(asking.owner);
        } else {
            driver.stood_behind();
        }
        driver.answer(&asking, granted_in(5, LEASE), 1);
        driver.is_in(ticket, 1);
        asks_for_itself(&mut driver, request(2), 2);
    }
    // A message about another id changes nothing.
    let mut driver = driver();
    let first = driver.come_in(request(1), 5, 0);
    driver.lock_state.yields(first.owner + 100);
    joins(&mut driver, request(2), 1);
}

#[test]
fn nobody_comes_in_past_a_thread_of_its_process_that_redis_does_not_know_of() {
    let mut driver = driver();
    let first = driver.come_in(request(1), 5, 0);
    assert_eq!(driver.lock_state.stand_behind(true, None), None);
    // Neither into the share, nor by a request that would reach Redis before the other thread's.
    let attempt = driver.enter(once(2), 1);
    assert_eq!(driver.turn(attempt, 1), Step::Busy);
    driver.lock_state.give_up(attempt, at(1));
    let late = driver.enter(request(3), 1);
    assert!(matches!(driver.turn(late, 1), Step::Park(_)));
    assert_eq!(driver.turn_with(late, 2, true, true), Step::GiveUp);
    // A thread that is inside continues.
    assert!(matches!(driver.lock_state.enter(&request(1), at(2)), Ok(Entered::Again(_))));
    // And so does a thread beside its own hold in the other mode: it is what the others wait for.
    let own = driver.enter(other_mode(9, 4), 3);
    assert_eq!(driver.asks(own, 3).from, Some(9));
    driver.lock_state.give_up(own, at(3));
    driver.lock_state.answered(1, busy(4), at(3));
    assert!(driver.lock_state.holds_valid(first.ticket, at(3)));
}

#[test]
fn what_stands_behind_shares_the_trouble_and_goes_on_when_it_is_over() {
    let mut driver = driver();
    driver.lock_state.stand_behind(true, Some(at(1)));
    let late = driver.enter(request(2), 1);
    assert!(matches!(driver.turn(late, 1), Step::Park(_)));
    assert_eq!(
        driver.lock_state.trouble(),
        Some(at(1)),
        "Redis does not answer the one that it stands behind"
    );
    assert_eq!(driver.lock_state.stand_behind(false, None), Some(late));
    assert_eq!(driver.lock_state.trouble(), None);
    driver.asks(late, 4);
}

#[test]
fn a_thread_is_unknown_until_redis_keeps_its_position() {
    let mut driver = Driver::new();
    assert!(!driver.lock_state.waits_unknown(at(0)));
    let attempt = driver.enter(once(1), 0);
    assert!(!driver.lock_state.waits_unknown(at(0)), "one attempt does not wait");
    driver.lock_state.give_up(attempt, at(0));
    let ticket = driver.enter(request(1), 0);
    assert!(driver.lock_state.waits_unknown(at(0)));
    let asking = driver.asks(ticket, 0);
    assert!(driver.lock_state.waits_unknown(at(0)), "on its way");
    driver.answer(&asking, busy(4), 1);
    assert!(!driver.lock_state.waits_unknown(at(1)), "it has a position");
    driver.lock_state.granted(asking.owner, 5, ms(LEASE), 0, at(2));
    assert!(!driver.lock_state.waits_unknown(at(2)));
    driver.is_in(ticket, 2);
    let second = driver.enter(request(2), 3);
    assert!(!driver.lock_state.waits_unknown(at(3)), "this process has the lock");
    driver.lock_state.give_up(second, at(4));
    assert!(!driver.lock_state.waits_unknown(at(4)));
}

#[test]
fn one_that_may_have_been_in_before_it_was_told_so_takes_nobody_in() {
    let mut driver = driver();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    driver.answer(&asking, Answer::Unanswered, 10);
    let again = driver.asks(ticket, 50);
    assert_eq!(again.owner, asking.owner);
    // Since the first copy, a waiter may have come, and the message about it arrived while nobody here knew
    // of the share.
    driver.answer(&again, granted_in(5, LEASE), 60);
    driver.is_in(ticket, 60);
    asks_for_itself(&mut driver, request(2), 60);
}

#[test]
fn what_is_lost_lapsing_or_on_other_terms_is_not_joined() {
    let mut lost = driver();
    let first = lost.come_in(request(1), 5, 0);
    lost.lock_state.lose(first.owner, LossReason::Forced, at(1));
    asks_for_itself(&mut lost, request(2), 2);

    // A third of the lease must be left.
    let mut lapsing = desk_with(ms(10 * LEASE));
    lapsing.come_in(request(1), 5, 0);
    joins(&mut lapsing, request(2), LEASE * 2 / 3 - 2 * DRIFT);
    asks_for_itself(&mut lapsing, request(3), LEASE * 2 / 3);

    for (mine, theirs) in [
        (fixed(1), fixed(2)),
        (fair(1), fair(2)),
        (request(1), fixed(2)),
        (fair(1), request(2)),
        (request(1), Request { terms: Terms { args: "else".into(), ..terms() }, ..request(2) }),
    ] {
        let mut driver = driver();
        driver.come_in(mine, 5, 0);
        asks_for_itself(&mut driver, theirs, 1);
    }
}

#[test]
fn without_a_slice_nobody_joins_and_nobody_asks_whether_it_may() {
    let mut driver = desk_with(Duration::ZERO);
    driver.come_in(request(1), 5, 0);
    asks_for_itself(&mut driver, request(2), 0);
}

#[test]
fn the_last_one_out_leaves_whichever_came_first() {
    let mut driver = driver();
    let first = driver.come_in(request(1), 5, 0);
    let (second, _) = joins(&mut driver, request(2), 1);
    let (third, _) = joins(&mut driver, request(3), 1);
    assert_eq!(driver.exit(first, 2), Exit::Shared);
    let (fourth, _) = joins(&mut driver, request(4), 3);
    assert_eq!(driver.exit(third, 4), Exit::Shared);
    assert_eq!(driver.exit(second, 5), Exit::Shared);
    let (leaving, next) = leaves(driver.exit(fourth, 6));
    assert_eq!((leaving.owner, next), (first.owner, None));
    // For later callers it is gone, whether or not Redis has heard of that.
    asks_for_itself(&mut driver, request(5), 6);
}

#[test]
fn the_waiters_here_join_one_after_the_other() {
    let mut driver = driver();
    let (a, asking) = driver.queue_up(request(1), 4, 0);
    let (b, c) = (driver.enter(request(2), 1), driver.enter(request(3), 1));
    driver.lock_state.granted(asking.owner, 5, ms(LEASE), 0, at(500));
    assert!(matches!(driver.turn(a, 500), Step::In(_, Some(next)) if next == b));
    // Its local hand-off period counts from when it learned of its grant.
    let joined = |driver: &mut Driver, ticket| match driver.turn(ticket, 510) {
        Step::In(acquired, next) => (acquired.owner, acquired.via, next),
        other => panic!("{other:?}"),
    };
    assert_eq!(joined(&mut driver, b), (asking.owner, AcquiredVia::Joined, Some(c)));
    assert_eq!(joined(&mut driver, c), (asking.owner, AcquiredVia::Joined, None));
}

#[test]
fn among_very_many_shares_each_is_found_and_the_one_that_may_be_joined() {
    const MANY: u64 = 200;
    let mut driver = driver();
    let guard = |terms: Request| Request { holder: HolderId::Guard, ..terms };
    let mut grips: Vec<Acquired> = (1..=MANY).map(|n| driver.come_in(guard(fair(n)), n, 0)).collect();
    let open = driver.come_in(request(1), MANY + 1, 0);
    assert_eq!(driver.lock_state.held_by(1, at(0)), Some(open.owner));
    assert!(matches!(driver.lock_state.enter(&request(1), at(0)), Ok(Entered::Again(_))));
    assert_eq!((driver.lock_state.hold_count(1, at(0)), driver.lock_state.hold_count(2, at(0))), (2, 0));
    let (joined, _) = joins(&mut driver, request(2), 1);
    assert_eq!(joined.owner, open.owner);
    assert_eq!(driver.lock_state.holders(at(1)), MANY as usize + 2);
    driver.lock_state.came_in(joined.ticket, at(1));
    assert_eq!(driver.lock_state.ages(open.owner, at(5)), (ms(4), ms(4)));
    // Others go, in any order, and are found until then.
    for i in (0..MANY as usize).rev().step_by(2).collect::<Vec<_>>() {
        let acquired = grips.swap_remove(i);
        assert!(driver.lock_state.holds_valid(acquired.ticket, at(2)));
        assert!(
            matches!(driver.exit(acquired, 2), Exit::Leave(leaving, None) if leaving.owner == acquired.owner)
        );
        driver.lock_state.left();
        assert_eq!(driver.lock_state.grant_of(acquired.ticket), None);
    }
    driver.stood_behind();
    asks_for_itself(&mut driver, request(3), 3);
    assert_eq!(driver.lock_state.close(at(4)).len(), grips.len() + 2, "the share and the ask too");
}
