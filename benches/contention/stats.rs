//! Statistics of many values.

use serde::{Deserialize, Serialize};

/// Returns the middle value, or the mean of the two middle ones; `None` if there are no values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[half]),
        _ => Some((sorted[half - 1] + sorted[half]) / 2.0),
    }
}

/// Jain's index: 1 when all got the same, 1/n when one got everything.
pub(crate) fn jain(counts: &[u64]) -> Option<f64> {
    let sum: f64 = counts.iter().map(|c| *c as f64).sum();
    let squares: f64 = counts.iter().map(|c| (*c as f64).powi(2)).sum();
    (squares > 0.0).then(|| sum * sum / (counts.len() as f64 * squares))
}

/// A histogram whose buckets are 1/64 of an octave wide: a quantile is right within 1 %, and a second of a
/// busy lock's waits is a few hundred numbers on a pipe.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Spread {
    counts: Vec<u64>,
    max: u64,
}

const PARTS: u32 = 6;

impl Spread {
    pub(crate) fn add(&mut self, value: u64) {
        let place = place(value);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
        self.max = self.max.max(value);
    }

    pub(crate) fn join(&mut self, other: &Spread) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.max = self.max.max(other.max);
    }

    /// Returns the value that a fraction `q` of all values does not exceed.
    pub(crate) fn quantile(&self, q: f64) -> Option<f64> {
        let all: u64 = self.counts.iter().sum();
        let rank = (q * all as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        Some(middle(place).min(self.max as f64))
    }

    pub(crate) fn max(&self) -> Option<f64> {
        (!self.counts.is_empty()).then_some(self.max as f64)
    }
}

fn place(value: u64) -> usize {
    let octave = u64::BITS - value.leading_zeros();
    let shift = octave.saturating_sub(PARTS + 1);
    // Below 128 every value has a bucket of its own; above, an octave has 64.
    ((u64::from(shift) << PARTS) + (value >> shift)) as usize
}

fn middle(place: usize) -> f64 {
    let shift = (place >> PARTS).saturating_sub(1) as u32;
    let base = place as u64 - (u64::from(shift) << PARTS);
    (base << shift) as f64 + ((1_u64 << shift) - 1) as f64 / 2.0
}
