//! Units that are reserved, sold and given back, and the owners that may do so.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::internals::lock_count;
use redis_concurrent::inventory::{Order, Reservation};
use redis_concurrent::{Client, ErrorKind, Inventory};
use redis_concurrent_testkit::*;

use crate::inventory::{balanced, counts, fails_with};
use crate::support::*;

fn inventories(server: &RedisServer) -> [Inventory; 2] {
    [connect(server), connect(server)].map(|client| client.inventory("sale"))
}

#[track_caller]
fn taken(outcome: Result<Option<Reservation>, redis_concurrent::Error>) -> Reservation {
    outcome.unwrap().expect("there is enough")
}

/// The story: ten units, and twelve customers.
#[test]
fn of_twelve_callers_for_ten_units_ten_get_one_and_two_later_ones_get_those_that_came_back() {
    let server = RedisServer::start().unwrap();
    let office = connect(&server).inventory("sale");
    office.add_stock("tee", 10).unwrap();
    let clients: Vec<Client> = (0..4).map(|_| connect(&server)).collect();
    // Twelve ask at once, in four processes as Redis sees it.
    let outcomes: Vec<_> = thread::scope(|scope| {
        let asks: Vec<_> = (0..12)
            .map(|i| {
                let inventory = clients[i % clients.len()].inventory("sale");
                scope.spawn(move || inventory.try_reserve(&Order::of("tee", 1)).unwrap())
            })
            .collect();
        asks.into_iter().map(|ask| ask.join().unwrap()).collect()
    });
    let mut reserved: Vec<_> = outcomes.into_iter().flatten().collect();
    assert_eq!(reserved.len(), 10, "the 11th and the 12th are refused");
    assert_eq!(counts(&office), [10, 0, 10, 0]);
    assert!(office.try_reserve(&Order::of("tee", 1)).unwrap().is_none());
    // Two sales fail: one customer changes its mind, one worker panics.
    reserved.pop().unwrap().cancel().unwrap();
    let other = reserved.pop();
    let panics = thread::spawn(move || {
        let _held = other;
        panic!("the card is declined");
    });
    assert!(panics.join().is_err());
    assert_eq!(counts(&office), [10, 2, 8, 0]);
    // The next two get in, and no third.
    for client in &clients[..2] {
        reserved.push(taken(client.inventory("sale").try_reserve(&Order::of("tee", 1))));
    }
    assert!(office.try_reserve(&Order::of("tee", 1)).unwrap().is_none());
    for reservation in reserved {
        reservation.commit().unwrap();
    }
    assert_eq!(counts(&office), [10, 0, 0, 10]);
}

#[test]
fn a_decision_is_one_request() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let inventory = client.inventory("sale");
    inventory.add_stock("tee", 2).unwrap();
    taken(inventory.try_reserve(&Order::of("tee", 2))).cancel().unwrap();
    taken(inventory.try_reserve(&Order::of("tee", 2))).commit().unwrap();
    inventory.add_stock("tee", 1).unwrap();
    assert_eq!(inventory.stock("tee").unwrap().available, 1);
    let costs = |n, act: &mut dyn FnMut()| {
        let before = client.request_count();
        act();
        assert_eq!(client.request_count() - before, n);
    };
    let mut one = None;
    costs(1, &mut || one = inventory.try_reserve(&Order::of("tee", 1)).unwrap());
    costs(1, &mut || assert!(inventory.try_reserve(&Order::of("tee", 1)).unwrap().is_none()));
    costs(1, &mut || one.take().unwrap().cancel().unwrap());
    costs(1, &mut || {
        fails_with(
            inventory.try_reserve(&Order::of("tee", 4)),
            ErrorKind::Refused,
            "only 3 of \"tee\" were ever stocked",
        )
    });
    costs(2, &mut || taken(inventory.try_reserve(&Order::of("tee", 1))).commit().unwrap());
    costs(1, &mut || assert_eq!(inventory.stock("tee").unwrap().sold, 3));
    assert_eq!(lock_count(&client), 2, "nothing is kept of a reservation that ended");
}

#[test]
fn several_skus_are_taken_and_given_back_together() {
    let server = RedisServer::start().unwrap();
    let [here, there] = inventories(&server);
    here.add_stock("tee", 5).unwrap();
    here.add_stock("mug", 2).unwrap();
    let order = Order::of("tee", 2).and("mug", 2);
    let both = taken(here.try_reserve(&order));
    assert!(there.try_reserve(&Order::of("tee", 1).and("mug", 1)).unwrap().is_none());
    assert_eq!(counts(&there), [5, 3, 2, 0]);
    drop(both);
    assert_eq!(balanced(there.stock("mug").unwrap()), [2, 2, 0, 0]);
    taken(there.try_reserve(&order)).commit().unwrap();
    assert_eq!(["tee", "mug"].map(|sku| here.stock(sku).unwrap().sold), [2, 2]);
    let many: Vec<String> = (0..100).map(|i| format!("sku {i} | %7C-{i}")).collect();
    for sku in &many {
        here.add_stock(sku, 1).unwrap();
    }
    let order = many[1..].iter().fold(Order::of(&many[0], 1), |order, sku| order.and(sku, 1));
    let all = taken(here.try_reserve(&order));
    assert!(many.iter().all(|sku| there.stock(sku).unwrap().available == 0));
    all.commit().unwrap();
    assert!(many.iter().all(|sku| there.stock(sku).unwrap().sold == 1));
}

#[test]
fn an_id_is_served_once_at_a_time_and_sold_once() {
    let server = RedisServer::start().unwrap();
    let [here, there] = inventories(&server);
    here.add_stock("tee", 5).unwrap();
    let order = Order::of("tee", 2).id("order-17");
    let first = taken(here.try_reserve(&order));
    for inventory in [&here, &there] {
        fails_with(
            inventory.try_reserve(&order),
            ErrorKind::Conflict,
            "order \"order-17\" has a reservation",
        );
    }
    assert_eq!(counts(&here), [5, 3, 2, 0], "taken once");
    assert!(!there.is_committed("order-17").unwrap());
    drop(first);
    let second = taken(there.try_reserve(&order));
    second.commit().unwrap();
    assert!(here.is_committed("order-17").unwrap());
    for inventory in [&here, &there] {
        fails_with(inventory.try_reserve(&order), ErrorKind::Conflict, "order \"order-17\" was sold");
    }
    assert_eq!(counts(&here), [5, 3, 0, 2]);
    // Forgotten in time.
    let brief = here.expire_ids_after(ms(300));
    taken(brief.try_reserve(&Order::of("tee", 1).id("brief"))).commit().unwrap();
    wait_until(LONG, "it is forgotten", || !there.is_committed("brief").unwrap());
    taken(there.try_reserve(&Order::of("tee", 1).id("brief"))).commit().unwrap();
    assert!(there.is_committed("order-17").unwrap(), "the other is not");
    assert_eq!(counts(&here), [5, 1, 0, 4]);
}

#[test]
fn of_many_servers_of_one_order_one_sells_it() {
    let server = RedisServer::start().unwrap();
    let clients: Vec<Client> = (0..3).map(|_| connect(&server)).collect();
    let office = clients[0].inventory("sale");
    office.add_stock("tee", 100).unwrap();
    let sold: usize = thread::scope(|scope| {
        let workers: Vec<_> = (0..6)
            .map(|i| {
                let inventory = clients[i % 3].inventory("sale");
                scope.spawn(move || {
                    let serve =
                        |n: u64| match inventory.try_reserve(&Order::of("tee", 1).id(&format!("o{n}"))) {
                            Ok(reservation) => {
                                reservation.expect("there is enough").commit().map(|()| 1).unwrap()
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Conflict, "{error}");
                                0
                            }
                        };
                    (0..40).map(serve).sum::<usize>()
                })
            })
            .collect();
        workers.into_iter().map(|worker| worker.join().unwrap()).sum()
    });
    assert_eq!(sold, 40);
    assert_eq!(counts(&office), [100, 60, 0, 40]);
}

#[test]
fn a_customer_gets_its_limit_whichever_way_it_comes() {
    let server = RedisServer::start().unwrap();
    let [here, there] = inventories(&server);
    here.add_stock("tee", 9).unwrap();
    let order = |n| Order::of("tee", n).customer("alice", 2);
    let one = taken(here.try_reserve(&order(1)));
    fails_with(there.try_reserve(&order(2)), ErrorKind::Refused, "\"alice\" has 1 of \"tee\" and may have 2");
    let other = taken(there.try_reserve(&order(1)));
    fails_with(here.try_reserve(&order(1)), ErrorKind::Refused, "\"alice\" has 2");
    one.commit().unwrap();
    fails_with(here.try_reserve(&order(1)), ErrorKind::Refused, "\"alice\" has 2");
    other.cancel().unwrap();
    taken(here.try_reserve(&order(1))).commit().unwrap();
    taken(here.try_reserve(&Order::of("tee", 1).customer("bob", 1))).commit().unwrap();
    fails_with(there.try_reserve(&order(1)), ErrorKind::Refused, "\"alice\" has 2");
    assert_eq!(counts(&here), [9, 6, 0, 3]);
}

/// More than one script removes. Nobody but the caller asks, and the processes that had them cannot.
#[test]
fn what_was_sold_is_known_when_many_leases_have_just_expired() {
    const MANY: u64 = 100;
    let server = RedisServer::start().unwrap();
    let [here, there] = inventories(&server);
    here.add_stock("tee", MANY + 1).unwrap();
    taken(here.try_reserve(&Order::of("tee", 1).id("order-17"))).commit().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()));
    let brief = client.inventory("sale").with_lease(ms(2000));
    for question in [true, false] {
        for _ in 0..MANY {
            std::mem::forget(brief.try_reserve(&Order::of("tee", 1)).unwrap());
        }
        proxy.black_hole(true);
        thread::sleep(ms(2200));
        if question {
            assert!(there.is_committed("order-17").unwrap());
        } else {
            assert_eq!(there.stock("tee").unwrap().sold, 1);
        }
        proxy.black_hole(false);
    }
    assert_eq!(counts(&there)[1..], [MANY, 0, 1]);
}

#[test]
fn what_is_reserved_is_renewed_and_a_fixed_lease_is_not() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).lease(ms(5000)).renew_every(ms(200)));
    let (inventory, office) = (client.inventory("sale"), connect(&server).inventory("sale"));
    inventory.add_stock("tee", 5).unwrap();
    let began = Instant::now();
    let renewed = taken(inventory.try_reserve(&Order::of("tee", 1)));
    // It ends within the time for which this goes on anyway.
    let fixed = taken(office.with_lease(ms(4000)).try_reserve(&Order::of("tee", 2)));
    let lost = fixed.lost();
    assert_eq!(office.holders().unwrap().len(), 2);
    wait_until(LONG, "the fixed one has lapsed", || office.stock("tee").unwrap().available == 4);
    // Its process gives it back when it counts as lost there, which is a drift before its lease ends in Redis.
    assert!(began.elapsed() >= ms(3900), "after {:?}", began.elapsed());
    assert!(fixed.is_lost());
    // The thread that tells it has to run first.
    assert!(lost.wait_timeout(LONG));
    fails_with(fixed.commit(), ErrorKind::LeaseLost, "");
    while began.elapsed() < ms(6000) {
        assert_eq!(counts(&office)[2], 1, "it is renewed");
        thread::sleep(ms(20));
    }
    let holder = office.holders().unwrap().remove(0);
    assert_eq!(holder.process.unwrap().pid, std::process::id());
    renewed.commit().unwrap();
    assert_eq!(counts(&office), [5, 4, 0, 1]);
    assert_eq!(office.holders().unwrap(), []);
}

/// So many that Redis itself does not keep them in order.
#[test]
fn the_holders_of_many_reservations_come_in_the_order_in_which_their_leases_expire() {
    let server = RedisServer::start().unwrap();
    let inventory = connect(&server).inventory("sale");
    inventory.add_stock("tee", 200).unwrap();
    // In minutes, and in no order: 71 and 200 have no common divisor.
    let leases = (0..200).map(|i| i * 71 % 200 + 1);
    let _reserved: Vec<_> = leases
        .map(|n| {
            taken(inventory.clone().with_lease(Duration::from_secs(60 * n)).try_reserve(&Order::of("tee", 1)))
        })
        .collect();
    let holders = inventory.holders().unwrap();
    let minutes: Vec<_> = holders.iter().map(|it| it.remaining.unwrap().as_secs().div_ceil(60)).collect();
    assert_eq!(minutes, Vec::from_iter(1..=200));
}

#[test]
fn a_reservation_whose_gate_is_deleted_is_lost() {
    let server = RedisServer::start().unwrap();
    let [here, there] = inventories(&server);
    here.add_stock("tee", 5).unwrap();
    let (one, two) =
        (taken(here.try_reserve(&Order::of("tee", 1))), taken(here.try_reserve(&Order::of("tee", 1))));
    assert!(there.delete().unwrap() && !there.delete().unwrap());
    fails_with(here.stock("tee"), ErrorKind::Refused, "unknown SKU \"tee\": add_stock comes first");
    there.add_stock("tee", 1).unwrap();
    let lost = one.lost();
    fails_with(one.commit(), ErrorKind::LeaseLost, "");
    assert!(lost.is_cancelled());
    fails_with(two.cancel(), ErrorKind::LeaseLost, "");
    assert_eq!(counts(&there), [1, 1, 0, 0]);
    there.delete().unwrap();
    nothing_left(&server);
}

#[test]
fn an_observer_hears_of_reservations_as_of_holds() {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let client = connected(|| builder(&server.url()).observer(recorder.clone()));
    let inventory = client.inventory("sale");
    inventory.add_stock("tee", 2).unwrap();
    taken(inventory.try_reserve(&Order::of("tee", 1))).commit().unwrap();
    drop(taken(inventory.try_reserve(&Order::of("tee", 1))));
    assert_eq!(recorder.count(Event::Released), 2, "{:?}", recorder.all());
    assert_eq!((recorder.losses(), recorder.failures()), (0, 0), "{:?}", recorder.all());
}
