//! Connections: the `redis` crate's.
//!
//! Built with `--cfg shuttle`, they lead to a Redis in memory, in the same thread, as shuttle's scheduler can
//! neither stop nor start a socket.

#[cfg(shuttle)]
#[path = "../../../verify/shuttle/memory.rs"]
pub(crate) mod memory;

#[cfg(shuttle)]
pub(crate) use self::memory::{Connection, PubSub, connect};

#[cfg(not(shuttle))]
pub(crate) use {crate::engine::redis::handshake::connect, redis::Connection, redis::PubSub};
