//! What must be the same on both sides.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::real::{Inside, View};
use crate::engine::small_redis::{CLASS, Message, Mode, Op, Reply, SmallRedis, millis};
use crate::engine::state::lock_state::{Answer, Renewal};

/// Beyond the time that really passed: a millisecond for each of the times compared.
const ROUNDING: u64 = 3;

/// The numbers of the one side, with the corresponding ones of the other.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    pub(super) known: BTreeMap<u64, u64>,
    /// Two numbers of the one side may be the same on the other: an arrival in the queue and one in a
    /// condition, assigned by the same script. The order in either is compared by owner.
    may_meet: bool,
}

impl Pairs {
    #[track_caller]
    pub(super) fn same(&mut self, small: u64, real: u64, what: &str) {
        let before = self.known.range(..small).next_back().map(|(_, r)| *r);
        let after = self.known.range(small + 1..).next().map(|(_, r)| *r);
        let meets = |r| self.may_meet && r == real;
        assert!(before.is_none_or(|r| r < real || meets(r)), "{what}: {real} for {small}, behind {before:?}");
        assert!(after.is_none_or(|r| r > real || meets(r)), "{what}: {real} for {small}, before {after:?}");
        let known = *self.known.entry(small).or_insert(real);
        assert_eq!(known, real, "{what} {small}");
    }
}

/// What is known about both sides of a walk.
#[derive(Debug)]
pub(super) struct Sides {
    /// How long a silent position lives, in milliseconds.
    pub(super) waiter_timeout: u64,
    /// The time that has really passed since times were last set.
    pub(super) drift: Duration,
    pub(super) numbers: Pairs,
    pub(super) arrivals: Pairs,
    /// Whether the value that the rule adds to a grant is an amount, and not a number.
    amounts: bool,
    /// All owners whose lease has expired, if the kind keeps them until a script looks.
    pub(super) lapsed: BTreeSet<u64>,
}

impl Sides {
    pub(super) fn new(waiter_timeout: u64, amounts: bool) -> Sides {
        let (numbers, arrivals) = (Pairs::default(), Pairs { may_meet: true, ..Pairs::default() });
        Sides { waiter_timeout, drift: Duration::ZERO, numbers, arrivals, amounts, lapsed: BTreeSet::new() }
    }

    /// Compares the values that the rule adds to a grant.
    #[track_caller]
    fn same_value(&mut self, small: u64, real: u64, what: &str) {
        if self.amounts { assert_eq!(small, real, "{what}") } else { self.numbers.same(small, real, what) }
    }

    /// Compares two durations, allowing for the time that has really passed since they were set.
    #[track_caller]
    pub(super) fn near(&self, small: u64, real: u64, what: &str) {
        let passed = u64::try_from(self.drift.as_millis()).unwrap() + ROUNDING;
        assert!(
            real <= small + ROUNDING && real + passed >= small,
            "{what}: {small} ms, and really {real} ms"
        );
    }

    pub(super) fn compare_replies(&mut self, op: &Op, small: &Reply, real: &Reply) {
        match (small, real) {
            (Reply::Acquired(small), Reply::Acquired(real)) => self.compare_answers(op, small, real),
            (Reply::Left { inside: s, next: small }, Reply::Left { inside: r, next: real }) => {
                // From a state whose holders expire individually, a leave also removes an expired owner,
                // without looking.
                let lapsed = matches!(op, Op::Leave { owner, .. } if self.lapsed.contains(owner));
                assert!(s == r || (lapsed && *r), "whether it was inside: {op:?}");
                match (small, real) {
                    (Some(small), Some(real)) => self.compare_answers(op, small, real),
                    (None, None) => {}
                    _ => panic!("{small:?}, and really {real:?}"),
                }
            }
            (Reply::Renewed(Renewal::Left(small)), Reply::Renewed(Renewal::Left(real))) => {
                self.near(millis(*small), millis(*real), "left");
            }
            _ => assert_eq!(small, real, "{op:?}"),
        }
    }

    fn compare_answers(&mut self, op: &Op, small: &Answer, real: &Answer) {
        let ms = |d: &Duration| millis(*d);
        match (small, real) {
            (
                Answer::In { number: s, left: small, value: mine },
                Answer::In { number: r, left: real, value: theirs },
            ) => {
                self.numbers.same(*s, *r, "number");
                self.same_value(*mine, *theirs, "value");
                self.near(ms(small), ms(real), "left");
            }
            (
                Answer::Busy { last_number: s, again: small, arrival: mine, others: few },
                Answer::Busy { last_number: r, again: real, arrival: theirs, others: many },
            ) => {
                assert_eq!(few, many, "how many others wait");
                self.numbers.same(*s, *r, "floor");
                self.near(ms(small), ms(real), "again");
                assert_eq!(mine.is_empty(), theirs.is_empty(), "a position? {small:?}, and really {real:?}");
                if !mine.is_empty() {
                    self.arrivals.same(mine.parse().unwrap(), theirs.parse().unwrap(), "arrival");
                }
            }
            (Answer::Back(small), Answer::Back(real)) => self.compare_answers(op, small, real),
            _ => assert_eq!(small, real, "{op:?}"),
        }
    }

    pub(super) fn compare(&mut self, small: &SmallRedis, now: u64, messages: &[Message], view: &View) {
        self.numbers.same(small.fence, view.fence, "fence");
        assert!(view.fence == 0 || view.ttl[3] > 0, "the fence ends some time");
        let holders = small.holders();
        let owners = |real: &[Inside]| real.iter().map(|h| h.owner).collect::<Vec<_>>();
        assert_eq!(holders.iter().map(|h| h.owner).collect::<Vec<_>>(), owners(&view.holders), "holders");
        for (holder, real) in holders.iter().zip(&view.holders) {
            if let Some(number) = real.number {
                self.numbers.same(holder.number, number, "number");
            }
            if let Some(value) = real.value {
                self.same_value(holder.value, value, "value");
            }
            assert_eq!(holder.mode == Mode::Write, real.writes, "{real:?}");
            self.near_end(holder.end, real.left, now, "lease");
        }
        if let Some(last) = view.last.filter(|_| !holders.is_empty()) {
            self.numbers.same(small.last(), last.max(view.fence), "last");
            assert!(view.ttl[0] > 0, "the state ends some time");
        }
        let owners: Vec<u64> = view.positions.iter().map(|p| p.owner).collect();
        assert_eq!(small.waiting().collect::<Vec<_>>(), owners, "queue");
        for ((arrival, position), seen) in small.queue.iter().zip(&view.positions) {
            self.arrivals.same(arrival % CLASS, seen.arrival % CLASS, "arrival");
            assert_eq!(
                (arrival / CLASS, position.mode.args()),
                (seen.arrival / CLASS, &*seen.args),
                "{seen:?}"
            );
            assert_eq!((position.lease, self.waiter_timeout), (seen.lease, seen.waiter_timeout), "{seen:?}");
            self.near(seen.age, now - position.heartbeat, "age");
        }
        // A waiter for a signal has a position beside the queue; one that was signalled and admitted may
        // still be recorded.
        let positions =
            owners.len() + small.awaiting.positions.len() + usize::from(small.awaiting.signalled.is_some());
        assert_eq!(view.fields, positions, "positions");
        for (there, ttl, what) in
            [(owners.len(), view.ttl[1], "queue"), (positions, view.ttl[2], "positions")]
        {
            match there {
                0 => assert_eq!(ttl, -2, "no {what}"),
                _ => self.near_end(small.queue_ends, ttl, now, what),
            }
        }
        let mut tombstones: Vec<_> = view.tombstones.clone();
        tombstones.sort_unstable();
        assert_eq!(
            small.tombstones.keys().copied().collect::<Vec<_>>(),
            tombstones.iter().map(|g| g.0).collect::<Vec<_>>()
        );
        for (end, (owner, left)) in small.tombstones.values().zip(tombstones) {
            // A tombstone outlasts its time until another one is added.
            let left = u64::try_from(left + i64::try_from(now).unwrap()).unwrap();
            self.near(*end, left, &format!("the tombstone of {owner}"));
        }
        if !small.tombstones.is_empty() {
            self.near_end(small.tombstones_end, view.ttl[4], now, "tombstones");
        }
        let mut received = view.messages.clone();
        received.sort_unstable();
        let real = |m: &Message| (m.owner, m.lease, m.says);
        assert_eq!(
            messages.iter().map(real).collect::<Vec<_>>(),
            received.iter().map(real).collect::<Vec<_>>(),
            "told"
        );
        for (small, real) in messages.iter().zip(received) {
            if small.is_grant() {
                self.numbers.same(small.number, real.number, "number told");
                self.same_value(small.value, real.value, "value told");
            }
        }
    }

    #[track_caller]
    pub(super) fn near_end(&self, end: u64, ttl: i64, now: u64, what: &str) {
        self.near(end - now, u64::try_from(ttl).unwrap_or_else(|_| panic!("{what} never ends: {ttl}")), what);
    }
}
