//! A sorted set: by score, and by member where scores are equal.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// A score that has an order; never NaN.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score(pub(crate) f64);

impl Eq for Score {}

impl Ord for Score {
    fn cmp(&self, other: &Score) -> Ordering {
        // -0 and 0 are equal.
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Score) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Score {
    /// As Redis writes it.
    pub(crate) fn text(self) -> String {
        match self.0 {
            n if n.is_infinite() => if n > 0.0 { "inf" } else { "-inf" }.to_owned(),
            n if n == n.trunc() && n.abs() < 1e17 => format!("{n:.0}"),
            n => format!("{n}"),
        }
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Score> {
        let text = std::str::from_utf8(text).ok()?;
        text.parse().ok().filter(|n: &f64| !n.is_nan()).map(Score)
    }
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Sorted {
    scores: BTreeMap<Vec<u8>, Score>,
    order: BTreeSet<(Score, Vec<u8>)>,
}

impl Sorted {
    pub(super) fn is_empty(&self) -> bool {
        self.scores.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(super) fn score(&self, member: &[u8]) -> Option<Score> {
        self.scores.get(member).copied()
    }

    /// Returns whether the member is new.
    pub(crate) fn set(&mut self, member: &[u8], score: Score) -> bool {
        let before = self.scores.insert(member.to_vec(), score);
        if let Some(before) = before {
            self.order.remove(&(before, member.to_vec()));
        }
        self.order.insert((score, member.to_vec()));
        before.is_none()
    }

    pub(super) fn remove(&mut self, member: &[u8]) -> bool {
        let before = self.scores.remove(member);
        before.is_some_and(|before| self.order.remove(&(before, member.to_vec())))
    }

    pub(super) fn rank(&self, member: &[u8]) -> Option<usize> {
        let score = self.score(member)?;
        self.order.iter().position(|(s, m)| *s == score && m == member)
    }

    /// The members in their order.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], Score)> {
        self.order.iter().map(|(score, member)| (&**member, *score))
    }
}
