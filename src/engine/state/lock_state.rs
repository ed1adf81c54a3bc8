//! One lock in this process: who waits, who holds, and what is asked of Redis for them.
//!
//! A plain state machine: each method is an event, its return value says what is to be done. No
//! I/O, no clock of its own, no threads, so that it can be model-checked as it is. Whoever drives
//! it ([`crate::engine::acquire`] and its fellows) holds the cell's mutex during a step and never during
//! I/O.
//!
//! # The protocol in this process
//!
//! - Waiting threads form one FIFO. Only its **head** talks to Redis, under one owner id, the
//!   **ask**, which belongs to the gate and not to the thread: a head that gives up leaves it,
//!   with whatever it was granted meanwhile, to the next, if that one asks for the same.
//! - What Redis granted is a **tenure**; threads take turns in it as **holds**. Its id is closed
//!   the moment its `leave` is sent, and is never used again.
//! - A released exclusive tenure goes to the next local thread while its slice lasts; after that
//!   one `leave(next)` lets the other processes in and puts this one at the end of their queue.
//!
//! # The rules of safety kept here
//!
//! - *Numbers filter messages*: a grant numbered no higher than the last number that a busy answer
//!   told was overtaken while it lay unread. So was one whose own number an answer told. It is dropped.
//! - *Validity from before the send*: an answer counts from when its request was about to be sent;
//!   a message, which has no request of its own, from the last ask that was answered busy, as the
//!   grant cannot be older than that.
//! - *A grant is never dropped*: `give_up` looks for it in the same step that leaves the queue.
//! - *A grant is its request's*: an ask is never sent on other terms than its first ones. A head that asks for
//!   something else gives it back, with whatever was granted to it, and asks for a place of its own.

mod ask;
mod condition_waiter;
mod events;
mod heard;
mod holds;
mod questions;
mod receipt;
mod share;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use self::ask::PendingAcquire;
use self::condition_waiter::Room;
pub(crate) use self::condition_waiter::{NOT_INSIDE, Stay, SuspendedHold};
pub(crate) use self::events::{
    Acquired, Effects, Entered, Exit, GaveUp, PendingRelease, Refusal, Renewal, Step, Ticket,
};
pub(crate) use self::receipt::Stays;
pub(crate) use super::asking::{AcquireMode, Answer, Asking, HolderId, Request, Terms};
use super::grant::{Door, Grant};
use super::table::Table;
use crate::clock::Moment;
use crate::kind::{Reentrancy, Sharing};
use crate::observe::{AcquiredVia, LossReason};

/// How long after a hold should have lapsed we look: Redis's millisecond, and a little.
const SLACK: Duration = Duration::from_millis(2);
/// The first pause after a request that Redis did not take.
const BACKOFF: Duration = Duration::from_millis(20);
/// The longest such pause.
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);

/// What a lock of this kind, on this client, is like.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Shape {
    pub(crate) sharing: Sharing,
    pub(crate) reentrancy: Reentrancy,
    /// How long a tenure may be handed on.
    pub(crate) local_handoff: Duration,
    /// The longest pause between two looks at anything.
    pub(crate) beat: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Waiter {
    ticket: Ticket,
    request: Request,
    /// Its one attempt was made.
    attempted: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Hold {
    ticket: Ticket,
    holder: HolderId,
    owner: u64,
    count: usize,
    token: u64,
    way: AcquiredVia,
    /// When its thread knew that it is in.
    since: Option<Moment>,
}

/// The gate. See the module's documentation.
///
/// A process may hold a hundred thousand locks, most of them by one thread each: its tables begin with
/// room for one, and what only a wait needs goes with it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LockState {
    shape: Arc<Shape>,
    waiters: VecDeque<Waiter>,
    holds: Table<Hold>,
    grants: Table<Grant>,
    ask: Option<Box<PendingAcquire>>,
    /// Leaves of this gate that are on their way.
    leaving: usize,
    tickets: u64,
    /// Redis has not answered since.
    trouble: Option<Moment>,
    closed: bool,
    /// A thread of this process waits for the lock's other mode, and Redis does not know of it yet.
    behind: bool,
    /// Of one thread's wait for a condition: how far that is.
    room: Option<Box<Room>>,
}

impl LockState {
    pub(crate) fn new(shape: impl Into<Arc<Shape>>) -> Self {
        LockState {
            shape: shape.into(),
            waiters: VecDeque::new(),
            holds: Table::new(),
            grants: Table::new(),
            ask: None,
            leaving: 0,
            tickets: 0,
            trouble: None,
            closed: false,
            behind: false,
            room: None,
        }
    }

    fn exclusive(&self) -> bool {
        self.shape.sharing == Sharing::Exclusive
    }

    fn head(&self) -> Option<Ticket> {
        self.waiters.front().map(|w| w.ticket)
    }

    fn grant(&self, owner: u64) -> Option<&Grant> {
        self.grants.get(owner)
    }

    fn grant_mut(&mut self, owner: u64) -> Option<&mut Grant> {
        self.grants.get_mut(owner)
    }

    /// The tenure that keeps other threads of this process out.
    fn in_the_way(&self, now: Moment) -> Option<&Grant> {
        if !self.exclusive() {
            return None;
        }
        self.grants.iter().find(|t| t.loss(now).is_none())
    }

    fn acquired(&self, hold: &Hold, outermost: bool) -> Acquired {
        let Hold { ticket, owner, token, way, .. } = *hold;
        let value = self.grant(owner).map_or(0, |t| t.value);
        Acquired { ticket, owner, token, value, way, outermost }
    }

    // ---- coming in -------------------------------------------------------------------------

    /// A thread wants in: it holds already, takes its place, or is refused at once.
    pub(crate) fn enter(&mut self, request: Request, now: Moment) -> Result<Entered, Refusal> {
        if self.closed {
            return Err(Refusal::Closed);
        }
        let mine = match self.shape.reentrancy {
            Reentrancy::Independent => None,
            _ => self.holds.of_thread(request.thread).next().map(|h| h.ticket),
        };
        if let Some(hold) = mine.and_then(|ticket| self.holds.get(ticket)) {
            if let Some(loss) = self.grant(hold.owner).and_then(|t| t.loss(now)) {
                return Err(Refusal::LeaseLost(loss));
            }
            if self.shape.reentrancy == Reentrancy::Forbidden || request.holder == HolderId::Guard {
                return Err(Refusal::WouldDeadlock);
            }
            let acquired = self.acquired(hold, false);
            if let Some(hold) = self.holds.get_mut(acquired.ticket) {
                hold.count += 1;
            }
            return Ok(Entered::Again(acquired));
        }
        self.tickets += 1;
        let ticket = self.tickets;
        // Passing those who wait here: they may join as well, as soon as they run.
        if let Some(acquired) = self.join(ticket, &request, now) {
            let ahead = self.asks_ahead(acquired.owner, &request, now);
            return Ok(Entered::Joined(acquired, ahead));
        }
        if request.from.is_some() {
            // Whoever waits here waits for the very thread that asks.
            self.waiters.push_front(Waiter { ticket, request, attempted: false });
            return Ok(Entered::Waits(ticket));
        }
        if request.once && (!self.waiters.is_empty() || self.in_the_way(now).is_some()) {
            return Err(Refusal::Busy);
        }
        self.waiters.push_back(Waiter { ticket, request, attempted: false });
        Ok(Entered::Waits(ticket))
    }

    /// What the waiting thread is to do. `inbox`: grants can be heard; `over`: its time is up, so
    /// that only what is already there counts; `fresh` makes a new owner number.
    pub(crate) fn turn(
        &mut self,
        ticket: Ticket,
        now: Moment,
        inbox: bool,
        over: bool,
        fresh: impl FnOnce() -> u64,
    ) -> Step {
        if let Some(hold) = self.holds.get(ticket) {
            return Step::In(self.acquired(hold, true), None);
        }
        if self.closed {
            return Step::Closed;
        }
        let nap = now.after(self.shape.beat);
        let wait = |until: Moment| if over { Step::Over } else { Step::Park(until.min(nap)) };
        let Some(Waiter { request, attempted, .. }) =
            self.waiters.front().filter(|w| w.ticket == ticket).cloned()
        else {
            return wait(nap);
        };
        if let Some(until) = self.in_the_way(now).map(|t| t.valid_until) {
            // A hold that came back from a wait for a condition may find a place in the queue, which is
            // to be kept meanwhile.
            match self.ask.as_ref().filter(|a| a.queued && a.grant.is_none() && !a.in_flight && !over) {
                Some(ask) if ask.again_at > now => return wait(until.min(ask.again_at)),
                Some(_) => {}
                None => return if request.once { Step::Busy } else { wait(until) },
            }
        }
        if self.exclusive() && self.leaving > 0 {
            return wait(nap);
        }
        if self.ask.is_none()
            && let Some(acquired) = self.join(ticket, &request, now)
        {
            self.waiters.pop_front();
            return Step::In(acquired, self.head());
        }
        if self.ask.is_none() && self.stands_behind(&request) {
            return if request.once { Step::Busy } else { wait(nap) };
        }
        if self.ask.as_ref().is_some_and(|a| a.in_flight) {
            return wait(nap);
        }
        if let Some(ask) = self.ask.as_mut().filter(|ask| !ask.serves(&request)) {
            if over {
                return Step::Over;
            }
            if ask.is_known() {
                let leaving = ask.leaving(now);
                self.ask = None;
                self.leaving += 1;
                return Step::Leave(leaving);
            }
            ask.turns_to(&request, now);
        }
        if let Some(turn) = self.use_grant(ticket, &request, now, over) {
            return turn;
        }
        // Also where the time is up meanwhile: it says more.
        if let Some(why) = self.ask.as_ref().and_then(|ask| ask.refused.clone()) {
            return Step::Refused(why);
        }
        if over {
            return Step::Over;
        }
        let threads = self.waiters.len();
        if self.ask.is_none()
            && let Some(share) = self.share_to_extend(&request, now)
        {
            if share.is_asked() {
                return wait(nap);
            }
            return Step::Ask(share.asks(&request, threads, now));
        }
        let ask = self.ask.get_or_insert_with(|| Box::new(PendingAcquire::new(fresh(), &request, now)));
        if attempted {
            return Step::Busy;
        }
        if ask.again_at > now && !request.once {
            return Step::Park(ask.again_at.min(nap));
        }
        let how = if let Some(room) = &mut self.room {
            room.how(ask.queued)
        } else if ask.queued {
            AcquireMode::Keep
        } else if request.once || !(inbox || ask.asked) {
            // What may be answered at once needs no inbox.
            AcquireMode::Try
        } else {
            AcquireMode::Wait
        };
        let asking = ask.send(how, threads, now);
        if let Some(head) = self.waiters.front_mut() {
            head.attempted = request.once;
        }
        Step::Ask(asking)
    }

    /// What a head does with a grant that has come: use it, renew it first, or give it back.
    fn use_grant(&mut self, ticket: Ticket, request: &Request, now: Moment, over: bool) -> Option<Step> {
        let joined = self.joined();
        let ask = self.ask.as_mut()?;
        let got = ask.grant.as_mut()?;
        let lease = request.terms.lease;
        let left = got.valid_until.since(now);
        let granted = if got.told { got.lease.min(lease) } else { lease };
        let usable = left > granted / 2 || (got.confirmed && !left.is_zero());
        if !usable {
            if over {
                return Some(Step::Over);
            }
            if left.is_zero() {
                // Perhaps it is ours still: the same id asks, and a hold is answered as one.
                ask.grant = None;
                ask.queued = false;
                // One attempt does not ask again: whoever gives this up has to leave.
                ask.unsettled = true;
                ask.again_at = now;
                return None;
            }
            ask.in_flight = true;
            ask.sent = now;
            return Some(Step::Confirm(ask.owner, lease));
        }
        let mut grant = Grant {
            value: got.value,
            valid_until: got.valid_until,
            since: now,
            unsettled: ask.unsettled,
            shut: ask.shut,
            // Beside a hold of its own thread in another mode nobody else may read.
            door: (joined && request.from.is_none())
                .then(|| Box::new(Door { open_since: Some(got.said), asked: None })),
            ..Grant::new(ask.owner, got.number, request.terms.clone())
        };
        grant.is_worth(ask.least);
        if got.lease < lease && (got.told || request.terms.fixed) {
            grant.begins_for(got.lease, got.since);
        }
        let way = got.way;
        self.ask = None;
        self.waiters.pop_front();
        if self.waiters.is_empty() {
            self.waiters = VecDeque::new();
        }
        if self.shape.sharing == Sharing::PassThrough {
            let Grant { owner, value, .. } = grant;
            let acquired = Acquired { ticket, owner, token: grant.token(), value, way, outermost: true };
            return Some(Step::In(acquired, self.head()));
        }
        let acquired = self.holds.take(&mut grant, ticket, request.holder, way);
        self.grants.insert(grant);
        // Others may get in beside it: the next head asks.
        let next = if self.exclusive() { None } else { self.head() };
        Some(Step::In(acquired, next))
    }

    /// The thread with this hold knows that it is in.
    pub(crate) fn came_in(&mut self, ticket: Ticket, now: Moment) {
        if let Some(hold) = self.holds.get_mut(ticket) {
            hold.since = Some(now);
        }
    }

    // ---- going out -------------------------------------------------------------------------

    /// A guard of the hold `ticket` ends. `inbox`: the next head may be put into the queue.
    pub(crate) fn exit(
        &mut self,
        ticket: Ticket,
        now: Moment,
        inbox: bool,
        fresh: impl FnOnce() -> u64,
    ) -> Exit {
        let Some(hold) = self.holds.get_mut(ticket) else { return Exit::Held };
        hold.count -= 1;
        let Hold { owner, since, count, .. } = *hold;
        let then = self.expire(owner, now);
        if count > 0 {
            let loss = self.grant(owner).and_then(|grant| grant.lost);
            return loss.map_or(Exit::Held, |loss| Exit::Lost(loss, then));
        }
        self.holds.remove(ticket);
        let next = self.waiters.front().map(|w| w.request.clone()).filter(|_| self.exclusive());
        let Some(grant) = self.grants.get_mut(owner) else { return Exit::Held };
        grant.holds -= 1;
        let last = grant.holds == 0;
        if let Some(loss) = grant.lost {
            if last {
                self.grants.remove(owner);
            }
            return Exit::Lost(loss, then);
        }
        if !last {
            return Exit::Shared;
        }
        if let Some(next) = &next
            // Who has a place in the queue waits for its turn there.
            && self.ask.is_none()
            && grant.may_be_handed_to(&next.terms, self.shape.local_handoff, now)
        {
            grant.hand_overs += 1;
            let waiter = self.waiters.pop_front();
            let ticket = waiter.map_or(0, |w| w.ticket);
            self.holds.take(grant, ticket, next.holder, AcquiredVia::HandedOver);
            return Exit::HandedOn(ticket);
        }
        let Some(grant) = self.grants.remove(owner) else { return Exit::Held };
        self.leaving += 1;
        let threads = self.waiters.len();
        let leaving = PendingRelease { stays_until: grant.stays_until(since), ..leaving_of(&grant, now) };
        // With one that stays nothing is asked: it is no leave.
        let inbox = inbox && leaving.stays_until <= now;
        let asking = next.filter(|n| inbox && !n.once && self.ask.is_none()).map(|next| {
            let mut ask = Box::new(PendingAcquire::new(fresh(), &next, now));
            let asking = ask.send(AcquireMode::Wait, threads, now);
            self.ask = Some(ask);
            asking
        });
        Exit::Leave(leaving, asking)
    }

    /// A leave was answered, or is somebody else's business now.
    pub(crate) fn left(&mut self) -> Effects {
        self.leaving = self.leaving.saturating_sub(1);
        Effects { wake: self.head(), ..Effects::default() }
    }

    /// A thread stops waiting. The lead goes to the next one, with the ask and all it was granted.
    pub(crate) fn give_up(&mut self, ticket: Ticket, now: Moment) -> GaveUp {
        if let Some(hold) = self.holds.get(ticket) {
            return GaveUp::In(self.acquired(hold, true));
        }
        let was_head = self.head() == Some(ticket);
        self.waiters.retain(|w| w.ticket != ticket);
        if !was_head {
            return GaveUp::Out(Effects::default());
        }
        if self.waiters.is_empty() {
            self.trouble = None;
            let leave = self.abandon(now);
            return GaveUp::Out(Effects { leave, ..Effects::default() });
        }
        // What was refused was refused to this head; the next one asks under an id of its own.
        let refused = self.ask.take_if(|a| a.refused.is_some() && !a.in_flight);
        if let Some(leave) = refused.filter(|a| a.unsettled).map(|a| a.leaving(now)) {
            return GaveUp::Out(Effects { wake: self.head(), background: Some(leave), ..Effects::default() });
        }
        if let Some(ask) = &mut self.ask {
            ask.again_at = ask.again_at.min(now);
        }
        GaveUp::Out(Effects { wake: self.head(), ..Effects::default() })
    }

    /// Nobody is left to want the ask: it leaves, unless Redis cannot know of it. One that is on
    /// its way stays until it is answered: then whoever sent it comes here again.
    fn abandon(&mut self, now: Moment) -> Option<PendingRelease> {
        if self.ask.as_ref().is_some_and(|a| a.in_flight) {
            return None;
        }
        let ask = self.ask.take()?;
        if !ask.is_there() {
            return None;
        }
        self.leaving += 1;
        Some(ask.leaving(now))
    }

    /// The client closes: nobody comes in any more, all holds are lost. Returns what is to leave
    /// Redis.
    pub(crate) fn close(&mut self, now: Moment) -> Vec<PendingRelease> {
        self.closed = true;
        let mut leave = Vec::new();
        for grant in self.grants.iter_mut() {
            if grant.lost.is_none() {
                let since = self.holds.of_owner(grant.owner).next().and_then(|h| h.since);
                leave
                    .push(PendingRelease { stays_until: grant.stays_until(since), ..leaving_of(grant, now) });
                grant.lost = Some(LossReason::Closed);
            }
        }
        if let Some(ask) = self.ask.take()
            && (ask.in_flight || ask.is_there())
        {
            leave.push(PendingRelease { unsettled: true, ..ask.leaving(now) });
        }
        leave
    }
}

fn leaving_of(grant: &Grant, now: Moment) -> PendingRelease {
    PendingRelease {
        owner: grant.owner,
        unsettled: grant.unsettled,
        valid_until: grant.valid_until,
        lease: grant.renewal(now),
        stays_until: Moment::default(),
    }
}
