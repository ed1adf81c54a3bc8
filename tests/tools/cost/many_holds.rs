//! Very many holds of one lock in one process: one more costs what the first ones cost.

use std::time::Duration;

use redis_concurrent::kinds::{Kind, Permits};
use redis_concurrent::{Client, OwnedGuard, RedisLock};
use redis_concurrent_testkit::RedisServer;
use rustix::time::{ClockId, clock_gettime};

const FEW: usize = 500;
const MANY: usize = 12_000;
const BATCH: usize = 100;
const BATCHES: usize = 5;

/// Nanoseconds of CPU that this thread has used: neither the server's nor other tests'.
fn cpu() -> u64 {
    let t = clock_gettime(ClockId::ThreadCPUTime);
    t.tv_sec.unsigned_abs() * 1_000_000_000 + t.tv_nsec.unsigned_abs()
}

/// What each call of `one` takes, in the best of a few batches: nothing makes it faster than it is.
fn each(mut one: impl FnMut()) -> f64 {
    let batch = |_| {
        let before = cpu();
        (0..BATCH).for_each(|_| one());
        (cpu() - before) as f64 / BATCH as f64
    };
    (0..BATCHES).map(batch).fold(f64::INFINITY, f64::min)
}

/// Once more where a machine that does much else has made the many of them dear.
#[track_caller]
fn costs_the_same_among_many<K: Kind>(lock: impl Fn(&Client) -> RedisLock<K>) {
    for is_last in [false, false, false, true] {
        let [few, many] = among_few_and_many(&lock);
        println!("ns of CPU to come, to go, to be asked: {few:.0?} with {FEW} holds, {many:.0?} with {MANY}");
        let dear = few.into_iter().zip(many).find(|(few, many)| *many >= 3.0 * few);
        let Some((few, many)) = dear else { return };
        assert!(!is_last, "{few} ns with {FEW} holds, {many} ns with {MANY}");
    }
}

fn among_few_and_many<K: Kind>(lock: impl Fn(&Client) -> RedisLock<K>) -> [[f64; 3]; 2] {
    let server = RedisServer::start().unwrap();
    // None is renewed meanwhile.
    let client = Client::builder().url(&server.url()).lease(Duration::from_secs(3600)).connect().unwrap();
    let lock = lock(&client);
    let mut held: Vec<OwnedGuard<K>> = Vec::new();
    let grow = |held: &mut Vec<OwnedGuard<K>>, to: usize| {
        while held.len() < to {
            held.push(lock.lock_owned().unwrap());
        }
        let comes = each(|| held.push(lock.lock_owned().unwrap()));
        // In the order in which they came, as most do.
        let goes = each(|| held.swap_remove(0).unlock().unwrap());
        let is_checked = each(|| assert!(!held[0].is_lost() && !held[held.len() - 1].is_lost()));
        [comes, goes, is_checked]
    };
    let few = grow(&mut held, FEW);
    let many = grow(&mut held, MANY);
    // Not one after the other; in its one second it need not come to all.
    let _ = client.close();
    [few, many]
}

#[test]
fn permits() {
    costs_the_same_among_many(|client| {
        client.semaphore("many").set_permits(2 * MANY as u32).unwrap();
        client.lock_with_kind("many", Permits::default())
    });
}

#[test]
fn fair_readers() {
    costs_the_same_among_many(|client| client.read_write_lock("many").read_lock().fair());
}
