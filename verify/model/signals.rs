//! Tracks signals: which waiters want one, which have received one, and whether one was lost.
//!
//! This follows what the threads want, not the positions in Redis: a thread waits from the moment at which
//! its lock is given up.

use super::state::{Bag, process_of};
use crate::engine::small_redis::{Op, SmallRedis, Stage};
use crate::engine::state::lock_state::AcquireMode;

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Signals {
    /// The waiters that have not been signalled, in the order in which they gave the lock up.
    waiting: Vec<(u8, u64)>,
    /// The waiters that were signalled and have not returned.
    signalled: Bag<(u64, u8)>,
    /// The waiters that were admitted by a signal and have not returned: the owner, until when, and the other
    /// waiters for the same condition at that moment.
    let_in: Vec<(u64, u64, Vec<u64>)>,
    /// A signal woke nobody although somebody waited.
    pub(super) lost: bool,
    /// A waiter was woken that was not the one that had waited longest.
    pub(super) out_of_turn: bool,
    /// A thread that was signalled reports that it was not.
    pub(super) swallowed: bool,
}

impl Signals {
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> + '_ {
        self.waiting.iter().map(|(_, owner)| *owner)
    }

    /// Records a request that has run. `reachable`: the waiters that could be woken.
    pub(super) fn run(&mut self, op: &Op, before: &SmallRedis, after: &SmallRedis, reachable: &[u64]) {
        let inside = |redis: &SmallRedis, owner| redis.holder(owner).is_some();
        let lined = |redis: &SmallRedis, owner| redis.arrival(owner).is_some() || inside(redis, owner);
        let own = match op {
            Op::Await { ask, .. } => Some(ask.owner),
            Op::Quit { owner, .. } => Some(*owner),
            _ => None,
        };
        let was_waiting = self.waiting.clone();
        let moves =
            |(_, owner): &&(u8, u64)| Some(*owner) != own && lined(after, *owner) && !lined(before, *owner);
        let moved: Vec<(u8, u64)> = was_waiting.iter().filter(moves).copied().collect();
        self.waiting.retain(|(_, owner)| {
            let lost = before.awaiting.positions.contains_key(owner)
                && !after.awaiting.positions.contains_key(owner);
            !lost && !lined(after, *owner)
        });
        moved.iter().for_each(|(condition, owner)| self.signalled.insert((*owner, *condition)));
        self.went_on(before, after, &was_waiting);
        match op {
            Op::Signal { owner, condition, all } if inside(before, *owner) => {
                let could = was_waiting.iter().filter(|(c, o)| c == condition && reachable.contains(o));
                let should: Vec<_> = could.take(if *all { usize::MAX } else { 1 }).copied().collect();
                self.lost |= moved.len() < should.len();
                self.out_of_turn |= moved.len() >= should.len() && moved != should;
                return;
            }
            Op::Await { ask, condition } => {
                let gave_up = ask.from.is_some_and(|from| inside(before, from) && !inside(after, from));
                if gave_up && lined(after, ask.owner) && ask.how != AcquireMode::Back {
                    // It began to wait just in time to inherit the signal of a waiter that left without the
                    // lock.
                    self.signalled.insert((ask.owner, *condition));
                } else if gave_up && ask.how != AcquireMode::Back {
                    self.waiting.push((*condition, ask.owner));
                }
            }
            Op::Quit { owner, .. } => self.waiting.retain(|(_, o)| o != owner),
            // The renewal shows that it knows of its grant.
            Op::Renew { owner, .. } => self.let_in.retain(|(o, ..)| o != owner),
            _ => {}
        }
        // Signalled waiters that left without the lock.
        let dropped = before.queue.values().filter(|p| !lined(after, p.owner));
        let mut dropped: Vec<u8> = dropped.filter_map(|p| condition_of(p.stage)).collect();
        if let Op::Quit { owner, .. } = op
            && inside(before, *owner)
        {
            dropped.extend(self.signalled.iter().filter(|(o, _)| o == owner).map(|(_, c)| *c));
        }
        for condition in &dropped {
            let passed_on = moved.iter().filter(|(c, _)| c == condition).count();
            let had = dropped.iter().filter(|c| *c == condition).count();
            let left = self.waiting.iter().any(|(c, owner)| c == condition && reachable.contains(owner));
            self.lost |= passed_on < had && left;
        }
    }

    /// Records that a signal was passed on from the waiter that it had admitted, and which waiters are admitted
    /// now.
    fn went_on(&mut self, before: &SmallRedis, after: &SmallRedis, was_waiting: &[(u8, u64)]) {
        let lined = |owner| after.arrival(owner).is_some() || after.holder(owner).is_some();
        if let Some(it) = before.awaiting.signalled.filter(|it| after.awaiting.signalled != Some(*it))
            && was_waiting.iter().any(|(c, owner)| *c == it.condition && lined(*owner))
        {
            self.returned(it.owner);
        }
        for holder in after.holders().iter().filter(|holder| before.holder(holder.owner).is_none()) {
            let condition = self.signalled.iter().find(|(owner, _)| *owner == holder.owner);
            if let Some((_, condition)) = condition {
                let waiting = self.waiting.iter().filter(|(c, _)| c == condition).map(|(_, o)| *o).collect();
                self.let_in.push((holder.owner, holder.end, waiting));
            }
        }
    }

    fn returned(&mut self, owner: u64) {
        self.signalled.retain(|(o, _)| *o != owner);
        self.let_in.retain(|(o, ..)| *o != owner);
    }

    /// Whether a live waiter has looked since, and waits on for a signal that another waiter, admitted by it,
    /// took along when it died.
    pub(super) fn are_owed(&self, redis: &SmallRedis, alive: impl Fn(u64) -> bool) -> bool {
        let looked =
            |owner: &u64, end: u64| redis.awaiting.positions.get(owner).is_some_and(|w| w.heartbeat >= end);
        let gone = |owner: u64| !alive(owner) && redis.holder(owner).is_none();
        let mut let_in = self.let_in.iter();
        let_in.any(|(o, end, waiting)| gone(*o) && waiting.iter().any(|w| alive(*w) && looked(w, *end)))
    }

    /// Records positions that have expired with their keys: their owners come back by themselves.
    pub(super) fn lapse(&mut self, before: &SmallRedis, after: &SmallRedis) {
        let there = |redis: &SmallRedis, owner: u64| redis.awaiting.positions.contains_key(&owner);
        self.waiting.retain(|(_, owner)| !there(before, *owner) || there(after, *owner));
    }

    /// Records that the wait of `owner` returns with the lock.
    pub(super) fn returns(&mut self, owner: u64, unsignalled: bool) {
        self.swallowed |= unsignalled && self.signalled.iter().any(|(o, _)| *o == owner);
        self.returned(owner);
    }

    pub(super) fn crash(&mut self, process: u8) {
        let another = |owner: u64| process_of(owner) != process as usize;
        self.waiting.retain(|(_, owner)| another(*owner));
        self.signalled.retain(|(owner, _)| another(*owner));
        self.let_in.retain(|(owner, ..)| another(*owner));
    }
}

fn condition_of(stage: Stage) -> Option<u8> {
    match stage {
        Stage::Signalled(condition) => Some(condition),
        Stage::Asked | Stage::Back => None,
    }
}
