//! Threads and their synchronization: parking_lot's and std's, under their own names.
//!
//! With `--cfg shuttle`, the same names are versions whose every step a scheduler decides, and whose time
//! passes when a test says so: `make shuttle` runs the unchanged engine in orders of steps that no machine
//! would produce by itself.

use std::sync::Arc;

use crate::error::{Error, ErrorKind};

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

/// Starts a thread of this name.
///
/// # Errors
/// `Unavailable` if this process cannot start one.
pub(crate) fn spawn(name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), Error> {
    let started = thread::Builder::new().name(name.to_owned()).spawn(run).map(drop);
    let failed = || ErrorKind::Unavailable.because(format!("the thread {name} could not be started"));
    started.map_err(|e| failed().caused_by(e))
}

/// What a process has one of, from its first use on; a forked child has one of its own.
pub(crate) struct OfProcess<T: 'static>(Global<Option<(u32, Arc<T>)>>);

impl<T: Default> OfProcess<T> {
    pub(crate) const fn new() -> Self {
        OfProcess(Global::new(None))
    }

    pub(crate) fn get(&self) -> Arc<T> {
        let pid = std::process::id();
        let mut current = self.0.lock();
        match &*current {
            Some((of, it)) if *of == pid => it.clone(),
            _ => {
                let new = Arc::<T>::default();
                // The parent's is not dropped: its mutex may be held by a thread that does not exist here.
                std::mem::forget(current.replace((pid, new.clone())));
                new
            }
        }
    }
}
