//! A planned failover: the primary lives on as a replica, connections to it stay open, and the name under
//! which it was reached leads to the new one.

use redis::cmd;
use redis_concurrent::{Client, Error};
use redis_concurrent_testkit::{Proxy, closes_in_time, wait_until};

use crate::contenders::Contenders;
use crate::flock::Flock;
use crate::support::{LONG, builder, channels, connected, ms};

/// What the old primary refuses as a replica was not carried out, and is sent to the new one.
#[test]
fn an_unlock_over_a_planned_failover_is_ok() {
    let flock = Flock::start(1);
    let door = Proxy::start(flock.primary.port()).unwrap();
    let client = connected(|| builder(&door.url()));
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
    closes_in_time(closes_over_a_planned_failover);
}

/// What closing came to; where it is well, all is released.
fn closes_over_a_planned_failover() -> Result<(), Error> {
    let flock = Flock::start(1);
    let door = Proxy::start(flock.primary.port()).unwrap();
    let client = connected(|| builder(&door.url()));
    let held: Vec<_> = (0..3).map(|i| client.simple_lock(&format!("it-{i}")).lock_owned().unwrap()).collect();
    flock.fail_over();
    door.set_target(flock.replicas[0].port());
    let closed = client.close();
    assert!(held.iter().all(|guard| guard.is_lost()));
    closed?;
    let others = connected(|| builder(&door.url()));
    for i in 0..3 {
        assert!(others.simple_lock(&format!("it-{i}")).try_lock().unwrap().is_some(), "{i}");
    }
    Ok(())
}

/// A waiter listens at the old primary at first, which hears all messages from the new one: a grant that was
/// taken back as nobody heard it would be believed all the same.
#[test]
fn after_a_planned_failover_nobody_holds_beside_another() {
    nobody_holds_beside_another(|_| ());
}

/// Whether all connections stay open, or all but those that listen.
#[test]
fn nor_where_only_those_that_listen_stay_connected() {
    nobody_holds_beside_another(|flock| {
        let mut kill = cmd("CLIENT");
        kill.arg("KILL").arg("TYPE").arg("normal").arg("SKIPME").arg("yes");
        kill.exec(&mut flock.primary.connection().unwrap()).unwrap();
    });
}

#[track_caller]
fn nobody_holds_beside_another(with_the_old: impl FnOnce(&Flock)) {
    let flock = Flock::start(1);
    let door = Proxy::start(flock.primary.port()).unwrap();
    let client = || connected(|| builder(&door.url()).local_handoff(ms(0)).lease(ms(3000)));
    let clients: Vec<Client> = (0..3).map(|_| client()).collect();
    let came = Contenders::contend(&clients, |all| {
        let more = |than: Vec<u64>, n: u64| {
            wait_until(LONG, "everybody comes in", || {
                all.holds().iter().zip(&than).all(|(now, before)| now - before >= n)
            });
        };
        more(all.holds(), 20);
        flock.fail_over();
        door.set_target(flock.replicas[0].port());
        with_the_old(&flock);
        more(all.holds(), 50);
        assert_eq!(all.double_and_fallen(), (0, 0), "{all:?}");
        wait_until(LONG, "they listen at the new primary", || channels(&flock.replicas[0]).len() == 3);
        more(all.holds(), 20);
    });
    assert_eq!(came.double_and_fallen(), (0, 0), "{came:?}");
}
