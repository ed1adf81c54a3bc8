//! The contract of all locks, kind by kind, plain and fair.

use redis_concurrent::inventory::InventoryLock;
use redis_concurrent::kinds::Permits;
use redis_concurrent::{Client, RedisLock};
use redis_concurrent_testkit::contract;

use crate::bulkhead::Bulkhead;

#[test]
fn simple() {
    contract::run(|client, name| client.simple_lock(name));
}

#[test]
fn simple_fair() {
    contract::run(|client, name| client.simple_lock(name).fair());
}

#[test]
fn simple_at_a_key() {
    contract::run(|client, key| client.simple_lock_at(key));
}

#[test]
fn simple_at_a_key_fair() {
    contract::run(|client, key| client.simple_lock_at(key).fair());
}

#[test]
fn reentrant() {
    contract::run(|client, name| client.reentrant_lock(name));
}

#[test]
fn reentrant_fair() {
    contract::run(|client, name| client.reentrant_lock(name).fair());
}

#[test]
fn redisson() {
    contract::run(|client, key| client.redisson_lock(key));
}

#[test]
fn redisson_fair() {
    contract::run(|client, key| client.redisson_lock(key).fair());
}

#[test]
fn redisson_fenced() {
    contract::run(|client, key| client.redisson_fenced_lock(key));
}

#[test]
fn own_kind() {
    contract::run(|client, name| client.lock_with_kind(name, Bulkhead(1)));
}

#[test]
fn own_kind_fair() {
    contract::run(|client, name| client.lock_with_kind(name, Bulkhead(1)).fair());
}

/// One permit; a name that cannot be is told by the lock.
fn semaphore(client: &Client, name: &str) -> RedisLock<Permits> {
    let _ = client.semaphore(name).try_set_permits(1);
    client.lock_with_kind(name, Permits::of(1).unwrap())
}

fn delete(client: &Client, name: &str) {
    client.semaphore(name).delete().unwrap();
}

#[test]
fn semaphore_of_one() {
    contract::run_with_state(semaphore, delete);
}

#[test]
fn semaphore_of_one_fair() {
    contract::run_with_state(|client, name| semaphore(client, name).fair(), delete);
}

/// To be had while there is a unit in stock, of which it makes one.
fn inventory_lock(client: &Client, name: &str) -> InventoryLock {
    let gate = client.inventory(name);
    let _ = gate.add_stock("tee", 1);
    gate.inventory_lock("tee", 1)
}

#[test]
fn inventory_lock_of_one_unit() {
    contract::run_with_state(inventory_lock, |client, name| {
        client.inventory(name).delete().unwrap();
    });
}

#[test]
fn write_lock() {
    contract::run(|client, name| client.read_write_lock(name).write_lock().clone());
}

#[test]
fn write_lock_fair() {
    contract::run(|client, name| client.read_write_lock(name).write_lock().fair());
}

#[test]
fn read_lock() {
    contract::run_against(
        |client, name| client.read_write_lock(name).read_lock().clone(),
        |client, name| client.read_write_lock(name).write_lock().clone(),
    );
}

#[test]
fn read_lock_in_arrival_order() {
    contract::run_against(
        |client, name| client.read_write_lock(name).arrival_order().read_lock().clone(),
        |client, name| client.read_write_lock(name).write_lock().clone(),
    );
}

#[test]
fn read_lock_fair() {
    contract::run_against(
        |client, name| client.read_write_lock(name).read_lock().fair(),
        |client, name| client.read_write_lock(name).write_lock().fair(),
    );
}

#[test]
fn reentrant_urgent() {
    contract::run(|client, name| client.reentrant_lock(name).priority(2));
}

#[test]
fn semaphore_of_one_not_urgent() {
    contract::run_with_state(|client, name| semaphore(client, name).priority(-3).max_waiters(1_000), delete);
}

#[test]
fn write_lock_urgent() {
    contract::run(|client, name| client.read_write_lock(name).write_lock().priority(3));
}
