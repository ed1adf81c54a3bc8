//! What a thread does with a lock of two modes, and what its lock states must then consider of each other:
//! [`crate::engine::call::modes`] and `ReadWriteLock::downgrade`, in small.

use std::time::Duration;

use super::World;
use super::actions::Step;
use super::lock_states::{LockStates, READS, WRITES, is_own};
use super::state::{State, Thread, process_of};
use crate::clock::Moment;
use crate::engine::small_redis::{Message, Says};
use crate::engine::state::grant::KEEPS;
use crate::engine::state::lock_state::{Acquired, Exit, PendingRelease, Request};
use crate::observe::{AcquiredVia, LossReason};

/// What a thread does with a read/write lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Reads,
    /// Reads in order of arrival.
    ReadsInOrder,
    Writes,
    /// Reads as well while it writes, and releases either first.
    ReadsToo,
    /// Exchanges its write lock for a read lock.
    Downgrades,
    /// Does nothing.
    Away,
}

/// What a writing thread does besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum OtherMode {
    Nothing,
    /// It has yet to do what its role says.
    Yet,
    /// It is in the middle of a downgrade.
    Instead,
    /// The downgrade failed: the write lock ends.
    Failed,
}

impl Role {
    pub(super) fn begins_to_read(self) -> bool {
        matches!(self, Role::Reads | Role::ReadsInOrder)
    }

    pub(super) fn does_more(self) -> bool {
        matches!(self, Role::ReadsToo | Role::Downgrades)
    }
}

/// Adds to a request for one lock state what it must consider of the other. Returns what was kept for the
/// next writer and must make way.
pub(super) fn mind(
    lock_states: &mut LockStates,
    g: u8,
    request: &mut Request,
    now: Moment,
) -> Option<PendingRelease> {
    if g == READS {
        request.from = lock_states[WRITES].held_by(request.thread, now);
        match request.from {
            Some(owner) if request.instead => lock_states[WRITES].exchange(owner),
            Some(owner) => lock_states[WRITES].close_to_others(owner),
            None => return lock_states[WRITES].makes_way(now).leave,
        }
    }
    None
}

impl State {
    /// Keeps readers behind the writers of their process that wait and that Redis does not know of yet.
    pub(super) fn keep_readers_behind(&mut self) {
        let now = self.now();
        for p in 0..self.processes.len() {
            let lock_states = &mut self.processes[p].lock_states;
            if lock_states.second.is_none() {
                continue;
            }
            let (ahead, trouble) = (lock_states[WRITES].waits_unknown(now), lock_states[WRITES].trouble());
            if let Some(ticket) = lock_states[READS].stand_behind(ahead, trouble) {
                self.wake(p as u8, READS, ticket);
            }
        }
    }

    /// Whether a thread of this process waits to write. Once the first of them was granted the lock, the
    /// others wait only for that thread: if it sleeps through its whole lease, Redis may admit readers, and
    /// it waits again from its next turn on.
    fn waits_to_write(&self, p: u8) -> bool {
        if self.processes[p as usize].lock_states[WRITES].is_granted() {
            return false;
        }
        let waits = |thread: &Thread| {
            matches!(
                thread,
                Thread::Awake(_) | Thread::Parked(..) | Thread::Asking { .. } | Thread::Confirming(..)
            )
        };
        let callers = &self.processes[p as usize].callers;
        callers.iter().any(|caller| caller.lock_state == WRITES && !caller.once && waits(&caller.thread))
    }
}

impl World {
    pub(super) fn steps_of_holder(&self, state: &State, p: u8, t: u8, steps: &mut Vec<Step>) {
        let caller = &state.processes[p as usize].callers[t as usize];
        match caller.other_mode {
            OtherMode::Instead => return steps.push(Step::Replace(p, t)),
            OtherMode::Yet if self.role(p, t) == Some(Role::Downgrades) => steps.push(Step::Downgrade(p, t)),
            OtherMode::Yet => steps.push(Step::ReadToo(p, t)),
            OtherMode::Nothing | OtherMode::Failed => {}
        }
        let next = self.plans.get(usize::from(p)).and_then(|plans| {
            let plan: &str = plans[usize::from(t)];
            plan.as_bytes().get(usize::from(caller.done))
        });
        steps.push(match next {
            Some(b'w') => Step::Wait(p, t),
            Some(b's') => Step::Signal(p, t),
            Some(_) => Step::SignalAll(p, t),
            None => Step::Unlock(p, t),
        });
        if next.is_none() && state.left.drops > 0 && self.roles.is_empty() {
            steps.push(Step::Drop(p, t));
        }
        if caller.kept.is_some() {
            steps.push(Step::UnlockFirst(p, t));
        }
    }

    /// A writing thread begins to acquire the read lock.
    pub(super) fn other_mode(&self, state: &mut State, p: u8, t: u8, other_mode: OtherMode) -> Option<()> {
        let caller = &mut state.processes[p as usize].callers[t as usize];
        let Thread::Holding(ticket) = caller.thread else { return None };
        caller.kept = Some((WRITES, ticket));
        (caller.lock_state, caller.other_mode, caller.once) = (READS, other_mode, false);
        self.come_in(state, p, t)
    }
}

impl State {
    /// A thread has acquired its hold.
    pub(super) fn holds(&mut self, world: &World, p: u8, t: u8, acquired: &Acquired) {
        self.set(p, t, Thread::Holding(acquired.ticket));
        if acquired.via == AcquiredVia::Joined {
            self.overstayed |= self.waits_to_write(p);
            self.overstayed |= self.notified.iter().any(|owner| *owner == acquired.owner);
            // A thread that came before the question was sent may be late: because of the reply, or of its
            // own wake-up.
            let joining = self.processes[p as usize].lock_states[READS].grant(acquired.owner);
            let joining = joining.and_then(|grant| grant.joining());
            let admitted = joining.is_some_and(|joining| acquired.ticket <= joining.admits);
            let is_over = |tick: u8| self.now().since(super::at(tick)) >= world.local_handoff;
            self.overstayed |= !admitted && self.writers.iter().any(|(_, since)| is_over(*since));
        }
    }

    /// A thread is done with its lock state: it returns to its hold on the other one, if it has one.
    pub(super) fn rest(&mut self, p: u8, t: u8) {
        let caller = &mut self.processes[p as usize].callers[t as usize];
        if is_own(caller.lock_state) {
            return self.returns(p, t, None);
        }
        if caller.other_mode != OtherMode::Nothing && caller.lock_state == WRITES {
            caller.other_mode = OtherMode::Nothing;
        }
        if caller.other_mode == OtherMode::Instead {
            caller.other_mode = OtherMode::Failed;
        }
        caller.thread = Thread::Idle;
        if let Some((lock_state, ticket)) = caller.kept.take() {
            (caller.lock_state, caller.thread) = (lock_state, Thread::Holding(ticket));
        }
    }

    /// Lets a thread continue with the lock state that it held first.
    pub(super) fn turn_round(&mut self, p: u8, t: u8) {
        let caller = &mut self.processes[p as usize].callers[t as usize];
        if let (Some((lock_state, first)), Thread::Holding(ticket)) = (caller.kept, &caller.thread) {
            caller.kept = Some((caller.lock_state, *ticket));
            (caller.lock_state, caller.thread) = (lock_state, Thread::Holding(first));
        }
    }

    /// The second half of a downgrade, as `release::replaced` does it.
    pub(super) fn replaced(&mut self, p: u8, t: u8) {
        let now = self.now();
        let process = &mut self.processes[p as usize];
        let caller = &mut process.callers[t as usize];
        caller.other_mode = OtherMode::Nothing;
        let Some((g, ticket)) = caller.kept.take() else { return };
        let owner = process.lock_states[READS].held_by(u64::from(t), now);
        // No request is sent with it, so no new owner is needed.
        let then = match process.lock_states[g].exit(ticket, now, false, || 0) {
            Exit::Leave(leaving, _) => {
                let then = process.lock_states[g].left();
                if leaving.maybe_in_flight {
                    self.background(p, g, &leaving);
                }
                then
            }
            Exit::Lost(loss, then) => {
                let redis = &self.redis;
                self.robbed |=
                    loss == LossReason::Revoked && owner.is_some_and(|o| redis.holder(o).is_some());
                then
            }
            Exit::Held | Exit::Shared | Exit::HandedOn(_) | Exit::Kept(..) => return,
        };
        self.carry_out(p, g, then);
    }

    /// Delivers a message.
    pub(super) fn received(&mut self, world: &World, message: &Message) {
        let now = self.now();
        let Message { owner, says, number, value, .. } = *message;
        let lease = Duration::from_millis(message.lease);
        let p = process_of(owner);
        for g in self.processes[p].lock_states.numbers() {
            let lock_state = &mut self.processes[p].lock_states[g];
            if says == Says::Again {
                if lock_state.knows(owner) {
                    let then = lock_state.ask_again(now);
                    self.carry_out(p as u8, g, then);
                }
                continue;
            }
            if says == Says::Waits && owner & KEEPS != 0 {
                let then = lock_state.is_wanted(owner, now);
                if lock_state.grant(owner).is_some() {
                    self.notified.insert(owner);
                }
                if let Some(leaving) = self.carry_out(p as u8, g, then) {
                    self.let_go(p as u8, g, &leaving);
                }
                continue;
            }
            if says == Says::Waits {
                lock_state.yields(owner);
                if world.counts {
                    self.notified.insert(owner);
                }
                continue;
            }
            let then = lock_state.granted(owner, number, lease, value, now);
            self.carry_out(p as u8, g, then);
        }
    }
}
