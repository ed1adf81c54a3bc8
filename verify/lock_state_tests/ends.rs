//! How holds and waits end: ids, tombstones, losses, the closing of a client.

use super::*;

// ---- ids -------------------------------------------------------------------------------------------
#[test]
fn each_grant_has_an_id_of_its_own_and_next_is_registered_before_it_is_sent() {
    let mut driver = Driver::new();
    let first = driver.come_in(request(1), 1, 0);
    let waiter = driver.enter(request(2), 1);
    assert!(matches!(driver.turn(waiter, 1), Step::Park(_)));
    let (leaving, next) = leaves(driver.exit(first, 200));
    let next = next.unwrap();
    assert_eq!(leaving.owner, first.owner);
    assert_ne!(next.owner, first.owner);
    // Its grant may arrive by message before the reply does.
    assert_eq!(driver.message(next.owner, 2).wake, Some(waiter));
    assert!(matches!(driver.turn(waiter, 201), Step::Park(_)), "the leave is on its way");
    driver.answer(&next, busy(1), 202);
    driver.lock_state.left();
    assert_eq!(driver.is_in(waiter, 202).owner, next.owner);
}

#[test]
fn a_thread_that_comes_while_a_leave_is_on_its_way_waits_for_it_and_takes_a_new_id() {
    let mut driver = Driver::new();
    let first = driver.come_in(request(1), 1, 0);
    let (leaving, next) = leaves(driver.exit(first, 10));
    assert_eq!(next, None);
    let ticket = driver.enter(request(2), 11);
    assert!(matches!(driver.turn(ticket, 11), Step::Park(_)));
    assert_eq!(driver.lock_state.left().wake, Some(ticket));
    assert_ne!(driver.asks(ticket, 12).owner, leaving.owner);
}

// ---- heartbeats and tombstones --------------------------------------------------------------------------
#[test]
fn a_heartbeat_keeps_and_only_an_ask_creates() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(request(1), 5, 0);
    assert_eq!(asking.how, AcquireMode::Wait);
    let heartbeat = driver.asks(ticket, 1_100);
    assert_eq!((heartbeat.how, heartbeat.owner), (AcquireMode::Keep, asking.owner));
    driver.answer(&heartbeat, Answer::Gone, 1_110);
    let back = driver.asks(ticket, 1_110);
    assert_eq!((back.how, back.owner, back.arrival.as_str()), (AcquireMode::Wait, asking.owner, "77"));
}

#[test]
fn a_wait_without_an_answer_ends_with_a_tombstone() {
    let mut driver = Driver::new();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    driver.answer(&asking, Answer::Unanswered, 100);
    let leaving = out(driver.lock_state.give_up(ticket, at(200))).leave.unwrap();
    assert_eq!((leaving.owner, leaving.maybe_in_flight), (asking.owner, true));
    driver.lock_state.left();
    assert!(driver.lock_state.is_idle());
}

#[test]
fn a_grant_that_ever_had_no_answer_ends_with_a_tombstone() {
    let mut driver = Driver::new();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    driver.answer(&asking, Answer::Unanswered, 100);
    let again = driver.asks(ticket, 200);
    driver.answer(&again, granted_in(1, LEASE), 210);
    let acquired = driver.is_in(ticket, 210);
    assert!(leaves(driver.exit(acquired, 300)).0.maybe_in_flight);
    driver.lock_state.left();
    // And so does a grant whose renewal had no reply; but not one that had all its replies.
    for answer in [Renewal::Unanswered, Renewal::Left(ms(LEASE)), Renewal::Failed] {
        let acquired = driver.come_in(request(1), 2, 1_000);
        driver.lock_state.renewed(acquired.owner, at(1_100), answer, at(1_110));
        assert_eq!(
            leaves(driver.exit(acquired, 1_200)).0.maybe_in_flight,
            answer == Renewal::Unanswered,
            "{answer:?}"
        );
        driver.lock_state.left();
    }
}

#[test]
fn what_redis_has_never_heard_of_leaves_nothing_to_send() {
    let mut driver = Driver::new();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    driver.answer(&asking, Answer::Failed, 100);
    assert_eq!(out(driver.lock_state.give_up(ticket, at(200))), Effects::default());
    assert!(driver.lock_state.is_idle());
}

// ---- losses ----------------------------------------------------------------------------------------
#[test]
fn lost_by_the_deadline_leaves_in_the_background() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    driver.lock_state.renewed(acquired.owner, at(1_000), Renewal::Unanswered, at(1_500));
    assert_eq!(driver.lock_state.expire(acquired.owner, at(LEASE - DRIFT - 1)), Effects::default());
    let then = driver.lock_state.expire(acquired.owner, at(LEASE - DRIFT));
    assert_eq!(then.lost, Some((acquired.owner, LossReason::Expired, 1)));
    assert!(then.background.unwrap().maybe_in_flight);
    assert_eq!(driver.lock_state.expire(acquired.owner, at(LEASE)), Effects::default(), "told once");
    assert!(
        matches!(driver.exit(acquired, LEASE), Exit::Lost(LossReason::Expired, then) if then == Effects::default())
    );
    assert!(driver.lock_state.is_idle());
}

#[test]
fn lost_by_verdict_sends_nothing() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    let then = driver.lock_state.renewed(acquired.owner, at(1_000), Renewal::NotInside, at(1_010));
    assert_eq!(then.lost, Some((acquired.owner, LossReason::Revoked, 1)));
    assert_eq!((then.background, then.leave), (None, None));
    assert!(matches!(driver.exit(acquired, 1_020), Exit::Lost(LossReason::Revoked, _)));
    assert!(driver.lock_state.is_idle());
}

#[test]
fn what_has_a_tombstone_is_lost_and_leaves_when_its_hold_ends_even_if_a_renewal_is_in_doubt() {
    let forced = |state: &mut LockState, owner| state.forced(owner, "stuck", at(20));
    let renewed = |state: &mut LockState, owner| state.renewed(owner, at(15), Renewal::Tombstone, at(20));
    for learns in [forced as fn(&mut LockState, u64) -> Effects, renewed] {
        let mut driver = Driver::new();
        let acquired = driver.come_in(request(1), 1, 0);
        driver.lock_state.doubt(acquired.owner, at(10), ms(LEASE));
        let then = learns(&mut driver.lock_state, acquired.owner);
        assert!(then.lost.is_some() && then.background.is_none() && then.leave.is_none(), "{then:?}");
        // Until its release, the hold may stay in Redis, to keep others out.
        let Exit::Lost(_, then) = driver.exit(acquired, 30) else { panic!("it is lost") };
        assert_eq!(then.leave.map(|leave| leave.owner), Some(acquired.owner));
        driver.lock_state.left();
        assert!(driver.lock_state.is_idle());
    }
}

/// Redis may keep others out until it leaves, as a thread might still work under it.
#[test]
fn what_was_taken_away_before_its_thread_learned_of_it_leaves() {
    for learns in ["by a message", "by a reply", "as it confirms the grant"] {
        let mut driver = Driver::new();
        let (waiter, asking) = driver.queue_up(request(1), 1, 0);
        let then = match learns {
            "by a message" => driver.lock_state.forced(asking.owner, "stuck", at(20)),
            "by a reply" => {
                driver.lock_state.ask_again(at(10));
                let again = driver.asks(waiter, 10);
                driver.answer(&again, Answer::Ended, 20)
            }
            _ => {
                driver.message(asking.owner, 2);
                assert!(matches!(driver.turn(waiter, 1_600), Step::Confirm(..)));
                driver.lock_state.confirmed(asking.owner, Renewal::Tombstone, at(1_610))
            }
        };
        assert_eq!(then.background.map(|leave| leave.owner), Some(asking.owner), "{learns}");
        assert!(!driver.lock_state.knows(asking.owner), "{learns}");
    }
}

#[test]
fn what_is_exchanged_is_not_lost_by_a_renewal_that_comes_behind() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    let waiter = driver.enter(request(2), 0);
    driver.lock_state.exchange(acquired.owner);
    assert_eq!(
        driver.lock_state.renewed(acquired.owner, at(1), Renewal::NotInside, at(2)),
        Effects::default()
    );
    assert_eq!(driver.lock_state.hold_count(1, at(2)), 1);
    // Nor is it handed on, but its deadline still counts.
    let mut other = Driver { lock_state: driver.lock_state.clone(), owners: driver.owners };
    assert_eq!(leaves(driver.exit(acquired, 3)).0.owner, acquired.owner);
    let then = other.lock_state.renewed(acquired.owner, at(1), Renewal::NotInside, at(LEASE));
    assert_eq!(then.lost, Some((acquired.owner, LossReason::Expired, 1)));
    assert_eq!(then.wake, Some(waiter));
}

#[test]
fn an_io_error_does_not_end_a_hold_and_lost_is_final() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    for answer in [Renewal::Unanswered, Renewal::Failed] {
        assert_eq!(driver.lock_state.renewed(acquired.owner, at(500), answer, at(600)).lost, None);
    }
    assert_eq!(driver.valid_until(acquired), at(LEASE - DRIFT));
    // A reply that arrives after the deadline is too late, even though it was sent before it.
    let then = driver.lock_state.renewed(acquired.owner, at(2_900), Renewal::Left(ms(LEASE)), at(LEASE));
    assert_eq!(then.lost, Some((acquired.owner, LossReason::Expired, 1)));
    driver.lock_state.renewed(acquired.owner, at(2_900), Renewal::Left(ms(LEASE)), at(LEASE));
    assert_eq!(driver.lock_state.hold_count(1, at(LEASE)), 0);
    assert!(matches!(driver.exit(acquired, LEASE), Exit::Lost(..)));
}

#[test]
fn a_loss_found_at_the_release_is_told_and_leaves_in_the_background() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    let Exit::Lost(loss, then) = driver.exit(acquired, LEASE) else { panic!("it is over") };
    assert_eq!((loss, then.lost), (LossReason::Expired, Some((acquired.owner, LossReason::Expired, 1))));
    assert!(then.background.unwrap().maybe_in_flight);
}

#[test]
fn while_a_guard_of_a_lost_hold_lives_its_thread_is_told_and_others_come_in() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    driver.lock_state.lose(acquired.owner, LossReason::Forced, at(10));
    assert_eq!(
        driver.lock_state.enter(&request(1), at(11)),
        Err(Refusal::LeaseLost(LossReason::Forced, None))
    );
    let other = driver.come_in(request(2), 2, 12);
    assert!(other.token > acquired.token);
    assert!(matches!(driver.exit(acquired, 20), Exit::Lost(LossReason::Forced, _)));
    assert_eq!(driver.lock_state.hold_count(2, at(20)), 1, "the other hold is untouched");
}

// ---- leases that differ ----------------------------------------------------------------------------
#[test]
fn the_end_of_a_lease_of_another_length_counts_its_own_drift() {
    let mut driver = Driver::new();
    let (_, asking) = driver.queue_up(request(1), 5, 0);
    driver.lock_state.granted(asking.owner, 6, ms(1_000), 0, at(0));
    let then = driver.lock_state.close(at(1));
    assert_eq!(then[0].valid_until, at(1_000 - 10));
}

// ---- kinds that are shared -------------------------------------------------------------------------
/// A thread may have many guards on its hold: each is notified.
#[test]
fn every_guard_of_a_lost_hold_is_told() {
    for by_message in [false, true] {
        let mut driver = Driver::new();
        let outer = driver.come_in(request(1), 1, 0);
        for _ in 0..2 {
            assert!(matches!(driver.lock_state.enter(&request(1), at(1)), Ok(Entered::Again(_))));
        }
        assert_eq!(driver.exit(outer, 2), Exit::Held);
        let (loss, then) = if by_message { (LossReason::Forced, 10) } else { (LossReason::Expired, LEASE) };
        if by_message {
            driver.lock_state.lose(outer.owner, loss, at(3));
        }
        let Exit::Lost(why, first) = driver.exit(outer, then) else { panic!("it is lost") };
        assert_eq!((why, first.lost.is_some()), (loss, !by_message), "what is to be done is said once");
        assert_eq!(driver.exit(outer, then), Exit::Lost(loss, Effects::default()));
        assert!(driver.lock_state.is_idle());
    }
}

#[test]
fn a_shared_kind_has_as_many_grants_as_redis_says() {
    let mut driver =
        Driver::of(Shape { sharing: Sharing::Shared, reentrancy: Reentrancy::Independent, ..shape() });
    let first = driver.enter(request(1), 0);
    let second = driver.enter(request(1), 0);
    let asking = driver.asks(first, 0);
    driver.answer(&asking, granted_in(1, LEASE), 1);
    let Step::In(one, next) = driver.turn(first, 1) else { panic!("it is in") };
    assert_eq!(next, Some(second), "the next head may come in beside it");
    let asking = driver.asks(second, 2);
    assert_ne!(asking.owner, one.owner);
    driver.answer(&asking, granted_in(2, LEASE), 3);
    let two = driver.is_in(second, 3);
    assert_eq!(driver.lock_state.hold_count(1, at(4)), 2);
    // Each hold leaves by itself, and nothing is handed on.
    let third = driver.enter(request(2), 4);
    let (leaving, next) = leaves(driver.exit(one, 5));
    assert_eq!((leaving.owner, next), (one.owner, None));
    // And nobody waits for that: there may be room already.
    assert_ne!(driver.asks(third, 6).owner, two.owner);
}

// ---- the end ---------------------------------------------------------------------------------------
#[test]
fn closing_loses_all_holds_and_takes_out_all_that_redis_may_know() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 1, 0);
    let waiter = driver.enter(request(2), 0);
    let leaving = driver.lock_state.close(at(1));
    assert_eq!(leaving.iter().map(|l| l.owner).collect::<Vec<_>>(), [acquired.owner]);
    assert_eq!(driver.turn(waiter, 2), Step::Closed);
    assert_eq!(driver.lock_state.enter(&request(3), at(2)), Err(Refusal::Closed));
    assert_eq!(
        driver.lock_state.renewed(acquired.owner, at(1), Renewal::Left(ms(LEASE)), at(2)),
        Effects::default()
    );
    assert_eq!(driver.lock_state.hold_count(1, at(2)), 0);
    assert!(matches!(driver.exit(acquired, 3), Exit::Lost(LossReason::Closed, _)));
    out(driver.lock_state.give_up(waiter, at(4)));
    assert!(driver.lock_state.is_idle());
}

#[test]
fn closing_bars_an_ask_that_is_on_its_way() {
    let mut driver = Driver::new();
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    let leaving = driver.lock_state.close(at(1));
    assert_eq!(leaving.len(), 1);
    assert_eq!((leaving[0].owner, leaving[0].maybe_in_flight), (asking.owner, true));
    // Its reply finds nobody.
    assert_eq!(driver.answer(&asking, granted_in(1, LEASE), 2), Effects::default());
    assert_eq!(driver.turn(ticket, 2), Step::Closed);
}

#[test]
fn parks_are_bounded() {
    let mut driver = Driver::new();
    let bounded = |turn: Step, most: u64| match turn {
        Step::Park(until) => assert!(until <= at(most), "{until:?}"),
        other => panic!("{other:?}"),
    };
    // By the heartbeat, however late Redis says that asking again makes sense.
    let ticket = driver.enter(request(1), 0);
    let asking = driver.asks(ticket, 0);
    bounded(driver.turn(ticket, 0), 1_000);
    driver.answer(
        &asking,
        Answer::Busy { last_number: 1, again: ms(60_000), arrival: "1".into(), others: 0 },
        1,
    );
    bounded(driver.turn(ticket, 1), 1_001);
    // By what Redis said, if that is sooner.
    let heartbeat = driver.turn(ticket, 60_100);
    let Step::Ask(heartbeat) = heartbeat else { panic!("{heartbeat:?}") };
    driver.answer(
        &heartbeat,
        Answer::Busy { last_number: 1, again: ms(50), arrival: "1".into(), others: 0 },
        60_100,
    );
    bounded(driver.turn(ticket, 60_100), 60_160);
}
