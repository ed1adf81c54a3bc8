//! What a grant is worth: which messages its number filters, and from when its lease counts.

use super::*;

// ---- numbers filter messages -----------------------------------------------------------------------
#[test]
fn a_message_numbered_no_higher_than_a_busy_answer_told_is_dropped() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 10, 0);
    for stale in [1, 9, 10] {
        assert_eq!(driver.message(asking.owner, stale), Effects::default(), "{stale}");
        assert!(matches!(driver.turn(ticket, 1), Step::Park(_)), "{stale}");
    }
    assert_eq!(driver.message(asking.owner, 11).wake, Some(ticket));
    assert_eq!(driver.is_in(ticket, 1).token >> 12, 11);
}

#[test]
fn a_busy_answer_takes_back_an_overtaken_grant_and_no_other() {
    for (last_number, stays) in [(11, false), (12, false), (10, true)] {
        let mut driver = Driver::new();
        let (ticket, _) = driver.queue_up(request(1), 5, 0);
        let heartbeat = driver.asks(ticket, 1_100);
        // The message arrives while the heartbeat is in flight: nothing is settled before the reply.
        driver.message(heartbeat.owner, 11);
        assert!(matches!(driver.turn(ticket, 1_100), Step::Park(_)));
        driver.answer(&heartbeat, busy(last_number), 1_110);
        match driver.turn(ticket, 1_110) {
            Step::In(acquired, _) => assert!(stays && acquired.token >> 12 == 11, "{last_number}"),
            other => assert!(!stays, "{last_number}: {other:?}"),
        }
    }
}

#[test]
fn an_answer_makes_the_message_that_follows_a_duplicate() {
    let mut driver = Driver::new();
    let (ticket, _) = driver.queue_up(request(1), 5, 0);
    let heartbeat = driver.asks(ticket, 1_100);
    driver.answer(&heartbeat, granted_in(6, 2_500), 1_110);
    assert_eq!(driver.message(heartbeat.owner, 6), Effects::default());
    let acquired = driver.is_in(ticket, 1_110);
    // What was left at the time of the reply, not a lease from the message.
    assert_eq!(driver.valid_until(acquired), at(1_100 + 2_500 - 25));
}

#[test]
fn unknown_ids_are_ignored() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    let unknown = asking.owner + 100;
    assert_eq!(driver.message(unknown, 50), Effects::default());
    assert_eq!(driver.lock_state.refused(unknown, "no".into()), Effects::default());
    assert_eq!(driver.lock_state.answered(unknown, granted_in(50, LEASE), at(1)), Effects::default());
    assert_eq!(driver.lock_state.lose(unknown, LossReason::Forced, at(1)), Effects::default());
    assert_eq!(
        driver.lock_state.renewed(unknown, at(0), Renewal::Left(ms(LEASE)), at(1)),
        Effects::default()
    );
    assert!(matches!(driver.turn(ticket, 2), Step::Park(_)));
}

// ---- validity --------------------------------------------------------------------------------------
#[test]
fn an_answer_counts_from_before_its_request_and_only_what_is_left() {
    let mut driver = Driver::new();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    driver.answer(&asking, granted_in(1, 2_000), 400);
    let acquired = driver.is_in(ticket, 400);
    assert_eq!(driver.valid_until(acquired), at(2_000 - 20));
    assert_eq!(acquired.via, AcquiredVia::Free);
}

#[test]
fn a_message_counts_from_the_last_ask_that_was_answered_busy() {
    let mut driver = Driver::new();
    let (ticket, first) = driver.queue_up(request(1), 5, 0);
    let heartbeat = driver.asks(ticket, 1_100);
    driver.answer(&heartbeat, busy(5), 1_120);
    // This one is only sent: its reply is lost.
    let lost = driver.asks(ticket, 2_200);
    driver.message(first.owner, 6);
    driver.answer(&lost, Answer::Unanswered, 2_300);
    let acquired = driver.is_in(ticket, 2_300);
    assert_eq!(driver.valid_until(acquired), at(1_100 + LEASE - DRIFT));
    assert_eq!(acquired.via, AcquiredVia::Granted);
}

#[test]
fn with_no_busy_answer_a_message_counts_from_the_first_ask_sent() {
    let mut driver = Driver::new();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    driver.answer(&asking, Answer::Unanswered, 500);
    let again = driver.asks(ticket, 600);
    assert_eq!(again.owner, asking.owner, "what is unknown is asked under the same id");
    driver.message(asking.owner, 6);
    driver.answer(&again, Answer::Unanswered, 700);
    let acquired = driver.is_in(ticket, 700);
    assert_eq!(driver.valid_until(acquired), at(LEASE - DRIFT));
}

#[test]
fn a_message_counts_with_the_lease_in_it() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    driver.lock_state.granted(asking.owner, 6, ms(1_000), 0, at(0));
    // Less than half of that is left, so the lease is renewed first.
    assert_eq!(driver.turn(ticket, 600), Step::Confirm(asking.owner, ms(LEASE)));
    driver.lock_state.confirmed(asking.owner, Renewal::Failed, at(620));
    let acquired = driver.is_in(ticket, 620);
    assert_eq!(driver.valid_until(acquired), at(1_000 - 10));
}

#[test]
fn a_message_is_worth_no_more_than_a_first_lease_and_is_confirmed_soon() {
    for lease in [LEASE, 3_600_000] {
        let mut driver = Driver::new();
        let mut long = request(1);
        long.terms.lease = ms(lease);
        let (ticket, asking) = driver.queue_up(long, 5, 0);
        driver.lock_state.granted(asking.owner, MOST_NUMBER + 1, ms(LEASE), 0, at(0));
        assert!(matches!(driver.turn(ticket, 0), Step::Park(_)), "no token has such a number");
        driver.lock_state.granted(asking.owner, 6, ms(7_200_000), 0, at(0));
        let acquired = driver.is_in(ticket, 0);
        assert_eq!(driver.valid_until(acquired), at(LEASE - DRIFT), "{lease}");
        let grant = driver.lock_state.grant(acquired.owner).unwrap();
        assert_eq!(grant.due(at(0), ms(lease / 3)), at((LEASE - DRIFT) / 6), "{lease}");
    }
}

/// What admits without a hold has no lease to renew: a thread that is notified late has passed nevertheless.
#[test]
fn a_late_message_of_what_has_no_holds_admits() {
    let mut driver = Driver::of(Shape { sharing: Sharing::PassThrough, ..shape() });
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    driver.lock_state.granted(asking.owner, 6, ms(1_000), 3, at(0));
    assert_eq!(driver.is_in(ticket, 2_000).value, 3);
}

#[test]
fn a_short_rest_of_a_long_lease_counts_its_own_drift() {
    let mut driver = Driver::new();
    let mut hour = request(1);
    hour.terms.lease = ms(3_600_000);
    // A reply tells a waiter of its grant, which has a first lease, of which this much is left.
    let (ticket, _) = driver.queue_up(hour, 5, 0);
    let heartbeat = driver.asks(ticket, 1_100);
    driver.answer(&heartbeat, granted_in(6, 2_900), 1_110);
    let Step::Confirm(owner, _) = driver.turn(ticket, 1_110) else {
        panic!("the grant is not asked for again")
    };
    driver.lock_state.confirmed(owner, Renewal::Failed, at(1_120));
    let acquired = driver.is_in(ticket, 1_120);
    assert_eq!(driver.valid_until(acquired), at(1_100 + 2_900 - 29));
    // `renew_for` a while.
    driver.lock_state.renewed(owner, at(1_200), Renewal::Left(ms(20_000)), at(1_210));
    assert_eq!(driver.valid_until(acquired), at(1_200 + 20_000 - 200));
}

/// A renewal by the holder and one in the background use different connections: Redis may have run them in
/// either order, whatever the order of their replies.
#[test]
fn of_two_renewals_under_way_at_once_the_shorter_counts() {
    for (first, second) in [(2_500, 60_000), (60_000, 2_500)] {
        let mut driver = Driver::new();
        let acquired = driver.come_in(request(1), 7, 0);
        let mut renewed = |sent, left, now| {
            driver.lock_state.renewed(acquired.owner, at(sent), Renewal::Left(ms(left)), at(now));
            driver.lock_state.grant(acquired.owner).unwrap().validity.until
        };
        renewed(100, first, 130);
        assert_eq!(renewed(110, second, 140), at(100 + if first < second { 0 } else { 10 } + 2_500 - 25));
        // A renewal that was sent when that was known is the later one in Redis, too.
        assert_eq!(renewed(141, 60_000, 150), at(141 + 60_000 - 600));
    }
}

/// A waiter that is notified by a message may be dead, so it is granted less than it asked for.
#[test]
fn a_first_lease_is_used_as_it_is_and_renewed_soon() {
    for fixed in [false, true] {
        let mut driver = Driver::new();
        let mut request = request(1);
        request.terms.fixed = fixed;
        let (ticket, asking) = driver.queue_up(request, 5, 0);
        driver.lock_state.granted(asking.owner, 6, ms(1_200), 0, at(0));
        let acquired = driver.is_in(ticket, 300);
        assert_eq!(driver.valid_until(acquired), at(1_200 - 12));
        let grant = driver.lock_state.grant(acquired.owner).unwrap();
        assert_eq!(grant.due(at(300), ms(1_000)), at(300).after((ms(1_200 - 12 - 300)) / 6));
        // For a fixed lease, the rest of it.
        assert_eq!(grant.renewal(at(300)), ms(if fixed { LEASE - 300 } else { LEASE }));
        // It goes on in this process as any other.
        assert!(fixed || grant.can_serve(&grant.terms, at(300)));
        let left = grant.renewal(at(300));
        driver.lock_state.renewed(acquired.owner, at(300), Renewal::Left(left), at(310));
        let grant = driver.lock_state.grant(acquired.owner).unwrap();
        assert_eq!(grant.validity.until, at(300).after(left).before(left / 100));
        let due = if fixed { grant.validity.until } else { at(310 + 1_000) };
        assert_eq!(grant.due(at(310), ms(1_000)), due);
    }
}

#[test]
fn a_grant_with_less_than_half_its_lease_is_renewed_before_it_is_used() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    driver.message(asking.owner, 6);
    assert_eq!(driver.turn(ticket, 1_600), Step::Confirm(asking.owner, ms(LEASE)));
    assert!(matches!(driver.turn(ticket, 1_610), Step::Park(_)), "the renewal is on its way");
    driver.lock_state.confirmed(asking.owner, Renewal::Left(ms(LEASE)), at(1_620));
    let acquired = driver.is_in(ticket, 1_620);
    assert_eq!(driver.valid_until(acquired), at(1_600 + LEASE - DRIFT));
}

#[test]
fn a_grant_that_is_over_is_asked_about_under_the_same_id() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    driver.message(asking.owner, 6);
    let again = driver.asks(ticket, LEASE);
    assert_eq!((again.owner, again.how), (asking.owner, AcquireMode::Wait));
}

#[test]
fn a_grant_that_redis_no_longer_knows_is_asked_for_under_a_new_id() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    driver.message(asking.owner, 6);
    assert!(matches!(driver.turn(ticket, 2_000), Step::Confirm(..)));
    let then = driver.lock_state.confirmed(asking.owner, Renewal::NotInside, at(2_010));
    assert_eq!((then.wake, then.leave, then.background), (Some(ticket), None, None));
    assert_ne!(driver.asks(ticket, 2_010).owner, asking.owner);
}

#[test]
fn a_grant_renewed_too_late_leaves_with_its_releaser() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    driver.message(asking.owner, 6);
    assert!(matches!(driver.turn(ticket, 2_000), Step::Confirm(..)));
    // Redis has renewed the lease; here it was over before the reply arrived.
    driver.lock_state.confirmed(asking.owner, Renewal::Left(ms(LEASE)), at(LEASE));
    assert_eq!(driver.turn_with(ticket, LEASE, true, true), Step::GiveUp);
    let then = out(driver.lock_state.give_up(ticket, at(LEASE)));
    assert_eq!(then.leave.map(|l| l.owner), Some(asking.owner), "it would block others for a lease");
}
