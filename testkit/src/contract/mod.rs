//! What every lock must do: one suite for all kinds, including your own.
//!
//! ```
//! # use redis_concurrent::{Kind, Reentrancy, Sharing};
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
//! The suite runs on a private server, or with `CONTRACT_ON=cluster` in the environment on a private Redis Cluster.
//!
//! The kind is tested as a lock of one holder (a bulkhead of one, a semaphore of one permit), or against what
//! excludes it ([`run_against`]). What else is expected of it, it declares itself: tokens if it is
//! [`Exclusive`](Sharing::Exclusive), re-entry as its [`Reentrancy`] says. Two clients stand for two
//! processes: nothing here but the pid in a record knows that they are not.

mod cases;
mod forms;
mod place;
mod stage;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use self::place::Place;
use self::stage::{Play, Stage};
use redis_concurrent::{Client, Kind, RedisLock};
#[cfg(doc)]
use redis_concurrent::{Reentrancy, Sharing};

/// How many cases run side by side: most of their time they wait.
const SIDE_BY_SIDE: usize = 4;

/// Runs the whole suite on the locks that `make` makes, on a private server.
///
/// # Panics
///
/// With the names of the cases that failed: it is an assertion. The message of each is printed before.
pub fn run<K: Kind>(make: impl Fn(&Client, &str) -> RedisLock<K> + Sync) {
    play(Play { make: &make, keep_out: &make, one_holder: true, forget: &|_, _| () });
}

/// Runs the whole suite on a kind that keeps its users' own state besides its holders. `make` creates that
/// too if it is missing, since cases delete it; `forget` deletes it.
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

/// Runs the whole suite on a private Redis Cluster of three primaries, on which each case has a lock of its own.
///
/// # Panics
///
/// See [`run`].
pub fn run_on_cluster<K: Kind>(make: impl Fn(&Client, &str) -> RedisLock<K> + Sync) {
    let play = Play { make: &make, keep_out: &make, one_holder: true, forget: &|_, _| () };
    play_at(&Place::cluster(), play);
}

/// Runs the suite on locks that several may hold at a time, but not while there is a holder of what
/// `keep_out` makes for the same client and name; and which exclude that in turn: a read lock and its write
/// lock.
///
/// Four cases do not apply, and are skipped: that tokens rise, that two are never inside, and that processes
/// and threads are admitted in order of arrival, which cannot be observed if they come in together.
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
            let stage = Stage::new(place, name, play);
            let outcome = catch_unwind(AssertUnwindSafe(|| {
                case(&stage);
                stage.end();
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
