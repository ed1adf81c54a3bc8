//! The rate limiter as its callers see it: decisions, waiting, faults, many processes.

mod deciding;
mod faults;
mod processes;
mod refusing;
mod waiting;

use std::time::Duration;

use crate::names;

const HOUR: Duration = Duration::from_secs(3600);

/// How much is used, as Redis has it.
fn used(name: &str) -> Option<f64> {
    redis::cmd("HGET")
        .arg(names::key(name, ""))
        .arg("used")
        .query(&mut names::server().connection().unwrap())
        .unwrap()
}
