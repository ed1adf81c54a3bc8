//! The gate, step by step: the rules of safety that it keeps, each by an example. Time is what
//! the tests say it is.

mod chance;
mod inheriting;
mod receipts;
mod room;
mod share;
mod stays;

use std::time::Duration;

use super::state::grant::MOST_HAND_OVERS;
use super::state::lock_state::{
    AcquireMode, Acquired, Answer, Asking, Effects, Entered, Exit, GaveUp, HolderId, LockState,
    PendingRelease, Refusal, Renewal, Request, Shape, Step, Terms, Ticket,
};
use crate::clock::Moment;
use crate::kind::{Reentrancy, Sharing};
use crate::observe::{AcquiredVia, LossReason};

const LEASE: u64 = 3_000;
/// What the clocks' drift takes off a lease.
const DRIFT: u64 = 30;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A moment, in milliseconds since the test began.
fn at(n: u64) -> Moment {
    Moment::default().after(ms(n))
}

fn terms() -> Terms {
    Terms::new(ms(LEASE), "")
}

fn request(thread: u64) -> Request {
    Request {
        holder: HolderId::Thread(thread),
        thread,
        terms: terms(),
        once: false,
        from: None,
        instead: false,
    }
}

fn once(thread: u64) -> Request {
    Request { once: true, ..request(thread) }
}

fn shape() -> Shape {
    Shape {
        sharing: Sharing::Exclusive,
        reentrancy: Reentrancy::Counted,
        local_handoff: ms(100),
        beat: ms(1_000),
    }
}

fn busy(floor: u64) -> Answer {
    Answer::Busy { floor, again: ms(1_000), arrival: "77".into() }
}

fn granted_in(number: u64, left: u64) -> Answer {
    Answer::In { number, left: ms(left), value: 0 }
}

/// A gate with a counter for owner ids, and the inbox up.
struct Desk {
    lock_state: LockState,
    owners: u64,
}

impl Desk {
    fn new() -> Desk {
        Desk::of(shape())
    }

    fn of(shape: Shape) -> Desk {
        Desk { lock_state: LockState::new(shape), owners: 0 }
    }

    fn enter(&mut self, request: Request, now: u64) -> Ticket {
        match self.lock_state.enter(request, at(now)) {
            Ok(Entered::Waits(ticket)) => ticket,
            other => panic!("{other:?}"),
        }
    }

    fn turn(&mut self, ticket: Ticket, now: u64) -> Step {
        self.turn_with(ticket, now, true, false)
    }

    fn turn_with(&mut self, ticket: Ticket, now: u64, inbox: bool, over: bool) -> Step {
        let owners = &mut self.owners;
        self.lock_state.turn(ticket, at(now), inbox, over, || {
            *owners += 1;
            *owners
        })
    }

    #[track_caller]
    fn asks(&mut self, ticket: Ticket, now: u64) -> Asking {
        match self.turn(ticket, now) {
            Step::Ask(asking) => asking,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn is_in(&mut self, ticket: Ticket, now: u64) -> Acquired {
        match self.turn(ticket, now) {
            Step::In(acquired, _) => acquired,
            other => panic!("{other:?}"),
        }
    }

    fn answer(&mut self, asking: &Asking, answer: Answer, now: u64) -> Effects {
        self.lock_state.answered(asking.owner, answer, at(now))
    }

    fn exit(&mut self, acquired: Acquired, now: u64) -> Exit {
        let owners = &mut self.owners;
        self.lock_state.exit(acquired.ticket, at(now), true, || {
            *owners += 1;
            *owners
        })
    }

    /// The thread comes in through Redis, at once and with a full lease.
    #[track_caller]
    fn come_in(&mut self, request: Request, number: u64, now: u64) -> Acquired {
        let lease = request.terms.lease;
        let ticket = self.enter(request, now);
        let asking = self.asks(ticket, now);
        self.lock_state.answered(asking.owner, Answer::In { number, left: lease, value: 0 }, at(now));
        self.is_in(ticket, now)
    }

    /// The thread is at the head, and has a place in Redis.
    #[track_caller]
    fn queue_up(&mut self, request: Request, floor: u64, now: u64) -> (Ticket, Asking) {
        let ticket = self.enter(request, now);
        let asking = self.asks(ticket, now);
        self.answer(&asking, busy(floor), now);
        (ticket, asking)
    }

    fn message(&mut self, owner: u64, number: u64) -> Effects {
        self.lock_state.granted(owner, number, ms(LEASE), 0, Moment::default())
    }

    fn valid_until(&self, acquired: Acquired) -> Moment {
        self.lock_state.look(acquired.owner).map(|t| t.valid_until).unwrap_or_default()
    }
}

#[track_caller]
fn out(gave_up: GaveUp) -> Effects {
    match gave_up {
        GaveUp::Out(then) => then,
        GaveUp::In(acquired) => panic!("{acquired:?}"),
    }
}

#[track_caller]
fn leaves(exit: Exit) -> (PendingRelease, Option<Asking>) {
    match exit {
        Exit::Leave(leaving, next) => (leaving, next),
        other => panic!("{other:?}"),
    }
}

// ---- numbers filter messages ---------------------------------------------------------------

#[test]
fn a_message_numbered_no_higher_than_a_busy_answer_told_is_dropped() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 10, 0);
    for stale in [1, 9, 10] {
        assert_eq!(desk.message(asking.owner, stale), Effects::default(), "{stale}");
        assert!(matches!(desk.turn(ticket, 1), Step::Park(_)), "{stale}");
    }
    assert_eq!(desk.message(asking.owner, 11).wake, Some(ticket));
    assert_eq!(desk.is_in(ticket, 1).token >> 12, 11);
}

#[test]
fn a_busy_answer_takes_back_an_overtaken_grant_and_no_other() {
    for (floor, stays) in [(11, false), (12, false), (10, true)] {
        let mut desk = Desk::new();
        let (ticket, _) = desk.queue_up(request(1), 5, 0);
        let beat = desk.asks(ticket, 1_100);
        // The message comes while the beat is on its way: nothing is settled before its answer.
        desk.message(beat.owner, 11);
        assert!(matches!(desk.turn(ticket, 1_100), Step::Park(_)));
        desk.answer(&beat, busy(floor), 1_110);
        match desk.turn(ticket, 1_110) {
            Step::In(acquired, _) => assert!(stays && acquired.token >> 12 == 11, "{floor}"),
            other => assert!(!stays, "{floor}: {other:?}"),
        }
    }
}

#[test]
fn an_answer_makes_the_message_that_follows_a_duplicate() {
    let mut desk = Desk::new();
    let (ticket, _) = desk.queue_up(request(1), 5, 0);
    let beat = desk.asks(ticket, 1_100);
    desk.answer(&beat, granted_in(6, 2_500), 1_110);
    assert_eq!(desk.message(beat.owner, 6), Effects::default());
    let acquired = desk.is_in(ticket, 1_110);
    // What was left at the answer, not a lease from the message.
    assert_eq!(desk.valid_until(acquired), at(1_100 + 2_500 - DRIFT));
}

#[test]
fn unknown_ids_are_ignored() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 5, 0);
    let stranger = asking.owner + 100;
    assert_eq!(desk.message(stranger, 50), Effects::default());
    assert_eq!(desk.lock_state.refused(stranger, "no".into()), Effects::default());
    assert_eq!(desk.lock_state.answered(stranger, granted_in(50, LEASE), at(1)), Effects::default());
    assert_eq!(desk.lock_state.lose(stranger, LossReason::Forced, at(1)), Effects::default());
    assert_eq!(desk.lock_state.renewed(stranger, at(0), Renewal::Left(ms(LEASE)), at(1)), Effects::default());
    assert!(matches!(desk.turn(ticket, 2), Step::Park(_)));
}

// ---- validity ------------------------------------------------------------------------------

#[test]
fn an_answer_counts_from_before_its_request_and_only_what_is_left() {
    let mut desk = Desk::new();
    let ticket = desk.enter(request(1), 0);
    let asking = desk.asks(ticket, 0);
    desk.answer(&asking, granted_in(1, 2_000), 400);
    let acquired = desk.is_in(ticket, 400);
    assert_eq!(desk.valid_until(acquired), at(2_000 - DRIFT));
    assert_eq!(acquired.way, AcquiredVia::Free);
}

#[test]
fn a_message_counts_from_the_last_ask_that_was_answered_busy() {
    let mut desk = Desk::new();
    let (ticket, first) = desk.queue_up(request(1), 5, 0);
    let beat = desk.asks(ticket, 1_100);
    desk.answer(&beat, busy(5), 1_120);
    // This one is merely sent: its answer is lost.
    let lost = desk.asks(ticket, 2_200);
    desk.message(first.owner, 6);
    desk.answer(&lost, Answer::Unanswered, 2_300);
    let acquired = desk.is_in(ticket, 2_300);
    assert_eq!(desk.valid_until(acquired), at(1_100 + LEASE - DRIFT));
    assert_eq!(acquired.way, AcquiredVia::Granted);
}

#[test]
fn with_no_busy_answer_a_message_counts_from_the_first_ask_sent() {
    let mut desk = Desk::new();
    let ticket = desk.enter(request(1), 0);
    let asking = desk.asks(ticket, 0);
    desk.answer(&asking, Answer::Unanswered, 500);
    let again = desk.asks(ticket, 600);
    assert_eq!(again.owner, asking.owner, "what is unknown is asked under the same id");
    desk.message(asking.owner, 6);
    desk.answer(&again, Answer::Unanswered, 700);
    let acquired = desk.is_in(ticket, 700);
    assert_eq!(desk.valid_until(acquired), at(LEASE - DRIFT));
}

#[test]
fn a_message_counts_with_the_lease_in_it() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 5, 0);
    desk.lock_state.granted(asking.owner, 6, ms(1_000), 0, at(0));
    // Under half of that is left: set anew first.
    assert_eq!(desk.turn(ticket, 600), Step::Confirm(asking.owner, ms(LEASE)));
    desk.lock_state.confirmed(asking.owner, Renewal::Failed, at(620));
    let acquired = desk.is_in(ticket, 620);
    assert_eq!(desk.valid_until(acquired), at(1_000 - 10));
}

/// A waiter that is told by a message may be dead, so that it is granted less than was asked for.
#[test]
fn a_first_lease_is_used_as_it_is_and_renewed_soon() {
    for fixed in [false, true] {
        let mut desk = Desk::new();
        let mut request = request(1);
        request.terms.fixed = fixed;
        let (ticket, asking) = desk.queue_up(request, 5, 0);
        desk.lock_state.granted(asking.owner, 6, ms(1_200), 0, at(0));
        let acquired = desk.is_in(ticket, 300);
        assert_eq!(desk.valid_until(acquired), at(1_200 - 12));
        let grant = desk.lock_state.look(acquired.owner).unwrap();
        assert_eq!(grant.due(at(300), ms(1_000)), at(300).after((ms(1_200 - 12 - 300)) / 6));
        // Of a fixed lease the rest.
        assert_eq!(grant.renewal(at(300)), ms(if fixed { LEASE - 300 } else { LEASE }));
        // It goes on in this process as any other.
        assert!(fixed || grant.goes_on_as(&grant.terms, at(300)));
        let left = grant.renewal(at(300));
        desk.lock_state.renewed(acquired.owner, at(300), Renewal::Left(left), at(310));
        let grant = desk.lock_state.look(acquired.owner).unwrap();
        assert_eq!(grant.valid_until, at(300).after(left).before(ms(DRIFT)));
        let due = if fixed { grant.valid_until } else { at(310 + 1_000) };
        assert_eq!(grant.due(at(310), ms(1_000)), due);
    }
}

#[test]
fn a_grant_with_less_than_half_its_lease_is_renewed_before_it_is_used() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 5, 0);
    desk.message(asking.owner, 6);
    assert_eq!(desk.turn(ticket, 1_600), Step::Confirm(asking.owner, ms(LEASE)));
    assert!(matches!(desk.turn(ticket, 1_610), Step::Park(_)), "the renewal is on its way");
    desk.lock_state.confirmed(asking.owner, Renewal::Left(ms(LEASE)), at(1_620));
    let acquired = desk.is_in(ticket, 1_620);
    assert_eq!(desk.valid_until(acquired), at(1_600 + LEASE - DRIFT));
}

#[test]
fn a_grant_that_is_over_is_asked_about_under_the_same_id() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 5, 0);
    desk.message(asking.owner, 6);
    let again = desk.asks(ticket, LEASE);
    assert_eq!((again.owner, again.how), (asking.owner, AcquireMode::Wait));
}

#[test]
fn a_grant_that_redis_no_longer_knows_is_asked_for_under_a_new_id() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 5, 0);
    desk.message(asking.owner, 6);
    assert!(matches!(desk.turn(ticket, 2_000), Step::Confirm(..)));
    let then = desk.lock_state.confirmed(asking.owner, Renewal::NotInside, at(2_010));
    assert_eq!((then.wake, then.leave, then.background), (Some(ticket), None, None));
    assert_ne!(desk.asks(ticket, 2_010).owner, asking.owner);
}

#[test]
fn a_grant_that_was_renewed_too_late_leaves_with_who_gives_it_up() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 5, 0);
    desk.message(asking.owner, 6);
    assert!(matches!(desk.turn(ticket, 2_000), Step::Confirm(..)));
    // Redis has set the lease anew; here it was over before the answer came.
    desk.lock_state.confirmed(asking.owner, Renewal::Left(ms(LEASE)), at(LEASE));
    assert_eq!(desk.turn_with(ticket, LEASE, true, true), Step::Over);
    let then = out(desk.lock_state.give_up(ticket, at(LEASE)));
    assert_eq!(then.leave.map(|l| l.owner), Some(asking.owner), "it would block others for a lease");
}

// ---- ids -----------------------------------------------------------------------------------

#[test]
fn each_tenure_has_an_id_of_its_own_and_next_is_registered_before_it_is_sent() {
    let mut desk = Desk::new();
    let first = desk.come_in(request(1), 1, 0);
    let waiter = desk.enter(request(2), 1);
    assert!(matches!(desk.turn(waiter, 1), Step::Park(_)));
    let (leaving, next) = leaves(desk.exit(first, 200));
    let next = next.unwrap();
    assert_eq!(leaving.owner, first.owner);
    assert_ne!(next.owner, first.owner);
    // Its grant may come by message before the answer does.
    assert_eq!(desk.message(next.owner, 2).wake, Some(waiter));
    assert!(matches!(desk.turn(waiter, 201), Step::Park(_)), "the leave is on its way");
    desk.answer(&next, busy(1), 202);
    desk.lock_state.left();
    assert_eq!(desk.is_in(waiter, 202).owner, next.owner);
}

#[test]
fn who_comes_while_a_leave_is_on_its_way_waits_for_it_and_takes_a_new_id() {
    let mut desk = Desk::new();
    let first = desk.come_in(request(1), 1, 0);
    let (leaving, next) = leaves(desk.exit(first, 10));
    assert_eq!(next, None);
    let ticket = desk.enter(request(2), 11);
    assert!(matches!(desk.turn(ticket, 11), Step::Park(_)));
    assert_eq!(desk.lock_state.left().wake, Some(ticket));
    assert_ne!(desk.asks(ticket, 12).owner, leaving.owner);
}

// ---- beats and tombstones ------------------------------------------------------------------

#[test]
fn a_beat_keeps_and_only_an_ask_creates() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 5, 0);
    assert_eq!(asking.how, AcquireMode::Wait);
    let beat = desk.asks(ticket, 1_100);
    assert_eq!((beat.how, beat.owner), (AcquireMode::Keep, asking.owner));
    desk.answer(&beat, Answer::Gone, 1_110);
    let back = desk.asks(ticket, 1_110);
    assert_eq!((back.how, back.owner, back.arrival.as_str()), (AcquireMode::Wait, asking.owner, "77"));
}

#[test]
fn a_wait_without_an_answer_ends_with_a_tombstone() {
    let mut desk = Desk::new();
    let ticket = desk.enter(request(1), 0);
    let asking = desk.asks(ticket, 0);
    desk.answer(&asking, Answer::Unanswered, 100);
    let leaving = out(desk.lock_state.give_up(ticket, at(200))).leave.unwrap();
    assert_eq!((leaving.owner, leaving.unsettled), (asking.owner, true));
    desk.lock_state.left();
    assert!(desk.lock_state.is_idle());
}

#[test]
fn a_tenure_that_ever_had_no_answer_ends_with_a_tombstone() {
    let mut desk = Desk::new();
    let ticket = desk.enter(request(1), 0);
    let asking = desk.asks(ticket, 0);
    desk.answer(&asking, Answer::Unanswered, 100);
    let again = desk.asks(ticket, 200);
    desk.answer(&again, granted_in(1, LEASE), 210);
    let acquired = desk.is_in(ticket, 210);
    assert!(leaves(desk.exit(acquired, 300)).0.unsettled);
    desk.lock_state.left();
    // And one whose renewal had none; but not one that had all its answers.
    for answer in [Renewal::Unanswered, Renewal::Left(ms(LEASE)), Renewal::Failed] {
        let acquired = desk.come_in(request(1), 2, 1_000);
        desk.lock_state.renewed(acquired.owner, at(1_100), answer, at(1_110));
        assert_eq!(
            leaves(desk.exit(acquired, 1_200)).0.unsettled,
            answer == Renewal::Unanswered,
            "{answer:?}"
        );
        desk.lock_state.left();
    }
}

#[test]
fn what_redis_has_never_heard_of_leaves_nothing_to_send() {
    let mut desk = Desk::new();
    let ticket = desk.enter(request(1), 0);
    let asking = desk.asks(ticket, 0);
    desk.answer(&asking, Answer::Failed, 100);
    assert_eq!(out(desk.lock_state.give_up(ticket, at(200))), Effects::default());
    assert!(desk.lock_state.is_idle());
}

// ---- losses --------------------------------------------------------------------------------

#[test]
fn lost_by_the_deadline_leaves_in_the_background() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    desk.lock_state.renewed(acquired.owner, at(1_000), Renewal::Unanswered, at(1_500));
    assert_eq!(desk.lock_state.expire(acquired.owner, at(LEASE - DRIFT - 1)), Effects::default());
    let then = desk.lock_state.expire(acquired.owner, at(LEASE - DRIFT));
    assert_eq!(then.lost, Some((acquired.owner, LossReason::Expired)));
    assert!(then.background.unwrap().unsettled);
    assert_eq!(desk.lock_state.expire(acquired.owner, at(LEASE)), Effects::default(), "told once");
    assert!(
        matches!(desk.exit(acquired, LEASE), Exit::Lost(LossReason::Expired, then) if then == Effects::default())
    );
    assert!(desk.lock_state.is_idle());
}

#[test]
fn lost_by_verdict_sends_nothing() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    let then = desk.lock_state.renewed(acquired.owner, at(1_000), Renewal::NotInside, at(1_010));
    assert_eq!(then.lost, Some((acquired.owner, LossReason::Revoked)));
    assert_eq!((then.background, then.leave), (None, None));
    assert!(matches!(desk.exit(acquired, 1_020), Exit::Lost(LossReason::Revoked, _)));
    assert!(desk.lock_state.is_idle());
}

#[test]
fn what_is_exchanged_is_not_lost_by_a_renewal_that_comes_behind() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    let waiter = desk.enter(request(2), 0);
    desk.lock_state.exchange(acquired.owner);
    assert_eq!(desk.lock_state.renewed(acquired.owner, at(1), Renewal::NotInside, at(2)), Effects::default());
    assert_eq!(desk.lock_state.hold_count(1, at(2)), 1);
    // Nor is it handed on; and its deadline is one still.
    let mut other = Desk { lock_state: desk.lock_state.clone(), owners: desk.owners };
    assert_eq!(leaves(desk.exit(acquired, 3)).0.owner, acquired.owner);
    let then = other.lock_state.renewed(acquired.owner, at(1), Renewal::NotInside, at(LEASE));
    assert_eq!(then.lost, Some((acquired.owner, LossReason::Expired)));
    assert_eq!(then.wake, Some(waiter));
}

#[test]
fn an_io_error_does_not_end_a_hold_and_lost_is_final() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    for answer in [Renewal::Unanswered, Renewal::Failed] {
        assert_eq!(desk.lock_state.renewed(acquired.owner, at(500), answer, at(600)).lost, None);
    }
    assert_eq!(desk.valid_until(acquired), at(LEASE - DRIFT));
    // An answer that comes after the deadline was sent before it: too late all the same.
    let then = desk.lock_state.renewed(acquired.owner, at(2_900), Renewal::Left(ms(LEASE)), at(LEASE));
    assert_eq!(then.lost, Some((acquired.owner, LossReason::Expired)));
    desk.lock_state.renewed(acquired.owner, at(2_900), Renewal::Left(ms(LEASE)), at(LEASE));
    assert_eq!(desk.lock_state.hold_count(1, at(LEASE)), 0);
    assert!(matches!(desk.exit(acquired, LEASE), Exit::Lost(..)));
}

#[test]
fn a_loss_found_at_the_release_is_told_and_leaves_in_the_background() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    let Exit::Lost(loss, then) = desk.exit(acquired, LEASE) else { panic!("it is over") };
    assert_eq!((loss, then.lost), (LossReason::Expired, Some((acquired.owner, LossReason::Expired))));
    assert!(then.background.unwrap().unsettled);
}

#[test]
fn while_a_guard_of_a_lost_hold_lives_its_thread_is_told_and_others_come_in() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    desk.lock_state.lose(acquired.owner, LossReason::Forced, at(10));
    assert_eq!(desk.lock_state.enter(request(1), at(11)), Err(Refusal::LeaseLost(LossReason::Forced)));
    let other = desk.come_in(request(2), 2, 12);
    assert!(other.token > acquired.token);
    assert!(matches!(desk.exit(acquired, 20), Exit::Lost(LossReason::Forced, _)));
    assert_eq!(desk.lock_state.hold_count(2, at(20)), 1, "the other hold is untouched");
}

// ---- local hand-over -----------------------------------------------------------------------

/// Whether a tenure with the first terms is handed on to the second, `held` ms after it began.
fn handed(local_handoff: u64, first: Terms, second: Terms, held: u64) -> bool {
    let mut desk = Desk::of(Shape { local_handoff: ms(local_handoff), ..shape() });
    let acquired = desk.come_in(Request { terms: first, ..request(1) }, 1, 0);
    let waiter = desk.enter(Request { terms: second, ..request(2) }, 0);
    match desk.exit(acquired, held) {
        Exit::HandedOn(ticket) => {
            let next = desk.is_in(waiter, held);
            assert_eq!((ticket, next.owner, next.way), (waiter, acquired.owner, AcquiredVia::HandedOver));
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
    // More than a third of it must be left.
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
fn a_tenure_is_handed_on_4095_times_at_most_and_tokens_rise() {
    let mut desk = Desk::of(Shape { local_handoff: Duration::MAX, ..shape() });
    let mut acquired = desk.come_in(request(0), 7, 0);
    for n in 1..=MOST_HAND_OVERS {
        let waiter = desk.enter(request(n), 0);
        assert_eq!(desk.exit(acquired, 1), Exit::HandedOn(waiter), "{n}");
        acquired = desk.is_in(waiter, 1);
        assert_eq!(acquired.token, 7 << 12 | n);
    }
    desk.enter(request(5_000), 0);
    assert!(leaves(desk.exit(acquired, 1)).1.is_some());
    assert_eq!(MOST_HAND_OVERS, 4_095);
}

#[test]
fn who_gives_up_after_being_handed_the_hold_has_it() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    let waiter = desk.enter(request(2), 0);
    assert_eq!(desk.exit(acquired, 1), Exit::HandedOn(waiter));
    let GaveUp::In(next) = desk.lock_state.give_up(waiter, at(2)) else { panic!("it was handed the hold") };
    assert!(matches!(desk.exit(next, 3), Exit::Leave(..)));
}

// ---- giving up -----------------------------------------------------------------------------

#[test]
fn a_grant_in_the_instant_of_giving_up_is_passed_on() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 5, 0);
    desk.message(asking.owner, 6);
    let leaving = out(desk.lock_state.give_up(ticket, at(1))).leave.unwrap();
    assert_eq!(leaving.owner, asking.owner);
    // Later ones find nobody.
    assert_eq!(desk.message(asking.owner, 7), Effects::default());
    desk.lock_state.left();
    assert!(desk.lock_state.is_idle());
}

#[test]
fn a_grant_is_used_even_when_the_time_is_up() {
    let mut desk = Desk::new();
    let (ticket, asking) = desk.queue_up(request(1), 5, 0);
    assert_eq!(desk.turn_with(ticket, 10, true, true), Step::Over);
    desk.message(asking.owner, 6);
    assert!(matches!(desk.turn_with(ticket, 11, true, true), Step::In(..)));
}

#[test]
fn an_orphaned_next_ask_leaves_when_it_is_answered() {
    let answers = [busy(1), granted_in(2, LEASE), Answer::Unanswered];
    for answer in answers {
        let mut desk = Desk::new();
        let acquired = desk.come_in(request(1), 1, 0);
        let waiter = desk.enter(request(2), 0);
        let next = leaves(desk.exit(acquired, 500)).1.unwrap();
        // The head gives up while the leave that asks for it is on its way.
        assert_eq!(out(desk.lock_state.give_up(waiter, at(501))), Effects::default());
        let unknown = answer == Answer::Unanswered;
        let leaving = desk.answer(&next, answer.clone(), 502).leave;
        let leaving = leaving.unwrap_or_else(|| panic!("{answer:?}: it is left in Redis"));
        assert_eq!((leaving.owner, leaving.unsettled), (next.owner, unknown), "{answer:?}");
        desk.lock_state.left();
        desk.lock_state.left();
        assert!(desk.lock_state.is_idle(), "{answer:?}");
    }
}

#[test]
fn an_orphaned_next_ask_goes_to_who_comes_meanwhile() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    let waiter = desk.enter(request(2), 0);
    let next = leaves(desk.exit(acquired, 500)).1.unwrap();
    out(desk.lock_state.give_up(waiter, at(501)));
    let late = desk.enter(request(3), 502);
    assert!(matches!(desk.turn(late, 502), Step::Park(_)));
    assert_eq!(desk.answer(&next, granted_in(2, LEASE), 503).leave, None);
    desk.lock_state.left();
    assert_eq!(desk.is_in(late, 504).owner, next.owner);
}

#[test]
fn who_is_not_the_head_gives_up_without_a_trace() {
    let mut desk = Desk::new();
    let (head, asking) = desk.queue_up(request(1), 5, 0);
    let second = desk.enter(request(2), 1);
    assert_eq!(out(desk.lock_state.give_up(second, at(2))), Effects::default());
    desk.message(asking.owner, 6);
    desk.is_in(head, 3);
}

// ---- one attempt ---------------------------------------------------------------------------

#[test]
fn one_attempt_is_one_request_and_no_place() {
    let mut desk = Desk::new();
    let ticket = desk.enter(once(1), 0);
    let asking = desk.asks(ticket, 0);
    assert_eq!(asking.how, AcquireMode::Try);
    assert!(!asking.enqueues);
    desk.answer(&asking, Answer::Busy { floor: 1, again: ms(500), arrival: String::new() }, 1);
    assert_eq!(desk.turn(ticket, 1), Step::Busy);
    assert_eq!(out(desk.lock_state.give_up(ticket, at(2))), Effects::default());
    assert!(desk.lock_state.is_idle());
}

#[test]
fn one_attempt_never_barges() {
    let mut desk = Desk::new();
    let (head, _) = desk.queue_up(request(1), 5, 0);
    assert_eq!(desk.lock_state.enter(once(2), at(1)), Err(Refusal::Busy));
    out(desk.lock_state.give_up(head, at(2)));
    desk.lock_state.left();
    let acquired = desk.come_in(request(3), 6, 3);
    assert_eq!(desk.lock_state.enter(once(4), at(4)), Err(Refusal::Busy), "a local thread holds it");
    desk.exit(acquired, 5);
}

#[test]
fn one_attempt_is_not_asked_for_by_a_leave() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    desk.lock_state.lose(acquired.owner, LossReason::Forced, at(1));
    let ticket = desk.enter(once(2), 2);
    let asking = desk.asks(ticket, 2);
    assert_eq!(asking.how, AcquireMode::Try);
}

#[test]
fn one_attempt_does_not_wait_for_an_inherited_ask() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    let waiter = desk.enter(request(2), 0);
    let next = leaves(desk.exit(acquired, 500)).1.unwrap();
    out(desk.lock_state.give_up(waiter, at(501)));
    let ticket = desk.enter(once(3), 502);
    desk.answer(&next, busy(1), 503);
    desk.lock_state.left();
    let turn = desk.turn(ticket, 504);
    assert!(matches!(turn, Step::Ask(_) | Step::Busy), "{turn:?}");
}

#[test]
fn what_may_be_answered_at_once_needs_no_inbox() {
    let mut desk = Desk::new();
    let ticket = desk.enter(request(1), 0);
    let Step::Ask(asking) = desk.turn_with(ticket, 0, false, false) else { panic!("it asks") };
    assert_eq!((asking.how, asking.enqueues), (AcquireMode::Try, false));
    desk.answer(&asking, Answer::Busy { floor: 1, again: ms(500), arrival: String::new() }, 1);
    let Step::Ask(asking) = desk.turn_with(ticket, 1, false, false) else { panic!("it asks again") };
    // The sender of this takes care of the inbox first.
    assert_eq!((asking.how, asking.enqueues), (AcquireMode::Wait, true));
}

#[test]
fn an_ask_that_was_on_its_way_when_the_inbox_came_back_is_asked_again() {
    let mut desk = Desk::new();
    let ticket = desk.enter(request(1), 0);
    let asking = desk.asks(ticket, 0);
    // Redis has answered, somebody has granted it, and there was nobody to hear of it.
    assert_eq!(desk.lock_state.ask_again(at(1)).wake, Some(ticket));
    desk.answer(&asking, busy(5), 2);
    assert_eq!(desk.asks(ticket, 2).how, AcquireMode::Keep);
    // Once is enough.
    desk.answer(&asking, busy(5), 3);
    assert!(matches!(desk.turn(ticket, 4), Step::Park(until) if until > at(1_000)));
}

// ---- leases that differ --------------------------------------------------------------------

#[test]
fn the_end_of_a_lease_of_another_length_counts_its_own_drift() {
    let mut desk = Desk::new();
    let (_, asking) = desk.queue_up(request(1), 5, 0);
    desk.lock_state.granted(asking.owner, 6, ms(100_000), 0, at(0));
    let then = desk.lock_state.close(at(1));
    assert_eq!(then[0].valid_until, at(100_000 - 1_000));
}

// ---- kinds that are shared -----------------------------------------------------------------

/// Its thread may have many guards: each is told.
#[test]
fn every_guard_of_a_lost_hold_is_told() {
    for told in [false, true] {
        let mut desk = Desk::new();
        let outer = desk.come_in(request(1), 1, 0);
        for _ in 0..2 {
            assert!(matches!(desk.lock_state.enter(request(1), at(1)), Ok(Entered::Again(_))));
        }
        assert_eq!(desk.exit(outer, 2), Exit::Held);
        let (loss, then) = if told { (LossReason::Forced, 10) } else { (LossReason::Expired, LEASE) };
        if told {
            desk.lock_state.lose(outer.owner, loss, at(3));
        }
        let Exit::Lost(why, first) = desk.exit(outer, then) else { panic!("it is lost") };
        assert_eq!((why, first.lost.is_some()), (loss, !told), "what is to be done is said once");
        assert_eq!(desk.exit(outer, then), Exit::Lost(loss, Effects::default()));
        assert!(desk.lock_state.is_idle());
    }
}

#[test]
fn a_shared_kind_has_as_many_tenures_as_redis_grants() {
    let mut desk =
        Desk::of(Shape { sharing: Sharing::Shared, reentrancy: Reentrancy::Independent, ..shape() });
    let first = desk.enter(request(1), 0);
    let second = desk.enter(request(1), 0);
    let asking = desk.asks(first, 0);
    desk.answer(&asking, granted_in(1, LEASE), 1);
    let Step::In(one, next) = desk.turn(first, 1) else { panic!("it is in") };
    assert_eq!(next, Some(second), "the next head may come in beside it");
    let asking = desk.asks(second, 2);
    assert_ne!(asking.owner, one.owner);
    desk.answer(&asking, granted_in(2, LEASE), 3);
    let two = desk.is_in(second, 3);
    assert_eq!(desk.lock_state.hold_count(1, at(4)), 2);
    // Each leaves for itself, and nothing is handed on.
    let third = desk.enter(request(2), 4);
    let (leaving, next) = leaves(desk.exit(one, 5));
    assert_eq!((leaving.owner, next), (one.owner, None));
    // And nobody waits for that: there may be room already.
    assert_ne!(desk.asks(third, 6).owner, two.owner);
}

// ---- the end -------------------------------------------------------------------------------

#[test]
fn closing_loses_all_holds_and_takes_out_all_that_redis_may_know() {
    let mut desk = Desk::new();
    let acquired = desk.come_in(request(1), 1, 0);
    let waiter = desk.enter(request(2), 0);
    let leaving = desk.lock_state.close(at(1));
    assert_eq!(leaving.iter().map(|l| l.owner).collect::<Vec<_>>(), [acquired.owner]);
    assert_eq!(desk.turn(waiter, 2), Step::Closed);
    assert_eq!(desk.lock_state.enter(request(3), at(2)), Err(Refusal::Closed));
    assert_eq!(
        desk.lock_state.renewed(acquired.owner, at(1), Renewal::Left(ms(LEASE)), at(2)),
        Effects::default()
    );
    assert_eq!(desk.lock_state.hold_count(1, at(2)), 0);
    assert!(matches!(desk.exit(acquired, 3), Exit::Lost(LossReason::Closed, _)));
    out(desk.lock_state.give_up(waiter, at(4)));
    assert!(desk.lock_state.is_idle());
}

#[test]
fn closing_bars_an_ask_that_is_on_its_way() {
    let mut desk = Desk::new();
    let ticket = desk.enter(request(1), 0);
    let asking = desk.asks(ticket, 0);
    let leaving = desk.lock_state.close(at(1));
    assert_eq!(leaving.len(), 1);
    assert_eq!((leaving[0].owner, leaving[0].unsettled), (asking.owner, true));
    // Its answer finds nobody.
    assert_eq!(desk.answer(&asking, granted_in(1, LEASE), 2), Effects::default());
    assert_eq!(desk.turn(ticket, 2), Step::Closed);
}

#[test]
fn parks_are_bounded() {
    let mut desk = Desk::new();
    let bounded = |turn: Step, most: u64| match turn {
        Step::Park(until) => assert!(until <= at(most), "{until:?}"),
        other => panic!("{other:?}"),
    };
    // By the beat, however late Redis says that asking again makes sense.
    let ticket = desk.enter(request(1), 0);
    let asking = desk.asks(ticket, 0);
    bounded(desk.turn(ticket, 0), 1_000);
    desk.answer(&asking, Answer::Busy { floor: 1, again: ms(60_000), arrival: "1".into() }, 1);
    bounded(desk.turn(ticket, 1), 1_001);
    // By what Redis said, where that is sooner.
    let beat = desk.turn(ticket, 60_100);
    let Step::Ask(beat) = beat else { panic!("{beat:?}") };
    desk.answer(&beat, Answer::Busy { floor: 1, again: ms(50), arrival: "1".into() }, 60_100);
    bounded(desk.turn(ticket, 60_100), 60_160);
}
