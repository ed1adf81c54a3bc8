//! What cannot be asked of an inventory: an error names the inventory and what it is about, and nothing in Redis is
//! another than before.

use redis_concurrent::inventory::Order;
use redis_concurrent::{Error, ErrorKind, Inventory};
use redis_concurrent_testkit::RedisServer;

use crate::bad_input::synchronizers::{all_say, everything, quiet};
use crate::server_days::*;

/// The most units there can be: 2^53 - 1.
const MOST: u64 = (1 << 53) - 1;

fn reserves(it: &Inventory, sku: &str, n: u64) -> Vec<Result<(), Error>> {
    vec![
        it.try_reserve(&Order::of(sku, n)).map(drop),
        it.try_reserve(&Order::of("mug", 1).and(sku, n).id("two")).map(drop),
        it.with_lease(SURELY).try_reserve(&Order::of(sku, n)).map(drop),
    ]
}

fn locks(it: &Inventory, sku: &str, n: u64) -> Vec<Result<(), Error>> {
    let lock = it.inventory_lock(sku, n);
    vec![lock.lock().map(drop), lock.try_lock().map(drop), lock.lock_owned_with(SURELY).map(drop)]
}

#[test]
fn what_a_stock_gate_cannot_do_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let client = quiet(&server);
    let it = client.inventory("it");
    it.add_stock("tee", 3).unwrap();
    it.add_stock("mug", 9).unwrap();
    let order = Order::of("tee", 1).id("one").customer("alice", 2);
    let one = it.try_reserve(&order).unwrap().unwrap();
    it.try_reserve(&Order::of("tee", 1).id("sold")).unwrap().unwrap().commit().unwrap();
    let before = everything(&server);

    for none in [reserves(&it, "tee", 0), locks(&it, "tee", 0), vec![it.add_stock("tee", 0)]] {
        all_say((ErrorKind::InvalidInput, "it", "got 0", none));
    }
    for huge in [MOST + 1, u64::MAX] {
        for calls in [reserves(&it, "tee", huge), locks(&it, "tee", huge), vec![it.add_stock("tee", huge)]] {
            all_say((ErrorKind::InvalidInput, "it", &format!("got {huge}"), calls));
        }
    }
    for more in [4, MOST] {
        let calls = [reserves(&it, "tee", more), locks(&it, "tee", more)].concat();
        all_say((ErrorKind::Refused, "it", "only 3 of \"tee\" were ever stocked", calls));
    }
    let why = format!("at most {MOST} units of \"tee\"");
    all_say((ErrorKind::Refused, "it", &why, vec![it.add_stock("tee", MOST), it.add_stock("tee", MOST - 2)]));
    for unknown in ["hat", "Tee", "tee ", "tee|mug", "t-e-e", "%74ee", "tee\0", "帽子"] {
        let looks = [it.stock(unknown).map(drop)];
        let calls = [reserves(&it, unknown, 1), locks(&it, unknown, 1)].concat();
        all_say((
            ErrorKind::Refused,
            "it",
            // A control character is printed escaped.
            &format!("unknown SKU \"{}\": add_stock comes first", unknown.replace('\0', "\\u{0}")),
            calls,
        ));
        all_say((
            ErrorKind::Refused,
            "it",
            &format!("unknown SKU {unknown:?}: add_stock comes first"),
            looks.into(),
        ));
    }
    for (bad, why) in [("", "empty"), (&*"x".repeat(1025), "1025")] {
        let mut calls = [reserves(&it, bad, 1), locks(&it, bad, 1)].concat();
        calls.extend([it.add_stock(bad, 1), it.stock(bad).map(drop), it.is_committed(bad).map(drop)]);
        calls.extend([
            it.try_reserve(&Order::of("tee", 1).id(bad)).map(drop),
            it.try_reserve(&Order::of("tee", 1).customer(bad, 1)).map(drop),
        ]);
        all_say((ErrorKind::InvalidInput, "it", why, calls));
    }
    let orders = |orders: Vec<Order>| orders.iter().map(|order| it.try_reserve(order).map(drop)).collect();
    let twice = Order::of("tee", 1).and("mug", 1).and("tee", 1);
    all_say((ErrorKind::InvalidInput, "it", "\"tee\" is in the order twice", orders(vec![twice])));
    let many = (0..100).fold(Order::of("tee", 1), |order, i| order.and(&i.to_string(), 1));
    all_say((ErrorKind::InvalidInput, "it", "got 101", orders(vec![many])));
    let limits = vec![Order::of("tee", 1).customer("alice", 0)];
    all_say((ErrorKind::InvalidInput, "it", "got 0", orders(limits)));
    let limits = vec![Order::of("tee", 3).customer("bob", 2)];
    all_say((ErrorKind::InvalidInput, "it", "a customer may have at most 2", orders(limits)));
    let limits = vec![Order::of("tee", 2).customer("alice", 2)];
    all_say((ErrorKind::Refused, "it", "\"alice\" has 1 of \"tee\" and may have 2", orders(limits)));
    all_say((ErrorKind::Conflict, "it", "\"one\" has a reservation", orders(vec![order])));
    all_say((
        ErrorKind::Conflict,
        "it",
        "order \"sold\" was sold",
        orders(vec![Order::of("mug", 1).id("sold")]),
    ));
    assert_eq!(everything(&server), before);

    let never = client.inventory("never-stocked");
    all_say((ErrorKind::Refused, "never-stocked", ": add_stock comes first", reserves(&never, "tee", 1)));
    assert!(!never.delete().unwrap());
    let requests = client.request_count();
    for bad in [it.with_lease(ms(99)), it.expire_ids_after(ms(99)), client.inventory("").with_lease(SURELY)] {
        let mut calls = [reserves(&bad, "tee", 1), locks(&bad, "tee", 1)].concat();
        calls.extend([bad.add_stock("tee", 1), bad.stock("tee").map(drop), bad.delete().map(drop)]);
        for outcome in calls {
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::InvalidInput);
        }
    }
    assert_eq!(client.request_count(), requests);
    assert_eq!(everything(&server), before);
    one.cancel().unwrap();
}
