//! The contract of every lock: one test suite for all kinds, including your own.
//!
//! ```
//! # use redis_concurrent::kinds::{Kind, Reentrancy, Sharing};
//! # struct Bulkhead(u32);
//! # impl Kind for Bulkhead {
//! #     const NAME: &'static str = "bulkhead";
//! #     const RULE: &'static str = redis_concurrent::rule_file!("../../../examples/own_kind.lua");
//! #     const SHARING: Sharing = Sharing::Shared;
//! #     const REENTRANCY: Reentrancy = Reentrancy::Independent;
//! #     fn args(&self) -> String { self.0.to_string() }
//! # }
//! # fn in_a_test() {
//! redis_concurrent_testkit::contract::run(|client, name| client.lock_with_kind(name, Bulkhead(1)));
//! # }
//! ```
//!
//! The suite runs on a private server or, with `CONTRACT_ON=cluster` in the environment, on a private Redis
//! Cluster.
//!
//! The kind is tested as a lock with one holder (a bulkhead of one, a semaphore with one permit), or against
//! a lock that excludes it ([`run_against`]). The kind itself declares what else is expected of it: fencing
//! tokens if it is [`Exclusive`](Sharing::Exclusive), and re-entry as its [`Reentrancy`] says. Two clients
//! stand for two processes: only the pid in a holder's record shows that they are not.

mod cases;
mod fixture;
mod forms;
mod place;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use self::fixture::{Fixture, Play};
use self::place::Place;
use redis_concurrent::kinds::Kind;
#[cfg(doc)]
use redis_concurrent::kinds::{Reentrancy, Sharing};
use redis_concurrent::{Client, RedisLock};

/// How many cases run in parallel: they spend most of their time waiting.
const SIDE_BY_SIDE: usize = 4;

/// Runs the whole suite on the locks that `make` returns, on a private server.
///
/// # Panics
///
/// If any case fails, with the names of all that did: this is an assertion. Each message is printed before.
pub fn run<K: Kind>(make: impl Fn(&Client, &str) -> RedisLock<K> + Sync) {
    play(Play { make: &make, keep_out: &make, one_holder: true, forget: &|_, _| () });
}

/// Runs the whole suite on a kind that keeps state of its users besides its holders. `make` also creates that
/// state if it is missing, since cases delete it; `forget` deletes it.
///
/// # Panics
///
/// See [`run`].
pub fn run_with_state<K: Kind>(
    make: impl Fn(&Client, &str) -> RedisLock<K> + Sync,
    forget: impl Fn(&Client, &str) + Sync,
) {
    play(Play { make: &make, keep_out: &make, one_holder: true, forget: &forget });
}

/// Runs the whole suite on a private Redis Cluster of three primaries, with a separate lock for each case.
///
/// # Panics
///
/// See [`run`].
pub fn run_on_cluster<K: Kind>(make: impl Fn(&Client, &str) -> RedisLock<K> + Sync) {
    let play = Play { make: &make, keep_out: &make, one_holder: true, forget: &|_, _| () };
    play_at(&Place::cluster(), play);
}

/// Runs the suite on locks that may have several holders at a time, but none while the lock that `keep_out`
/// returns for the same client and name is held, and which exclude that lock in turn: a read lock and its
/// write lock.
///
/// Four cases do not apply and are skipped: that tokens rise, that two holders are never inside together, and
/// that processes and threads are admitted by arrival, which cannot be observed if they are admitted
/// together.
///
/// ```
/// # fn in_a_test() {
/// redis_concurrent_testkit::contract::run_against(
///     |client, name| client.read_write_lock(name).read_lock().clone(),
///     |client, name| client.read_write_lock(name).write_lock().clone(),
/// );
/// # }
/// ```
///
/// # Panics
///
/// See [`run`].
pub fn run_against<K: Kind, W: Kind>(
    make: impl Fn(&Client, &str) -> RedisLock<K> + Sync,
    keep_out: impl Fn(&Client, &str) -> RedisLock<W> + Sync,
) {
    play(Play { make: &make, keep_out: &keep_out, one_holder: false, forget: &|_, _| () });
}

fn play<K: Kind, W: Kind>(play: Play<'_, K, W>) {
    play_at(&Place::usual(), play);
}

fn play_at<K: Kind, W: Kind>(place: &Place, play: Play<'_, K, W>) {
    let cases = cases::all::<K, W>();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut failed = Vec::new();
        while let Some((name, case)) = cases.get(next.fetch_add(1, Ordering::SeqCst)) {
            let fixture = Fixture::new(place, name, play);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                case(&fixture);
                fixture.end();
            }));
            if outcome.is_err() {
                failed.push(*name);
            }
        }
        failed
    };
    let failed: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..SIDE_BY_SIDE)
            .map(|i| thread::Builder::new().name(format!("{} {i}", K::NAME)).spawn_scoped(scope, work))
            .collect();
        workers.into_iter().flatten().flat_map(|worker| worker.join().unwrap_or_default()).collect()
    });
    assert!(failed.is_empty(), "{}: {} of {} cases failed: {failed:?}", K::NAME, failed.len(), cases.len());
    assert!(next.into_inner() >= cases.len(), "no thread could be started");
}
