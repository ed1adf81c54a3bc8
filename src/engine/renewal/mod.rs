//! Keeping holds alive: when each is renewed, and the thread for each server that sends the renewals.

mod line;
mod outcome;
pub(crate) mod renewer;
mod schedule;
pub(crate) mod successor;
mod thread;
