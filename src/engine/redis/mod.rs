//! Connections to Redis, what is sent on them, and what its answers mean.

pub(crate) mod answers;
mod arguments;
pub(crate) mod backend;
mod batch;
mod checkout;
pub(crate) mod connection;
pub(crate) mod failure;
pub(crate) mod greeting;
pub(crate) mod inspect;
mod link;
pub(crate) mod packed;
pub(crate) mod pool;
pub(crate) mod posted;
pub(crate) mod probe;
pub(crate) mod refusal;
pub(crate) mod replicas;
pub(crate) mod replies;
pub(crate) mod requests;
pub(crate) mod resent;
pub(crate) mod resp;
pub(crate) mod sentinels;
pub(crate) mod server_info;
pub(crate) mod several;
pub(crate) mod slots;
pub(crate) mod subscriber;
pub(crate) mod watching;
pub(crate) mod wire;
