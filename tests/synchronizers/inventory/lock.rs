//! The lock that is to be had while there is something to sell.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::Instant;

use redis_concurrent::inventory::Order;
use redis_concurrent::{ErrorKind, MultiLock};
use redis_concurrent_testkit::*;

use crate::inventory::fails_with;
use crate::support::*;

#[test]
fn a_waiter_is_refused_the_moment_that_nothing_is_left() {
    let server = RedisServer::start().unwrap();
    // No waiter asks again by itself meanwhile: one that wakes was told.
    let patient = || connected(|| builder(&server.url()).lease(6 * LONG).waiter_timeout(6 * LONG));
    let clients: Vec<_> = (0..4).map(|_| patient()).collect();
    let inventories: Vec<_> = clients.iter().map(|client| client.inventory("sale")).collect();
    inventories[0].add_stock("tee", 2).unwrap();
    let lock = inventories[0].inventory_lock("tee", 1);
    let held = lock.lock().unwrap();
    assert!(held.token() > 0);
    thread::scope(|scope| {
        let waiters: Vec<_> = inventories[1..]
            .iter()
            .map(|inventory| {
                scope.spawn(|| {
                    let outcome = inventory.inventory_lock("tee", 1).lock().map(drop);
                    (outcome, Instant::now())
                })
            })
            .collect();
        queued(&lock, 3);
        // The first unit goes, and they wait on; the last one goes, and the lock is held still.
        inventories[0].try_reserve(&Order::of("tee", 1)).unwrap().unwrap().commit().unwrap();
        assert_eq!(lock.queue_length().unwrap(), 3);
        let last = inventories[0].try_reserve(&Order::of("tee", 1)).unwrap().unwrap();
        let gone = Instant::now();
        for waiter in waiters {
            let (outcome, at) = waiter.join().unwrap();
            fails_with(outcome, ErrorKind::Refused, "only 0 of \"tee\" are left");
            assert!(at - gone < SOON, "only {:?} later", at - gone);
        }
        fails_with(
            inventories[1].inventory_lock("tee", 1).try_lock(),
            ErrorKind::Refused,
            "only 0 of \"tee\" are left",
        );
        // One comes back: a newcomer waits again, and gets in.
        last.cancel().unwrap();
        let next = scope.spawn(|| inventories[1].inventory_lock("tee", 1).lock().map(|guard| guard.token()));
        queued(&lock, 1);
        let token = held.token();
        held.unlock().unwrap();
        assert!(next.join().unwrap().unwrap() > token);
    });
    assert_eq!(lock.queue_length().unwrap(), 0);
}

#[test]
fn threads_of_one_process_are_refused_as_their_turns_come() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let inventory = client.inventory("sale");
    inventory.add_stock("tee", 3).unwrap();
    let (lock, sold) = (inventory.inventory_lock("tee", 1), AtomicUsize::new(0));
    let refused = thread::scope(|scope| {
        let buyers: Vec<_> = (0..8)
            .map(|_| {
                scope.spawn(|| {
                    let guard = match lock.lock() {
                        Ok(guard) => guard,
                        Err(error) => return error.kind() == ErrorKind::Refused,
                    };
                    inventory
                        .try_reserve(&Order::of("tee", 1))
                        .unwrap()
                        .expect("it is in stock")
                        .commit()
                        .unwrap();
                    sold.fetch_add(1, SeqCst);
                    guard.unlock().unwrap();
                    false
                })
            })
            .collect();
        buyers.into_iter().map(|buyer| buyer.join().unwrap()).filter(|it| *it).count()
    });
    assert_eq!((sold.into_inner(), refused), (3, 5));
    assert_eq!(crate::inventory::counts(&inventory), [3, 0, 0, 3]);
}

#[test]
fn it_is_one_lock_for_all_skus_and_not_reentrant() {
    let server = RedisServer::start().unwrap();
    let brisk = connected(|| builder(&server.url()).lease(ms(6000)));
    let (here, there) = (brisk.inventory("sale"), connect(&server).inventory("sale"));
    here.add_stock("tee", 2).unwrap();
    here.add_stock("mug", 2).unwrap();
    let lock = here.inventory_lock("tee", 2);
    let held = lock.lock().unwrap();
    assert!(there.inventory_lock("mug", 1).try_lock().unwrap().is_none());
    fails_with(here.inventory_lock("mug", 1).lock().map(drop), ErrorKind::WouldDeadlock, "");
    // Reservations need no lock.
    there.try_reserve(&Order::of("tee", 2)).unwrap().unwrap().commit().unwrap();
    assert!(!held.is_lost());
    assert!(there.inventory_lock("mug", 1).force_unlock().unwrap().holders > 0);
    wait_until(LONG, "it finds that at its next renewal", || held.is_lost());
    drop(there.inventory_lock("mug", 2).try_lock().unwrap().unwrap());
    fails_with(here.inventory_lock("mug", 3).lock().map(drop), ErrorKind::LeaseLost, "");
    drop(held);
    fails_with(
        here.inventory_lock("mug", 3).lock().map(drop),
        ErrorKind::Refused,
        "only 2 of \"mug\" were ever stocked",
    );
}

#[test]
fn locks_of_two_gates_are_had_together_or_refused_together() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let (sale, other) = (client.inventory("sale"), client.inventory("other"));
    sale.add_stock("tee", 1).unwrap();
    other.add_stock("mug", 1).unwrap();
    let (tee, mug) = (sale.inventory_lock("tee", 1), other.inventory_lock("mug", 1));
    let both = MultiLock::new(&[&tee, &mug]);
    drop(both.try_lock().unwrap().expect("both are free, and there is one of each"));
    let last = sale.try_reserve(&Order::of("tee", 1)).unwrap();
    fails_with(both.lock().map(drop), ErrorKind::Refused, "only 0 of \"tee\" are left");
    assert!(!mug.is_locked().unwrap());
    drop(last);
    drop(both.lock().unwrap());
}
