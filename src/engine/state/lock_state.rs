//! One lock in this process: its waiting threads, its holders, and what is asked of Redis for them.
//!
//! A plain state machine: each method is an event, its return value says what must be done. No I/O, no clock
//! of its own, no threads, so that it can be model-checked as it is. Its driver ([`super::acquire`] and the
//! modules beside it) holds the entry's mutex during a step and never during I/O.
//!
//! # The protocol in this process
//!
//! - Waiting threads form one FIFO. Only its **head** talks to Redis, under one owner id, the **pending
//!   acquire**, which belongs to the lock state and not to the thread: a head that gives up leaves it, with
//!   whatever it was granted meanwhile, to the next thread, if that one asks for the same.
//! - What Redis granted is a **grant**; threads take turns in it as **holds**. Its id is closed the moment
//!   its `leave` is sent, and is never used again.
//! - A released exclusive grant goes to the next local thread during its local hand-off period; after that
//!   one `leave(next)` admits the other processes and puts this one at the end of their queue.
//!
//! # The safety rules kept here
//!
//! - *Numbers filter messages*: a grant numbered no higher than the last number in a busy reply was overtaken
//!   while it lay unread. So was one whose own number a reply told. It is dropped.
//! - *Validity from before the send*: a reply counts from when its request was about to be sent; a message,
//!   which has no request of its own, from the last request that was answered busy, as the grant cannot be
//!   older than that.
//! - *A grant is never dropped*: `give_up` looks for it in the same step that leaves the queue.
//! - *A grant belongs to its request*: a pending acquire is never sent on other terms than its first ones. A
//!   head that asks for something else gives it back, with whatever was granted to it, and asks for a
//!   position of its own.

mod ask;
mod condition_waiter;
mod ending;
mod events;
mod habit;
mod heard;
mod holds;
mod kept;
mod line;
mod past;
mod questions;
mod receipt;
mod share;
mod suspending;
mod turn;

use std::sync::Arc;
use std::time::Duration;

use self::ask::PendingAcquire;
use self::condition_waiter::WaitsFor;
pub(crate) use self::condition_waiter::{NOT_INSIDE, SuspendedHold, WaitOutcome};
pub(crate) use self::events::{
    Acquired, CannotPart, Effects, Entered, Exit, GaveUp, PendingRelease, Refusal, Renewal, Step,
};
use self::holds::Hold;
use self::line::Line;
use self::past::Past;
pub(crate) use super::asking::{AcquireMode, Answer, Asking, HolderId, Request, Terms, Ticket};
use super::grant::Grant;
use super::table::Table;
use crate::clock::Moment;
use crate::kind::{Reentrancy, Sharing};

/// How long after a hold should have expired we check: Redis's millisecond, and a little.
const SLACK: Duration = Duration::from_millis(2);
/// The first pause after a request that Redis did not accept.
const BACKOFF: Duration = Duration::from_millis(20);
/// The longest such pause.
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);

/// What is fixed about a lock of this kind, on this client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) sharing: Sharing,
    pub(crate) reentrancy: Reentrancy,
    /// How long a grant may be handed on.
    pub(crate) local_handoff: Duration,
    /// The longest pause between two looks at anything.
    pub(crate) heartbeat: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    ticket: Ticket,
    request: Request,
    /// Its one attempt was made.
    attempted: bool,
}

/// The lock state. See the module's documentation.
///
/// A process may hold a hundred thousand locks, most of them by one thread each: its tables begin with room
/// for one, and what only a wait needs goes with the wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockState {
    shape: Arc<Shape>,
    waiters: Line<Waiter>,
    holds: Table<Hold>,
    grants: Table<Grant>,
    ask: Option<Box<PendingAcquire>>,
    /// Leaves of this lock state that are in flight.
    leaving: u32,
    tickets: u64,
    /// Redis has not replied since.
    trouble: Option<Moment>,
    closed: bool,
    /// A thread of this process waits to write, and Redis does not know of it yet.
    writer_ahead: bool,
    waits_for: WaitsFor,
    /// What few locks have.
    past: Option<Box<Past>>,
}

impl LockState {
    pub(crate) fn new(shape: impl Into<Arc<Shape>>) -> Self {
        LockState {
            shape: shape.into(),
            waiters: Line::new(),
            holds: Table::new(),
            grants: Table::new(),
            ask: None,
            leaving: 0,
            tickets: 0,
            trouble: None,
            closed: false,
            writer_ahead: false,
            waits_for: WaitsFor::Lock,
            past: None,
        }
    }

    fn exclusive(&self) -> bool {
        self.shape.sharing == Sharing::Exclusive
    }

    /// The first of the waiting threads.
    pub(crate) fn head(&self) -> Option<Ticket> {
        self.waiters.front().map(|w| w.ticket)
    }

    fn grant(&self, owner: u64) -> Option<&Grant> {
        self.grants.get(owner)
    }

    fn grant_mut(&mut self, owner: u64) -> Option<&mut Grant> {
        self.grants.get_mut(owner)
    }

    /// The grant that keeps other threads of this process out.
    fn in_the_way(&self, now: Moment) -> Option<&Grant> {
        if !self.exclusive() {
            return None;
        }
        self.grants.iter().find(|t| t.loss(now).is_none() && !t.is_idle())
    }

    fn acquired(&self, hold: &Hold) -> Acquired {
        let Hold { ticket, owner, way, .. } = *hold;
        let (token, value) = self.grant(owner).map_or((0, 0), |t| (t.token(), t.value));
        Acquired { ticket, owner, token, value, way, count: hold.guards() }
    }

    /// A thread wants to acquire: it holds the lock already, takes a position, or is rejected at once.
    pub(crate) fn enter(&mut self, request: &Request, now: Moment) -> Result<Entered, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        let mine = match self.shape.reentrancy {
            Reentrancy::Independent => None,
            _ => self.holds.of_thread(request.thread).next(),
        };
        if let Some(hold) = mine {
            if let Some(loss) = self.grant(hold.owner).and_then(|t| t.loss(now)) {
                return Err(Refusal::LeaseLost(loss));
            }
            if self.shape.reentrancy == Reentrancy::Forbidden || request.holder == HolderId::Guard {
                return Err(Refusal::WouldDeadlock);
            }
            let (before, ticket) = (self.acquired(hold), hold.ticket);
            let acquired = Acquired { count: before.count + 1, ..before };
            if let Some(hold) = self.holds.get_mut(ticket) {
                hold.count = hold.count.saturating_add(1);
            }
            return Ok(Entered::Again(acquired));
        }
        self.tickets += 1;
        let ticket = self.tickets;
        // Ahead of the waiters here: they may join as well, as soon as they run.
        if let Some(acquired) = self.join(ticket, request, now) {
            let ahead = self.asks_ahead(acquired.owner, request, now);
            return Ok(Entered::Joined(acquired, ahead));
        }
        if let Some(acquired) = self.take_kept(ticket, request, now) {
            return Ok(Entered::Kept(acquired));
        }
        if request.from.is_some() {
            // Every waiter here is waiting for the very thread that asks.
            self.waiters.insert(0, Waiter { ticket, request: request.clone(), attempted: false });
            return Ok(Entered::Waits(ticket));
        }
        if request.once && (!self.waiters.is_empty() || self.in_the_way(now).is_some()) {
            return Err(Refusal::Busy);
        }
        Past::forget(&mut self.past, |past| {
            past.displaced.retain(|(terms, _)| self.waiters.iter().any(|w| w.request.terms == *terms));
        });
        let at = self.waiters.len() - self.passed_by(request);
        self.waiters.insert(at, Waiter { ticket, request: request.clone(), attempted: false });
        Ok(Entered::Waits(ticket))
    }

    /// How many of those that wait, from the last one on, are of a worse class. A grant that is there is its head's;
    /// a single attempt is not passed, nor is a thread that holds the lock in another mode.
    fn passed_by(&self, request: &Request) -> usize {
        let granted = usize::from(self.ask.as_ref().is_some_and(|ask| ask.grant.is_some()));
        let passes = |w: &&Waiter| {
            w.request.terms.class > request.terms.class && !w.request.once && w.request.from.is_none()
        };
        let behind = self.waiters.len().saturating_sub(granted);
        self.waiters.iter().rev().take(behind).take_while(passes).count()
    }

    /// What is asked for `request`, under a new owner id: where it was displaced, at the arrival that it had.
    fn new_ask(&mut self, owner: u64, request: &Request, now: Moment) -> Box<PendingAcquire> {
        let owner = owner | self.keeps(&request.terms, now);
        let mut ask = Box::new(PendingAcquire::new(owner, request, now));
        if let Some(arrival) = Past::displaced_arrival(&mut self.past, &request.terms) {
            ask.arrival = arrival;
        }
        ask
    }

    /// The thread with this hold has learned that it is in.
    pub(crate) fn came_in(&mut self, ticket: Ticket, now: Moment) {
        if let Some(hold) = self.holds.get_mut(ticket) {
            hold.since = Some(now);
        }
    }
}
