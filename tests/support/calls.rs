//! All calls that can be made on each kind.

use std::time::Duration;

use redis_concurrent::inventory::Order;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{CancellationToken, Client, Error};

/// Makes each call under one name. None of them waits before it gets an error.
pub type Calls = fn(&Client, &str) -> Vec<Result<(), Error>>;

/// Far longer than a rejected call may take.
const LIMIT: Duration = Duration::from_secs(20);

/// The kinds, as Redis knows them.
pub const KINDS: [(&str, Calls); 10] = [
    ("simple lock", |client, name| {
        let it = client.simple_lock(name);
        vec![
            it.lock().map(drop),
            it.try_lock().map(drop),
            it.is_locked().map(drop),
            it.force_unlock().map(drop),
        ]
    }),
    ("reentrant lock", |client, name| {
        let it = client.reentrant_lock(name);
        vec![
            it.lock().map(drop),
            it.try_lock().map(drop),
            it.is_locked().map(drop),
            it.force_unlock().map(drop),
        ]
    }),
    ("read-write lock", |client, name| {
        let it = client.read_write_lock(name);
        let (read, write) = (it.read_lock(), it.write_lock());
        vec![
            read.lock().map(drop),
            read.try_lock().map(drop),
            read.try_lock_for(LIMIT).map(drop),
            read.lock_owned().map(drop),
            read.holder().map(drop),
            read.force_unlock().map(drop),
            write.lock().map(drop),
            write.try_lock().map(drop),
            write.try_lock_for(LIMIT).map(drop),
            write.lock_owned().map(drop),
            write.holder().map(drop),
            write.force_unlock().map(drop),
            it.write_lock().is_locked().map(drop),
            it.read_count().map(drop),
            it.read_lock().queue_length().map(drop),
        ]
    }),
    ("semaphore", |client, name| {
        let (it, never) = (client.semaphore(name), CancellationToken::new());
        vec![
            it.acquire(1).map(drop),
            it.try_acquire(1).map(drop),
            it.acquire_with(1, LIMIT).map(drop),
            it.acquire_with(1, &never).map(drop),
            it.drain().map(drop),
            it.set_permits(1),
            it.try_set_permits(1).map(drop),
            it.add_permits(1),
            it.add_permits(-1),
            it.expire_after(LIMIT).map(drop),
            it.delete().map(drop),
            it.available().map(drop),
            it.permits().map(drop),
            it.holders().map(drop),
            it.queue_length().map(drop),
        ]
    }),
    ("inventory", |client, name| {
        let it = client.inventory(name);
        let lock = it.inventory_lock("tee", 1);
        vec![
            it.add_stock("tee", 1),
            it.try_reserve(&Order::of("tee", 1)).map(drop),
            it.try_reserve(&Order::of("tee", 1).and("mug", 1).id("one").customer("alice", 1)).map(drop),
            it.stock("tee").map(drop),
            it.is_committed("one").map(drop),
            it.holders().map(drop),
            it.delete().map(drop),
            lock.lock().map(drop),
            lock.try_lock().map(drop),
            lock.lock_owned_with(LIMIT).map(drop),
            lock.is_locked().map(drop),
            lock.force_unlock().map(drop),
        ]
    }),
    ("count-down latch", |client, name| {
        let (it, never) = (client.count_down_latch(name), CancellationToken::new());
        vec![
            it.wait(),
            it.wait_with(LIMIT).map(drop),
            it.wait_with(Duration::ZERO).map(drop),
            it.wait_with(&never).map(drop),
            it.try_set_count(1).map(drop),
            it.count_down().map(drop),
            it.count().map(drop),
            it.expire_after(LIMIT).map(drop),
            it.reset(1),
            it.delete().map(drop),
        ]
    }),
    ("idempotency key", |client, name| {
        let (it, never) = (client.once(name), CancellationToken::new());
        vec![
            it.begin().map(drop),
            it.try_begin().map(drop),
            it.begin_with(LIMIT).map(drop),
            it.begin_with(&never).map(drop),
            it.run(|_| panic!("it was done")).map(drop),
            it.ending().map(drop),
            it.forget().map(drop),
        ]
    }),
    ("election", |client, name| {
        let (it, never) = (client.election(name), CancellationToken::new());
        vec![
            it.campaign().map(drop),
            it.try_campaign().map(drop),
            it.campaign_with(LIMIT).map(drop),
            it.campaign_with(&never).map(drop),
            it.run(|_| panic!("it led")),
            it.leader().map(drop),
            it.candidates().map(drop),
            it.observe().next_with(LIMIT).map(drop),
        ]
    }),
    ("cyclic barrier", |client, name| {
        let (it, never) = (client.cyclic_barrier(name, 2), CancellationToken::new());
        vec![
            it.wait().map(drop),
            it.wait_with(LIMIT).map(drop),
            it.wait_with(Duration::ZERO).map(drop),
            it.wait_with(&never).map(drop),
            it.wait_then(|| panic!("it met nobody")).map(drop),
            it.is_broken().map(drop),
            it.number_waiting().map(drop),
            it.reset(),
        ]
    }),
    ("rate limiter", |client, name| {
        let (it, never) = (client.rate_limiter(name, Rate::smooth(10, LIMIT)), CancellationToken::new());
        vec![
            it.try_acquire(1).map(drop),
            it.acquire(1),
            it.acquire_with(1, LIMIT).map(drop),
            it.acquire_with(1, &never).map(drop),
            it.available().map(drop),
            it.delete().map(drop),
        ]
    }),
];
