//! How holds are kept: when each is to be renewed, and the thread for each server that has it done.

mod line;
mod outcome;
pub(crate) mod renewer;
mod schedule;
pub(crate) mod successor;
mod thread;
