//! One lock in this process: its waiting threads, its holders, and what is asked of Redis for them.
//!
//! A plain state machine: each method is an event, and its return value says what must be done. It does no
//! I/O, reads no clock and starts no threads, so that it can be model-checked as it is. Its driver
//! ([`crate::engine::call`]) holds the entry's mutex during a step and never during I/O.
//!
//! # The protocol in this process
//!
//! - Waiting threads form one FIFO. Only its **head** talks to Redis, under one owner id: the **pending
//!   acquire**. That belongs to the lock state and not to the thread: a head that gives up leaves it, with
//!   whatever it was granted meanwhile, to the next thread, if that thread asks for the same.
//! - What Redis granted is a **grant**; threads take turns in it as **holds**. Its id is closed the moment
//!   its `leave` is sent, and is never used again.
//! - A released exclusive grant goes to the next local thread during its local hand-off period. After that,
//!   one `leave(next)` admits the other processes and puts this one at the end of their queue.
//!
//! # The safety rules kept here
//!
//! - *Numbers filter messages*: a grant whose number is no higher than the last number in a busy reply was
//!   overtaken before it was read. So was a grant whose own number was in a reply. Both are dropped.
//! - *Validity from before the send*: a lease in a reply counts from when its request was about to be sent. A
//!   lease in a message, which has no request of its own, counts from the last request that was answered
//!   busy, as the grant cannot be older than that.
//! - *A grant is never dropped*: `give_up` looks for it in the same step that leaves the queue.
//! - *A grant belongs to its request*: once Redis may know of a pending acquire, it is never sent on other
//!   terms. A head that asks for something else gives it back, with whatever was granted to it, and asks for a
//!   position of its own.

mod ask;
mod condition_waiter;
mod ending;
mod events;
mod from_redis;
mod holds;
mod kept;
mod past;
mod questions;
mod share;
mod suspending;
mod turn;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use self::ask::PendingAcquire;
use self::condition_waiter::WaitsFor;
pub(crate) use self::condition_waiter::{HasGivenUp, NOT_INSIDE, SuspendedHold};
pub(crate) use self::events::{
    Acquired, Effects, Entered, Exit, GaveUp, PendingRelease, Refusal, Renewal, Step,
};
use self::holds::OurHold;
use self::past::Past;
pub(crate) use super::asking::{
    AcquireMode, Answer, Asking, HolderId, MOST_PRIORITY, Request, Terms, Ticket,
};
use super::grant::Grant;
use super::table::Table;
use crate::clock::Moment;
use crate::kind::{Reentrancy, Sharing};

/// How long after a hold's expected expiry the head asks again: Redis's millisecond, and a margin.
const SLACK: Duration = Duration::from_millis(2);
/// The pause after the first request without a usable reply; each further failure adds as much.
const BACKOFF: Duration = Duration::from_millis(20);
/// The longest such pause.
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);

/// What is fixed about a lock of this kind, on this client.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) sharing: Sharing,
    pub(crate) reentrancy: Reentrancy,
    /// How long a grant may be handed on locally.
    pub(crate) local_handoff: Duration,
    /// The longest pause between two checks of anything.
    pub(crate) heartbeat: Duration,
    /// The longest lease that a waiter is granted by a message.
    pub(crate) first_lease: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct InLine {
    ticket: Ticket,
    request: Request,
    rank: (Option<u8>, Moment),
    /// Its single attempt has been made.
    attempted: bool,
}

/// The waiting threads, in the order of their turns, and the tickets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Line {
    /// The last ticket that was issued.
    last: Ticket,
    waiters: VecDeque<InLine>,
}

impl Line {
    fn ticket(&mut self) -> Ticket {
        self.last += 1;
        self.last
    }

    /// Mostly one thread waits at a time: a line starts with room for just one.
    fn insert(&mut self, at: usize, waiter: InLine) {
        if self.waiters.is_empty() {
            self.waiters.reserve_exact(1);
        }
        self.waiters.insert(at, waiter);
    }

    /// Those that wait now are not turned away any more, however many others there are.
    fn have_places(&mut self) {
        self.waiters.iter_mut().flat_map(|w| &mut w.request.most).for_each(|most| *most = usize::MAX);
    }

    fn take_first(&mut self) -> Option<InLine> {
        let first = self.waiters.pop_front();
        if self.waiters.is_empty() {
            self.waiters = VecDeque::new();
        }
        first
    }
}

/// The leaves of a lock state that are in flight.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Leaves {
    in_flight: u16,
    behind: Behind,
}

/// Whether the head's request may go behind the leave that is in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Behind {
    #[default]
    No,
    /// No thread waits for the reply: it may, on the same connection.
    MayGo,
    Goes,
}

/// Redis does not reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Trouble {
    since: Moment,
    /// How many requests in a row had no usable reply.
    failures: u32,
}

/// The state of one lock. See the module's documentation.
///
/// A process may hold a hundred thousand locks, most of them by one thread each: its lists start with room for
/// one item, and what only a wait needs is freed with the wait.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockState {
    shape: Arc<Shape>,
    line: Line,
    holds: Table<OurHold>,
    grants: Table<Grant>,
    ask: Option<Box<PendingAcquire>>,
    leaves: Leaves,
    trouble: Option<Trouble>,
    closed: bool,
    waits_for: WaitsFor,
    past: Past,
}

impl LockState {
    pub(crate) fn new(shape: impl Into<Arc<Shape>>) -> Self {
        LockState {
            shape: shape.into(),
            line: Line::default(),
            holds: Table::new(),
            grants: Table::new(),
            ask: None,
            leaves: Leaves::default(),
            trouble: None,
            closed: false,
            waits_for: WaitsFor::Lock,
            past: Past::default(),
        }
    }

    fn exclusive(&self) -> bool {
        self.shape.sharing == Sharing::Exclusive
    }

    /// The first of the waiting threads.
    pub(crate) fn head(&self) -> Option<Ticket> {
        self.line.waiters.front().map(|w| w.ticket)
    }

    /// The head must look at the state again.
    fn wakes_head(&self) -> Effects {
        Effects { wake: self.head(), ..Effects::default() }
    }

    pub(crate) fn grant(&self, owner: u64) -> Option<&Grant> {
        self.grants.get(owner)
    }

    fn grant_mut(&mut self, owner: u64) -> Option<&mut Grant> {
        self.grants.get_mut(owner)
    }

    /// Returns the pending acquire, if it has this owner id.
    fn ask_of(&mut self, owner: u64) -> Option<&mut PendingAcquire> {
        self.ask.as_deref_mut().filter(|ask| ask.owner == owner)
    }

    /// Returns the valid grant that a thread here holds exclusively, and for which other threads have to
    /// wait.
    fn in_the_way(&self, now: Moment) -> Option<&Grant> {
        if !self.exclusive() {
            return None;
        }
        self.grants.iter().find(|t| t.loss(now).is_none() && !t.is_idle())
    }

    /// A thread wants to acquire: it re-enters or joins a hold, takes a position, or is rejected at once.
    pub(crate) fn enter(&mut self, request: &Request, now: Moment) -> Result<Entered, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        if let Some(again) = self.again(request.holder, request.thread, now) {
            return again.map(Entered::Again);
        }
        let ticket = self.line.ticket();
        // This passes the waiters here, which may join as well as soon as they run.
        if let Some(acquired) = self.join(ticket, request, now) {
            let ahead = self.asks_ahead(acquired.owner, request, now);
            return Ok(Entered::Joined(acquired, ahead));
        }
        if let Some(acquired) = self.take_kept(ticket, request, now) {
            return Ok(Entered::Joined(acquired, None));
        }
        let rank = request.terms.rank(now);
        let waiter = InLine { ticket, request: request.clone(), rank, attempted: false };
        if request.from.is_some() {
            // Every waiter here waits for the very thread that is asking.
            self.line.insert(0, waiter);
            return Ok(Entered::Waits(ticket));
        }
        let held = self.in_the_way(now).is_some();
        let waits = held || !self.line.waiters.is_empty();
        if request.once && waits {
            return Ok(Entered::Busy);
        }
        let queued = self.ask.as_ref().filter(|ask| ask.is_queued());
        let others = queued.map_or(0, |ask| ask.others()) + self.line.waiters.len();
        if waits && request.most.is_some_and(|most| others >= most) {
            return Err(Refusal::QueueFull(others));
        }
        let has_place = held || queued.is_some();
        self.past.displaced.retain(|(terms, _)| self.line.waiters.iter().any(|w| w.request.terms == *terms));
        let at = self.line.waiters.len() - self.passed_by(&waiter);
        self.line.insert(at, waiter);
        if has_place {
            self.line.have_places();
        }
        Ok(Entered::Waits(ticket))
    }

    /// The thread `id` re-enters its hold, if it has one. (Inlined, it costs the others' calls nothing.)
    #[inline(always)]
    pub(crate) fn again(&mut self, by: HolderId, id: u64, now: Moment) -> Option<Result<Acquired, Refusal>> {
        let mine = self.holds.of_thread(id).next();
        let hold = mine.filter(|_| self.shape.reentrancy != Reentrancy::Independent)?;
        let (ticket, grant) = (hold.ticket, self.grants.get(hold.owner));
        if let Some((grant, loss)) = grant.and_then(|grant| Some((grant, grant.loss(now)?))) {
            return Some(Err(Refusal::LeaseLost(loss, grant.reason().map(Box::from))));
        }
        if self.shape.reentrancy == Reentrancy::Forbidden || by == HolderId::Guard {
            return Some(Err(Refusal::WouldDeadlock));
        }
        let acquired = hold.acquired(grant);
        let hold = self.holds.get_mut(ticket)?;
        hold.count = hold.count.saturating_add(1);
        Some(Ok(Acquired { count: acquired.count + 1, ..acquired }))
    }

    /// Returns how many waiters, counted from the back, rank after `newcomer`, which goes ahead of them. It does not
    /// pass a head that has been granted the lock, a single attempt, or a thread that holds the lock in another mode.
    fn passed_by(&self, newcomer: &InLine) -> usize {
        let granted = usize::from(self.ask.as_ref().is_some_and(|ask| ask.is_granted()));
        let passes = |w: &&InLine| w.rank > newcomer.rank && !w.request.once && w.request.from.is_none();
        let behind = self.line.waiters.len().saturating_sub(granted);
        self.line.waiters.iter().rev().take(behind).take_while(passes).count()
    }

    /// Begins a pending acquire for `request` under a new owner id; there is no other. If one on the same terms was
    /// displaced, the new one has its arrival.
    fn new_ask(&mut self, owner: u64, request: &Request, now: Moment) -> &mut PendingAcquire {
        let owner = owner | self.keeps(&request.terms, now);
        let mut ask = Box::new(PendingAcquire::new(owner, request, now));
        if let Some(arrival) = self.past.displaced_arrival(&request.terms) {
            ask.arrival = arrival;
        }
        self.ask.insert(ask)
    }

    /// The thread with this hold has learned that it has the lock.
    pub(crate) fn came_in(&mut self, ticket: Ticket, now: Moment) {
        if let Some(hold) = self.holds.get_mut(ticket) {
            hold.since = Some(now);
        }
    }
}

#[cfg(test)]
#[path = "../../../verify/unit/engine/state/lock_state.rs"]
mod tests;
