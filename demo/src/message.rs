//! What the parent and its workers say to each other, a line of JSON each.

use serde::{Deserialize, Serialize};

use super::trace::Trace;
use super::variant::Variant;

/// What a worker is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    pub url: String,
    /// Where a RedLock is, in the run that has one.
    pub servers: Vec<String>,
    pub prefix: String,
    pub variant: Variant,
    pub worker: usize,
    /// How many orders there are in all.
    pub orders: usize,
    /// With its next sale after that many orders it says [`Message::Holding`], and stands still.
    pub victim_after: Option<usize>,
}

/// What a worker says.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// It waits to be told to go.
    Ready,
    /// A thread has read and not yet written, holds this product's lock, and waits to be killed.
    Holding {
        product: String,
        requests: u64,
    },
    /// All orders are decided.
    Done(Done),
    Failed(String),
}

/// A worker's figures.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Done {
    /// What its locks have sent to Redis.
    pub requests: u64,
    /// In microseconds.
    pub longest_wait: u64,
    /// Orders given back because a lease ended before the write.
    pub given_back: usize,
    pub traces: Vec<Trace>,
}
