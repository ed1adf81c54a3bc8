//! Replies that arrive late, and that nobody waits for.

use super::*;

#[test]
fn the_answer_for_a_share_that_is_gone_is_ignored() {
    let mut driver = driver();
    let first = driver.come_in(request(1), 5, 0);
    let (second, ahead) = joins(&mut driver, request(2), 60);
    let ahead = ahead.unwrap();
    assert_eq!(driver.exit(first, 61), Exit::Shared);
    leaves(driver.exit(second, 62));
    let other = asks_for_itself(&mut driver, request(3), 63);
    // It is not taken for the reply to what was asked meanwhile.
    assert_eq!(driver.answer(&ahead, granted_in(5, LEASE), 64), Effects::default());
    assert_eq!(driver.lock_state.holders(at(64)), 0);
    assert!(driver.lock_state.grant(ahead.owner).is_none() && other.owner != ahead.owner);
}

#[test]
fn the_answer_for_a_share_that_was_lost_opens_nothing() {
    let mut driver = driver();
    let first = driver.come_in(request(1), 5, 0);
    let ahead = joins(&mut driver, request(2), 60).1.unwrap();
    driver.lock_state.lose(first.owner, LossReason::Forced, at(61));
    driver.answer(&ahead, granted_in(5, LEASE), 62);
    asks_for_itself(&mut driver, request(3), 63);
    assert_eq!(driver.lock_state.holders(at(63)), 0);
}

#[test]
fn a_thread_that_gives_up_while_the_share_is_asked_leaves_nothing_to_be_done() {
    let mut driver = driver();
    let first = driver.come_in(request(1), 5, 0);
    let late = driver.enter(request(2), LOCAL_HANDOFF);
    let asking = driver.asks(late, LOCAL_HANDOFF);
    assert_eq!(out(driver.lock_state.give_up(late, at(LOCAL_HANDOFF + 1))), Effects::default());
    assert_eq!(driver.answer(&asking, granted_in(5, LEASE), LOCAL_HANDOFF + 2), Effects::default());
    joins(&mut driver, request(3), LOCAL_HANDOFF + 3);
    assert!(driver.lock_state.holds_valid(first.ticket, at(LOCAL_HANDOFF + 3)));
}

#[test]
fn a_late_single_attempt_is_one_question_to_redis() {
    for (answer, comes_in) in [(granted_in(5, LEASE), true), (busy(9), false)] {
        let mut driver = driver();
        driver.come_in(request(1), 5, 0);
        let late = driver.enter(once(2), LOCAL_HANDOFF);
        let asking = driver.asks(late, LOCAL_HANDOFF);
        assert_eq!(asking.how, AcquireMode::Share);
        driver.answer(&asking, answer, LOCAL_HANDOFF + 1);
        match driver.turn(late, LOCAL_HANDOFF + 1) {
            Step::In(acquired, _) => assert!(comes_in && acquired.via == AcquiredVia::Joined),
            // Another caller is waiting: the thread asks for a hold of its own, once, and that is busy as
            // well.
            Step::Ask(own) => assert!(!comes_in && own.how == AcquireMode::Try, "{own:?}"),
            other => panic!("{other:?}"),
        }
    }
}
