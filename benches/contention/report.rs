//! What is printed: one row for each thing that was measured.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::stats::median;

/// One row; what a workload does not measure stays empty. `docs/benches.md` says what each is.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) kind: String,
    pub(crate) pin: String,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
    pub(crate) processes: usize,
    pub(crate) threads: usize,
    pub(crate) hold_us: Option<u64>,
    pub(crate) slice_us: Option<u64>,
    pub(crate) fair: bool,
    pub(crate) acquisitions_per_s: Option<f64>,
    pub(crate) ratio_to_first: Option<f64>,
    pub(crate) commands_per_acquisition: Option<f64>,
    pub(crate) jain_processes: Option<f64>,
    pub(crate) jain_threads: Option<f64>,
    pub(crate) wait_us_p50: Option<f64>,
    pub(crate) wait_us_p99: Option<f64>,
    pub(crate) wait_us_max: Option<f64>,
    pub(crate) handoffs: Option<f64>,
    pub(crate) handoff_us_p50: Option<f64>,
    pub(crate) handoff_us_p99: Option<f64>,
    pub(crate) round_trip_us: Option<f64>,
    pub(crate) ratio_round_trip: Option<f64>,
    pub(crate) pair_us: Option<f64>,
    pub(crate) floor_us: Option<f64>,
    pub(crate) smallest_us: Option<f64>,
    pub(crate) ratio_floor: Option<f64>,
    pub(crate) ratio_smallest: Option<f64>,
    pub(crate) inside_redis_us: Option<f64>,
    pub(crate) inside_smallest_us: Option<f64>,
    pub(crate) ratio_inside: Option<f64>,
    pub(crate) client_cpu_us: Option<f64>,
    pub(crate) floor_client_cpu_us: Option<f64>,
    pub(crate) server_cpu_us: Option<f64>,
    pub(crate) floor_pairs_per_s: Option<f64>,
    pub(crate) reentry_ns: Option<f64>,
    pub(crate) locks: Option<u64>,
    pub(crate) lease_ms: Option<u64>,
    pub(crate) renewals_per_s: Option<f64>,
    pub(crate) client_cpu_percent: Option<f64>,
    pub(crate) server_cpu_percent: Option<f64>,
    pub(crate) lapsed: Option<f64>,
    pub(crate) rss_per_lock_bytes: Option<f64>,
    pub(crate) ping_us_p99_without: Option<f64>,
    pub(crate) ping_us_p99_with: Option<f64>,
    pub(crate) ping_us_p99_added: Option<f64>,
    pub(crate) names: Option<u64>,
    pub(crate) rss_growth_bytes: Option<f64>,
    pub(crate) keys_without_ttl: Option<f64>,
}

/// The worst of all rounds counts here, the median everywhere else.
const WORST: [&str; 2] = ["lapsed", "keys_without_ttl"];

impl Row {
    /// The rounds of one row as one: each figure is the median of its own.
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
        let slice = match (self.fair, self.slice_us) {
            (true, _) => " fair".to_owned(),
            (false, Some(us)) => format!(" slice {us} us"),
            (false, None) => String::new(),
        };
        println!(
            "{} ({}, {} processes x {} threads, {} rounds of {} s, pin {}{slice})",
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
