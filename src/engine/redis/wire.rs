//! Connections.
//!
//! Built with `--cfg shuttle`, they lead to a Redis in memory, in the same thread, as shuttle's scheduler can
//! neither stop nor start a socket.

#[cfg(shuttle)]
#[path = "../../../verify/shuttle/memory.rs"]
pub(crate) mod memory;

#[cfg(shuttle)]
pub(crate) use self::memory::{Connection, connect};

#[cfg(not(shuttle))]
pub(crate) use crate::engine::redis::socket::{Socket as Connection, connect};
