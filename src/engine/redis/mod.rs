//! Connections to Redis, what is sent on them, and what its replies mean.
//!
//! From the top: an operation on a lock is in [`requests`] (on several, in [`several`]; beside others on one
//! connection, in [`packed`]). Its [`arguments`] have names, and [`resp`] turns them into bytes. [`backend`]
//! sends it on a connection of the [`pool`], within its timeout, and a second time if that does no harm.
//! [`replies`] reads the reply, and [`refusal`] an error of the server. Nothing here decides what an outcome
//! means to a thread that waits or holds.

pub(crate) mod answers;
pub(crate) mod backend;
mod batch;
mod checkout;
pub(crate) mod connection;
pub(crate) mod credentials;
pub(crate) mod failure;
pub(crate) mod greeting;
#[cfg(not(shuttle))]
mod handshake;
pub(crate) mod life;
mod link;
pub(crate) mod pool;
pub(crate) mod posted;
pub(crate) mod probe;
pub(crate) mod process;
pub(crate) mod refusal;
pub(crate) mod resp;
pub(crate) mod rng;
pub(crate) mod sentinels;
pub(crate) mod server_info;
pub(crate) mod slots;
pub(crate) mod subscriber;
pub(crate) mod wire;
