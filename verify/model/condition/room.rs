//! A thread's wait for a condition, and its signals: what `engine/condition.rs` does, in small.

use super::World;
use super::state::{Request, State, Stay, Thread};
use crate::engine::small_redis::{PendingAcquire, RoomOp};
use crate::engine::state::lock_state::{Entered, LockState, Ticket};
use crate::observe::LossReason;

impl State {
    /// The thread gives its hold up, to wait.
    pub(super) fn waits(&mut self, world: &World, p: u8, t: u8) {
        let now = self.now();
        let process = self.process(p);
        let Thread::Holding(hold) = process.seats[t as usize].thread else { return };
        process.seats[t as usize].done += 1;
        let (suspended, then) = match process.lock_state.set_aside(hold, now) {
            Ok(suspended) => suspended,
            Err(lost) => {
                self.carry_out(world, p, None, lost.1);
                return;
            }
        };
        let mut lock_state = LockState::of_room(world.shape());
        lock_state.gives_up(&suspended.leaving(now));
        let Ok(Entered::Waits(ticket)) = lock_state.enter(suspended.request(t.into()), now) else {
            panic!("nobody else is at the gate of a wait")
        };
        let seat = &mut process.seats[t as usize];
        seat.stay = Some(Box::new(Stay { lock_state, suspended, hold, over: false }));
        seat.thread = Thread::Awake(ticket);
        self.carry_out(world, p, None, then);
        self.turn(world, p, t, false, false);
    }

    pub(super) fn awaits(&self, world: &World, t: u8, ask: PendingAcquire) -> Request {
        Request::Room(RoomOp::Await { ask, condition: world.condition(t) })
    }

    /// A wait ends: with the hold of this ticket in its gate, or without.
    pub(super) fn returns(&mut self, world: &World, p: u8, t: u8, ticket: Option<Ticket>) {
        let now = self.now();
        let process = self.process(p);
        let Some(mut wait) = process.seats[t as usize].stay.take() else { return };
        let granted = ticket.and_then(|ticket| wait.lock_state.hand_over(ticket));
        let stay = wait.lock_state.stay();
        let loss = (!stay.stayed && granted.is_none()).then_some(LossReason::Revoked);
        let leaving = wait.suspended.leaving(now);
        let owner = granted.as_ref().map(|grant| grant.owner);
        let token = granted.as_ref().filter(|t| t.loss(now).is_none()).map(|t| t.token());
        let bars = granted.is_some() && leaving.unsettled;
        let then = process.lock_state.put_back(wait.suspended, granted, loss, now);
        process.seats[t as usize].thread = Thread::Holding(wait.hold);
        let grant = process.lock_state.tenure_of(wait.hold);
        let lost_is_told = grant.is_none_or(|t| t.lost.is_some());
        let valid = process.lock_state.holds_valid(wait.hold, now);
        if !stay.entered && (loss.is_some() || bars) {
            self.background(world, p, None, &leaving);
        }
        self.carry_out(world, p, None, then);
        // What never left says so, unless there is an error to be told.
        let says_so = owner.is_some() || stay.stayed && wait.lock_state.trouble().is_none();
        self.empty_handed |= says_so && !lost_is_told && !valid;
        if let Some(owner) = owner {
            self.signals.returns(owner, stay.unsignalled);
        }
        if let Some(token) = token {
            self.rises(token, false);
        }
    }

    /// The thread signals one or all of the waiters for its condition.
    pub(super) fn signals(&mut self, world: &World, p: u8, t: u8, all: bool) {
        let now = self.now();
        let process = self.process(p);
        let Thread::Holding(ticket) = process.seats[t as usize].thread else { return };
        process.seats[t as usize].done += 1;
        let grant = process.lock_state.tenure_of(ticket).filter(|t| t.loss(now).is_none());
        if let Some(owner) = grant.map(|grant| grant.owner) {
            self.send(p, t, Request::Room(RoomOp::Signal { owner, condition: world.condition(t), all }));
            self.set(p, t, Thread::Signalling(ticket, owner));
        }
    }
}
