//! The other processes: further instances of this program, each with a job.

use std::error::Error;
use std::time::Duration;

use redis_concurrent_testkit::{Child, hear_parent, is_role, tell_parent};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The environment variable with the job of a child, in JSON.
const JOB: &str = "REDIS_CONCURRENT_BENCH_JOB";
/// How long a child may be silent beyond the time of its round.
const PATIENCE: Duration = Duration::from_secs(120);

/// Starts a child for `role` and returns when it is ready.
pub(crate) fn spawn<J: Serialize>(role: &str, job: &J) -> Result<Child, Box<dyn Error>> {
    let child = Child::spawn(role, &[(JOB, &serde_json::to_string(job)?)])?;
    Ok(child)
}

/// Returns the child's next message.
pub(crate) fn hear<T: DeserializeOwned>(child: &Child, beyond: f64) -> Result<T, Box<dyn Error>> {
    let line = child.read_line_within(PATIENCE + Duration::from_secs_f64(beyond))?;
    Ok(serde_json::from_str(&line)?)
}

/// In a child: returns its job, if it plays this role.
pub(crate) fn job<J: DeserializeOwned>(role: &str) -> Result<Option<J>, Box<dyn Error>> {
    if !is_role(role) {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&std::env::var(JOB)?)?))
}

/// In a child: returns the parent's next order; `None` after the last one.
pub(crate) fn order<T: DeserializeOwned>() -> Result<Option<T>, Box<dyn Error>> {
    Ok(hear_parent()?.map(|line| serde_json::from_str(&line)).transpose()?)
}

/// In a child: tells the parent.
pub(crate) fn tell<T: Serialize>(what: &T) -> Result<(), Box<dyn Error>> {
    Ok(tell_parent(&serde_json::to_string(what)?)?)
}
