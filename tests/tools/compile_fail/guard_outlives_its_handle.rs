//! A guard of `lock()` borrows its handle; `lock_owned()` gives one that does not.

use redis_concurrent::{Client, Error, Guard, OwnedGuard, Reentrant};

fn owned(client: &Client) -> Result<OwnedGuard<Reentrant>, Error> {
    let lock = client.reentrant_lock("x");
    lock.lock_owned()
}

fn borrowed(client: &Client) -> Result<Guard<'_, Reentrant>, Error> {
    let lock = client.reentrant_lock("x");
    lock.lock()
}

fn main() {}
