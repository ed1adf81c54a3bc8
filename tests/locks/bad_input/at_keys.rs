//! Keys at which no lock can be, and keys that are something else.

use std::thread;

use redis_concurrent::internals::lock_count;
use redis_concurrent::{Client, Error, ErrorKind};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::server_days::*;

/// All that may be called of the lock at this key.
fn calls(client: &Client, key: &str) -> Vec<Result<(), Error>> {
    let lock = client.simple_lock_at(key);
    vec![
        lock.lock().map(drop),
        lock.try_lock().map(drop),
        lock.try_lock_for(SURELY).map(drop),
        lock.lock_owned().map(drop),
        lock.fair().lock_owned_with(SURELY).map(drop),
        lock.with_lease(ms(500)).lock().map(drop),
        lock.with(|_| panic!("ran without the lock")).map(drop),
        lock.is_locked().map(drop),
        lock.holder().map(drop),
        lock.queue_length().map(drop),
        lock.force_unlock().map(drop),
    ]
}

#[test]
fn a_key_that_cannot_be_a_lock_is_told_by_every_call() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server.url());
    let long = "x".repeat(1025);
    for (key, why) in [
        ("", "empty"),
        (&*long, "1025"),
        ("a}b", "'}'"),
        ("{}", "hash tag"),
        ("{}{a}", "hash tag"),
        ("a}{", "hash tag"),
        ("rc:{a}:fence", "lock's own"),
        ("rc:{a}:at:queue", "lock's own"),
    ] {
        for outcome in calls(&client, key) {
            let error = outcome.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{key:?}: {error}");
            assert!(error.to_string().contains(why), "{key:?}: {error}");
            assert!(key.starts_with(error.name()) && error.name().is_empty() == key.is_empty(), "{error}");
        }
        let lock = client.simple_lock_at(key);
        assert_eq!((lock.hold_count(), lock.local_queue_length()), (0, 0));
    }
    assert_eq!((client.request_count(), lock_count(&client)), (0, 0));
    assert!(server.keys().unwrap().is_empty());
}

#[test]
fn a_key_that_is_no_string_is_never_overwritten() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server.url());
    let theirs = "their:key";
    let values: [&[&str]; 5] = [
        &["HSET", theirs, "field", "theirs"],
        &["RPUSH", theirs, "theirs"],
        &["SADD", theirs, "theirs"],
        &["ZADD", theirs, "1", "theirs"],
        &["XADD", theirs, "1-1", "field", "theirs"],
    ];
    for foreign in values {
        server.flush_all().unwrap();
        ask::<redis::Value>(&server, foreign);
        let before: Vec<u8> = ask(&server, &["DUMP", theirs]);
        for outcome in on_time("all calls", ms(0), || calls(&client, theirs)) {
            error_of(outcome, ErrorKind::WrongType, theirs);
        }
        nothing_stays_but(&[theirs], &server, &[&client]);
        assert_eq!(ask::<Vec<u8>>(&server, &["DUMP", theirs]), before, "{foreign:?}");
        assert_eq!(ask::<i64>(&server, &["PTTL", theirs]), -1);
    }
}

/// By its key, too, a lock of another kind is one.
#[test]
fn the_key_of_another_kind_is_refused() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server.url());
    let lock = client.reentrant_lock("it");
    let guard = lock.lock().unwrap();
    for outcome in calls(&client, &key("it")) {
        error_of(outcome, ErrorKind::WrongType, "it");
    }
    guard.unlock().unwrap();
}

#[test]
fn a_foreign_key_that_turns_foreign_while_somebody_waits_is_told() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server.url());
    let lock = client.simple_lock_at("turns");
    ask::<()>(&server, &["SET", "turns", "theirs"]);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| error_of(lock.try_lock_for(SURELY), ErrorKind::WrongType, "turns"));
        wait_until(SURELY, "it waits", || lock.queue_length().unwrap() == 1);
        let mut both = redis::pipe();
        both.atomic().del("turns").rpush("turns", "theirs").exec(&mut server.connection().unwrap()).unwrap();
        waiting.join().unwrap();
    });
}
