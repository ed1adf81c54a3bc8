//! What is counted in a simulation.

use super::costs::Kind;

/// Counts over the counted time.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) seconds: f64,
    pub(super) acquisitions: u64,
    /// By kind, renewals included.
    pub(super) requests: [u64; Kind::ALL.len()],
    pub(super) renewals: u64,
    /// The number of writes in which they arrived.
    pub(super) writes: u64,
    /// Redis commands that the scripts called.
    pub(super) commands: f64,
    pub(super) messages: u64,
    pub(super) pings: u64,
    /// Holds that were lost.
    pub(super) lost: u64,
    /// For how many nanoseconds the primary was busy.
    pub(super) busy: u64,
    /// The longest time from the sending of a request to its reply, in nanoseconds.
    pub(super) slowest: u64,
    /// The most connections of any client: those that its threads use at a time, its inbox, its renewals.
    pub(super) connections: usize,
}

impl Seen {
    pub(super) fn requests(&self) -> u64 {
        self.requests.iter().sum()
    }

    pub(super) fn requests_an_acquisition(&self) -> f64 {
        self.requests() as f64 / self.acquisitions as f64
    }

    pub(super) fn messages_an_acquisition(&self) -> f64 {
        self.messages as f64 / self.acquisitions as f64
    }

    /// Returns what fraction of a core the primary used.
    pub(super) fn load(&self) -> f64 {
        (self.busy as f64 / 1e9 / self.seconds).min(1.0)
    }
}
