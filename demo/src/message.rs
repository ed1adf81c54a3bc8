//! The messages between the parent and its workers, each a line of JSON.

use serde::{Deserialize, Serialize};

use super::trace::Trace;
use super::variant::Variant;

/// What a worker is to do.
#[derive(Debug, Serialize, Deserialize)]
pub struct Task {
    pub url: String,
    /// The servers of the RedLock, in the run that has one.
    pub servers: Vec<String>,
    pub prefix: String,
    pub variant: Variant,
    pub worker: usize,
    /// How many orders there are in all.
    pub orders: usize,
    /// At its next sale after this many orders, a thread sends [`Message::Holding`] and then does nothing until the
    /// process is killed.
    pub victim_after: Option<usize>,
}

/// A message of a worker.
#[derive(Debug, Serialize, Deserialize)]
pub enum Message {
    /// It is ready, and waits for the start.
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
    /// The requests that its locks have sent to Redis.
    pub requests: u64,
    /// In microseconds.
    pub longest_wait: u64,
    /// Orders given back because a lease ended before the write.
    pub given_back: usize,
    pub traces: Vec<Trace>,
}
