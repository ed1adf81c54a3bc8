//! A scale for figures: where a value lies on it, and how it is labelled.

/// A scale from `low` at 0 to `high` at 1.
pub(crate) struct Axis {
    log: bool,
    low: f64,
    high: f64,
}

/// The lines of a decade.
const STEPS: [f64; 3] = [1.0, 2.0, 5.0];
/// With more decades than this, each has only one line.
const FEW: f64 = 2.5;

impl Axis {
    /// Returns a scale that covers all of `values`, `None` if there are none. A logarithmic scale leaves out
    /// values that are not above 0; a linear one begins at 0.
    pub(crate) fn over(values: &[f64], log: bool) -> Option<Axis> {
        let values = values.iter().copied().filter(|v| v.is_finite() && (!log || *v > 0.0));
        let (low, high) = values.fold((f64::MAX, f64::MIN), |(low, high), v| (low.min(v), high.max(v)));
        if low > high {
            return None;
        }
        if !log {
            return Some(Axis { log, low: 0.0, high: step_above(high.max(1e-9)) });
        }
        let (low, high) = (step_below(low), step_above(high));
        // A single value on a line would give a scale of zero length.
        Some(Axis { log, low, high: if high > low { high } else { low * 10.0 } })
    }

    /// Returns where `value` lies, from 0 to 1.
    pub(crate) fn place(&self, value: f64) -> f64 {
        if self.log {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low)
        }
    }

    /// Returns where lines are drawn, with a number at each.
    pub(crate) fn lines(&self) -> Vec<f64> {
        if !self.log {
            let step = step_below(self.high / 4.0);
            return (0..).map(|i| f64::from(i) * step).take_while(|v| *v <= self.high * 1.001).collect();
        }
        let decades = (self.high / self.low).log10();
        let steps = if decades > FEW { &STEPS[..1] } else { &STEPS[..] };
        let (first, last) = (self.low.log10().floor() as i32, self.high.log10().ceil() as i32);
        (first..=last)
            .flat_map(|decade| steps.iter().map(move |step| step * 10_f64.powi(decade)))
            .filter(|v| (self.low * 0.999..=self.high * 1.001).contains(v))
            .collect()
    }
}

/// Returns the nearest of 1, 2, 5, 10, 20 … that is not above `value`.
fn step_below(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    STEPS.iter().rev().map(|step| step * decade).find(|it| *it <= value * 1.000_001).unwrap_or(decade)
}

/// Returns the nearest of 1, 2, 5, 10, 20 … that is not below `value`.
fn step_above(value: f64) -> f64 {
    let decade = 10_f64.powf(value.log10().floor());
    STEPS.iter().map(|step| step * decade).find(|it| *it >= value * 0.999_999).unwrap_or(decade * 10.0)
}

/// Formats a number briefly: 0.5, 20, 5 k, 2 M.
pub(crate) fn short(value: f64) -> String {
    let (value, letter) = match value {
        v if v >= 1e6 => (v / 1e6, " M"),
        v if v >= 1e3 => (v / 1e3, " k"),
        v => (v, ""),
    };
    // At most two decimals, without trailing zeros.
    let text = format!("{value:.2}");
    format!("{}{letter}", text.trim_end_matches('0').trim_end_matches('.'))
}
