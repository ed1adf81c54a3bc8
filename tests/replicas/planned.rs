//! A planned failover: the primary lives on as a replica, connections to it stay open, and the name under
//! which it was reached leads to the new one.

use redis_concurrent::testing::Proxy;

use crate::flock::Flock;
use crate::support::builder;

/// What the old primary refuses as a replica was not carried out, and is sent to the new one.
#[test]
fn an_unlock_over_a_planned_failover_is_ok() {
    let flock = Flock::start(1);
    let door = Proxy::start(flock.primary.port()).unwrap();
    let client = builder(&door.url()).connect().unwrap();
    let guards: Vec<_> =
        (0..3).map(|i| client.simple_lock(&format!("it-{i}")).lock_owned().unwrap()).collect();
    let reads = client.read_write_lock("pages").read_lock().lock_owned().unwrap();
    flock.fail_over();
    door.set_target(flock.replicas[0].port());
    for guard in guards {
        guard.unlock().unwrap();
    }
    reads.unlock().unwrap();
    let lock = client.reentrant_lock("next");
    lock.try_lock().unwrap().expect("it is free").unlock().unwrap();
}

/// So is a client that closes.
#[test]
fn what_a_client_holds_over_a_planned_failover_is_released_as_it_closes() {
    let flock = Flock::start(1);
    let door = Proxy::start(flock.primary.port()).unwrap();
    let client = builder(&door.url()).connect().unwrap();
    let held: Vec<_> = (0..3).map(|i| client.simple_lock(&format!("it-{i}")).lock_owned().unwrap()).collect();
    flock.fail_over();
    door.set_target(flock.replicas[0].port());
    client.close().unwrap();
    assert!(held.iter().all(|guard| guard.is_lost()));
    let others = builder(&door.url()).connect().unwrap();
    for i in 0..3 {
        assert!(others.simple_lock(&format!("it-{i}")).try_lock().unwrap().is_some(), "{i}");
    }
}
