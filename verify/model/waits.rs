//! A thread's wait for a condition, and its signals: `engine/call/condition.rs` in small. While it waits, the
//! thread uses a lock state of its own.

use super::World;
use super::lock_states::{WRITES, own};
use super::state::{State, Thread};
use crate::engine::small_redis::Op;
use crate::engine::state::lock_state::{Entered, HasGivenUp, LockState, SuspendedHold, Ticket};
use crate::observe::LossReason;

/// A thread's wait for a condition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Wait {
    pub(super) thread: u8,
    pub(super) condition: u8,
    pub(super) lock_state: LockState,
    /// The hold that it gave up.
    suspended: SuspendedHold,
    hold: Ticket,
    /// Its timeout has passed: it now waits for the lock.
    pub(super) over: bool,
}

impl State {
    /// The thread gives up its hold in order to wait.
    pub(super) fn waits(&mut self, world: &World, p: u8, t: u8) {
        let now = self.now();
        let process = &mut self.processes[p as usize];
        let Thread::Holding(hold) = process.callers[t as usize].thread else { return };
        process.callers[t as usize].done += 1;
        let (suspended, then) = match process.lock_states[WRITES].set_aside(hold, now) {
            Ok(suspended) => suspended,
            Err(lost) => {
                self.carry_out(p, WRITES, lost.1);
                return;
            }
        };
        let mut lock_state = LockState::of_condition_waiter(world.shape());
        lock_state.gives_up(&suspended.leaving(now));
        let Ok(Entered::Waits(ticket)) = lock_state.enter(&suspended.request(t.into()), now) else {
            panic!("nobody else is at the lock state of a wait")
        };
        let condition = world.condition(t);
        process.lock_states.begin(Wait { thread: t, condition, lock_state, suspended, hold, over: false });
        let caller = &mut process.callers[t as usize];
        (caller.lock_state, caller.thread) = (own(t), Thread::Awake(ticket));
        self.carry_out(p, WRITES, then);
        self.turn(world, p, t, false, false);
    }

    /// A wait ends, either with the hold of this ticket in its lock state or without one.
    pub(super) fn returns(&mut self, p: u8, t: u8, ticket: Option<Ticket>) {
        let now = self.now();
        let process = &mut self.processes[p as usize];
        let Some(mut wait) = process.lock_states.end(t) else { return };
        let granted = ticket.and_then(|ticket| wait.lock_state.hand_over(ticket));
        let (given_up, unsignalled) = wait.lock_state.wait_outcome();
        let loss = (given_up != HasGivenUp::No && granted.is_none()).then_some(LossReason::Revoked);
        let leaving = wait.suspended.leaving(now);
        let owner = granted.as_ref().map(|grant| grant.owner);
        let token = granted.as_ref().filter(|t| t.loss(now).is_none()).map(|t| t.token());
        let tombstone = granted.is_some() && leaving.maybe_in_flight;
        let lock = &mut process.lock_states[WRITES];
        let then = lock.put_back(wait.suspended, granted, loss, now);
        let lost_is_told = lock.grant_of(wait.hold).is_none_or(|t| t.lost().is_some());
        let valid = lock.holds_valid(wait.hold, now);
        let caller = &mut process.callers[t as usize];
        (caller.lock_state, caller.thread) = (WRITES, Thread::Holding(wait.hold));
        if given_up != HasGivenUp::Yes && (loss.is_some() || tombstone) {
            self.background(p, WRITES, &leaving);
        }
        self.carry_out(p, WRITES, then);
        // A wait that never gave the lock up reports that it has it, unless there is an error to report.
        let says_so = owner.is_some() || given_up == HasGivenUp::No && wait.lock_state.trouble().is_none();
        self.empty_handed |= says_so && !lost_is_told && !valid;
        if let Some(owner) = owner {
            self.signals.returns(owner, unsignalled);
        }
        if let Some(token) = token {
            self.rises(token, false);
        }
    }

    /// The thread signals one or all waiters for its condition.
    pub(super) fn signals(&mut self, world: &World, p: u8, t: u8, all: bool) {
        let now = self.now();
        let process = &mut self.processes[p as usize];
        let Thread::Holding(ticket) = process.callers[t as usize].thread else { return };
        process.callers[t as usize].done += 1;
        let grant = process.lock_states[WRITES].grant_of(ticket).filter(|t| t.loss(now).is_none());
        if let Some(owner) = grant.map(|grant| grant.owner) {
            self.send(p, t, Op::Signal { owner, condition: world.condition(t), all });
            self.set(p, t, Thread::Signalling(ticket, owner));
        }
    }
}
