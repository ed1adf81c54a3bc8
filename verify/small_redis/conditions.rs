//! What the scripts for waiters on a condition do: `await`, `signal`, `quit`.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{AcquireMode, Answer, FOR_EVER, Mode, PendingAcquire, QueuePosition, SmallRedis, Tell};
use crate::engine::state::lock_state::NOT_INSIDE;

/// How a position came into the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) enum Stage {
    /// Its owner asked for the lock.
    #[default]
    Asked,
    /// By a signal on this condition.
    Signalled(u8),
    /// Back from a condition, without a signal.
    Back,
}

/// The position of a waiter for a signal.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Waits {
    pub(in crate::engine) condition: u8,
    pub(in crate::engine) since: u64,
    pub(in crate::engine) lease: u64,
    pub(in crate::engine) heartbeat: u64,
    /// Like that of a [`QueuePosition`].
    pub(in crate::engine) steady: Option<u64>,
}

/// A waiter that was admitted by a signal and may never learn of it: see `lua/lib/queue.lua`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Entrusted {
    pub(in crate::engine) owner: u64,
    pub(in crate::engine) condition: u8,
    /// When its first lease expires.
    pub(in crate::engine) ends: u64,
}

/// How far off the end of a lease may be.
const CLOSE: u64 = 50;

/// The waiters for signals.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(in crate::engine) struct Awaiting {
    /// Their positions, which expire with those of the queue.
    pub(in crate::engine) positions: BTreeMap<u64, Waits>,
    /// The order in each condition, including waiters whose position was lost.
    pub(in crate::engine) members: BTreeMap<(u8, u64), u64>,
    /// When the key of that order expires.
    pub(in crate::engine) ends: u64,
    /// Stored with the positions.
    pub(in crate::engine) signalled: Option<Entrusted>,
    /// The owner whose position this script removed, and when that position had been heard.
    pub(super) left: Option<(u64, (u64, Option<u64>))>,
}

impl Awaiting {
    pub(super) fn lapse(&mut self, now: u64, positions: bool) {
        if positions {
            self.positions.clear();
            self.signalled = None;
        }
        if self.ends <= now {
            self.members.clear();
        }
    }

    fn forget_signalled(&mut self) {
        if self.members.is_empty() {
            self.signalled = None;
        }
    }

    pub(super) fn forget_when(&mut self) {
        self.positions.values_mut().for_each(|waits| (waits.heartbeat, waits.steady) = (0, Some(0)));
        self.ends = FOR_EVER;
    }
}

impl SmallRedis {
    /// `await`: `ask.from` is the hold to give up for a position in the condition.
    pub(super) fn wait_for(
        &mut self,
        ask: &PendingAcquire,
        condition: u8,
        now: u64,
        tell: &mut impl Tell,
    ) -> Answer {
        if self.tombstones.contains_key(&ask.owner) {
            return Answer::Ended;
        }
        if let Some(answer) = self.inside(ask.owner, now) {
            return answer;
        }
        if self.pass_lapsed(now) {
            self.settle(Some(ask.owner), now, tell);
            if let Some(answer) = self.inside(ask.owner, now) {
                return answer;
            }
            self.holder_is_wanted(tell);
        }
        let back = ask.how == AcquireMode::Back;
        let mut stage = Stage::Asked;
        let there = self.awaiting.positions.get(&ask.owner).filter(|waits| waits.condition == condition);
        if let Some(position) = self.queue.values().find(|position| position.owner == ask.owner) {
            stage = position.stage;
        } else if let Some(since) = there.map(|waits| waits.since) {
            if !back {
                return self.stays(ask, condition, since, now, tell);
            }
            self.awaiting.members.remove(&(condition, since));
            self.awaiting.forget_signalled();
            let left = self.awaiting.positions.remove(&ask.owner);
            self.awaiting.left = left.map(|waits| (ask.owner, (waits.heartbeat, waits.steady)));
            stage = Stage::Back;
        } else if let Some(from) = ask.from {
            let gave_up = self.kind.release(from);
            if !gave_up {
                return Answer::Refused(NOT_INSIDE.into());
            }
            if !back {
                self.arrivals += 1;
                return self.stays(ask, condition, self.arrivals, now, tell);
            }
            stage = Stage::Back;
        }
        let answer = self.join(ask, stage, now, tell);
        self.awaiting.left = None;
        if stage == Stage::Back { Answer::Back(Box::new(answer)) } else { answer }
    }

    /// Like `stay`, and admits every waiter that may come in.
    fn stays(
        &mut self,
        ask: &PendingAcquire,
        condition: u8,
        since: u64,
        now: u64,
        tell: &mut impl Tell,
    ) -> Answer {
        let answer = self.stay(ask, condition, since, now);
        self.settle(Some(ask.owner), now, tell);
        if let Some(inside) = self.inside(ask.owner, now) {
            return inside;
        }
        let Answer::Busy { again, arrival, .. } = answer else { return answer };
        Answer::Busy { last_number: self.fence, again, arrival, others: 0 }
    }

    /// Records a heartbeat of a waiter that has waited for the condition since `since`, or gives it its first
    /// position.
    fn stay(&mut self, ask: &PendingAcquire, condition: u8, since: u64, now: u64) -> Answer {
        let PendingAcquire { owner, lease, .. } = *ask;
        let ends = self.positions_end();
        let before = self.awaiting.positions.get(&owner).map(|waits| (waits.heartbeat, waits.steady));
        let steady = Some(self.steadily(owner, before, now));
        self.awaiting.positions.insert(owner, Waits { condition, since, lease, heartbeat: now, steady });
        if ends < now + self.lifetime() {
            self.queue_ends = now.saturating_add(self.lifetime().saturating_mul(2));
        }
        let ends = if self.awaiting.members.is_empty() { 0 } else { self.awaiting.ends };
        self.awaiting.members.insert((condition, since), owner);
        self.awaiting.ends = ends;
        if ends < now + self.lifetime() {
            self.awaiting.ends = now.saturating_add(self.lifetime().saturating_mul(2));
        }
        let again = Duration::from_millis(self.waiter_timeout.min(lease).div_ceil(3));
        Answer::Busy { last_number: self.fence, again, arrival: since.to_string(), others: 0 }
    }

    /// `signal`: returns how many waiters were moved, if the owner was inside.
    pub(super) fn send_signal(
        &mut self,
        owner: u64,
        condition: u8,
        all: bool,
        now: u64,
        tell: &mut impl Tell,
    ) -> Option<usize> {
        self.inside(owner, now)?;
        let mut moved = 0;
        loop {
            self.arrivals += 1;
            let Some(waiter) = self.signal(condition, self.arrivals, now) else { break };
            if tell.listens(waiter) {
                moved += 1;
            } else {
                self.drop_position(waiter);
            }
            if moved == 1 && !all {
                break;
            }
        }
        if moved > 0 {
            self.wanted(owner, tell);
        }
        Some(moved)
    }

    /// Moves the waiter that has waited longest for the condition to this arrival in the queue.
    fn signal(&mut self, condition: u8, arrival: u64, now: u64) -> Option<u64> {
        loop {
            let next = self.awaiting.members.range((condition, 0)..=(condition, u64::MAX)).next();
            let Some((member, owner)) = next.map(|(member, owner)| (*member, *owner)) else {
                self.awaiting.forget_signalled();
                return None;
            };
            self.awaiting.members.remove(&member);
            let Some(waits) = self.awaiting.positions.get(&owner) else { continue };
            let dead = self.dead(owner, waits.heartbeat, waits.steady, now);
            if let Some(Waits { lease, heartbeat, steady, .. }) = self.awaiting.positions.remove(&owner)
                && !dead
            {
                let (mode, stage, threads, priority) = (Mode::Plain, Stage::Signalled(condition), 1, 0);
                let position =
                    QueuePosition { owner, lease, heartbeat, steady, mode, stage, threads, priority };
                self.queue.insert(arrival, position);
                return Some(owner);
            }
        }
    }

    /// `position` has left the queue without the lock: if it was signalled, the next waiter for its condition
    /// takes its place.
    pub(super) fn pass_on(&mut self, position: &QueuePosition, arrival: u64, now: u64) {
        let Stage::Signalled(condition) = position.stage else { return };
        self.signal(condition, arrival, now);
    }

    /// Passes on the signal of a waiter that was admitted by it, if its first lease expired unchanged.
    /// Returns whether another waiter took the signal.
    fn pass_lapsed(&mut self, now: u64) -> bool {
        let Some(Entrusted { owner, condition, ends }) = self.awaiting.signalled else { return false };
        let left = self.holder(owner).map(|holder| holder.end - now);
        if left.is_some_and(|left| left + now <= ends + CLOSE) {
            return false;
        }
        self.awaiting.signalled = None;
        if left.is_some() || ends > now + CLOSE {
            return false;
        }
        self.arrivals += 1;
        self.signal(condition, self.arrivals, now).is_some()
    }

    /// Records that `position` is admitted with this lease.
    pub(super) fn entrust(&mut self, position: &QueuePosition, lease: u64, now: u64) {
        let Stage::Signalled(condition) = position.stage else { return };
        self.pass_lapsed(now);
        if self.awaiting.members.is_empty() {
            return;
        }
        if self.positions_end() == 0 {
            self.queue_ends = now.saturating_add(self.waiter_timeout.max(lease).saturating_mul(2));
        }
        self.awaiting.signalled = Some(Entrusted { owner: position.owner, condition, ends: now + lease });
    }

    /// `quit`: returns whether the owner was inside.
    pub(super) fn quit(&mut self, owner: u64, condition: u8, now: u64) -> bool {
        let inside = self.kind.release(owner);
        if inside {
            self.arrivals += 1;
            self.signal(condition, self.arrivals, now);
        } else {
            self.quits(owner, now);
        }
        inside
    }

    /// Whether its position is that of a waiter for a signal, or of a waiter that was signalled.
    pub(super) fn is_of_condition(&self, owner: u64) -> bool {
        let signalled = |p: &QueuePosition| p.owner == owner && matches!(p.stage, Stage::Signalled(_));
        self.holder(owner).is_none()
            && (self.awaiting.positions.contains_key(&owner) || self.queue.values().any(signalled))
    }

    /// Removes the owner from the queue and from its condition.
    fn quits(&mut self, owner: u64, now: u64) {
        if let Some(waits) = self.awaiting.positions.remove(&owner) {
            self.awaiting.members.remove(&(waits.condition, waits.since));
            self.awaiting.forget_signalled();
        }
        if let Some(arrival) = self.arrival(owner)
            && let Some(position) = self.queue.remove(&arrival)
        {
            self.pass_on(&position, arrival, now);
        }
    }

    /// Returns when the positions' key expires; 0 if there is none.
    pub(super) fn positions_end(&self) -> u64 {
        let positions = !self.queue.is_empty() || !self.awaiting.positions.is_empty();
        if positions || self.awaiting.signalled.is_some() { self.queue_ends } else { 0 }
    }
}
