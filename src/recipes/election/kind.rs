//! The two sorts of requests of an election: those of candidates, and those of observers.

use crate::kind::{Exclusive, Kind, Queueing, Reentrancy, Sharing};

/// The longest value of a leader, in bytes.
const LONGEST_VALUE: usize = 4096;

const RULE: &str = rule_file!("../../../lua/election.lua");

/// The kind of a [`Term`](crate::election::Term): a candidate that leads.
#[derive(Clone, Debug, Default)]
pub struct Candidate {
    pub(super) value: String,
}

impl Kind for Candidate {
    const NAME: &'static str = "election";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::Exclusive;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;

    fn args(&self) -> String {
        format!("lead|{}", self.value)
    }
}

impl Exclusive for Candidate {}

/// The kind of an observer's requests: they wait for a change, and hold nothing.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observing {
    /// What it has seen.
    pub(super) args: String,
}

impl Kind for Observing {
    const NAME: &'static str = "election observer";
    const RULE: &'static str = RULE;
    const SHARING: Sharing = Sharing::PassThrough;
    const REENTRANCY: Reentrancy = Reentrancy::Independent;
    const QUEUEING: Queueing = Queueing::PerCaller;

    fn args(&self) -> String {
        self.args.clone()
    }
}

/// Checks that a leader may have this value.
pub(super) fn check_value(value: &str) -> Result<(), String> {
    if value.len() > LONGEST_VALUE {
        return Err(format!(
            "a leader's value must be at most {LONGEST_VALUE} bytes long, got {}",
            value.len()
        ));
    }
    Ok(())
}
