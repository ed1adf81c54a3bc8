//! What happens in a simulation, and when.

use crate::engine::scale::primary::Sent;
use crate::engine::small_redis::{Message, Reply};

pub(super) enum Event {
    /// A thread starts to lock, or unlocks.
    Goes(usize),
    /// A waiting thread takes its turn, unless it has done so since.
    Turns(usize, u64),
    Arrives(Vec<Sent>),
    Answered(Vec<(Sent, Reply)>),
    Received(Message),
    /// A client has renewals to send.
    Due(usize),
    /// A client's inbox has been silent.
    Pings(usize),
    Counts,
}

/// Sorted by time, then by the order in which they were planned.
pub(super) struct Timed(pub(super) u64, pub(super) u64, pub(super) Event);

impl PartialEq for Timed {
    fn eq(&self, other: &Timed) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}

impl Eq for Timed {}

impl PartialOrd for Timed {
    fn partial_cmp(&self, other: &Timed) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Timed {
    fn cmp(&self, other: &Timed) -> std::cmp::Ordering {
        (self.0, self.1).cmp(&(other.0, other.1))
    }
}
