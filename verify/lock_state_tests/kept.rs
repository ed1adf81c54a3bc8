//! A grant that stays in the process while no thread there holds it.

use super::*;
use crate::engine::state::grant::KEEPS;
use crate::observe::KeptEnd;

const LINGER: u64 = 500;

fn lingering(thread: u64) -> Request {
    Request { terms: Terms { linger: ms(LINGER).into(), ..terms() }, ..request(thread) }
}

/// Returns a grant that is kept since `now`.
#[track_caller]
fn kept(driver: &mut Driver, now: u64) -> Acquired {
    let acquired = driver.come_in(lingering(1), 7, now);
    assert_ne!(acquired.owner & KEEPS, 0);
    assert_eq!(driver.exit(acquired, now), Exit::Kept(acquired.owner, at(now + LINGER)));
    acquired
}

fn takes(driver: &mut Driver, request: Request, now: u64) -> Option<Acquired> {
    match driver.lock_state.enter(&request, at(now)) {
        Ok(Entered::Joined(acquired, None)) => Some(acquired),
        _ => None,
    }
}

#[track_caller]
fn is_taken(driver: &mut Driver, request: Request, now: u64) -> Acquired {
    takes(driver, request, now).expect("it asks")
}

#[test]
fn the_next_hold_takes_it_under_a_higher_token() {
    let mut driver = Driver::new();
    let first = kept(&mut driver, 0);
    let second = is_taken(&mut driver, lingering(2), 10);
    assert_eq!((second.owner, second.via), (first.owner, AcquiredVia::Kept));
    assert!(second.token > first.token);
    assert_eq!(driver.exit(second, 10), Exit::Kept(first.owner, at(LINGER)));
    // A thread whose handle does not linger gives it back; a single attempt may use it too.
    let third = is_taken(&mut driver, once(3), 11);
    assert!(third.token > second.token);
    assert!(matches!(driver.exit(third, 11), Exit::Leave(..)));
}

/// `renew_for` is for the holder, and ends with its hold.
#[test]
fn what_was_prolonged_beyond_its_lease_is_not_kept_nor_handed_on() {
    for (lasts, goes_on) in [(LEASE, true), (LEASE * 100, false)] {
        let mut driver = Driver::new();
        let acquired = driver.come_in(lingering(1), 7, 0);
        driver.lock_state.must_last(acquired.owner, at(lasts));
        assert_eq!(matches!(driver.exit(acquired, 0), Exit::Kept(..)), goes_on);
        let mut driver = Driver::new();
        let acquired = driver.come_in(request(1), 7, 0);
        driver.enter(request(2), 0);
        driver.lock_state.must_last(acquired.owner, at(lasts));
        assert_eq!(matches!(driver.exit(acquired, 0), Exit::HandedOn(..)), goes_on);
    }
}

#[test]
fn it_is_kept_no_longer_than_that_however_often_it_is_taken() {
    let mut driver = Driver::new();
    kept(&mut driver, 0);
    let acquired = is_taken(&mut driver, lingering(1), LINGER - 1);
    assert!(matches!(driver.exit(acquired, LINGER), Exit::Leave(..)));

    let mut driver = Driver::new();
    let acquired = kept(&mut driver, 0);
    assert_eq!(driver.lock_state.kept_long_enough(acquired.owner, at(LINGER - 1)), Effects::default());
    assert!(takes(&mut driver, lingering(1), LINGER).is_none(), "its time is up");
    driver.lock_state.give_up(2, at(LINGER));
    assert!(driver.lock_state.kept_long_enough(acquired.owner, at(LINGER)).background.is_some());
    assert!(driver.lock_state.is_idle());
}

#[test]
fn wanted_it_leaves_at_once_or_when_its_hold_ends() {
    let mut driver = Driver::new();
    let acquired = kept(&mut driver, 0);
    let then = driver.lock_state.is_wanted(acquired.owner, at(1));
    assert!(
        then.leave.is_some_and(|l| l.owner == acquired.owner)
            && then.dropped == Some((acquired.owner, KeptEnd::Wanted))
    );
    driver.lock_state.left();
    assert!(driver.lock_state.is_idle());
    let late = driver.lock_state.is_wanted(acquired.owner, at(2));
    assert_eq!(late, Effects::default(), "a late message is about nothing");

    let mut driver = Driver::new();
    kept(&mut driver, 0);
    let acquired = is_taken(&mut driver, lingering(1), 1);
    assert_eq!(driver.lock_state.is_wanted(acquired.owner, at(2)), Effects::default());
    assert!(matches!(driver.exit(acquired, 3), Exit::Leave(..)));
}

#[test]
fn a_message_about_an_older_grant_changes_nothing() {
    let mut driver = Driver::new();
    let older = kept(&mut driver, 0);
    driver.lock_state.is_wanted(older.owner, at(1));
    driver.lock_state.left();
    let newer = kept(&mut driver, 2);
    assert_ne!(older.owner, newer.owner);
    assert_eq!(driver.lock_state.is_wanted(older.owner, at(3)), Effects::default());
    assert_eq!(is_taken(&mut driver, lingering(1), 4).owner, newer.owner);
}

#[test]
fn wanted_before_the_reply_it_is_not_kept() {
    let mut driver = Driver::new();
    let (ticket, asking) = driver.queue_up(lingering(1), 5, 0);
    driver.lock_state.is_wanted(asking.owner, at(1));
    driver.message(asking.owner, 6);
    let acquired = driver.is_in(ticket, 2);
    assert!(matches!(driver.exit(acquired, 3), Exit::Leave(..)));
}

#[test]
fn a_process_that_does_not_listen_keeps_nothing() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(lingering(1), 7, 0);
    assert!(matches!(driver.lock_state.exit(acquired.ticket, at(1), false, || 9), Exit::Leave(..)));
    let mut driver = Driver::new();
    kept(&mut driver, 0);
    assert!(driver.lock_state.deaf(at(1)).background.is_some());
    assert!(driver.lock_state.is_idle());
    let mut driver = Driver::new();
    let acquired = driver.come_in(lingering(1), 7, 0);
    driver.lock_state.deaf(at(1));
    assert!(matches!(driver.exit(acquired, 2), Exit::Leave(..)), "what it missed meanwhile is not known");
}

#[test]
fn for_other_terms_it_leaves_and_the_request_goes_with_it() {
    for terms in [
        Terms { fair: true, ..terms() },
        Terms { fixed: true, ..terms() },
        Terms { lease: ms(9_000), ..terms() },
        Terms { fair: true, at_least: ms(5).into(), ..terms() },
    ] {
        let mut driver = Driver::new();
        let first = kept(&mut driver, 0);
        let ticket = driver.enter(Request { terms: terms.clone(), ..request(2) }, 1);
        let Step::LeaveAndAsk(leaving, asking) = driver.turn(ticket, 1) else { panic!("{terms:?}") };
        assert_eq!((leaving.owner, asking.how), (first.owner, AcquireMode::Wait));
        assert_ne!(asking.owner, first.owner);
        driver.answer(&asking, granted_in(9, u64::try_from(terms.lease.as_millis()).unwrap()), 2);
        driver.lock_state.left();
        driver.is_in(ticket, 3);
    }
    // A single attempt takes no queue position, and is made once the lock is given back.
    let mut driver = Driver::new();
    kept(&mut driver, 0);
    let ticket = driver.enter(Request { terms: Terms { fair: true, ..terms() }, ..once(2) }, 1);
    assert!(matches!(driver.turn(ticket, 1), Step::Leave(..)));
    assert_eq!(driver.lock_state.left().wake, Some(ticket));
    assert_eq!(driver.asks(ticket, 2).how, AcquireMode::Try);
}

#[test]
fn its_end_is_no_loss() {
    for why in [LossReason::Expired, LossReason::Revoked, LossReason::Forced] {
        let mut driver = Driver::new();
        let acquired = kept(&mut driver, 0);
        let then = match why {
            LossReason::Expired => driver.lock_state.expire(acquired.owner, at(LEASE)),
            LossReason::Revoked => {
                driver.lock_state.renewed(acquired.owner, at(1), Renewal::NotInside, at(2))
            }
            _ => driver.lock_state.lose(acquired.owner, why, at(2)),
        };
        assert_eq!((then.lost, then.dropped), (None, Some((acquired.owner, KeptEnd::Lost))));
        assert_eq!(then.background.is_some(), why == LossReason::Expired);
        assert!(driver.lock_state.is_idle());
    }
}

#[test]
fn threads_hand_it_on_past_their_period_until_it_is_wanted() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(lingering(1), 7, 0);
    let (second, third) = (driver.enter(lingering(2), 1), driver.enter(lingering(3), 1));
    assert_eq!(driver.exit(acquired, 400), Exit::HandedOn(second));
    let acquired = driver.is_in(second, 400);
    driver.lock_state.is_wanted(acquired.owner, at(410));
    driver.enter(lingering(4), 411);
    assert_eq!(driver.exit(acquired, 420), Exit::HandedOn(third), "for one period yet");
    let acquired = driver.is_in(third, 420);
    let (_, next) = leaves(driver.exit(acquired, 510));
    assert!(next.is_some(), "with the request of the fourth");
}

#[test]
fn one_that_was_handed_on_is_kept_from_its_first_end() {
    let mut driver = Driver::new();
    let first = driver.come_in(lingering(1), 7, 0);
    let second = driver.enter(lingering(2), 1);
    assert_eq!(driver.exit(first, 10), Exit::HandedOn(second));
    let acquired = driver.is_in(second, 20);
    assert_eq!(driver.exit(acquired, 30), Exit::Kept(acquired.owner, at(10 + LINGER)));
}

#[test]
fn after_so_many_tokens_it_leaves() {
    let mut driver = Driver::new();
    kept(&mut driver, 0);
    for n in 1..=MOST_HAND_OVERS {
        let acquired = is_taken(&mut driver, lingering(1), 1);
        assert_eq!(matches!(driver.exit(acquired, 1), Exit::Kept(..)), n < MOST_HAND_OVERS, "{n}");
    }
}

#[test]
fn a_closed_client_keeps_nothing() {
    let mut driver = Driver::new();
    let acquired = kept(&mut driver, 0);
    let leaving = driver.lock_state.close(Moment::default());
    assert_eq!(leaving.first().map(|l| l.owner), Some(acquired.owner));
    assert!(driver.lock_state.is_idle());
}

#[test]
fn what_was_of_no_use_or_waits_for_a_signal_is_not_kept() {
    let mut driver = Driver::new();
    let acquired = driver.come_in(lingering(1), 7, 0);
    driver.lock_state.not_to_be_kept(acquired.ticket, at(0));
    assert!(matches!(driver.exit(acquired, 0), Exit::Leave(..)));

    let mut driver = Driver::new();
    let acquired = driver.come_in(lingering(1), 7, 0);
    let Ok((suspended, _)) = driver.lock_state.set_aside(acquired.ticket, at(1)) else {
        panic!("it is held")
    };
    driver.lock_state.put_back(suspended, None, None, at(2));
    assert!(matches!(driver.exit(acquired, 2), Exit::Leave(..)));
}

/// If it is wanted three times in a row before it is used again, it is not kept for a while, longer each
/// time.
#[test]
fn a_lock_that_is_taken_in_turn_is_not_kept_for_a_while() {
    let mut driver = Driver::new();
    let wanted_unused = |driver: &mut Driver, now: u64| {
        let acquired = kept(driver, now);
        driver.lock_state.is_wanted(acquired.owner, at(now));
        driver.lock_state.left();
    };
    let not_kept = |driver: &mut Driver, now: u64| {
        let acquired = driver.come_in(lingering(1), 7, now);
        assert_eq!(acquired.owner & KEEPS, 0, "nobody need tell its process anything");
        assert!(matches!(driver.exit(acquired, now), Exit::Leave(..)));
        driver.lock_state.left();
    };
    (0..3).for_each(|now| wanted_unused(&mut driver, now));
    not_kept(&mut driver, 3);
    not_kept(&mut driver, 11);
    wanted_unused(&mut driver, 12);
    not_kept(&mut driver, 31);
    // Once it is used again, the count starts over.
    let first = kept(&mut driver, 32);
    let again = is_taken(&mut driver, lingering(1), 33);
    driver.lock_state.is_wanted(first.owner, at(33));
    leaves(driver.exit(again, 33));
    driver.lock_state.left();
    wanted_unused(&mut driver, 34);
    wanted_unused(&mut driver, 35);
}

#[test]
fn however_often_that_was_it_is_kept_again_after_a_second() {
    let mut driver = Driver::new();
    for n in 0..40 {
        let acquired = kept(&mut driver, n * 1_001);
        driver.lock_state.is_wanted(acquired.owner, at(n * 1_001));
        driver.lock_state.left();
    }
}
