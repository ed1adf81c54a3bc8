//! Requests whose answers are lost, processes that die, and a client that closes.

use std::thread;
use std::time::Instant;

use redis_concurrent::ErrorKind;
use redis_concurrent::inventory::Order;
use redis_concurrent_testkit::*;

use crate::inventory::{counts, fails_with};
use crate::support::*;

#[test]
fn a_decision_whose_answer_is_lost_is_made_once() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let (client, office) = (connected(|| builder(&proxy.url())), connect(&server).inventory("sale"));
    let inventory = client.inventory("sale");
    office.add_stock("tee", 100).unwrap();
    inventory.try_reserve(&Order::of("tee", 1)).unwrap().unwrap().commit().unwrap();
    for i in 0..10 {
        proxy.swallow_next_reply_and_reset();
        let order = Order::of("tee", 2).id(&format!("o{i}")).customer(&format!("c{i}"), 2);
        let reservation = inventory.try_reserve(&order).unwrap().unwrap();
        assert_eq!(counts(&office)[2], 2, "taken once");
        proxy.swallow_next_reply_and_reset();
        if i % 2 == 0 {
            reservation.commit().unwrap();
        } else {
            reservation.cancel().unwrap();
        }
        assert_eq!(counts(&office), [100, 99 - 2 * (i / 2 + 1), 0, 1 + 2 * (i / 2 + 1)]);
    }
    proxy.swallow_next_reply_and_reset();
    inventory.add_stock("tee", 1).unwrap();
    assert_eq!(counts(&office), [101, 90, 0, 11]);
    assert_eq!(proxy.struck(), 21);
}

#[test]
fn a_commit_that_redis_does_not_answer_is_asked_again_until_it_is_settled() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(ms(2000)));
    let (inventory, office) = (client.inventory("sale"), connect(&server).inventory("sale"));
    office.add_stock("tee", 5).unwrap();
    let reservation = inventory.try_reserve(&Order::of("tee", 2).id("one")).unwrap().unwrap();
    proxy.black_hole(true);
    thread::scope(|scope| {
        let commit = scope.spawn(|| reservation.commit());
        // Longer than one request may take.
        thread::sleep(ms(2500));
        assert!(!commit.is_finished());
        proxy.black_hole(false);
        proxy.cut_all();
        commit.join().unwrap().unwrap();
    });
    assert!(office.is_committed("one").unwrap());
    assert_eq!(counts(&office), [5, 3, 0, 2]);
}

#[test]
fn a_commit_that_is_never_answered_is_unknown_and_comes_to_one_end() {
    let server = RedisServer::start().unwrap();
    for done in [false, true] {
        let proxy = Proxy::start(server.port()).unwrap();
        let client =
            connected(|| builder(&proxy.url()).command_timeout(ms(2000)).unreachable_timeout(ms(3000)));
        let (inventory, office) = (client.inventory("sale"), connect(&server).inventory("sale"));
        office.add_stock("tee", 1).unwrap();
        let before = counts(&office);
        let reservation = inventory.try_reserve(&Order::of("tee", 1).id("one")).unwrap().unwrap();
        // Either the requests are lost, or the answers.
        if done {
            proxy.swallow_replies(1000)
        } else {
            proxy.black_hole(true)
        }
        let began = Instant::now();
        fails_with(reservation.commit(), ErrorKind::OutcomeUnknown, "released in the background");
        assert!(began.elapsed() < 2 * SOON, "{:?}", began.elapsed());
        assert_eq!(office.is_committed("one").unwrap(), done);
        proxy.heal().unwrap();
        wait_until(LONG, "it has come to an end", || counts(&office)[2] == 0);
        let after = [before[0], before[1] - u64::from(done), 0, before[3] + u64::from(done)];
        assert_eq!(counts(&office), after);
        assert_eq!(office.is_committed("one").unwrap(), done);
    }
}

#[test]
fn with_redis_out_of_reach_nothing_is_taken_and_nothing_is_lost() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(SOON).unreachable_timeout(ms(500)));
    let (inventory, office) = (client.inventory("sale"), connect(&server).inventory("sale"));
    office.add_stock("tee", 5).unwrap();
    let reservation = inventory.try_reserve(&Order::of("tee", 1)).unwrap().unwrap();
    proxy.refuse_connections(true).unwrap();
    proxy.cut_all();
    fails_with(inventory.try_reserve(&Order::of("tee", 1)), ErrorKind::Unavailable, "");
    fails_with(reservation.commit(), ErrorKind::Unavailable, "");
    proxy.heal().unwrap();
    wait_until(LONG, "it is given back", || counts(&office) == [5, 5, 0, 0]);
}

#[test]
fn a_client_that_closes_gives_everything_back() {
    let server = RedisServer::start().unwrap();
    let (client, office) = (connect(&server), connect(&server).inventory("sale"));
    let inventory = client.inventory("sale");
    inventory.add_stock("tee", 5).unwrap();
    let (one, two) = (
        inventory.try_reserve(&Order::of("tee", 1)).unwrap().unwrap(),
        inventory.try_reserve(&Order::of("tee", 2)).unwrap().unwrap(),
    );
    let lost = one.lost();
    if released_all(&client.close()) {
        assert_eq!(counts(&office), [5, 5, 0, 0]);
    }
    assert!(lost.is_cancelled());
    wait_until(LONG, "all is back, however late that was heard", || counts(&office) == [5, 5, 0, 0]);
    fails_with(one.commit(), ErrorKind::Closed, "");
    fails_with(two.cancel(), ErrorKind::Closed, "");
    fails_with(inventory.try_reserve(&Order::of("tee", 1)), ErrorKind::Closed, "");
    assert_eq!(counts(&office), [5, 5, 0, 0]);
}

#[test]
fn a_restart_with_its_data_keeps_every_unit() {
    let server = RedisServer::builder().arg("appendonly", "yes").start().unwrap();
    let client = connect(&server);
    let inventory = client.inventory("sale");
    inventory.add_stock("tee", 5).unwrap();
    inventory.try_reserve(&Order::of("tee", 1)).unwrap().unwrap().commit().unwrap();
    let held = inventory.try_reserve(&Order::of("tee", 2)).unwrap().unwrap();
    server.shutdown().unwrap();
    server.restart().unwrap();
    wait_until(LONG, "it is back", || inventory.stock("tee").is_ok());
    assert_eq!(counts(&inventory), [5, 2, 2, 1]);
    held.commit().unwrap();
    assert_eq!(counts(&inventory), [5, 2, 0, 3]);
}
