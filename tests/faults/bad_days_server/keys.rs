//! Keys are deleted, or overwritten, while the lock is held.

use std::thread;

use redis_concurrent::observe::LossReason;
use redis_concurrent::once::Begun;
use redis_concurrent::{Client, Error, ErrorKind, MultiLock, RedisLock};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::both::both;
use crate::server_days::*;

mod bodies {
    use super::*;

    /// What somebody does to the key under a holder, and what then is there.
    fn tamperings(name: &str) -> Vec<(Vec<String>, bool)> {
        let key = key(name);
        let words = |words: &[&str]| words.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        vec![
            (words(&["DEL", &key]), false),
            (words(&["SET", &key, "theirs"]), true),
            (
                words(&[
                    "EVAL",
                    "redis.call('DEL', KEYS[1]) return redis.call('RPUSH', KEYS[1], 'theirs')",
                    "1",
                    &key,
                ]),
                true,
            ),
            (
                words(&[
                    "EVAL",
                    "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'kind', 'reentrant lock', 'owner', 'theirs:1', 'number', '1', 'record', '')",
                    "1",
                    &key,
                ]),
                true,
            ),
        ]
    }

    fn tamper(server: &RedisServer, words: &[String]) {
        ask::<redis::Value>(server, &words.iter().map(String::as_str).collect::<Vec<_>>());
    }

    pub fn a_hold_whose_key_is_taken_away_is_lost_by_the_next_renewal<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        for (words, stays) in tamperings("taken") {
            let counters = Counters::default();
            let every = ms(300);
            let client = connected(|| lively(&server.url()).renew_every(every).observer(counters.clone()));
            let lock = client.lock_with_kind("taken", kind);
            let guard = lock.lock().unwrap();
            let lost = guard.lost();
            counters.wait_for_renewals(1);
            tamper(&server, &words);
            let dump = || ask::<Option<Vec<u8>>>(&server, &["DUMP", &key("taken")]);
            let before = dump();
            assert_eq!(before.is_some(), stays);
            on_time("lost()", every, || assert!(lost.wait_timeout(SURELY)));
            assert!(guard.is_lost());
            error_of(guard.unlock(), ErrorKind::LeaseLost, "taken");
            wait_until(SURELY, "the loss is told", || !counters.losses().is_empty());
            drop(lock);
            nothing_stays_but(&[&key("taken")], &server, &[&client]);
            assert_eq!(counters.losses(), [LossReason::Revoked], "{words:?}");
            assert_eq!(dump(), before, "{words:?}");
            server.flush_all().unwrap();
        }
    }

    pub fn an_unlock_finds_out_that_the_key_was_taken_away<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        for (words, stays) in tamperings("taken") {
            let counters = Counters::default();
            let client = connected(|| lively(&server.url()).observer(counters.clone()));
            let lock = client.lock_with_kind("taken", kind);
            let guard = lock.lock().unwrap();
            let lost = guard.lost();
            tamper(&server, &words);
            let dump = || ask::<Option<Vec<u8>>>(&server, &["DUMP", &key("taken")]);
            let before = dump();
            assert_eq!(before.is_some(), stays);
            error_of(guard.unlock(), ErrorKind::LeaseLost, "taken");
            assert_eq!(counters.losses(), [LossReason::Revoked], "{words:?}");
            // The work under the hold must learn that it was in vain, even that late.
            assert!(lost.is_cancelled(), "{words:?}: lost() did not fire");
            drop(lock);
            nothing_stays_but(&[&key("taken")], &server, &[&client]);
            assert_eq!(dump(), before, "{words:?}");
            server.flush_all().unwrap();
        }
    }

    /// A guard that is dropped tells the observer what an unlock would have said.
    pub fn a_guard_dropped_after_the_loss_tells_the_observer<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let counters = Counters::default();
        let client = connected(|| lively(&server.url()).observer(counters.clone()));
        let lock = client.lock_with_kind("dropped", kind);
        let guard = lock.lock().unwrap();
        server.flush_all().unwrap();
        drop(guard);
        wait_until(SURELY, "it is told", || !counters.unlock_failed.lock().is_empty());
        let failed = counters.unlock_failed.lock().clone();
        assert_eq!(
            failed.iter().map(redis_concurrent::Error::kind).collect::<Vec<_>>(),
            [ErrorKind::LeaseLost]
        );
        assert_eq!(counters.losses(), [LossReason::Revoked]);
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// All keys are gone, positions too: the waiters come in, and in order of the tokens.
    pub fn waiters_outlive_that_all_keys_are_deleted<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let clients: Vec<Client> = (0..3).map(|_| connect(&server.url())).collect();
        let held = clients[0].lock_with_kind("flushed", kind);
        let guard = held.lock().unwrap();
        let token = guard.token();
        thread::scope(|scope| {
            let waiting: Vec<_> = clients[1..]
                .iter()
                .map(|client| {
                    let lock = client.lock_with_kind("flushed", kind);
                    scope.spawn(move || {
                        let guard = lock.lock().unwrap();
                        let token = guard.token();
                        guard.unlock().map(|()| token)
                    })
                })
                .collect();
            let queue = format!("{}:queue", key("flushed"));
            wait_until(SURELY, "two queue positions", || ask::<u64>(&server, &["ZCARD", &queue]) == 2);
            server.flush_all().unwrap();
            for waiter in waiting {
                assert!(waiter.join().unwrap().unwrap() > token);
            }
        });
        error_of(guard.unlock(), ErrorKind::LeaseLost, "flushed");
        drop(held);
        nothing_stays(&server, &clients.iter().collect::<Vec<_>>());
    }
}

/// A text in the fence says nothing about numbers: each kind goes on as if Redis had lost the last one.
#[test]
fn a_text_in_the_fence_counts_as_no_number() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server.url()), connect(&server.url()));
    let fence = format!("{}:fence", key("it"));
    let spoil = || ask::<()>(&server, &["SET", &fence, "theirs"]);
    let fresh = || {
        server.flush_all().unwrap();
        spoil();
    };

    fn taken<K: Subject>(lock: &RedisLock<K>, other: &RedisLock<K>, spoil: impl Fn()) {
        let guard = lock.try_lock().unwrap().expect("it is free");
        spoil();
        assert!(other.try_lock().unwrap().is_none());
        assert!(other.lock_with(ms(50)).unwrap().is_none());
        assert!(lock.holder().unwrap().is_some());
        spoil();
        guard.unlock().unwrap();
    }
    fresh();
    taken(&client.simple_lock("it"), &other.simple_lock("it"), spoil);
    fresh();
    taken(&client.reentrant_lock("it"), &other.reentrant_lock("it"), spoil);
    let (ours, theirs) = (client.read_write_lock("it"), other.read_write_lock("it"));
    fresh();
    taken(ours.write_lock(), theirs.write_lock(), spoil);
    fresh();
    let reading = ours.read_lock().try_lock().unwrap().expect("it is free");
    assert!(theirs.write_lock().lock_with(ms(50)).unwrap().is_none());
    reading.unlock().unwrap();

    fresh();
    let lock = client.reentrant_lock("it");
    let mut guard = lock.lock().unwrap();
    spoil();
    assert!(!lock.condition("room").wait_with(&mut guard, ms(50)).unwrap());
    guard.unlock().unwrap();
    fresh();
    assert!(client.election("it").try_campaign().unwrap().is_some());
    fresh();
    let latch = client.count_down_latch("it");
    latch.try_set_count(1).unwrap();
    spoil();
    assert!(!latch.wait_with(ms(50)).unwrap());
    assert_eq!(latch.count().unwrap(), Some(1));
}

/// Redis's own words do not say which of a lock's keys has another type.
#[test]
fn a_key_beside_the_locks_own_that_has_another_type_is_named() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server.url()), connect(&server.url()));
    let (lock, asks) = (client.reentrant_lock("it"), other.reentrant_lock("it"));
    for suffix in ["queue", "positions", "tombstones", "fence", "conditions"] {
        let beside = format!("{}:{suffix}", key("it"));
        let named = |what: &str, error: Error| {
            let text = error.to_string();
            assert!(text.contains(&format!("ends in \":{suffix}\"")), "{what}: {text}");
        };
        let mut guard = lock.lock().unwrap();
        ask::<()>(&server, &["DEL", &beside]);
        ask::<()>(&server, &["RPUSH", &beside, "theirs"]);
        match suffix {
            "conditions" => {
                let waited = lock.condition("room").wait_with(&mut guard, SURELY);
                named("a wait for a signal", error_of(waited, ErrorKind::WrongType, "it"));
            }
            _ => named("a wait", error_of(asks.lock_with(SURELY), ErrorKind::WrongType, "it")),
        }
        drop(guard);
        wait_until(SURELY, "it is given back", || ask::<u64>(&server, &["EXISTS", &key("it")]) == 0);
        server.flush_all().unwrap();
    }
}

/// A script meets it only after it has found the hold, or released it.
#[test]
fn a_key_beside_the_locks_own_that_has_another_type_is_no_loss() {
    let server = RedisServer::start().unwrap();
    let counters = Counters::default();
    let client = connected(|| lively(&server.url()).observer(counters.clone()));
    for (suffix, stops_renewals) in [("queue", false), ("tombstones", true)] {
        let guard = client.reentrant_lock(suffix).lock_owned().unwrap();
        let lost = guard.lost();
        ask::<()>(&server, &["RPUSH", &format!("{}:{suffix}", key(suffix)), "theirs"]);
        let renewed = guard.renew_for(ms(30_000));
        assert_eq!(renewed.is_err(), stops_renewals, "{suffix}: {renewed:?}");
        if stops_renewals {
            error_of(renewed, ErrorKind::OutcomeUnknown, suffix);
        }
        assert!(!lost.is_cancelled() && !guard.is_lost(), "{suffix}");
        // It cannot let anybody in, so that not all of it is done.
        let error = error_of(guard.unlock(), ErrorKind::OutcomeUnknown, suffix);
        assert!(format!("{error:#}").contains(&format!("ends in \":{suffix}\"")), "{error:#}");
        wait_until(SURELY, "it is given back", || ask::<u64>(&server, &["EXISTS", &key(suffix)]) == 0);
        assert!(!lost.is_cancelled(), "{suffix}");
        server.flush_all().unwrap();
    }
    assert!(counters.losses().is_empty());
    nothing_stays(&server, &[&client]);
}

/// As for a lock alone, although the script for both catches the error of one.
#[test]
fn a_key_beside_a_lock_of_a_multi_lock_that_has_another_type_is_no_loss() {
    let server = RedisServer::start().unwrap();
    let counters = Counters::default();
    let client = connected(|| lively(&server.url()).observer(counters.clone()));
    let [one, other] = ["one", "other"].map(|name| client.reentrant_lock(name));
    let both = MultiLock::new(&[&one, &other]);
    let guard = both.lock().unwrap();
    ask::<()>(&server, &["RPUSH", &format!("{}:queue", key("one")), "theirs"]);
    for error in [
        error_of(guard.unlock(), ErrorKind::OutcomeUnknown, "one"),
        error_of(both.lock_with(SURELY), ErrorKind::WrongType, "one"),
    ] {
        assert!(format!("{error:#}").contains("ends in \":queue\""), "{error:#}");
    }
    wait_until(SURELY, "both are given back", || {
        ask::<u64>(&server, &["EXISTS", &key("one"), &key("other")]) == 0
    });
    server.flush_all().unwrap();
    drop((one, other, both));
    assert!(counters.losses().is_empty());
    nothing_stays(&server, &[&client]);
}

/// A text that no script of ours wrote: its waiter queues again, and there is no signal to be passed on.
#[test]
fn a_text_among_the_positions_and_the_conditions_counts_as_none() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server.url()), connected(|| lively(&server.url())));
    let beside = |suffix: &str| format!("{}:{suffix}", key("it"));
    let (queue, positions, conditions) = (beside("queue"), beside("positions"), beside("conditions"));
    let lock = client.reentrant_lock("it");
    let guard = lock.lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| other.reentrant_lock("it").lock().unwrap().unlock());
        let first = || ask::<Vec<String>>(&server, &["ZRANGE", &queue, "0", "0"]);
        wait_until(SURELY, "a queue position", || !first().is_empty());
        ask::<()>(&server, &["HSET", &positions, &first()[0], "theirs"]);
        guard.unlock().unwrap();
        waiting.join().unwrap().unwrap();
    });

    let spoilt = [["HSET", &positions, "signalled", "theirs"], ["ZADD", &conditions, "0", "room|theirs"]];
    for words in spoilt {
        let mut guard = lock.lock().unwrap();
        ask::<()>(&server, &words);
        assert!(!lock.condition("room").wait_with(&mut guard, ms(50)).unwrap(), "{words:?}");
        guard.unlock().unwrap();
        server.flush_all().unwrap();
    }
}

/// What an update wrote before it met such a key stays.
#[test]
fn an_update_that_meets_a_key_of_another_type_may_have_been_made() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server.url());
    let queue = |name: &str| format!("{}:queue", key(name));
    let spoil = |name: &str| ask::<()>(&server, &["RPUSH", &queue(name), "theirs"]);
    let is_unknown = |outcome: Result<(), Error>, name: &str| {
        let error = error_of(outcome, ErrorKind::OutcomeUnknown, name);
        assert!(format!("{error:#}").contains("ends in \":queue\""), "{error:#}");
        ask::<()>(&server, &["DEL", &queue(name)]);
    };
    let permits = client.semaphore("permits");
    spoil("permits");
    is_unknown(permits.set_permits(2), "permits");
    assert_eq!(permits.available().unwrap(), 2);
    let once = client.once("work");
    let Begun::Yours(attempt) = once.begin().unwrap() else { panic!("it is new") };
    spoil("work");
    is_unknown(attempt.done("it"), "work");
    assert!(matches!(once.begin().unwrap(), Begun::Done(answer) if answer == "it"));
}

both! {
    a_hold_whose_key_is_taken_away_is_lost_by_the_next_renewal;
    an_unlock_finds_out_that_the_key_was_taken_away;
    a_guard_dropped_after_the_loss_tells_the_observer;
    waiters_outlive_that_all_keys_are_deleted;
}
