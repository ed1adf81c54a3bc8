//! When another server takes over: who asks it, and what becomes of the holds.

pub(crate) mod moves;
pub(crate) mod switchover;
