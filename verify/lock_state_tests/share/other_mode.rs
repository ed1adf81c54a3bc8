//! The share, and a holder of the lock's other mode.

use super::*;

#[test]
fn a_holder_of_the_other_mode_goes_first_and_shares_with_nobody() {
    let mut desk = desk();
    let (waits, mut theirs) = desk.queue_up(request(1), 4, 0);
    for ask in [beside(77, 2), Request { once: true, ..beside(77, 2) }] {
        let ticket = desk.enter(ask, 1);
        // It asks before the waiter, and past everybody, for a hold of its own: what was asked for the waiter
        // ends.
        let asking = desk.asks_anew(ticket, &theirs, 1);
        assert_eq!(asking.from, Some(77));
        assert!(matches!(desk.turn(waits, 1), Step::Park(_)));
        out(desk.lock_state.give_up(ticket, at(1)));
        desk.answer(&asking, busy(4), 2);
        // The waiter asks for itself again.
        theirs = desk.asks_anew(waits, &asking, 2);
        assert_eq!(theirs.from, None);
        desk.answer(&theirs, busy(4), 2);
    }
    let ticket = desk.enter(beside(77, 2), 3);
    let asking = desk.asks_anew(ticket, &theirs, 3);
    desk.answer(&asking, granted_in(5, LEASE), 4);
    let acquired = desk.is_in(ticket, 4);
    // Redis knows whether that thread still writes. It does, so each has its own hold.
    let may_join = desk.asks(waits, 4);
    assert_eq!((may_join.how, may_join.owner), (AcquireMode::Share, acquired.owner));
    desk.answer(&may_join, busy(5), 5);
    let own = desk.asks(waits, 5);
    assert!(own.how != AcquireMode::Share && own.from.is_none() && own.owner != acquired.owner, "{own:?}");
    desk.answer(&own, busy(5), 5);
    let newcomer = desk.enter(request(3), 5);
    assert!(matches!(desk.turn(newcomer, 5), Step::Park(_)));
    assert_eq!(desk.lock_state.holders(at(5)), 1);
}

#[test]
fn a_holder_of_the_other_mode_joins_nobody() {
    let mut desk = desk();
    let first = desk.come_in(request(1), 5, 0);
    let asking = asks_for_itself(&mut desk, beside(77, 2), 1);
    assert_eq!(asking.from, Some(77));
    assert_ne!(asking.owner, first.owner);
}

#[test]
fn the_exclusive_hold_beside_it_is_handed_to_nobody() {
    for shut in [false, true] {
        let mut desk = Desk::new();
        let first = desk.come_in(request(1), 5, 0);
        desk.enter(request(2), 1);
        assert_eq!(desk.lock_state.held_by(1, at(1)), Some(first.owner));
        assert_eq!(desk.lock_state.held_by(2, at(1)), None, "it waits");
        if shut {
            desk.lock_state.shut(first.owner);
        }
        let exit = desk.exit(first, 2);
        assert_eq!(matches!(exit, Exit::HandedOn(_)), !shut, "{exit:?}");
    }
}
