//! The measurements: one file for each part.

use std::collections::BTreeMap;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::row::Row;

/// Where and when a part was measured: the first line of its file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct About {
    pub(crate) cores: u32,
    pub(crate) cpu: String,
    pub(crate) redis: String,
    pub(crate) rustc: String,
    pub(crate) date: String,
    pub(crate) commit: String,
    /// The machine's load average before the run.
    pub(crate) load: f64,
}

#[derive(Deserialize)]
struct First {
    about: About,
}

pub(crate) struct Part {
    pub(crate) about: About,
    pub(crate) rows: Vec<Row>,
}

/// All parts that were measured, by name.
#[derive(Default)]
pub(crate) struct Data {
    pub(crate) parts: BTreeMap<String, Part>,
}

/// Where everything ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pin {
    /// Server and clients on one core.
    Same,
    /// On whichever cores the system chose.
    None,
}

impl Pin {
    pub(crate) const BOTH: [Pin; 2] = [Pin::Same, Pin::None];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Pin::Same => "pinned",
            Pin::None => "not pinned",
        }
    }

    fn is(self, row: &Row) -> bool {
        row.pin == if self == Pin::Same { "same" } else { "none" }
    }
}

impl Data {
    /// Reads every `*.jsonl` in `folder`.
    pub(crate) fn read(folder: &Path) -> Result<Data, String> {
        let mut data = Data::default();
        let entries = std::fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        for entry in entries {
            let path = entry.map_err(|e| format!("{}: {e}", folder.display()))?.path();
            if path.extension().is_none_or(|it| it != "jsonl") {
                continue;
            }
            let in_file = |e: &dyn std::fmt::Display| format!("{}: {e}", path.display());
            let text = std::fs::read_to_string(&path).map_err(|e| in_file(&e))?;
            let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            data.parts.insert(name, Part::parse(&text).map_err(|e| in_file(&e))?);
        }
        Ok(data)
    }

    /// Returns the first row of `part` with this pinning for which `like` holds.
    pub(crate) fn row(&self, part: &str, pin: Pin, like: impl Fn(&Row) -> bool) -> Option<&Row> {
        self.parts.get(part)?.rows.iter().find(|row| pin.is(row) && like(row))
    }
}

impl Part {
    pub(crate) fn parse(text: &str) -> Result<Part, serde_json::Error> {
        let mut lines = text.lines();
        let First { about } = serde_json::from_str(lines.next().unwrap_or_default())?;
        let rows = lines.map(serde_json::from_str).collect::<Result<_, _>>()?;
        Ok(Part { about, rows })
    }
}
