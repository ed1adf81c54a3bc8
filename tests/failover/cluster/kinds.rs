//! What a client makes, on all primaries.

use std::collections::HashMap;
use std::time::Duration;

use redis_concurrent::inventory::Order;
use redis_concurrent::optimistic::Outcome;
use redis_concurrent::rate_limiter::Rate;
use redis_concurrent::{Member, MultiLock};
use redis_concurrent_testkit::{RedisCluster, RedisServer, closes_in_time, eventually};

use super::{calm, connect, home, key, spread};
use crate::support::{LONG, SOON, in_brief};

#[test]
fn each_lock_is_on_the_primary_of_its_slot() {
    let client = connect(calm());
    let names = spread(calm(), "kinds");
    let mut last = 0;
    for name in &names {
        for _ in 0..2 {
            let lock = client.reentrant_lock(name);
            let guard = lock.lock().unwrap();
            assert!(guard.token() > 0);
            assert!(home(calm(), name).keys().unwrap().contains(&key(name)), "{name}");
            last = last.max(guard.token());
            guard.unlock().unwrap();
        }
    }
    assert!(last > 0);
    client.close().unwrap();
}

#[test]
fn a_multi_lock_takes_locks_of_several_slots_and_gives_them_all_back() {
    let client = connect(calm());
    let names = spread(calm(), "multi");
    let locks: Vec<_> = names.iter().map(|name| client.reentrant_lock(name)).collect();
    let members: Vec<&dyn Member> = locks.iter().map(|lock| lock as &dyn Member).collect();
    let all = MultiLock::new(&members);
    let guard = all.lock().unwrap();
    assert_eq!(guard.tokens().len(), names.len());
    let other = connect(calm());
    for name in &names {
        assert!(other.reentrant_lock(name).try_lock().unwrap().is_none(), "{name}");
    }
    guard.unlock().unwrap();
    // One that is taken: none is kept.
    let in_the_way = other.reentrant_lock(&names[1]);
    let taken = in_the_way.lock().unwrap();
    assert!(in_brief(all.try_lock_for(Duration::from_millis(50))).is_none());
    taken.unlock().unwrap();
    for name in &names {
        other.reentrant_lock(name).try_lock_for(SOON).unwrap().expect("it was given back").unlock().unwrap();
    }
}

#[test]
fn what_is_not_a_lock_is_in_its_slot() {
    let client = connect(calm());
    for name in spread(calm(), "others") {
        let inventory = client.inventory(&name);
        inventory.add_stock("a", 3).unwrap();
        inventory.try_reserve(&Order::of("a", 2)).unwrap().expect("there are three").commit().unwrap();
        let stock = inventory.stock("a").unwrap();
        assert_eq!((stock.available, stock.sold), (1, 2));
    }
    for name in spread(calm(), "more") {
        let limiter = client.rate_limiter(&name, Rate::fixed_window(2, SOON));
        assert!(limiter.try_acquire(2).unwrap().allowed && limiter.available().unwrap() == 0);
        limiter.delete().unwrap();
        let fenced = client.fenced(&name);
        fenced.set(1, "value").unwrap();
        assert_eq!(fenced.get::<String>().unwrap().as_deref(), Some("value"));
        let value = format!("{{{name}}}:value");
        let report = client.optimistic(&[&value]).run(|read, write| {
            let old: Option<u64> = read.get(&value)?;
            write.set(&value, old.unwrap_or(0) + 1);
            Ok(Outcome::Commit(()))
        });
        assert!(report.unwrap().committed);
    }
}

#[test]
fn a_users_key_keeps_its_slot() {
    let client = connect(calm());
    for name in spread(calm(), "key") {
        let own = format!("report:{{{name}}}:nightly");
        let lock = client.simple_lock_at(&own);
        let guard = lock.lock().unwrap();
        let node = calm().primary_of(&own).unwrap().unwrap();
        assert!(node.keys().unwrap().contains(&own));
        guard.unlock().unwrap();
    }
}

#[test]
fn a_client_that_closes_releases_what_it_has_on_every_primary() {
    let mut rounds = 0..;
    closes_in_time(|| {
        let client = connect(calm());
        let names = spread(calm(), &format!("close {:?}", rounds.next()));
        let locks: Vec<_> = names.iter().map(|name| client.reentrant_lock(name)).collect();
        let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
        client.close()?;
        let other = connect(calm());
        for name in &names {
            other.reentrant_lock(name).try_lock().unwrap().expect("it was released").unlock().unwrap();
        }
        drop(guards);
        Ok(())
    });
}

/// Whichever of them it is: nothing is said of the order in which a client knows them. There are more locks than go in one
/// write.
#[test]
fn a_primary_that_stands_still_takes_no_others_time_to_close() {
    const EACH: usize = 100;
    let cluster = RedisCluster::start(3).unwrap();
    let primaries = cluster.primaries().unwrap();
    let mut names = (0..).map(|i| format!("still {i}"));
    // The time that closing takes at most may be too short for the others on a busy machine, at times.
    let mut closes_beside = |silent: &RedisServer| {
        let client = connect(&cluster);
        let (mut locks, mut at) = (Vec::new(), HashMap::<_, usize>::new());
        while locks.len() < primaries.len() * EACH {
            let name = names.next().unwrap();
            let here = at.entry(home(&cluster, &name).port()).or_default();
            if *here < EACH {
                *here += 1;
                locks.push(client.simple_lock(&name));
            }
        }
        let guards: Vec<_> = locks.iter().map(|lock| lock.lock().unwrap()).collect();
        silent.stop().unwrap();
        let closed = client.close();
        silent.cont().unwrap();
        let error = format!("{:#}", closed.unwrap_err());
        if !error.contains(&format!(" {EACH} locks could not be released in time")) {
            eprintln!("once more: {error}");
            return None;
        }
        for other in primaries.iter().filter(|it| it.port() != silent.port()) {
            let held = other.keys().unwrap();
            assert!(locks.iter().all(|lock| !held.contains(&key(lock.name()))), "{held:?}");
        }
        drop(guards);
        Some(())
    };
    for silent in &primaries {
        eventually(LONG, || closes_beside(silent));
    }
}
