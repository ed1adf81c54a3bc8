//! A wait for a condition: in the lock state of the wait, and in that of its lock.

use super::*;
use crate::engine::state::lock_state::HasGivenUp;

/// The lock state of one wait, whose owner ids differ from the lock's.
fn condition_waiter() -> Driver {
    Driver { lock_state: LockState::of_condition_waiter(shape()), owners: 100 }
}

/// The state of a lock with a hold of thread 1, re-entered twice.
fn held() -> (Driver, Acquired) {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 10, 0);
    for _ in 0..2 {
        assert!(matches!(driver.lock_state.enter(&request(1), at(1)), Ok(Entered::Again(_))));
    }
    (driver, acquired)
}

fn gives_up(owner: u64) -> Request {
    Request { from: Some(owner), ..request(1) }
}

#[test]
fn a_hold_is_given_up_whole_and_comes_back_as_deep_under_another_grant() {
    let (mut driver, acquired) = held();
    let (suspended, then) = driver.lock_state.set_aside(acquired.ticket, at(10)).unwrap();
    assert_eq!(then, Effects::default());
    assert!(driver.lock_state.is_idle());

    let mut waiter = condition_waiter();
    let ticket = waiter.enter(suspended.request(1), 10);
    let asking = waiter.asks(ticket, 10);
    assert_eq!((asking.how, asking.from), (AcquireMode::Wait, Some(acquired.owner)));
    waiter.answer(&asking, busy(10), 11);
    waiter.message(asking.owner, 11);
    let came = waiter.is_in(ticket, 20);
    let grant = waiter.lock_state.hand_over(came.ticket).unwrap();
    assert!(waiter.lock_state.is_idle());
    assert!(!waiter.lock_state.wait_outcome().1);

    assert_eq!(driver.lock_state.put_back(suspended, Some(grant), None, at(20)), Effects::default());
    assert_eq!(driver.lock_state.hold_count(1, at(20)), 3);
    assert_eq!(driver.lock_state.grant_of(acquired.ticket).map(|grant| grant.token()), Some(came.token));
    assert!(driver.lock_state.grant_of(acquired.ticket).is_some_and(|t| t.owner == came.owner));
    assert_eq!((driver.exit(acquired, 30), driver.exit(acquired, 30)), (Exit::Held, Exit::Held));
    assert!(matches!(driver.exit(acquired, 30), Exit::Leave(leaving, None) if leaving.owner == came.owner));
}

#[test]
fn the_hold_is_named_until_redis_has_answered() {
    let mut waiter = condition_waiter();
    let ticket = waiter.enter(gives_up(1), 0);
    let asking = waiter.asks(ticket, 0);
    waiter.answer(&asking, Answer::Unanswered, 1);
    let asking = waiter.asks(ticket, 600);
    assert_eq!((asking.how, asking.from), (AcquireMode::Wait, Some(1)));
    waiter.answer(&asking, busy(10), 601);
    let heartbeat = waiter.asks(ticket, 2_000);
    assert_eq!((heartbeat.owner, heartbeat.how, heartbeat.from), (asking.owner, AcquireMode::Keep, None));
}

#[test]
fn a_hold_that_an_earlier_copy_gave_up_is_no_loss() {
    let mut waiter = condition_waiter();
    let ticket = waiter.enter(gives_up(1), 0);
    let asking = waiter.asks(ticket, 0);
    waiter.answer(&asking, Answer::Unanswered, 1);
    let asking = waiter.asks(ticket, 600);
    waiter.answer(&asking, Answer::Refused("not-inside".into()), 601);
    let asking = waiter.asks(ticket, 602);
    assert_eq!((asking.how, asking.from), (AcquireMode::Wait, None));
    // If no copy can have run, it is.
    let mut waiter = condition_waiter();
    let ticket = waiter.enter(gives_up(1), 0);
    let asking = waiter.asks(ticket, 0);
    waiter.answer(&asking, Answer::Refused("not-inside".into()), 1);
    assert!(matches!(waiter.turn(ticket, 2), Step::Refused(_)));
}

#[test]
fn when_its_time_is_over_it_comes_back_and_is_told_whether_it_was_signalled() {
    for unsignalled in [false, true] {
        let mut waiter = condition_waiter();
        let ticket = waiter.enter(gives_up(1), 0);
        let asking = waiter.asks(ticket, 0);
        waiter.answer(&asking, busy(10), 1);
        assert!(waiter.lock_state.turns_back(at(500)));
        let back = waiter.asks(ticket, 500);
        assert_eq!((back.how, back.from), (AcquireMode::Back, None));
        // Without a reply, it is sent once more.
        waiter.answer(&back, Answer::Unanswered, 501);
        let back = waiter.asks(ticket, 1_100);
        assert_eq!(back.how, AcquireMode::Back);
        let answer = if unsignalled { Answer::Back(Box::new(busy(10))) } else { busy(10) };
        waiter.answer(&back, answer, 1_101);
        assert_eq!(waiter.lock_state.wait_outcome().1, unsignalled);
        // A server may have taken over that does not know it.
        assert_eq!(waiter.asks(ticket, 3_000).how, AcquireMode::Back);
    }
}

#[test]
fn a_wait_of_which_nothing_was_sent_never_gave_anything_up() {
    let mut waiter = condition_waiter();
    let ticket = waiter.enter(gives_up(1), 0);
    let asking = waiter.asks(ticket, 0);
    waiter.answer(&asking, Answer::Failed, 1);
    assert!(!waiter.lock_state.turns_back(at(2)));
    assert_eq!(waiter.turn_with(ticket, 2, true, true), Step::GiveUp);
    assert_eq!(waiter.lock_state.wait_outcome().0, HasGivenUp::No);
    assert_eq!(waiter.lock_state.give_up(ticket, at(2)), GaveUp::Out(Effects::default()));
}

#[test]
fn a_lost_hold_is_not_given_up_and_a_closed_gate_takes_none_back() {
    let (mut driver, acquired) = held();
    let (loss, then) = *driver.lock_state.set_aside(acquired.ticket, at(LEASE)).unwrap_err();
    assert_eq!((loss, then.lost), (LossReason::Expired, Some((acquired.owner, LossReason::Expired, 1))));

    let (mut driver, acquired) = held();
    let (suspended, _) = driver.lock_state.set_aside(acquired.ticket, at(10)).unwrap();
    assert!(driver.lock_state.close(at(11)).is_empty());
    let then = driver.lock_state.put_back(suspended, None, None, at(12));
    assert_eq!(then.leave.map(|l| l.owner), Some(acquired.owner));
    assert_eq!(driver.lock_state.hold_count(1, at(12)), 0);
}

/// The observers, which were told of the grant, are told of its end.
#[test]
fn a_grant_that_comes_back_to_a_closed_gate_is_reported_as_lost() {
    for closes_first in [true, false] {
        let (mut driver, acquired) = held();
        let (suspended, _) = driver.lock_state.set_aside(acquired.ticket, at(10)).unwrap();
        let mut waiter = condition_waiter();
        let ticket = waiter.enter(suspended.request(1), 10);
        let asking = waiter.asks(ticket, 10);
        waiter.answer(&asking, busy(10), 11);
        waiter.message(asking.owner, 11);
        let came = waiter.is_in(ticket, 20);
        // The client closes its lock states one after the other.
        let leaves =
            if closes_first { waiter.lock_state.close(at(21)) } else { driver.lock_state.close(at(21)) };
        assert_eq!(leaves.len(), usize::from(closes_first));
        let grant = waiter.lock_state.hand_over(came.ticket);
        let then = driver.lock_state.put_back(suspended, grant, None, at(22));
        assert_eq!(then.lost, Some((came.owner, LossReason::Closed, 1)));
        assert_eq!(then.leave.is_some(), !closes_first);
        assert_eq!(driver.lock_state.hold_count(1, at(22)), 0);
    }
}

#[test]
fn a_position_that_was_taken_meanwhile_is_kept_and_not_passed() {
    let (mut driver, acquired) = held();
    let (suspended, _) = driver.lock_state.set_aside(acquired.ticket, at(10)).unwrap();
    let (second, position) = driver.queue_up(request(2), 10, 11);
    assert_eq!(driver.lock_state.put_back(suspended, None, None, at(20)), Effects::default());
    // It sleeps until its heartbeat is due, and then sends it.
    assert!(matches!(driver.turn(second, 30), Step::Park(until) if until <= at(1_020)));
    let heartbeat = driver.asks(second, 1_100);
    assert_eq!((heartbeat.owner, heartbeat.how), (position.owner, AcquireMode::Keep));
    driver.answer(&heartbeat, busy(10), 1_101);
    // A grant that becomes known before the hold here has ended.
    driver.message(position.owner, 12);
    assert!(matches!(driver.turn(second, 1_102), Step::Park(_)));
    driver.exit(acquired, 1_103);
    driver.exit(acquired, 1_103);
    assert!(
        matches!(driver.exit(acquired, 1_103), Exit::Leave(leaving, None) if leaving.owner == acquired.owner)
    );
    driver.lock_state.left();
    assert!(matches!(driver.turn(second, 1_104), Step::In(..) | Step::Confirm(..)));
}

#[test]
fn a_hold_that_came_back_is_not_handed_on_past_a_position() {
    let (mut driver, acquired) = held();
    let (suspended, _) = driver.lock_state.set_aside(acquired.ticket, at(10)).unwrap();
    driver.queue_up(request(2), 10, 11);
    driver.lock_state.put_back(suspended, None, None, at(20));
    driver.exit(acquired, 21);
    driver.exit(acquired, 21);
    assert!(matches!(driver.exit(acquired, 21), Exit::Leave(_, None)));
}

/// The lock state of a wait whose hold is set aside, with its ticket and the owner of that hold.
fn wait(copy_on_its_way: bool) -> (Driver, Ticket, u64) {
    let mut lock = Driver::new();
    let acquired = lock.come_in(request(1), 7, 0);
    if copy_on_its_way {
        lock.lock_state.doubt(acquired.owner, at(0), ms(LEASE));
    }
    let (suspended, _) = lock.lock_state.set_aside(acquired.ticket, at(1)).unwrap();
    let mut waiter = Driver { lock_state: LockState::of_condition_waiter(shape()), owners: lock.owners };
    waiter.lock_state.gives_up(&suspended.leaving(at(1)));
    let ticket = waiter.enter(suspended.request(1), 1);
    (waiter, ticket, acquired.owner)
}

#[test]
fn what_a_wait_gives_up_gets_a_tombstone_if_a_copy_of_its_ask_may_come() {
    for copy_on_its_way in [true, false] {
        let (mut waiter, ticket, given_up) = wait(copy_on_its_way);
        let asking = waiter.asks(ticket, 1);
        assert_eq!((asking.how, asking.from), (AcquireMode::Wait, Some(given_up)));
        let then = waiter.answer(&asking, busy(7), 2);
        let tombstone = then.background.map(|leaving| (leaving.owner, leaving.maybe_in_flight));
        assert_eq!(tombstone, copy_on_its_way.then_some((given_up, true)));
        // Once is enough.
        let heartbeat = waiter.asks(ticket, 1_100);
        assert_eq!((heartbeat.how, heartbeat.from), (AcquireMode::Keep, None));
        assert_eq!(waiter.answer(&heartbeat, busy(7), 1_101).background, None);
    }
}

#[test]
fn a_wait_whose_hold_was_not_there_bars_nothing() {
    let (mut waiter, ticket, _) = wait(true);
    let asking = waiter.asks(ticket, 1);
    assert_eq!(waiter.answer(&asking, Answer::Failed, 2).background, None);
    assert_eq!(waiter.lock_state.wait_outcome().0, HasGivenUp::No);
    let asking = waiter.asks(ticket, 1_000);
    let then = waiter.answer(&asking, Answer::Refused("not-inside".into()), 1_001);
    // The driver sends it, as it must if nothing was answered.
    assert_eq!(then.background, None);
    assert_ne!(waiter.lock_state.wait_outcome().0, HasGivenUp::Yes);
}

#[test]
fn a_hold_that_ended_while_it_was_set_aside_comes_back_as_lost() {
    let mut lock = Driver::new();
    let acquired = lock.come_in(request(1), 7, 0);
    for (now, lost) in [(1_000, None), (LEASE, Some(LossReason::Expired))] {
        let (suspended, _) = lock.lock_state.set_aside(acquired.ticket, at(1)).unwrap();
        let then = lock.lock_state.put_back(suspended, None, None, at(now));
        assert_eq!(then.lost, lost.map(|loss| (acquired.owner, loss, 1)));
        assert_eq!(then.background.is_some(), lost.is_some());
        assert_eq!(lock.lock_state.grant(acquired.owner).and_then(|grant| Some(grant.lost()?.why)), lost);
    }
}
