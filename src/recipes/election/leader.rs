//! The leader and the candidates of an election, as others see them.

use std::time::{Duration, SystemTime};

use crate::lock::holder::{Process, granted_at, token_of};

/// The leader of an [`Election`](crate::Election), as recorded in Redis.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Leader {
    /// The value of the candidate, or what the leader has [proclaimed since](crate::election::Term::proclaim).
    pub value: String,
    /// The number of its term: see its [token](crate::Guard::token).
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
    pub(super) fn of(state: &[String]) -> Option<Leader> {
        let [term, _, _, _, value, record, remaining] = state else { return None };
        let term = term.parse().ok()?;
        Some(Leader {
            value: value.clone(),
            term: token_of(term),
            process: Process::read(record),
            since: granted_at(term),
            remaining: Duration::from_millis(remaining.parse().unwrap_or(0)),
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
