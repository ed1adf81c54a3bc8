//! A small Redis for the tests of the lock state: what the scripts do, for one lock. As in Lua, the queue is
//! common to all kinds of lock, and each kind is a [`Rule`] in a file of its own.
//!
//! Both the models and the random walks run on it. That it does what the Lua does is not taken on trust:
//! `model/replay/` compares it with a real server. Times are in milliseconds and passed with each operation;
//! when a message arrives is up to the caller that delivers it.

mod acquire;
mod conditions;
mod exclusive;
mod permits;
mod read_write;
mod rule;
mod words;

use std::collections::BTreeMap;
use std::time::Duration;

use self::conditions::Awaiting;
pub(super) use self::conditions::Stage;
use self::exclusive::Exclusive;
use self::permits::Permits;
use self::read_write::ReadWrite;
pub(super) use self::rule::{Kind, Rule};
pub(super) use self::words::{Holder, Message, Mode, Op, PendingAcquire, QueuePosition, Reply, Says};
use super::state::grant::KEEPS;
use super::state::lock_state::{AcquireMode, Answer, Renewal};

/// How long a tombstone lasts.
pub(super) const TOMBSTONE: u64 = 60_000;

/// The least time for which positions live without a heartbeat is five waiter timeouts, capped at this, but
/// not less than one waiter timeout.
const LIFETIME: u64 = 30_000;

/// A waiter timeout that never passes.
pub(super) const FOR_EVER: u64 = u64::MAX / 2;

pub(super) fn millis(d: Duration) -> u64 {
    u64::try_from(d.as_millis()).unwrap_or(u64::MAX)
}

/// The arrivals of a later order class are above all those of an earlier one.
pub(super) const CLASS: u64 = 1 << 50;

/// What one priority is worth in arrivals: more than come while time does not pass.
pub(super) const STEP: i64 = 1 << 30;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct SmallRedis {
    waiter_timeout: u64,
    kind: Kind,
    /// By order class and arrival.
    pub(super) queue: BTreeMap<u64, QueuePosition>,
    /// When the queue's keys expire if there are no more heartbeats.
    pub(super) queue_ends: u64,
    pub(super) awaiting: Awaiting,
    pub(super) arrivals: u64,
    /// [`STEP`], unless the model is about waiting for long.
    pub(super) step: i64,
    pub(super) fence: u64,
    /// The owners with a tombstone, and when each may be forgotten: with the next tombstone, or with the key.
    pub(super) tombstones: BTreeMap<u64, u64>,
    pub(super) tombstones_end: u64,
}

/// The head of the queue, which may not be admitted yet.
#[derive(Clone, Copy)]
struct Ahead {
    position: QueuePosition,
    /// It could be admitted, but is waited for.
    away: bool,
}

/// The channels to the waiters.
pub(super) trait Tell {
    /// Whether the process of this owner listens at this server.
    fn listens(&mut self, owner: u64) -> bool;
    fn tell(&mut self, message: Message);
}

impl<L: FnMut(u64) -> bool, T: FnMut(Message)> Tell for (L, T) {
    fn listens(&mut self, owner: u64) -> bool {
        self.0(owner)
    }

    fn tell(&mut self, message: Message) {
        self.1(message);
    }
}

impl SmallRedis {
    /// Creates an empty exclusive lock whose last number is `fence`. A silent position lives for
    /// `waiter_timeout`.
    pub(super) fn new(waiter_timeout: u64, fence: u64) -> Self {
        Self::of(Kind::Exclusive(Exclusive::default()), waiter_timeout, fence)
    }

    /// Creates an empty read/write lock.
    pub(super) fn read_write(waiter_timeout: u64, fence: u64) -> Self {
        Self::of(Kind::ReadWrite(ReadWrite::default()), waiter_timeout, fence)
    }

    /// Creates a semaphore with this many permits.
    pub(super) fn semaphore(permits: u8, waiter_timeout: u64, fence: u64) -> Self {
        Self::of(Kind::Permits(Permits::of(permits)), waiter_timeout, fence)
    }

    fn of(kind: Kind, waiter_timeout: u64, fence: u64) -> Self {
        SmallRedis {
            waiter_timeout,
            kind,
            queue: BTreeMap::new(),
            queue_ends: 0,
            awaiting: Awaiting::default(),
            arrivals: STEP.unsigned_abs() * 4,
            step: STEP,
            fence,
            tombstones: BTreeMap::new(),
            tombstones_end: 0,
        }
    }

    /// Runs a script.
    pub(super) fn run(&mut self, op: &Op, now: u64, tell: &mut impl Tell) -> Reply {
        self.lapse(now);
        let reply = self.script(op, now, tell);
        self.kind.lapse(now);
        reply
    }

    fn script(&mut self, op: &Op, now: u64, tell: &mut impl Tell) -> Reply {
        match op {
            Op::Acquire(ask) => {
                let at_once = self.at_once(ask, now);
                Reply::Acquired(at_once.unwrap_or_else(|| self.acquire(ask, now, tell)))
            }
            Op::Leave { owner, maybe_in_flight, next } => {
                let inside = self.kind.release(*owner);
                if !inside {
                    // If there is nobody else to look at, the script has ended before this.
                    if *maybe_in_flight || next.is_some() || !self.queue.is_empty() {
                        self.awaiting.positions.remove(owner);
                    }
                    self.drop_position(*owner);
                }
                if *maybe_in_flight {
                    self.tombstone(*owner, now);
                }
                let queued = next.as_ref().is_some_and(|next| self.goes_first(next, now));
                let ahead = self.settle(next.as_ref().map(|next| next.owner), now, tell);
                if next.is_none() {
                    self.left_to(ahead, tell);
                }
                let next = next.as_ref().map(|next| {
                    if queued && self.holder(next.owner).is_none() && self.kind.on_wait(next.mode) {
                        let holders = self.holders().iter();
                        holders.for_each(|holder| tell.tell(Message::word(holder.owner, Says::Waits)));
                    }
                    self.acquire(next, now, tell)
                });
                Reply::Left { inside, next }
            }
            Op::Renew { owner, lease } => {
                if self.tombstones.contains_key(owner) {
                    return Reply::Renewed(Renewal::Tombstone);
                }
                let extended = self.kind.renew(*owner, *lease, now);
                let left = Renewal::Left(Duration::from_millis(*lease));
                Reply::Renewed(if extended { left } else { Renewal::NotInside })
            }
            Op::Revoke { owner } => {
                let left = self.holder(*owner).map(|holder| Duration::from_millis(holder.end - now));
                self.tombstone(*owner, now);
                Reply::Renewed(left.map_or(Renewal::NotInside, Renewal::Left))
            }
            Op::Await { ask, condition } => Reply::Acquired(self.wait_for(ask, *condition, now, tell)),
            Op::Signal { owner, condition, all } => {
                Reply::Signalled(self.send_signal(*owner, *condition, *all, now, tell))
            }
            Op::Quit { owner, condition, maybe_in_flight } => {
                let of_condition = self.is_of_condition(*owner);
                let inside = self.quit(*owner, *condition, now);
                if *maybe_in_flight {
                    self.tombstone(*owner, now);
                }
                let ahead = self.settle(None, now, tell);
                self.left_to(ahead, tell);
                if of_condition && !self.queue.is_empty() {
                    self.holder_is_wanted(tell);
                }
                Reply::Left { inside, next: None }
            }
        }
    }

    /// Puts the next owner of a leave into the queue before others are admitted, if it may come before them.
    /// Returns whether it had no position.
    fn goes_first(&mut self, next: &PendingAcquire, now: u64) -> bool {
        let after_now = self.queue.first_key_value().is_some_and(|(at, _)| at % CLASS > self.arrivals);
        let may = self.holder(next.owner).is_none() && !self.tombstones.contains_key(&next.owner);
        may && (next.priority > 0 || next.arrival.is_some() || after_now)
            && self.enqueue(next, Stage::Asked, now)
    }

    /// Does what ends every script, as if no silent process were waiting.
    pub(super) fn look(&mut self, now: u64, tell: &mut impl Tell) {
        self.lapse(now);
        self.queue.retain(|_, position| now - position.heartbeat <= self.waiter_timeout);
        self.settle(None, now, tell);
    }

    /// Removes what expires by itself.
    pub(super) fn lapse(&mut self, now: u64) {
        self.kind.lapse(now);
        if self.queue_ends <= now {
            self.queue.clear();
        }
        self.awaiting.lapse(now, self.queue_ends <= now);
        if self.tombstones_end <= now {
            self.tombstones.clear();
        }
    }

    /// For a model in which nobody is silent for long and no tombstone expires: makes states equal that
    /// differ only in when something was last heard.
    pub(super) fn forget_when(&mut self) {
        self.queue.values_mut().for_each(|position| (position.heartbeat, position.steady) = (0, Some(0)));
        self.awaiting.forget_when();
        self.tombstones.values_mut().for_each(|end| *end = FOR_EVER);
        (self.queue_ends, self.tombstones_end) = (FOR_EVER, FOR_EVER);
    }

    /// Whether silent positions are dropped.
    pub(super) fn forgets(&self) -> bool {
        self.waiter_timeout != FOR_EVER
    }

    /// Returns the waiters, the next one first.
    pub(super) fn waiting(&self) -> impl Iterator<Item = u64> + '_ {
        self.queue.values().map(|position| position.owner)
    }

    /// Returns the owners inside.
    pub(super) fn holders(&self) -> &[Holder] {
        self.kind.holders()
    }

    pub(super) fn holder(&self, owner: u64) -> Option<&Holder> {
        self.holders().iter().find(|holder| holder.owner == owner)
    }

    /// Returns the last number of any owner.
    pub(super) fn last(&self) -> u64 {
        self.kind.last(self.fence, Mode::Read)
    }

    /// Returns when the next holder expires, as far as the lock knows.
    pub(super) fn soon(&self) -> Option<u64> {
        self.kind.next_expiry()
    }

    fn inside(&self, owner: u64, now: u64) -> Option<Answer> {
        let Holder { number, end, value, .. } = *self.holder(owner)?;
        Some(Answer::In { number, left: Duration::from_millis(end - now), value })
    }

    /// Returns where in the queue's order its position is.
    pub(super) fn arrival(&self, owner: u64) -> Option<u64> {
        self.queue.iter().find(|(_, position)| position.owner == owner).map(|(arrival, _)| *arrival)
    }

    /// Returns where in the queue's order this arrival is.
    pub(super) fn position_of(&self, mode: Mode, arrival: u64) -> u64 {
        self.kind.class(mode) * CLASS + arrival
    }

    /// Refuses whatever `owner` may still have requested.
    fn tombstone(&mut self, owner: u64, now: u64) {
        self.tombstones.retain(|_, end| *end >= now);
        self.tombstones.insert(owner, now + TOMBSTONE);
        self.tombstones_end = now + TOMBSTONE;
    }

    /// Returns where a waiter of this priority belongs that arrived then.
    pub(super) fn ranked(&self, arrival: u64, priority: i8) -> u64 {
        arrival.saturating_add_signed(-i64::from(priority) * self.step)
    }

    fn drop_position(&mut self, owner: u64) {
        self.queue.retain(|_, position| position.owner != owner);
    }

    /// Whether the place that this request names is that of another owner.
    pub(crate) fn has_another_at(&self, ask: &PendingAcquire) -> bool {
        let place = ask.arrival.map(|arrival| self.position_of(ask.mode, arrival));
        place.and_then(|place| self.queue.get(&place)).is_some_and(|it| it.owner != ask.owner)
    }

    /// Adds a position or records a heartbeat; returns whether the owner had no position.
    fn enqueue(&mut self, ask: &PendingAcquire, stage: Stage, now: u64) -> bool {
        let had = self.arrival(ask.owner);
        let arrival = had.unwrap_or_else(|| {
            let arrival = ask.arrival.unwrap_or_else(|| {
                self.arrivals += 1;
                self.ranked(self.arrivals, ask.priority)
            });
            self.position_of(ask.mode, arrival)
        });
        let (ends, first) = (self.positions_end(), self.queue.is_empty());
        let PendingAcquire { owner, lease, mode, threads, priority, .. } = *ask;
        let before = self.queue.get(&arrival).map(|position| (position.heartbeat, position.steady));
        let steady = Some(self.steadily(ask.owner, before, now));
        self.queue.insert(
            arrival,
            QueuePosition { owner, lease, heartbeat: now, steady, mode, stage, threads, priority },
        );
        self.queue_ends = ends;
        if first || ends < now + self.lifetime() {
            self.queue_ends = ends.max(now.saturating_add(self.lifetime().saturating_mul(2)));
        }
        had.is_none()
    }

    /// Returns how long positions live at least without heartbeats.
    fn lifetime(&self) -> u64 {
        self.waiter_timeout.max(LIFETIME.min(self.waiter_timeout.saturating_mul(5)))
    }

    /// Returns how steadily an owner has been heard that is heard now, and whose position was as `before`.
    fn steadily(&self, owner: u64, before: Option<(u64, Option<u64>)>, now: u64) -> u64 {
        // A waiter on its way back from a condition has no position any more, and continues its former one.
        let before = before.or_else(|| self.awaiting.left.filter(|left| left.0 == owner).map(|left| left.1));
        let Some((heartbeat, steady)) = before else { return now };
        let on_time = (now - heartbeat) * 3 < self.waiter_timeout.saturating_mul(2);
        steady.filter(|_| on_time).unwrap_or(now)
    }

    fn silent(&self, heartbeat: u64, now: u64) -> bool {
        now - heartbeat > self.waiter_timeout
    }

    /// Whether `owner`, last heard at `heartbeat`, is dead: silent while another waiter was heard all the
    /// time, or silent for the second time. If none was heard, the server may have been down: each silent one
    /// gets its waiter timeout once more.
    fn dead(&mut self, owner: u64, heartbeat: u64, steady: Option<u64>, now: u64) -> bool {
        if !self.silent(heartbeat, now) || steady.is_none() {
            return self.silent(heartbeat, now);
        }
        let waiter_timeout = self.waiter_timeout;
        let queue = self.queue.values_mut().map(|position| (&mut position.heartbeat, &mut position.steady));
        let Awaiting { positions, members, .. } = &mut self.awaiting;
        // The waiters that a signal would find.
        let found = |it: u64| it == owner || members.values().any(|member| *member == it);
        let awaiting = positions.iter_mut().filter(|(it, _)| found(**it));
        let awaiting = awaiting.map(|(_, waits)| (&mut waits.heartbeat, &mut waits.steady));
        let mut all: Vec<_> = queue.chain(awaiting).collect();
        let attends = |(heartbeat, steady): &(&mut u64, &mut Option<u64>)| {
            (now - **heartbeat) * 3 < waiter_timeout.saturating_mul(2)
                && steady.is_some_and(|since| now - since > waiter_timeout)
        };
        if all.iter().any(attends) {
            return true;
        }
        for (heartbeat, steady) in &mut all {
            if now - **heartbeat > waiter_timeout && steady.is_some() {
                (**heartbeat, **steady) = (now, None);
            }
        }
        false
    }

    /// The loop that ends every script: `me` gets a reply, others get messages. Returns the head that may not
    /// be admitted yet, if the loop looked for one.
    fn settle(&mut self, me: Option<u64>, now: u64, tell: &mut impl Tell) -> Option<Ahead> {
        while !self.kind.is_full() {
            let (arrival, position) =
                self.queue.first_key_value().map(|(arrival, position)| (*arrival, *position))?;
            let dead = self.dead(position.owner, position.heartbeat, position.steady, now);
            let position = *self.queue.get(&arrival)?;
            if !dead && Some(position.owner) != me && self.comes_back(&position, now, tell) {
                // Asking again makes sense when its next heartbeat is overdue.
                let earlier = position.steady.map_or(0, |_| self.waiter_timeout / 2);
                let heartbeat = position.heartbeat.saturating_sub(earlier);
                return Some(Ahead { position: QueuePosition { heartbeat, ..position }, away: true });
            }
            // A waiter that only a message reaches may be dead.
            let lease = if Some(position.owner) == me { position.lease } else { self.first_lease(&position) };
            if !dead && !self.comes_in(&PendingAcquire { lease, ..position.ask() }, now) {
                return Some(Ahead { position, away: false });
            }
            self.queue.remove(&arrival);
            if dead {
                self.pass_on(&position, arrival, now);
                continue;
            }
            let holder = self.holder(position.owner);
            let (number, value) = holder.map_or((0, 0), |h| (h.number, h.value));
            let message = Message { owner: position.owner, says: Says::In, number, lease, value };
            if Some(position.owner) == me {
                self.entrust(&position, lease, now);
                self.has_waiters(position.owner, tell);
                continue;
            }
            if !tell.listens(position.owner) {
                self.kind.release(position.owner);
                self.pass_on(&position, arrival, now);
            } else {
                self.entrust(&position, lease, now);
                tell.tell(message);
                self.has_waiters(position.owner, tell);
            }
        }
        None
    }

    /// After a release whose next waiter is waited for: tells one of the first waiters to ask again.
    fn left_to(&self, ahead: Option<Ahead>, tell: &mut impl Tell) {
        if ahead.is_some_and(|ahead| ahead.away)
            && let Some(owner) = self.waiting().take(8).find(|owner| tell.listens(*owner))
        {
            tell.tell(Message::word(owner, Says::Again));
        }
    }

    /// Tells the owner's process that there is a waiter for what it may keep.
    pub(super) fn wanted(&self, owner: u64, tell: &mut impl Tell) {
        if owner & KEEPS != 0 {
            tell.tell(Message::word(owner, Says::Waits));
        }
    }

    /// The owner is inside: tells it if there are waiters behind it.
    pub(super) fn has_waiters(&self, owner: u64, tell: &mut impl Tell) {
        if !self.queue.is_empty() {
            self.wanted(owner, tell);
        }
    }

    /// The lock is busy for a caller: tells the holders.
    pub(super) fn holder_is_wanted(&self, tell: &mut impl Tell) {
        if self.kind.is_full() {
            self.holders().iter().for_each(|holder| self.wanted(holder.owner, tell));
        }
    }

    /// Whether a waiter for a signal would be skipped as dead.
    pub(super) fn is_dead(&self, owner: u64, now: u64) -> bool {
        let position = self.awaiting.positions.get(&owner);
        position.is_some_and(|waits| self.clone().dead(owner, waits.heartbeat, waits.steady, now))
    }

    /// Whether the queue waits for this position: until it is heard, or until it listens again, unless a
    /// heartbeat is overdue: always, where time does not count.
    fn comes_back(&self, position: &QueuePosition, now: u64, tell: &mut impl Tell) -> bool {
        let on_time = self.forgets() && now - position.heartbeat <= self.waiter_timeout / 2;
        position.steady.is_none() || on_time && !tell.listens(position.owner)
    }
}
