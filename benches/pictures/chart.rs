//! Lines of figures over a quantity that doubles from step to step, in panels side by side.

use super::axis::{Axis, short};
use super::svg::{Anchor, Look, Svg};

/// Figures that belong together: at most one for each step.
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) look: Look,
    pub(crate) figures: Vec<Option<f64>>,
}

pub(crate) struct Panel {
    pub(crate) title: &'static str,
    /// The same names and looks in all panels of a chart.
    pub(crate) series: Vec<Series>,
}

pub(crate) struct Chart {
    /// The name of its file.
    pub(crate) file: &'static str,
    pub(crate) title: &'static str,
    /// What doubles, and its unit; then the label of each step.
    pub(crate) across: &'static str,
    pub(crate) steps: Vec<String>,
    /// What the figures are, and their unit.
    pub(crate) up: &'static str,
    pub(crate) log: bool,
    pub(crate) panels: Vec<Panel>,
}

const LEFT: f64 = 64.0;
const TOP: f64 = 58.0;
const WIDE: f64 = 320.0;
const HIGH: f64 = 230.0;
/// From one panel's right edge to the next one's left, where the next one's numbers are.
const GAP: f64 = 56.0;
const RIGHT: f64 = 16.0;
const LEGEND: f64 = 20.0;
/// How many names a row of the legend has.
const ACROSS: usize = 3;
/// The space between the sides of a panel and the first and last step.
const INSET: f64 = 22.0;

impl Chart {
    pub(crate) fn draw(&self) -> String {
        let panels = self.panels.len() as f64;
        let width = LEFT + panels * WIDE + (panels - 1.0) * GAP + RIGHT;
        let names = self.panels.first().map_or(0, |p| p.series.len());
        let below = TOP + HIGH + 52.0;
        let height = below + LEGEND * names.div_ceil(ACROSS) as f64;
        let mut svg = Svg::new(width, height, self.title);
        svg.bold((LEFT, 22.0), Anchor::Start, self.title);
        let all: Vec<f64> =
            self.panels.iter().flat_map(|p| &p.series).flat_map(|s| &s.figures).flatten().copied().collect();
        // One axis for all panels, so that they can be compared.
        let axis = Axis::over(&all, self.log);
        for (i, panel) in self.panels.iter().enumerate() {
            let left = LEFT + i as f64 * (WIDE + GAP);
            self.scales(&mut svg, left, axis.as_ref());
            svg.bold((left + WIDE / 2.0, TOP - 10.0), Anchor::Middle, panel.title);
            self.figures(&mut svg, left, axis.as_ref(), panel);
        }
        self.legend(&mut svg, below, width);
        svg.end()
    }

    fn scales(&self, svg: &mut Svg, left: f64, axis: Option<&Axis>) {
        let (right, bottom) = (left + WIDE, TOP + HIGH);
        for line in axis.map(Axis::lines).unwrap_or_default() {
            let y = up(axis, line);
            svg.rule((left, y), (right, y), true);
            svg.text((left - 6.0, y + 4.0), Anchor::End, &short(line));
        }
        svg.rule((left, TOP), (left, bottom), false);
        svg.rule((left, bottom), (right, bottom), false);
        for (i, step) in self.steps.iter().enumerate() {
            let x = left + self.along(i);
            svg.rule((x, bottom), (x, bottom + 4.0), false);
            svg.text((x, bottom + 18.0), Anchor::Middle, step);
        }
        svg.text((left + WIDE / 2.0, bottom + 36.0), Anchor::Middle, self.across);
        if left == LEFT {
            svg.upright((16.0, TOP + HIGH / 2.0), self.up);
        }
    }

    fn figures(&self, svg: &mut Svg, left: f64, axis: Option<&Axis>, panel: &Panel) {
        let mut some = false;
        for series in &panel.series {
            let points: Vec<_> = (0..)
                .zip(&series.figures)
                .filter_map(|(i, figure)| Some((left + self.along(i), up(axis, (*figure)?))))
                .collect();
            if !points.is_empty() {
                some = true;
                svg.figures(series.look, &points);
            }
        }
        if !some {
            svg.text((left + WIDE / 2.0, TOP + HIGH / 2.0), Anchor::Middle, "not yet measured");
        }
    }

    fn legend(&self, svg: &mut Svg, top: f64, width: f64) {
        let column = (width - LEFT - RIGHT) / ACROSS as f64;
        for (i, series) in self.panels.iter().take(1).flat_map(|p| &p.series).enumerate() {
            let x = LEFT + (i % ACROSS) as f64 * column;
            let y = top + (i / ACROSS) as f64 * LEGEND + LEGEND / 2.0;
            svg.figures(series.look, &[(x, y), (x + 32.0, y)]);
            svg.text((x + 42.0, y + 4.0), Anchor::Start, &series.name);
        }
    }

    /// Returns where a step is; all are equally far apart.
    fn along(&self, step: usize) -> f64 {
        let steps = self.steps.len().saturating_sub(1).max(1) as f64;
        INSET + step as f64 / steps * (WIDE - 2.0 * INSET)
    }
}

fn up(axis: Option<&Axis>, figure: f64) -> f64 {
    let place = axis.map_or(0.0, |axis| axis.place(figure));
    // A figure that a logarithmic scale cannot show is drawn at its bottom.
    TOP + HIGH * (1.0 - if place.is_finite() { place } else { 0.0 })
}
