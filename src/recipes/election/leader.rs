//! The leader and the candidates of an election, as others see them.

use std::time::{Duration, SystemTime};

use redis::Value;

use crate::engine::redis::answers::{number, text};
use crate::engine::state::grant::first_token;
use crate::lock::holder::{Process, granted_at};

/// The leader of an [`Election`](crate::Election), as recorded in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The value of the candidate, or what the leader has [proclaimed since](crate::election::Term::proclaim).
    pub value: String,
    /// The number of its term: see [`Term::number`](crate::election::Term::number).
    pub term: u64,
    /// Its process, if it left a record.
    pub process: Option<Process>,
    /// The beginning of its term, by the server's clock.
    pub since: SystemTime,
    /// The remaining lease if it is not renewed.
    pub remaining: Duration,
}

impl Leader {
    /// Parses the rule's description: number, version, changes, whether a lease ended, value, record,
    /// remaining ms.
    pub(super) fn of(state: &[Value]) -> Option<Leader> {
        let term = number(state.first())?.try_into().ok()?;
        let remaining = number(state.get(6))?.try_into().unwrap_or(0);
        Some(Leader {
            value: text(state.get(4))?,
            term: first_token(term),
            process: Process::read(&text(state.get(5))?),
            since: granted_at(term),
            remaining: Duration::from_millis(remaining),
        })
    }
}

/// A candidate that waits: see [`Election::candidates`](crate::Election::candidates).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waiting {
    /// Its value.
    pub value: String,
    /// Its process, if it left a record.
    pub process: Option<Process>,
}

impl Waiting {
    /// Parses the rule's description: record, value, …
    pub(super) fn all(state: &[Value]) -> Vec<Waiting> {
        let waiting = |it: &[Value]| {
            Some(Waiting { process: Process::read(&text(it.first())?), value: text(it.get(1))? })
        };
        state.chunks(2).filter_map(waiting).collect()
    }
}
