//! Counts what the walks came across, to be sure that they compare something.

use std::collections::BTreeMap;

use super::Walk;
use crate::engine::model::TICK;
use crate::engine::small_redis::{
    Message, Mode, Op, PendingAcquire, QueuePosition, Reply, Says, SmallRedis, Stage, millis,
};
use crate::engine::state::grant::KEEPS;
use crate::engine::state::lock_state::{AcquireMode, Answer, Renewal};

/// Counts over all walks together.
#[derive(Debug, Default)]
pub(super) struct Seen(pub(super) BTreeMap<&'static str, usize>);

impl Seen {
    fn count(&mut self, what: &'static str) {
        *self.0.entry(what).or_default() += 1;
    }

    pub(super) fn count_if(&mut self, what: &'static str, is: bool) {
        if is {
            self.count(what);
        }
    }
}

/// Everything that the walks must come across.
pub(super) const ALL: [&str; 17] = [
    "in",
    "busy",
    "no position to keep",
    "tombstone",
    "left the lock",
    "left from outside",
    "renewed",
    "revoked",
    "not renewed",
    "told",
    "told to ask again",
    "unheard",
    "a silent position was dropped",
    "a position was given back",
    "a lease lapsed",
    "a queue fell silent",
    "tombstones ended",
];

/// The same for a read/write lock.
pub(super) const OF_TWO_MODES: [&str; 7] = [
    "told to yield",
    "read together",
    "read beside its write",
    "exchanged",
    "no hold to exchange",
    "may share",
    "may not share",
];

/// The same for a lock that its process keeps.
pub(super) const OF_KEPT: [&str; 2] = ["told that it is wanted", "told so with its grant"];

/// The same for a semaphore.
pub(super) const OF_PERMITS: [&str; 2] = ["permits are out together", "some permits, and too few"];

/// Everything that walks with conditions must come across.
pub(super) const OF_CONDITIONS: [&str; 14] = [
    "told to ask again",
    "began to wait",
    "a heartbeat",
    "back without a signal",
    "its hold was not there",
    "signalled one",
    "signalled several",
    "signalled nobody",
    "signalled from outside",
    "one was signalled in vain",
    "a signal was passed on",
    "quit the lock",
    "quit from outside",
    "a signal went on from one that was let in",
];

impl Walk<'_> {
    /// Records the effects of a request to the lock.
    pub(super) fn note(
        &mut self,
        op: &Op,
        before: &SmallRedis,
        then: &SmallRedis,
        reply: &Reply,
        messages: &[Message],
    ) {
        let (Reply::Acquired(answer) | Reply::Left { next: Some(answer), .. }) = reply else {
            return self.seen.count(match reply {
                Reply::Renewed(Renewal::Left(_)) if matches!(op, Op::Revoke { .. }) => "revoked",
                Reply::Left { inside: true, .. } => "left the lock",
                Reply::Left { .. } => "left from outside",
                Reply::Renewed(Renewal::Left(_)) => "renewed",
                _ => "not renewed",
            });
        };
        self.seen.count(match answer {
            Answer::In { .. } => "in",
            Answer::Busy { .. } => "busy",
            Answer::Gone => "no position to keep",
            Answer::Ended => "tombstone",
            Answer::Refused(_) => "no hold to exchange",
            other => panic!("{other:?}"),
        });
        let now = self.state.millis();
        let silent = |p: &&QueuePosition| now - p.heartbeat > self.world.waiter_timeout;
        let own = |o: u64| op.owner() == o;
        let is_out = |o: u64| then.arrival(o).is_none() && then.holder(o).is_none();
        let permits = |redis: &SmallRedis| redis.holders().iter().map(|h| h.mode.permits()).sum::<u8>();
        let dropped = before.queue.values().filter(silent).any(|p| then.arrival(p.owner).is_none());
        let whats = [
            ("told", messages.iter().any(Message::is_grant)),
            ("told to yield", messages.iter().any(|m| m.says == Says::Waits && m.owner & KEEPS == 0)),
            (
                "told that it is wanted",
                messages.iter().any(|m| m.says == Says::Waits && m.owner & KEEPS != 0),
            ),
            (
                "told so with its grant",
                messages.iter().any(|m| {
                    m.says == Says::Waits
                        && then.holder(m.owner).is_some_and(|h| !before.holders().contains(h))
                }),
            ),
            ("read together", then.holders().iter().filter(|h| h.mode != Mode::Write).count() > 1),
            (
                "read beside its write",
                then.holders().iter().any(|h| h.mode == Mode::Write) && then.holders().len() > 1,
            ),
            ("permits are out together", permits(then) > 0 && then.holders().len() > 1),
            (
                "some permits, and too few",
                matches!(answer, Answer::Busy { .. }) && permits(then) < self.world.permits,
            ),
            ("exchanged", then.holders().iter().any(|h| h.instead.is_some())),
            (
                "may share",
                matches!(
                    (op, answer),
                    (Op::Acquire(PendingAcquire { how: AcquireMode::Share, .. }), Answer::In { .. })
                ),
            ),
            (
                "may not share",
                matches!(
                    (op, answer),
                    (Op::Acquire(PendingAcquire { how: AcquireMode::Share, .. }), Answer::Busy { .. })
                ),
            ),
            ("unheard", before.queue.values().any(|p| !silent(&p) && !own(p.owner) && is_out(p.owner))),
            ("a silent position was dropped", dropped),
            (
                "a position was given back",
                match op {
                    Op::Acquire(ask) => {
                        let known = ask.arrival.map(|arrival| then.position_of(ask.mode, arrival));
                        known.is_some()
                            && then.arrival(ask.owner) == known
                            && before.arrival(ask.owner).is_none()
                    }
                    _ => false,
                },
            ),
        ];
        whats.into_iter().filter(|w| w.1).for_each(|w| self.seen.count(w.0));
    }

    pub(super) fn note_time(&mut self, before: &SmallRedis) {
        // Only if holders expire individually.
        if !self.world.roles.is_empty() || self.world.permits > 0 {
            let over = before.holders().iter().filter(|h| h.end <= self.state.millis());
            self.sides.lapsed.extend(over.map(|h| h.owner));
        }
        let (then, now) = (&self.state.redis, self.state.millis());
        let lapsed = |end: u64| end <= now && end + millis(TICK) > now;
        let whats = [
            (
                "a lease lapsed",
                before.holders().iter().any(|h| lapsed(h.end) && then.holder(h.owner).is_none()),
            ),
            (
                "a queue fell silent",
                !before.queue.is_empty() && then.queue.is_empty() && lapsed(before.queue_ends),
            ),
            ("tombstones ended", !before.tombstones.is_empty() && then.tombstones.is_empty()),
        ];
        whats.into_iter().filter(|w| w.1).for_each(|w| self.seen.count(w.0));
    }

    /// Records the effects of a request to a lock with conditions.
    pub(super) fn note_signals(&mut self, op: &Op, expected: &Reply, then: &SmallRedis) {
        let before = &self.state.redis;
        let signalled = |redis: &SmallRedis| -> Vec<u64> {
            let positions = redis.queue.values().filter(|p| matches!(p.stage, Stage::Signalled(_)));
            positions.map(|p| p.owner).collect()
        };
        let there = |owner: &u64| then.awaiting.positions.contains_key(owner);
        let (was, is) = (signalled(before), signalled(then));
        let holder = then.holders().first().map(|h| h.owner);
        let came =
            |o: &u64| before.awaiting.positions.contains_key(o) && (is.contains(o) || holder == Some(*o));
        let gone = was.iter().any(|o| !is.contains(o) && holder != Some(*o));
        let passed_on = gone && before.awaiting.positions.keys().any(came);
        let seen = &mut *self.seen;
        match (op, expected) {
            (Op::Await { ask, .. }, Reply::Acquired(answer)) => {
                let PendingAcquire { owner, how, from, .. } = ask;
                let stays = there(owner) && matches!(answer, Answer::Busy { .. });
                seen.count_if("began to wait", stays && from.is_some());
                seen.count_if("a heartbeat", stays && *how == AcquireMode::Keep);
                seen.count_if("back without a signal", matches!(answer, Answer::Back(_)));
                seen.count_if("its hold was not there", matches!(answer, Answer::Refused(_)));
                seen.count_if("a signal was passed on", passed_on);
                let went = before.awaiting.signalled.is_some()
                    && then.awaiting.signalled != before.awaiting.signalled;
                let moved = |o: &u64| before.arrival(*o).is_none() && came(o);
                seen.count_if(
                    "a signal went on from one that was let in",
                    went && before.awaiting.positions.keys().any(moved),
                );
            }
            (Op::Signal { .. }, Reply::Signalled(n)) => {
                let left = before.awaiting.positions.len() - then.awaiting.positions.len();
                seen.count_if("signalled one", *n == Some(1));
                seen.count_if("signalled several", *n > Some(1));
                seen.count_if("signalled nobody", *n == Some(0));
                seen.count_if("signalled from outside", n.is_none());
                seen.count_if("one was signalled in vain", n.is_some_and(|n| n < left));
            }
            (Op::Quit { .. }, Reply::Left { inside, .. }) => {
                seen.count_if("quit the lock", *inside);
                seen.count_if("quit from outside", !inside);
                seen.count_if("a signal was passed on", passed_on);
            }
            (_, Reply::Left { .. } | Reply::Acquired(_)) => {
                seen.count_if("a signal was passed on", passed_on);
            }
            _ => {}
        }
    }
}
