//! Grants that leave the lock state but not Redis, and grants that enter it without a request.

use super::*;
use crate::engine::state::grant::{Doubt, Grant, Validity};
use crate::engine::state::lock_state::Refusal;

/// The grant of a receipt, after Redis has said at time 0 that it is ours for a lease.
fn adopted(owner: u64) -> Grant {
    let validity = Validity::new(at(LEASE - DRIFT), Doubt::default());
    Grant { validity, since: at(0), hand_overs: 3, ..Grant::new(owner, 7, terms()) }
}

#[test]
fn a_hold_that_goes_lets_the_next_head_ask_redis() {
    let mut driver = Driver::new();
    let owned = Request { holder: HolderId::Guard, ..request(1) };
    let acquired = driver.come_in(owned, 7, 0);
    let waiter = driver.enter(request(2), 1);
    let (grant, then) = driver.lock_state.detach(acquired.ticket, at(2)).unwrap();
    assert_eq!((grant.owner, grant.token()), (acquired.owner, acquired.token));
    assert_eq!((then.wake, then.leave, then.background, then.lost), (Some(waiter), None, None, None));
    assert_ne!(driver.asks(waiter, 3).owner, acquired.owner, "under an id of its own");
    // Whatever its guard or the renewer still reports about it is ignored.
    assert_eq!(driver.exit(acquired, 4), Exit::Held);
    driver.lock_state.renewed(acquired.owner, at(2), Renewal::Left(ms(LEASE)), at(4));
    assert!(driver.lock_state.owners().is_empty());
}

#[test]
fn what_is_lost_or_shared_does_not_go() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(request(1), 7, 0);
    assert!(matches!(driver.lock_state.enter(&request(1), at(1)), Ok(Entered::Again(_))));
    assert_eq!(driver.lock_state.detach(acquired.ticket, at(1)).unwrap_err(), Refusal::Shared);
    assert_eq!(driver.exit(acquired, 1), Exit::Held);
    assert!(driver.lock_state.may_detach(acquired.ticket, at(1)).is_ok());
    let over = LEASE - DRIFT;
    assert_eq!(
        driver.lock_state.detach(acquired.ticket, at(over)).unwrap_err(),
        Refusal::LeaseLost(LossReason::Expired, None)
    );
    let (.., then) = match driver.exit(acquired, over) {
        Exit::Lost(loss, then) => (loss, then),
        other => panic!("{other:?}"),
    };
    assert!(then.background.is_some(), "it leaves Redis as ever");
    assert_eq!(
        driver.lock_state.detach(acquired.ticket, at(over)).unwrap_err(),
        Refusal::LeaseLost(LossReason::Revoked, None)
    );
}

#[test]
fn what_comes_is_held_and_leaves_as_any_other() {
    let mut driver = Driver::new();
    let acquired = driver.lock_state.adopt(adopted(99)).unwrap();
    assert_eq!((acquired.owner, acquired.token, acquired.via), (99, 7 << 12 | 3, AcquiredVia::Adopted));
    assert!(driver.lock_state.holds_valid(acquired.ticket, at(LEASE - DRIFT - 1)));
    assert_eq!(driver.lock_state.enter(&once(1), at(1)), Ok(Entered::Busy));
    let (leaving, next) = leaves(driver.exit(acquired, 2));
    assert_eq!((leaving.owner, next), (99, None));
    driver.lock_state.left();
    assert!(driver.lock_state.is_idle());
}

#[test]
fn what_comes_goes_past_a_position_in_redis_to_nobody() {
    let mut driver = Driver::new();
    let (waiter, asking) = driver.queue_up(request(1), 7, 0);
    let acquired = driver.lock_state.adopt(adopted(99)).unwrap();
    let Step::Park(_) = driver.turn(waiter, 1) else { panic!("it is in the way") };
    // It is not handed on locally: the head has a position, under an id to which Redis may grant the lock.
    let (leaving, next) = leaves(driver.exit(acquired, 2));
    assert_eq!((leaving.owner, next), (99, None));
    driver.lock_state.left();
    driver.message(asking.owner, 8);
    assert_eq!(driver.is_in(waiter, 3).owner, asking.owner);
}

#[test]
fn nothing_comes_into_a_closed_gate() {
    let mut driver = Driver::new();
    driver.lock_state.close(at(0));
    assert_eq!(driver.lock_state.adopt(adopted(99)), None);
    assert!(driver.lock_state.owners().is_empty());
}
