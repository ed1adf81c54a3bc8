//! What is asked of Redis for a lock: the arguments of each operation, its request, and what its reply means.

pub(crate) mod commands;
pub(crate) mod effects;
pub(crate) mod replies;
pub(crate) mod requests;
pub(crate) mod several;
pub(crate) mod watching;
