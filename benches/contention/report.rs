//! The printed report: one row for each thing that was measured.

use serde_json::{Map, Value};

use super::row::Row;
use super::stats::median;

/// For these figures the worst of all rounds counts, for all others the median.
const WORST: [&str; 4] = ["longest_wait_us", "pings", "lapsed", "keys_without_ttl"];

impl Row {
    /// Merges the rounds of one row, figure by figure.
    pub(crate) fn of(rounds: &[Row]) -> Result<Row, serde_json::Error> {
        let maps = rounds.iter().map(fields).collect::<Result<Vec<_>, _>>()?;
        let mut all = maps.first().cloned().unwrap_or_default();
        for (name, value) in &mut all {
            let figures: Vec<f64> = maps.iter().filter_map(|m| m[name].as_f64()).collect();
            if !maps.iter().any(|m| m[name].is_f64()) {
                continue;
            }
            *value = if WORST.contains(&name.as_str()) {
                figures.iter().copied().fold(0.0, f64::max).into()
            } else {
                median(&figures).into()
            };
        }
        serde_json::from_value(Value::Object(all))
    }

    pub(crate) fn print(&self, json: bool) -> Result<(), serde_json::Error> {
        if json {
            println!("{}", serde_json::to_string(self)?);
            return Ok(());
        }
        let local_handoff = match (self.fair, self.local_handoff_us) {
            (true, _) => " fair".to_owned(),
            (false, Some(us)) => format!(" local hand-off {us} us"),
            (false, None) => String::new(),
        };
        println!(
            "{} ({}, {} processes x {} threads, {} rounds of {} s, pin {}{local_handoff})",
            self.workload, self.kind, self.processes, self.threads, self.rounds, self.seconds, self.pin,
        );
        for (name, value) in fields(self)? {
            if let Some(figure) = value.as_f64().filter(|_| value.is_f64() && name != "seconds") {
                println!("  {name:<26} {figure:>14.3}");
            }
        }
        Ok(())
    }
}

fn fields(row: &Row) -> Result<Map<String, Value>, serde_json::Error> {
    match serde_json::to_value(row)? {
        Value::Object(map) => Ok(map),
        _ => Ok(Map::new()),
    }
}
