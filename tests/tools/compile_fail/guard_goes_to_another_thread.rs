//! A guard of `lock()` belongs to its thread; `lock_owned()` gives one that may go.

use redis_concurrent::{Guard, OwnedGuard};
use redis_concurrent::kinds::Reentrant;

fn to_another_thread<T: Send>(_: T) {}

fn may_go(guard: OwnedGuard<Reentrant>) {
    to_another_thread(guard);
}

fn stays(guard: Guard<Reentrant>) {
    to_another_thread(guard); //~ guard::UseLockOwnedInstead
}

fn main() {}
