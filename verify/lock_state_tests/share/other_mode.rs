//! The share, and a holder of the lock's other mode.

use super::*;

#[test]
fn a_holder_of_the_other_mode_goes_first_and_shares_with_nobody() {
    let mut driver = driver();
    let (waits, mut theirs) = driver.queue_up(request(1), 4, 0);
    for ask in [other_mode(77, 2), Request { once: true, ..other_mode(77, 2) }] {
        let ticket = driver.enter(ask, 1);
        // It asks before the waiter, and past everybody, for a hold of its own: what was asked for the waiter
        // ends.
        let asking = driver.asks_anew(ticket, &theirs, 1);
        assert_eq!(asking.from, Some(77));
        assert!(matches!(driver.turn(waits, 1), Step::Park(_)));
        out(driver.lock_state.give_up(ticket, at(1)));
        driver.answer(&asking, busy(4), 2);
        // The waiter asks for itself again.
        theirs = driver.asks_anew(waits, &asking, 2);
        assert_eq!(theirs.from, None);
        driver.answer(&theirs, busy(4), 2);
    }
    let ticket = driver.enter(other_mode(77, 2), 3);
    let asking = driver.asks_anew(ticket, &theirs, 3);
    driver.answer(&asking, granted_in(5, LEASE), 4);
    let acquired = driver.is_in(ticket, 4);
    // Redis knows whether that thread still writes. It does, so each has its own hold.
    let may_join = driver.asks(waits, 4);
    assert_eq!((may_join.how, may_join.owner), (AcquireMode::Share, acquired.owner));
    driver.answer(&may_join, busy(5), 5);
    let own = driver.asks(waits, 5);
    assert!(own.how != AcquireMode::Share && own.from.is_none() && own.owner != acquired.owner, "{own:?}");
    driver.answer(&own, busy(5), 5);
    let newcomer = driver.enter(request(3), 5);
    assert!(matches!(driver.turn(newcomer, 5), Step::Park(_)));
    assert_eq!(driver.lock_state.holders(at(5)), 1);
}

#[test]
fn a_holder_of_the_other_mode_joins_nobody() {
    let mut driver = driver();
    let first = driver.come_in(request(1), 5, 0);
    let asking = asks_for_itself(&mut driver, other_mode(77, 2), 1);
    assert_eq!(asking.from, Some(77));
    assert_ne!(asking.owner, first.owner);
}

#[test]
fn the_exclusive_hold_beside_it_is_handed_to_nobody() {
    for closed in [false, true] {
        let mut driver = Driver::new();
        let first = driver.come_in(request(1), 5, 0);
        driver.enter(request(2), 1);
        assert_eq!(driver.lock_state.held_by(1, at(1)), Some(first.owner));
        assert_eq!(driver.lock_state.held_by(2, at(1)), None, "it waits");
        if closed {
            driver.lock_state.close_to_others(first.owner);
        }
        let exit = driver.exit(first, 2);
        assert_eq!(matches!(exit, Exit::HandedOn(_)), !closed, "{exit:?}");
    }
}
