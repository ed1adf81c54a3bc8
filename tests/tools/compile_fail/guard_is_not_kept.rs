//! A guard that is not kept releases at once: what follows is not under the lock.

#![deny(unused_must_use)]

use redis_concurrent::{Error, ReentrantLock};

fn kept(lock: &ReentrantLock) -> Result<(), Error> {
    let _guard = lock.lock()?;
    Ok(())
}

fn not_kept(lock: &ReentrantLock) -> Result<(), Error> {
    lock.lock()?; //~ a guard that is not kept releases at once
    lock.lock_owned()?; //~ a guard that is not kept releases at once
    Ok(())
}

fn main() {}
