//! Threads and their synchronization: parking_lot's and std's, under their own names.
//!
//! With `--cfg shuttle`, the same names are versions whose every step a scheduler decides, and whose time
//! passes when a test says so: `make shuttle` runs the unchanged engine in orders of steps that no machine
//! would produce by itself.

#[cfg(shuttle)]
#[path = "../verify/shuttle/scheduled.rs"]
mod scheduled;
#[cfg(shuttle)]
#[path = "../verify/shuttle/time.rs"]
pub(crate) mod time;

#[cfg(shuttle)]
pub(crate) use self::scheduled::{Condvar, Global, Mutex, MutexGuard, Random, RwLock, thread};
#[cfg(shuttle)]
pub(crate) use shuttle::{sync::atomic, thread_local};
/// Not random: an order of steps must be reproducible.
#[cfg(shuttle)]
pub(crate) type RandomState = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;

#[cfg(not(shuttle))]
pub(crate) use parking_lot::{Condvar, Mutex, Mutex as Global, MutexGuard, RwLock};
#[cfg(not(shuttle))]
pub(crate) use std::{hash::RandomState, sync::atomic, thread, thread_local};
#[cfg(not(shuttle))]
pub(crate) use uuid::Uuid as Random;
