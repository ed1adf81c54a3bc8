//! The child of a process that has reserved something, and holds the inventory's lock.

use redis_concurrent::inventory::Order;
use redis_concurrent_testkit::*;

use crate::child::in_child;
use crate::forked;
use crate::support::*;

#[test]
fn a_child_sells_nothing_and_gives_nothing_back_of_what_its_parent_reserved() {
    alone("inventory::a_child_sells_nothing_and_gives_nothing_back_of_what_its_parent_reserved", || {
        let server = RedisServer::start().unwrap();
        let client = connect(&server);
        let inventory = client.inventory("sale");
        inventory.add_stock("tee", 5).unwrap();
        let lock = inventory.inventory_lock("tee", 1);
        let mut sells = Some(inventory.try_reserve(&Order::of("tee", 1)).unwrap().unwrap());
        let mut keeps = Some(inventory.try_reserve(&Order::of("tee", 2)).unwrap().unwrap());
        let mut holds = Some(lock.lock().unwrap());
        in_child(|| {
            forked(inventory.try_reserve(&Order::of("tee", 1)));
            forked(inventory.add_stock("tee", 1));
            forked(inventory.stock("tee"));
            forked(inventory.is_committed("one"));
            forked(inventory.holders());
            forked(inventory.delete());
            forked(lock.is_locked());
            forked(sells.take().unwrap().commit());
            forked(keeps.take().unwrap().cancel());
            forked(holds.take().unwrap().unlock());
        });
        in_child(|| drop((sells.take(), keeps.take(), holds.take())));
        assert!(lock.try_lock_owned().unwrap().is_none());
        assert_eq!(inventory.stock("tee").unwrap().reserved, 3);
        sells.take().unwrap().commit().unwrap();
        keeps.take().unwrap().cancel().unwrap();
        holds.take().unwrap().unlock().unwrap();
        let stock = inventory.stock("tee").unwrap();
        assert_eq!((stock.available, stock.reserved, stock.sold), (4, 0, 1));
    });
}
