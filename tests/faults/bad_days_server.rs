//! Bad days of the server: it is not there, dies, stops, is full, busy, loading, a replica, or
//! takes our rights and keys away. Each call ends by its deadline with the one right outcome.

mod connections;
mod full;
mod gone;
mod keys;
mod refusing;
mod rights;
mod scripts;
mod silent;

use std::thread;

use redis_concurrent::{Client, ErrorKind};

use crate::server_days::*;

/// What every form says while the server cannot serve: an error that says so, by its deadline.
#[track_caller]
fn says_unavailable<K: Subject>(client: &Client, kind: K, name: &str) {
    // Each on a lock of its own, so that none waits for another.
    let lock = |n: usize| client.lock_with_kind(&format!("{name}{n}"), kind);
    thread::scope(|scope| {
        scope.spawn(|| {
            let tried = on_time("try_lock", COMMAND, || lock(0).try_lock().map(|it| it.is_some()));
            error_of(tried, ErrorKind::Unavailable, &format!("{name}0"));
        });
        for (n, wait) in [(1, 50), (2, 700)] {
            scope.spawn(move || {
                let timed = on_time("try_lock_for", ms(wait), || {
                    lock(n).try_lock_for(ms(wait)).map(|it| it.is_some())
                });
                error_of(timed, ErrorKind::Unavailable, &format!("{name}{n}"));
            });
        }
        let locked = on_time("is_locked", COMMAND, || lock(3).is_locked());
        error_of(locked, ErrorKind::Unavailable, &format!("{name}3"));
    });
}
