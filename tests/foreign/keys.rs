//! Which keys a lock at a key has: in its slot, and no other lock's.

use std::collections::BTreeSet;
use std::thread;

use redis_concurrent::ErrorKind;
use redis_concurrent::internals::lock_count;
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::foreign::fixture::Fixture;
use crate::support::{LONG, builder, comes_in, connected, ms};

/// By the word of Redis itself, which knows slots where it could be one of a cluster.
#[test]
fn all_keys_of_a_lock_are_in_the_slot_of_its_key() {
    let fixture = Fixture::new();
    let cluster = RedisServer::builder().arg("cluster-enabled", "yes").start().unwrap();
    let mut cluster = cluster.connection().unwrap();
    let mut slot =
        |key: &str| -> u16 { redis::cmd("CLUSTER").arg("KEYSLOT").arg(key).query(&mut cluster).unwrap() };
    let longest = "x".repeat(1024);
    for key in
        ["a", "a:b", "{", "a{b", "{a}", "x{a}y", "x{{a}y}z", "{a}{b}", "{a}}", "{a}:queue", "ключ", &longest]
    {
        fixture.server.flush_all().unwrap();
        let [lock, waits, queues] = [(); 3].map(|()| fixture.client().simple_lock_at(key));
        let is_waited_for = || lock.condition("c").wait_queue_length(&lock.lock().unwrap()).unwrap() > 0;
        let forced = lock.lock_owned().unwrap();
        assert!(lock.force_unlock().unwrap().holders > 0);
        assert!(forced.unlock().unwrap_err().is_lease_lost());
        thread::scope(|scope| {
            scope
                .spawn(|| assert!(waits.condition("c").wait_with(&mut waits.lock().unwrap(), LONG).unwrap()));
            wait_until(LONG, "one waits for a signal", is_waited_for);
            let guard = lock.lock().unwrap();
            scope.spawn(|| comes_in(&queues));
            wait_until(LONG, "one waits for the lock", || lock.queue_length().unwrap() == 1);
            // State, queue, queue positions, fence, tombstones, conditions.
            let keys: BTreeSet<String> = fixture.server.keys().unwrap().into_iter().collect();
            assert!(keys.contains(key) && keys.len() == 6, "{keys:?}");
            for it in &keys {
                assert_eq!(slot(it), slot(key), "{it:?} beside {key:?}");
                assert!(it == key || it.starts_with("rc:{"), "{it:?}");
            }
            lock.condition("c").signal(&guard).unwrap();
            guard.unlock().unwrap();
        });
    }
}

/// At the key of a lock that has a name it is that lock: one lock state, one queue, one row of tokens.
#[test]
fn the_key_of_a_named_lock_is_that_lock() {
    let fixture = Fixture::new();
    let minutes = ms(120_000);
    let patient = || connected(|| builder(&fixture.server.url()).lease(minutes).waiter_timeout(minutes));
    let (mine, yours) = (patient(), patient());
    for (name, key) in [("a", "rc:{a}"), ("a{%}", "rc:{a%7B%25%7D}")] {
        let (named, at, theirs) =
            (mine.simple_lock(name), mine.simple_lock_at(key), yours.simple_lock_at(key));
        assert_eq!((at.name(), theirs.name(), lock_count(&mine)), (name, name, 1));
        let guard = named.lock().unwrap();
        assert_eq!(at.lock().unwrap_err().kind(), ErrorKind::WouldDeadlock);
        assert!(at.is_held_by_current_thread() && theirs.try_lock().unwrap().is_none());
        thread::scope(|scope| {
            // Told of it: by itself it would not ask within the time of a test.
            let waits = scope.spawn(|| theirs.try_lock_for(LONG).unwrap().expect("in time").token());
            wait_until(LONG, "a queue position", || named.queue_length().unwrap() == 1);
            let token = guard.token();
            guard.unlock().unwrap();
            assert!(waits.join().unwrap() > token);
        });
    }
}

/// In another namespace the same key has another queue; Redis keeps them apart all the same.
#[test]
fn namespaces_exclude_each_other_at_one_key() {
    let fixture = Fixture::new();
    let other = connected(|| builder(&fixture.server.url()).namespace("elsewhere"));
    for key in ["job", "rc:{a}"] {
        let (here, there) = (fixture.client().simple_lock_at(key), other.simple_lock_at(key));
        for (first, second) in [(&here, &there), (&there, &here)] {
            let guard = first.lock().unwrap();
            assert!(second.try_lock().unwrap().is_none());
            assert_eq!(second.holder().unwrap().unwrap().owner, first.holder().unwrap().unwrap().owner);
            thread::scope(|scope| {
                let waits = scope.spawn(|| comes_in(second));
                wait_until(LONG, "it waits", || second.local_queue_length() == 1);
                guard.unlock().unwrap();
                waits.join().unwrap();
            });
        }
    }
}

#[test]
fn a_name_is_no_key_and_a_key_is_no_name() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let locks = [
        client.simple_lock("job"),
        client.simple_lock_at("job"),
        client.simple_lock_at("{job}"),
        client.simple_lock_at("rc:job"),
        client.simple_lock_at("x{job}"),
    ];
    let guards: Vec<_> =
        locks.iter().map(|lock| lock.try_lock().unwrap().expect("a lock of its own")).collect();
    assert_eq!(lock_count(&client), locks.len());
    let other = fixture.client();
    assert!(other.simple_lock("job").try_lock().unwrap().is_none());
    assert!(other.simple_lock_at("job").try_lock().unwrap().is_none());
    drop(guards);
}

/// What a client with no more rights than these may do: ours in its namespace, theirs at the key.
#[test]
fn rights_to_the_namespace_and_to_the_key_are_enough() {
    let fixture = Fixture::new();
    let mut set = redis::cmd("ACL");
    set.arg("SETUSER").arg("locks").arg("on").arg(">secret").arg("~rc:{*").arg("~job:*").arg("&rc:inbox:*");
    set.arg("+@all").exec(&mut fixture.server.connection().unwrap()).unwrap();
    let url = format!("redis://locks:secret@127.0.0.1:{}/", fixture.server.port());
    let (mine, yours) = (connected(|| builder(&url)), connected(|| builder(&url)));
    for key in ["job:7", "job:{7}"] {
        let (lock, other) = (mine.simple_lock_at(key), yours.simple_lock_at(key));
        let guard = lock.lock().unwrap();
        thread::scope(|scope| {
            let waits = scope.spawn(|| comes_in(&other));
            wait_until(LONG, "it waits", || lock.queue_length().unwrap() == 1);
            guard.unlock().unwrap();
            waits.join().unwrap();
        });
    }
    let error = mine.simple_lock_at("other:7").lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
}
