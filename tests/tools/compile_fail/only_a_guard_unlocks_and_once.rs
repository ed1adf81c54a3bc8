//! What is not held cannot be unlocked, nor what is held be unlocked twice.

use redis_concurrent::{Error, ReentrantLock};

fn never_locked(lock: &ReentrantLock) -> Result<(), Error> {
    lock.unlock()
}

fn twice(lock: &ReentrantLock) -> Result<(), Error> {
    let guard = lock.lock()?;
    guard.unlock()?;
    guard.unlock()
}

fn main() {}
