//! A picture as text. Its background is transparent and its colors are of medium brightness, so that it is
//! readable on a white page and on a dark one.

use std::fmt::Write;

pub(crate) const GREY: &str = "#808080";
/// Lines that belong together have one color.
pub(crate) const COLOURS: [&str; 4] = ["#2f81f7", "#e0700f", "#1f9d55", "#b05cd6"];

/// Which end of a text is at its coordinates.
#[derive(Clone, Copy)]
pub(crate) enum Anchor {
    Start,
    Middle,
    End,
}

/// How the points of a line are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Disc,
    Square,
    Diamond,
}

/// How a line of figures looks; lines differ by more than their color.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) colour: usize,
    pub(crate) mark: Mark,
    /// Lengths of strokes and gaps; empty for an unbroken line.
    pub(crate) dashes: &'static str,
}

pub(crate) struct Svg {
    text: String,
}

impl Svg {
    pub(crate) fn new(width: f64, height: f64, title: &str) -> Svg {
        let title = escaped(title);
        Svg {
            text: format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
                 width=\"{width}\" height=\"{height}\" role=\"img\" aria-label=\"{title}\" \
                 font-family=\"system-ui, sans-serif\" font-size=\"12\">\n<title>{title}</title>\n"
            ),
        }
    }

    pub(crate) fn end(mut self) -> String {
        self.text.push_str("</svg>\n");
        self.text
    }

    pub(crate) fn text(&mut self, (x, y): (f64, f64), anchor: Anchor, words: &str) {
        self.words(x, y, anchor, "", words);
    }

    pub(crate) fn bold(&mut self, (x, y): (f64, f64), anchor: Anchor, words: &str) {
        self.words(x, y, anchor, " font-weight=\"bold\"", words);
    }

    /// Writes a text that runs upwards.
    pub(crate) fn upright(&mut self, (x, y): (f64, f64), words: &str) {
        let turned = format!(" transform=\"rotate(-90 {x:.1} {y:.1})\"");
        self.words(x, y, Anchor::Middle, &turned, words);
    }

    fn words(&mut self, x: f64, y: f64, anchor: Anchor, more: &str, words: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let words = escaped(words);
        let _ = writeln!(
            self.text,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"{GREY}\" text-anchor=\"{anchor}\"{more}>{words}</text>"
        );
    }

    /// Draws a thin line of the scales; a faint one if it is only a guide.
    pub(crate) fn rule(&mut self, from: (f64, f64), to: (f64, f64), faint: bool) {
        let opacity = if faint { "0.3" } else { "1" };
        let _ = writeln!(
            self.text,
            "<line x1=\"{:.1}\" y1=\"{:.1}\" x2=\"{:.1}\" y2=\"{:.1}\" stroke=\"{GREY}\" stroke-opacity=\"{opacity}\"/>",
            from.0, from.1, to.0, to.1
        );
    }

    /// Draws a line through the points, and a mark on each.
    pub(crate) fn figures(&mut self, look: Look, points: &[(f64, f64)]) {
        let colour = COLOURS[look.colour % COLOURS.len()];
        let through: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        let _ = writeln!(
            self.text,
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{}\"/>",
            through.join(" "),
            if look.dashes.is_empty() { "none" } else { look.dashes },
        );
        for (x, y) in points {
            let _ = match look.mark {
                Mark::Disc => {
                    writeln!(self.text, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>")
                }
                Mark::Square => writeln!(
                    self.text,
                    "<rect x=\"{:.1}\" y=\"{:.1}\" width=\"6.4\" height=\"6.4\" fill=\"{colour}\"/>",
                    x - 3.2,
                    y - 3.2
                ),
                Mark::Diamond => writeln!(
                    self.text,
                    "<path d=\"M{x:.1} {:.1}l4.5 4.5l-4.5 4.5l-4.5 -4.5z\" fill=\"{colour}\"/>",
                    y - 4.5
                ),
            };
        }
    }
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
