//! What is not held cannot be unlocked, nor what is held be unlocked twice.

use redis_concurrent::{Error, ReentrantLock};

fn never_locked(lock: &ReentrantLock) -> Result<(), Error> {
    lock.unlock() //~ no method named `unlock` found for reference `&RedisLock<Reentrant>`
}

fn twice(lock: &ReentrantLock) -> Result<(), Error> {
    let guard = lock.lock()?;
    guard.unlock()?;
    guard.unlock() //~ use of moved value: `guard`
}

fn main() {}
