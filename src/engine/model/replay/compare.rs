//! What must be the same on both sides.

use std::collections::BTreeMap;
use std::time::Duration;

use super::Walk;
use super::real::View;
use crate::engine::gate::Answer;
use crate::engine::small_redis::{Message, Op, Reply, SmallRedis, millis};

/// Beyond the time that really passed, a millisecond of each of the times that are compared.
const ROUNDING: u64 = 3;

/// The numbers of the one, and which they are of the other.
#[derive(Debug, Default)]
pub(super) struct Pairs(pub(super) BTreeMap<u64, u64>);

impl Pairs {
    #[track_caller]
    fn same(&mut self, small: u64, real: u64, what: &str) {
        let before = self.0.range(..small).next_back().map(|(_, r)| *r);
        let after = self.0.range(small + 1..).next().map(|(_, r)| *r);
        assert!(before.is_none_or(|r| r < real), "{what}: {real} for {small}, behind {before:?}");
        assert!(after.is_none_or(|r| r > real), "{what}: {real} for {small}, before {after:?}");
        let known = *self.0.entry(small).or_insert(real);
        assert_eq!(known, real, "{what} {small}");
    }
}

impl Walk<'_> {
    /// The same length of time, but for what really passed since it was set right.
    #[track_caller]
    fn near(&self, small: u64, real: u64, what: &str) {
        let passed = u64::try_from(self.real.drift().as_millis()).unwrap() + ROUNDING;
        assert!(
            real <= small + ROUNDING && real + passed >= small,
            "{what}: {small} ms, and really {real} ms"
        );
    }

    pub(super) fn compare_replies(&mut self, op: &Op, small: &Reply, real: &Reply) {
        match (small, real) {
            (Reply::Acquired(small), Reply::Acquired(real)) => self.compare_answers(op, small, real),
            (Reply::Left { inside: s, next: small }, Reply::Left { inside: r, next: real }) => {
                assert_eq!(s, r, "who was inside");
                match (small, real) {
                    (Some(small), Some(real)) => self.compare_answers(op, small, real),
                    (None, None) => {}
                    _ => panic!("{small:?}, and really {real:?}"),
                }
            }
            _ => assert_eq!(small, real, "{op:?}"),
        }
    }

    fn compare_answers(&mut self, op: &Op, small: &Answer, real: &Answer) {
        let ms = |d: &Duration| millis(*d);
        match (small, real) {
            (Answer::In { number: s, left: small, .. }, Answer::In { number: r, left: real, .. }) => {
                self.numbers.same(*s, *r, "number");
                self.near(ms(small), ms(real), "left");
            }
            (
                Answer::Busy { floor: s, again: small, arrival: mine },
                Answer::Busy { floor: r, again: real, arrival: theirs },
            ) => {
                self.numbers.same(*s, *r, "floor");
                self.near(ms(small), ms(real), "again");
                assert_eq!(mine.is_empty(), theirs.is_empty(), "a place? {small:?}, and really {real:?}");
                if !mine.is_empty() {
                    self.arrivals.same(mine.parse().unwrap(), theirs.parse().unwrap(), "arrival");
                }
            }
            _ => assert_eq!(small, real, "{op:?}"),
        }
    }

    pub(super) fn compare(&mut self, small: &SmallRedis, told: &[Message], view: &View) {
        let now = self.state.millis();
        assert_eq!(small.holder.map(|h| h.owner), view.holder, "holder");
        self.numbers.same(small.fence, view.fence, "fence");
        assert!(view.fence == 0 || view.ttl[3] > 0, "the fence ends some time");
        if let Some(holder) = small.holder {
            if let Some(number) = view.number {
                self.numbers.same(holder.number, number, "number");
            }
            self.near_end(holder.end, view.ttl[0], now, "lease");
        }
        let owners: Vec<u64> = view.places.iter().map(|p| p.owner).collect();
        assert_eq!(small.waiting().collect::<Vec<_>>(), owners, "queue");
        for ((arrival, place), seen) in small.queue.iter().zip(&view.places) {
            self.arrivals.same(*arrival, seen.arrival, "arrival");
            assert_eq!((place.lease, self.world.window), (seen.lease, seen.window), "{seen:?}");
            self.near(seen.age, now - place.beat, "age");
        }
        if owners.is_empty() {
            assert_eq!((view.ttl[1], view.ttl[2], view.fields), (-2, -2, 0), "nothing of the queue");
        } else {
            self.near_end(small.queue_ends, view.ttl[1], now, "queue");
            self.near_end(small.queue_ends, view.ttl[2], now, "places");
            assert_eq!(view.fields, owners.len(), "places");
        }
        let mut gone: Vec<_> = view.gone.clone();
        gone.sort_unstable();
        assert_eq!(
            small.gone.keys().copied().collect::<Vec<_>>(),
            gone.iter().map(|g| g.0).collect::<Vec<_>>()
        );
        for (end, (owner, left)) in small.gone.values().zip(gone) {
            // Until another is barred, the bar outlasts its time.
            let left = u64::try_from(left + i64::try_from(now).unwrap()).unwrap();
            self.near(*end, left, &format!("the bar of {owner}"));
        }
        if !small.gone.is_empty() {
            self.near_end(small.gone_ends, view.ttl[4], now, "bars");
        }
        let mut heard = view.messages.clone();
        heard.sort_unstable();
        let real = |m: &Message| (m.owner, m.lease);
        assert_eq!(
            told.iter().map(real).collect::<Vec<_>>(),
            heard.iter().map(real).collect::<Vec<_>>(),
            "told"
        );
        for (small, real) in told.iter().zip(heard) {
            self.numbers.same(small.number, real.number, "number told");
        }
    }

    #[track_caller]
    fn near_end(&self, end: u64, ttl: i64, now: u64, what: &str) {
        self.near(end - now, u64::try_from(ttl).unwrap_or_else(|_| panic!("{what} never ends: {ttl}")), what);
    }
}
