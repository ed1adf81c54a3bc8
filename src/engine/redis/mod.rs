//! Connections to Redis, what is sent on them, and what its replies mean.
//!
//! A command goes to its server by an [`exchange`], on a connection of the [`pool`], within its timeout, and a
//! second time if that does no harm; [`refusal`] reads an error of the server. Nothing here decides what an
//! outcome means to a thread that waits or holds.

pub(crate) mod backend;
mod batch;
mod checkout;
pub(crate) mod connection;
pub(crate) mod credentials;
pub(crate) mod exchange;
pub(crate) mod failure;
pub(crate) mod life;
pub(crate) mod pool;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod refusal;
pub(crate) mod resp;
pub(crate) mod sentinels;
pub(crate) mod server_info;
pub(crate) mod slots;
#[cfg(not(shuttle))]
mod socket;
pub(crate) mod subscriber;
pub(crate) mod wire;
