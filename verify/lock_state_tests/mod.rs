//! The lock state, step by step: the safety rules that it keeps, each by an example. The tests say what time
//! it is.

mod chance;
mod classes;
mod condition_waiter;
mod ends;
mod grants;
mod inheriting;
mod kept;
mod receipts;
mod share;
mod stays;
mod turns;

use std::time::Duration;

use super::state::grant::{MOST_HAND_OVERS, MOST_NUMBER};
use super::state::lock_state::{
    AcquireMode, Acquired, Answer, Asking, Effects, Entered, Exit, GaveUp, HolderId, LockState,
    PendingRelease, Refusal, Renewal, Request, Shape, Step, Terms, Ticket,
};
use crate::clock::Moment;
use crate::kind::{Reentrancy, Sharing};
use crate::observe::{AcquiredVia, LossReason};

const LEASE: u64 = 3_000;
/// What clock drift takes off a lease.
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
        holder: HolderId::thread(thread),
        thread,
        terms: terms(),
        once: false,
        from: None,
        instead: false,
        most: None,
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
        heartbeat: ms(1_000),
        first_lease: ms(LEASE),
    }
}

fn busy(last_number: u64) -> Answer {
    Answer::Busy { last_number, again: ms(1_000), arrival: "77".into(), others: 0 }
}

fn granted_in(number: u64, left: u64) -> Answer {
    Answer::In { number, left: ms(left), value: 0 }
}

/// A lock state with a counter for owner ids, whose inbox is up.
struct Driver {
    lock_state: LockState,
    owners: u64,
}

impl Driver {
    fn new() -> Driver {
        Driver::of(shape())
    }

    fn of(shape: Shape) -> Driver {
        Driver { lock_state: LockState::new(shape), owners: 0 }
    }

    fn enter(&mut self, request: Request, now: u64) -> Ticket {
        match self.lock_state.enter(&request, at(now)) {
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

    /// The thread acquires through Redis, at once and with a full lease.
    #[track_caller]
    fn come_in(&mut self, request: Request, number: u64, now: u64) -> Acquired {
        let lease = request.terms.lease;
        let ticket = self.enter(request, now);
        let asking = self.asks(ticket, now);
        self.lock_state.answered(asking.owner, Answer::In { number, left: lease, value: 0 }, at(now));
        self.is_in(ticket, now)
    }

    /// The thread is at the head, and has a position in Redis.
    #[track_caller]
    fn queue_up(&mut self, request: Request, last_number: u64, now: u64) -> (Ticket, Asking) {
        let ticket = self.enter(request, now);
        let asking = self.asks(ticket, now);
        self.answer(&asking, busy(last_number), now);
        (ticket, asking)
    }

    fn message(&mut self, owner: u64, number: u64) -> Effects {
        self.lock_state.granted(owner, number, ms(LEASE), 0, Moment::default())
    }

    fn valid_until(&self, acquired: Acquired) -> Moment {
        self.lock_state.grant(acquired.owner).map(|t| t.validity.until).unwrap_or_default()
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
