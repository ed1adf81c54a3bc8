//! Replies to owners that request the lock: `lua/lib/acquire.lua` and `lua/lib/join.lua`.

use std::time::Duration;

use super::{Ahead, CLASS, Message, PendingAcquire, QueuePosition, Says, SmallRedis, Stage, Tell};
use crate::engine::state::lock_state::{AcquireMode, Answer, NOT_INSIDE};

impl SmallRedis {
    /// Without a holder, a waiter or a tombstone, admits the owner at once. It has no position, which would
    /// make those of waiters for a condition live longer.
    pub(super) fn at_once(&mut self, ask: &PendingAcquire, now: u64) -> Option<Answer> {
        let blank = self.holders().is_empty() && self.queue.is_empty() && self.tombstones.is_empty();
        let asks = !matches!(ask.how, AcquireMode::Keep | AcquireMode::Share) && !ask.instead;
        (blank && asks && self.comes_in(ask, now)).then(|| self.inside(ask.owner, now)).flatten()
    }

    /// Returns the lease of an owner that is admitted by a message: it lasts until the first renewal.
    pub(super) fn first_lease(&self, position: &QueuePosition) -> u64 {
        position.lease.min(self.waiter_timeout.max(1_000))
    }

    pub(super) fn comes_in(&mut self, ask: &PendingAcquire, now: u64) -> bool {
        self.kind.try_acquire(ask, &mut self.fence, now)
    }

    pub(super) fn acquire(&mut self, ask: &PendingAcquire, now: u64, tell: &mut impl Tell) -> Answer {
        if self.tombstones.contains_key(&ask.owner) {
            return Answer::Ended;
        }
        if ask.how == AcquireMode::Share {
            return self.share(ask, now, tell);
        }
        if let Some(answer) = self.inside(ask.owner, now) {
            self.has_waiters(ask.owner, tell);
            return answer;
        }
        let here = self.arrival(ask.owner).is_some();
        if ask.how == AcquireMode::Keep && !here {
            self.settle(None, now, tell);
            return Answer::Gone;
        }
        if self.kind.can_barge(ask) && self.comes_in(ask, now) {
            self.drop_position(ask.owner);
            if let Some(from) = ask.from.filter(|_| ask.instead) {
                self.kind.release(from);
            }
            self.settle(None, now, tell);
            return self.inside(ask.owner, now).unwrap_or_else(|| self.busy(ask, None, now));
        }
        if ask.instead {
            self.drop_position(ask.owner);
            self.settle(None, now, tell);
            return Answer::Refused(NOT_INSIDE.into());
        }
        if ask.how != AcquireMode::Try {
            return self.join(ask, Stage::Asked, now, tell);
        }
        let ahead = self.settle(None, now, tell);
        // Unless the loop admitted this owner: a message says so.
        if ahead.is_none() && self.inside(ask.owner, now).is_none() && self.comes_in(ask, now) {
            return self.inside(ask.owner, now).unwrap_or_else(|| self.busy(ask, ahead, now));
        }
        self.holder_is_wanted(tell);
        self.busy(ask, ahead, now)
    }

    /// Admits the owner if there is room and nobody waits; otherwise gives it its place in the queue.
    pub(super) fn join(
        &mut self,
        ask: &PendingAcquire,
        stage: Stage,
        now: u64,
        tell: &mut impl Tell,
    ) -> Answer {
        let alone = self.queue.is_empty() && self.comes_in(ask, now);
        let new = !alone && self.enqueue(ask, stage, now);
        let ahead = if alone { None } else { self.settle(Some(ask.owner), now, tell) };
        if let Some(answer) = self.inside(ask.owner, now) {
            return answer;
        }
        let others = self.others(ask.owner, now);
        if new && ask.arrival.is_none() && ask.most.is_some_and(|most| others >= most) {
            self.drop_position(ask.owner);
            self.settle(None, now, tell);
            return Answer::Refused(format!("queue-full-{others}-threads-wait"));
        }
        if new && self.kind.on_wait(ask.mode) {
            self.holders().iter().for_each(|holder| tell.tell(Message::word(holder.owner, Says::Waits)));
        }
        self.holder_is_wanted(tell);
        self.busy(ask, ahead, now)
    }

    /// How many threads wait for which this owner does not ask.
    pub(super) fn others(&self, owner: u64, now: u64) -> usize {
        let heard = self.queue.values().filter(|it| it.owner != owner && !self.silent(it.heartbeat, now));
        heard.map(|it| it.threads).sum()
    }

    /// Replies whether others may join a hold.
    fn share(&mut self, ask: &PendingAcquire, now: u64, tell: &mut impl Tell) -> Answer {
        let inside = self.inside(ask.owner, now);
        let ahead = self.settle(None, now, tell);
        let Some(answer) = inside else { return Answer::Gone };
        if ahead.is_some() || self.kind.is_full() {
            let Answer::Busy { last_number, again, .. } = self.busy(ask, ahead, now) else { return answer };
            return Answer::Busy { last_number, again, arrival: String::new(), others: 0 };
        }
        answer
    }

    fn busy(&self, ask: &PendingAcquire, ahead: Option<Ahead>, now: u64) -> Answer {
        let mut again = self.waiter_timeout.min(ask.lease).div_ceil(3);
        if let Some(soon) = self.kind.next_expiry() {
            again = again.min(soon.saturating_sub(now).max(1));
        }
        if let Some(ahead) = ahead.map(|ahead| ahead.position).filter(|ahead| ahead.owner != ask.owner) {
            again = again.min((ahead.heartbeat.saturating_add(self.waiter_timeout)).saturating_sub(now));
        }
        let arrival = self.arrival(ask.owner).map(|a| (a % CLASS).to_string()).unwrap_or_default();
        Answer::Busy {
            last_number: self.kind.last(self.fence, ask.mode),
            again: Duration::from_millis(again.max(1)),
            arrival,
            others: if ask.most.is_some() && ask.how != AcquireMode::Try {
                self.others(ask.owner, now)
            } else {
                0
            },
        }
    }
}
