//! The rate limiter as its callers see it: decisions, waiting, faults, many processes.

#[path = "support/names.rs"]
mod names;

#[path = "rate_limiter/deciding.rs"]
mod deciding;
#[path = "rate_limiter/faults.rs"]
mod faults;
#[path = "rate_limiter/processes.rs"]
mod processes;
#[path = "rate_limiter/refusing.rs"]
mod refusing;
#[path = "rate_limiter/waiting.rs"]
mod waiting;

use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

/// How much is used, as Redis has it.
fn used(name: &str) -> Option<f64> {
    redis::cmd("HGET")
        .arg(names::key(name, ""))
        .arg("used")
        .query(&mut names::server().connection().unwrap())
        .unwrap()
}
