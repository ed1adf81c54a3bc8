//! Measured figures by name, one per line in `measured.txt`.

use std::collections::BTreeMap;
use std::fmt;

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Figures(BTreeMap<String, f64>);

impl Figures {
    pub(super) fn read(text: &str) -> Figures {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        let figure = |line: &str| {
            let (name, value) = line.split_once(' ').unwrap_or_else(|| panic!("{line:?}"));
            (name.to_owned(), value.parse().unwrap_or_else(|e| panic!("{line:?}: {e}")))
        };
        Figures(lines.map(figure).collect())
    }

    pub(super) fn get(&self, name: &str) -> f64 {
        *self.0.get(name).unwrap_or_else(|| panic!("{name} was not measured: make scale"))
    }

    pub(super) fn set(&mut self, name: impl Into<String>, value: f64) {
        self.0.insert(name.into(), value);
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| writeln!(f, "{name} {value:.4}"))
    }
}
