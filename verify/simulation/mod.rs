//! A Redis in memory that runs the deployed scripts, what shows that it does what a server does, and the deterministic
//! simulation of clients of it.
//!
//! `make simulate` runs it (`runs.rs`): in each run, everything that happens follows from its seed: the scene, the
//! order of the threads' steps, how long each message takes, and what goes wrong.

#[cfg(shuttle)]
mod checks;
#[cfg(shuttle)]
mod cluster;
#[cfg(not(shuttle))]
mod compare;
#[cfg(shuttle)]
mod faults;
#[cfg(shuttle)]
mod net;
#[cfg(shuttle)]
mod part;
#[cfg(shuttle)]
mod recipes;
pub(super) mod redis;
#[cfg(shuttle)]
mod runs;
#[cfg(shuttle)]
mod scene;
#[cfg(shuttle)]
mod server;
#[cfg(shuttle)]
mod signals;
