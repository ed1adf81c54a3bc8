//! What Redis does in a model, and what the model records about the owners that it admits.

use super::World;
use super::state::{State, process_of};
use crate::engine::small_redis::{Holder, Message, Mode, Op, Reply, SmallRedis};

impl State {
    /// Runs a request in Redis.
    pub(super) fn run(&mut self, world: &World, op: &Op) -> Reply {
        let now = self.millis();
        let before = self.redis.clone();
        let mut redis = self.redis.clone();
        let mut messages = Vec::new();
        let listens = |owner| self.listens(owner);
        let reply = redis.run(op, now, &mut (listens, |message| messages.push(message)));
        let end = now.saturating_add(world.waiter_timeout);
        let lasts = |m: &Message| m.is_grant() && redis.holder(m.owner).is_some_and(|h| h.end > end);
        self.trusted |= messages.iter().any(lasts);
        let received = |message: &Message| self.hears(message.owner);
        messages.retain(received);
        messages.into_iter().for_each(|message| self.messages.insert(message));
        if world.never_silent() {
            redis.forget_when();
        }
        self.redis = redis;
        let known = |h: &Holder| before.holder(h.owner).is_some_and(|b| b.number == h.number);
        let came: Vec<Holder> = self.redis.holders().iter().filter(|h| !known(h)).copied().collect();
        for holder in came.iter().filter(|h| !op.passes(h.owner, &before)) {
            self.let_in(holder, op, &before);
        }
        if world.counts {
            self.count_from_here();
        }
        if world.has_conditions() {
            let reachable: Vec<u64> = self.reachable(&before).collect();
            self.signals.run(op, &before, &self.redis, &reachable);
        }
        reply
    }

    /// Records which waiters the grant to a newcomer, by `op`, passed by: those that waited `before` and
    /// still wait.
    fn let_in(&mut self, newcomer: &Holder, op: &Op, before: &SmallRedis) {
        let Holder { owner, mode, .. } = *newcomer;
        let came = before.arrival(owner).or_else(|| self.inherited(owner, op, before));
        let came = came.unwrap_or_else(|| op.came(owner, before));
        let waits = |o: &u64| before.arrival(*o).is_some();
        let still: Vec<u64> = self.redis.waiting().filter(waits).collect();
        self.jumped |= still.iter().any(|o| self.redis.arrival(*o).is_some_and(|a| a < came));
        // Whatever the order of the queue: writers come first.
        let writes = |o: &u64| self.redis.queue.values().any(|p| p.owner == *o && p.mode == Mode::Write);
        self.jumped |= mode == Mode::Read && still.iter().any(writes);
        if mode != Mode::Plain {
            // A process may then have two positions, of which one may pass the other.
            return;
        }
        let turns = self.processes.iter_mut().enumerate().filter(|(p, _)| *p != process_of(owner));
        for (_, process) in turns.filter(|(p, _)| still.iter().any(|o| process_of(*o) == *p)) {
            if let Some(left) = process.turns_before.as_mut().map(|turns| &mut turns[process_of(owner)]) {
                self.bypassed |= *left == 0;
                *left = left.saturating_sub(1);
            }
        }
    }

    /// Returns the position that `owner` may inherit from a waiter that left without the lock: `owner` waits
    /// for a condition, and has been signalled by `op`.
    fn inherited(&self, owner: u64, op: &Op, before: &SmallRedis) -> Option<u64> {
        let waits = matches!(op, Op::Await { ask, .. } if ask.owner == owner);
        let inherits = waits || before.awaiting.positions.contains_key(&owner);
        let gone = before.queue.iter().find(|(_, position)| self.redis.arrival(position.owner).is_none());
        gone.filter(|_| inherits).map(|(arrival, _)| *arrival)
    }

    /// Returns the waiters that a signal could reach `before`: those whose process hears, and that do not
    /// count as dead.
    fn reachable(&self, before: &SmallRedis) -> impl Iterator<Item = u64> {
        let now = self.millis();
        self.signals.waiting().filter(move |owner| self.hears(*owner) && !before.is_dead(*owner, now))
    }

    /// Starts to count for each waiter that has a position now and had none.
    fn count_from_here(&mut self) {
        let waiting: Vec<usize> = self.redis.waiting().map(process_of).collect();
        let processes = self.processes.len();
        for (i, p) in waiting.iter().enumerate() {
            let ahead = (0..processes).map(|q| waiting[..i].contains(&q).into()).collect();
            self.processes[*p].turns_before.get_or_insert(ahead);
        }
        let queue = &self.redis.queue;
        self.writers.retain(|(owner, _)| queue.values().any(|p| p.owner == *owner));
        for position in queue.values().filter(|p| p.mode == Mode::Write) {
            if self.writers.iter().all(|(owner, _)| *owner != position.owner) {
                self.writers.push((position.owner, self.tick));
            }
        }
    }
}
