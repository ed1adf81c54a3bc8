//! A performance goal, and whether it was reached.

use super::data::{Data, Pin};

/// On which side of its limit a figure is good.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    AtMost,
    AtLeast,
}

/// A figure, or several with the same limit.
pub(crate) struct Goal {
    pub(crate) what: &'static str,
    side: Side,
    least: f64,
    aim: Option<f64>,
    unit: &'static str,
    decimals: usize,
    /// The decimals that a figure is rounded to before it is compared with the aim; `None` to compare all.
    rounded: Option<usize>,
    only_pinned: bool,
    figures: fn(&Data, Pin) -> Vec<Option<f64>>,
}

/// How figures compare with their goal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    NotMeasured,
    NoGoal,
    Missed,
    Met,
    AimMet,
}

impl Standing {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Standing::NotMeasured => "not yet measured",
            Standing::NoGoal => "",
            Standing::Missed => "**no**",
            Standing::Met => "yes",
            Standing::AimMet => "aim",
        }
    }
}

pub(crate) fn at_most(what: &'static str, least: f64, figures: fn(&Data, Pin) -> Vec<Option<f64>>) -> Goal {
    let side = Side::AtMost;
    Goal { what, side, least, aim: None, unit: "", decimals: 2, rounded: None, only_pinned: false, figures }
}

pub(crate) fn at_least(what: &'static str, least: f64, figures: fn(&Data, Pin) -> Vec<Option<f64>>) -> Goal {
    Goal { side: Side::AtLeast, ..at_most(what, least, figures) }
}

impl Goal {
    /// Sets an aim, which is stricter than the limit.
    pub(crate) fn aim(self, aim: f64) -> Goal {
        Goal { aim: Some(aim), ..self }
    }

    pub(crate) fn unit(self, unit: &'static str, decimals: usize) -> Goal {
        Goal { unit, decimals, ..self }
    }

    /// Rounds figures to this many decimals before they are compared with the aim.
    pub(crate) fn rounded(self, digits: usize) -> Goal {
        Goal { rounded: Some(digits), ..self }
    }

    /// Applies the limit to pinned runs only: in others the figures include waking another core.
    pub(crate) fn only_pinned(self) -> Goal {
        Goal { only_pinned: true, ..self }
    }

    pub(crate) fn standing(&self, data: &Data, pin: Pin) -> Standing {
        let figures: Option<Vec<f64>> = (self.figures)(data, pin).into_iter().collect();
        let Some(figures) = figures else { return Standing::NotMeasured };
        if self.only_pinned && pin != Pin::Same {
            return Standing::NoGoal;
        }
        let unit = self.rounded.map(|digits| 10_f64.powi(digits as i32));
        let rounded = |f: f64| unit.map_or(f, |unit| (f * unit).round() / unit);
        let least = figures.iter().all(|f| self.good(*f, self.least));
        let aim = self.aim.map(|aim| figures.iter().all(|f| self.good(rounded(*f), aim)));
        match (least, aim) {
            (false, _) => Standing::Missed,
            (true, Some(true)) => Standing::AimMet,
            (true, _) => Standing::Met,
        }
    }

    fn good(&self, figure: f64, limit: f64) -> bool {
        match self.side {
            Side::AtMost => figure <= limit,
            Side::AtLeast => figure >= limit,
        }
    }

    /// Formats the limit, as in "≤ 1.10", and the aim.
    pub(crate) fn limits(&self) -> [String; 2] {
        let sign = if self.side == Side::AtMost { '≤' } else { '≥' };
        // The limit of a ratio has the decimals of its figures, one with a unit those it was given with.
        let decimals = |limit: f64| {
            if self.unit.is_empty() { self.decimals.min(2) } else { usize::from(limit.fract() != 0.0) }
        };
        let written = |limit: f64, decimals: usize| match limit {
            0.0 => "0".to_owned(),
            limit => format!("{sign} {limit:.decimals$}{}", self.unit),
        };
        let aim = |aim| written(aim, self.rounded.unwrap_or(decimals(aim)));
        [written(self.least, decimals(self.least)), self.aim.map(aim).unwrap_or_default()]
    }

    /// Formats the figures for the table.
    pub(crate) fn written(&self, data: &Data, pin: Pin) -> String {
        let one = |figure: Option<f64>| match figure {
            Some(figure) => format!("{figure:.*}{}", self.decimals, self.unit),
            None => "–".to_owned(),
        };
        (self.figures)(data, pin).into_iter().map(one).collect::<Vec<_>>().join(", ")
    }
}
