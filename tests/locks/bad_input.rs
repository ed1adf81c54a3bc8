//! Bad input: names, waits, settings and keys that cannot work, or only just.

mod at_keys;
mod inventory;
mod synchronizers;
mod urls;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use redis_concurrent::internals::lock_count;
use redis_concurrent::{Client, ClientBuilder, Error, ErrorKind};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::both::both;
use crate::server_days::*;
use crate::support::{in_brief, replied};

// ---- names ---------------------------------------------------------------------------------

mod bodies {
    use super::*;

    /// Every call on a handle that cannot work says so, and nothing is sent.
    fn refused_by_every_call<K: Subject>(name: &str, kind: K, why: &str) {
        let server = RedisServer::start().unwrap();
        let client = connect(&server.url());
        let lock = client.lock_with_kind(name, kind);
        let check = |error: Error| {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
            assert!(error.to_string().contains(why), "{error}");
        };
        check(lock.lock().unwrap_err());
        check(lock.try_lock().unwrap_err());
        check(lock.try_lock_for(ms(10)).unwrap_err());
        check(lock.lock_with(Instant::now() + ms(10)).unwrap_err());
        check(lock.lock_owned().unwrap_err());
        check(lock.try_lock_owned().unwrap_err());
        check(lock.with(|_| panic!("ran without the lock")).unwrap_err());
        check(lock.is_locked().unwrap_err());
        check(lock.holder().unwrap_err());
        check(lock.queue_length().unwrap_err());
        check(lock.force_unlock().unwrap_err());
        check(lock.with_lease(ms(500)).fair().lock().unwrap_err());
        assert_eq!((lock.hold_count(), lock.local_queue_length()), (0, 0));
        assert_eq!(client.request_count(), 0);
        assert_eq!(lock_count(&client), 0);
        assert!(server.keys().unwrap().is_empty());
    }

    pub fn an_empty_name_is_refused<K: Subject>(kind: K) {
        refused_by_every_call("", kind, "empty");
    }

    pub fn a_name_over_1024_bytes_is_refused<K: Subject>(kind: K) {
        refused_by_every_call(&"x".repeat(1025), kind, "1025");
        // 342 times three bytes: cutting it for the message must not cut a character.
        refused_by_every_call(&"€".repeat(342), kind, "1026");
    }

    /// Unusual, and fine: each is a lock of its own with all its keys in one slot.
    pub fn odd_names_are_locks_of_their_own<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let (mine, yours) = (connect(&server.url()), connect(&server.url()));
        let longest = "n".repeat(1024);
        let names = [
            "{", "}", "{}", "}{", "a{b}c", "%", "%7B", "%7b", "%25", "\0", "a\0", "a\0b", " ", "\r\n",
            "ключ", "鍵", "🔑", "A", "a", "rc:{a}", "a:queue", "a:fence", "*", &longest,
        ];
        let locks: Vec<_> = names.iter().map(|it| mine.lock_with_kind(it, kind)).collect();
        let guards: Vec<_> = locks
            .iter()
            .map(|it| it.try_lock().unwrap().unwrap_or_else(|| panic!("{:?} is another's lock", it.name())))
            .collect();
        for name in names {
            let lock = yours.lock_with_kind(name, kind);
            assert_eq!(lock.name(), name);
            assert!(lock.try_lock().unwrap().is_none(), "{name:?} is not kept from others");
            // A queue position and a tombstone too, so that all keys of the lock are there.
            assert!(in_brief(lock.try_lock_for(ms(1))).is_none());
        }
        let keys = server.keys().unwrap();
        let states: BTreeSet<_> = keys.iter().filter(|it| !it.contains("}:")).collect();
        assert_eq!(states.len(), names.len(), "{states:?}");
        for state in states {
            let slots: BTreeSet<_> =
                keys.iter().filter(|it| tag(it) == tag(state)).map(|it| slot(it)).collect();
            assert_eq!(slots.len(), 1, "{state:?}");
            // The tag is the whole name, so the slot is that of the name alone.
            assert_eq!(slots.first(), Some(&crc16(tag(state).as_bytes())));
            let fence = format!("{state}:fence");
            assert!(keys.contains(&fence), "{fence:?} is not there");
        }
        for guard in guards {
            guard.unlock().unwrap();
        }
        drop(locks);
        nothing_stays(&server, &[&mine, &yours]);
    }

    // ---- waits -----------------------------------------------------------------------------

    pub fn a_wait_of_zero_is_one_attempt<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let (mine, yours) = (connect(&server.url()), connect(&server.url()));
        let (free, taken) = (mine.lock_with_kind("zero", kind), yours.lock_with_kind("zero", kind));
        let past = Instant::now();
        let guard = replied(|| free.try_lock_for(Duration::ZERO)).expect("it was free");
        // The first request of a client is sent twice: Redis must get to know the script.
        assert!(replied(|| taken.try_lock_for(Duration::ZERO)).is_none());
        let (before, attempts) = (yours.request_count(), Cell::new(0));
        let attempt = || attempts.set(attempts.get() + 1);
        assert!(replied(|| (attempt(), taken.try_lock_for(Duration::ZERO)).1).is_none());
        assert!(replied(|| (attempt(), taken.lock_with(past)).1).is_none());
        assert!(replied(|| (attempt(), taken.lock_owned_with(Duration::ZERO)).1).is_none());
        assert!((before + 3..=before + attempts.get()).contains(&yours.request_count()));
        assert!(!is_queued(&server, "zero"));
        guard.unlock().unwrap();
        replied(|| free.lock_with(past)).expect("free again").unlock().unwrap();
        drop((free, taken));
        nothing_stays(&server, &[&mine, &yours]);
    }

    pub fn an_enormous_wait_lasts_until_the_lock_is_free<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let (mine, yours) = (connect(&server.url()), connect(&server.url()));
        let (held, awaited) = (mine.lock_with_kind("ages", kind), yours.lock_with_kind("ages", kind));
        let ages = Instant::now() + Duration::from_secs(60 * 60 * 24 * 365 * 200);
        for round in 0..4 {
            let guard = held.lock().unwrap();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| match round {
                    0 => drop(awaited.try_lock_for(Duration::MAX).unwrap().expect("for ever")),
                    1 => drop(awaited.lock_owned_with(Duration::MAX).unwrap().expect("for ever")),
                    2 => drop(awaited.lock_with(ages).unwrap().expect("for ages")),
                    _ => drop(awaited.try_lock_for(Duration::MAX / 2).unwrap().expect("for ever")),
                });
                wait_for_queue(&server, "ages");
                assert!(!waiting.is_finished());
                guard.unlock().unwrap();
                waiting.join().unwrap();
            });
        }
        drop((held, awaited));
        nothing_stays(&server, &[&mine, &yours]);
    }

    // ---- leases ----------------------------------------------------------------------------

    pub fn a_lease_too_short_is_told_at_the_first_use<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connect(&server.url());
        for lease in [ms(0), ms(10), ms(100) - Duration::from_nanos(1)] {
            let lock = client.lock_with_kind("short-lease", kind).with_lease(lease);
            let error = error_of(lock.lock(), ErrorKind::InvalidInput, "short-lease");
            assert!(error.to_string().contains("100ms"), "{error}");
            error_of(lock.try_lock(), ErrorKind::InvalidInput, "short-lease");
            error_of(lock.try_lock_for(ms(10)), ErrorKind::InvalidInput, "short-lease");
            error_of(lock.lock_owned(), ErrorKind::InvalidInput, "short-lease");
        }
        assert_eq!(client.request_count(), 0);
        let lock = client.lock_with_kind("short-lease", kind).with_lease(ms(100));
        let guard = lock.lock().unwrap();
        error_of(guard.renew_for(ms(10)), ErrorKind::InvalidInput, "short-lease");
        // It may have ended by itself meanwhile.
        drop(guard);
        drop(lock);
        nothing_stays(&server, &[&client]);
    }

    /// A lease of ages is refused as a setting that cannot work, or it works: what it must not do
    /// is fail half-way, with a key that never ends.
    pub fn a_lease_of_ages_works_or_is_refused<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connect(&server.url());
        for lease in [Duration::from_secs(1 << 40), Duration::from_secs(u64::MAX / 2000), Duration::MAX] {
            let lock = client.lock_with_kind("ages", kind).with_lease(lease);
            match lock.try_lock() {
                Ok(guard) => {
                    let guard = guard.expect("nobody has it");
                    assert!(ask::<i64>(&server, &["PTTL", &key("ages")]) > 0);
                    guard.unlock().unwrap();
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{lease:?}: {error}");
                    assert_eq!(ask::<u64>(&server, &["EXISTS", &key("ages")]), 0);
                }
            }
            let lock = client.lock_with_kind("renewed-for-ages", kind);
            let guard = lock.lock().unwrap();
            if let Err(error) = guard.renew_for(lease) {
                assert_eq!(error.kind(), ErrorKind::InvalidInput, "{lease:?}: {error}");
            }
            assert!(!guard.is_lost());
            guard.unlock().unwrap();
        }
        nothing_stays(&server, &[&client]);
    }

    // ---- keys of others --------------------------------------------------------------------

    pub fn a_key_of_another_type_is_never_overwritten<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let client = connect(&server.url());
        let name = "foreign";
        let key = key(name);
        let values: [&[&str]; 5] = [
            &["HSET", &key, "field", "theirs"],
            &["RPUSH", &key, "theirs"],
            &["SADD", &key, "theirs"],
            &["ZADD", &key, "1", "theirs"],
            &["XADD", &key, "1-1", "field", "theirs"],
        ];
        for foreign in values {
            server.flush_all().unwrap();
            ask::<redis::Value>(&server, foreign);
            let before: Vec<u8> = ask(&server, &["DUMP", &key]);
            let lock = client.lock_with_kind(name, kind);
            error_of(on_time("lock", ms(0), || lock.lock()), ErrorKind::WrongType, name);
            error_of(lock.try_lock(), ErrorKind::WrongType, name);
            let timed = on_time("try_lock_for", ms(0), || lock.try_lock_for(SURELY));
            error_of(timed, ErrorKind::WrongType, name);
            error_of(lock.lock_owned(), ErrorKind::WrongType, name);
            error_of(lock.is_locked(), ErrorKind::WrongType, name);
            error_of(lock.holder(), ErrorKind::WrongType, name);
            error_of(lock.queue_length(), ErrorKind::WrongType, name);
            error_of(lock.force_unlock(), ErrorKind::WrongType, name);
            drop(lock);
            nothing_stays_but(&[&key], &server, &[&client]);
            assert_eq!(ask::<Vec<u8>>(&server, &["DUMP", &key]), before, "{foreign:?}");
            assert_eq!(ask::<i64>(&server, &["PTTL", &key]), -1);
        }
    }

    /// It says what the key is, and nothing of the script that found out.
    #[track_caller]
    fn is_another<T>(outcome: Result<T, Error>, is: &str) {
        let error = error_of(outcome, ErrorKind::WrongType, "both");
        assert_eq!(error.kind(), ErrorKind::WrongType);
        assert_eq!(format!("{error:#}"), format!("\"both\": wrong type: key \"rc:{{both}}\" is {is}"));
    }

    pub fn two_kinds_on_one_name_exclude_each_other<K: Subject>(kind: K) {
        let server = RedisServer::start().unwrap();
        let (mine, yours) = (connect(&server.url()), connect(&server.url()));
        let lock = mine.lock_with_kind("both", kind);
        let guard = lock.lock().unwrap();
        let before: Vec<u8> = ask(&server, &["DUMP", &key("both")]);
        // Of one client and of another.
        for client in [&mine, &yours] {
            if K::NAME == <redis_concurrent::kinds::Simple as redis_concurrent::kinds::Kind>::NAME {
                let other = client.reentrant_lock("both");
                is_another(other.lock(), "a simple lock, not a reentrant lock");
                is_another(other.try_lock_for(SURELY), "a simple lock, not a reentrant lock");
                is_another(other.force_unlock(), "a simple lock, not a reentrant lock");
            } else {
                let other = client.simple_lock("both");
                is_another(other.lock(), "a reentrant lock, not a simple lock");
                is_another(other.try_lock_for(SURELY), "a reentrant lock, not a simple lock");
                is_another(other.force_unlock(), "a reentrant lock, not a simple lock");
            }
        }
        assert_eq!(ask::<Vec<u8>>(&server, &["DUMP", &key("both")]), before);
        guard.unlock().unwrap();
        // Once it is free, the name may be used by either.
        yours.simple_lock("both").lock().unwrap().unlock().unwrap();
        yours.reentrant_lock("both").lock().unwrap().unlock().unwrap();
        drop(lock);
        nothing_stays(&server, &[&mine, &yours]);
    }
}

both! {
    an_empty_name_is_refused;
    a_name_over_1024_bytes_is_refused;
    odd_names_are_locks_of_their_own;
    a_wait_of_zero_is_one_attempt;
    an_enormous_wait_lasts_until_the_lock_is_free;
    a_lease_too_short_is_told_at_the_first_use;
    a_lease_of_ages_works_or_is_refused;
    a_key_of_another_type_is_never_overwritten;
    two_kinds_on_one_name_exclude_each_other;
}

/// What Redis Cluster takes for the hash tag of a key; of a key without one the key itself.
fn tag(key: &str) -> &str {
    let tagged = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    tagged.filter(|it| !it.is_empty()).unwrap_or(key)
}

fn slot(key: &str) -> u16 {
    crc16(tag(key).as_bytes())
}

/// CRC16 as Redis Cluster has it (XMODEM), by the slots.
fn crc16(bytes: &[u8]) -> u16 {
    let crc = bytes.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    });
    crc % 16384
}

#[test]
fn the_slots_of_this_test_are_those_of_redis_cluster() {
    assert_eq!(crc16(b"123456789"), 0x31C3);
    assert_eq!((slot("{user1000}.following"), slot("foo{}{bar}")), (slot("user1000"), crc16(b"foo{}{bar}")));
}

/// A string is what a simple lock is made of: a foreign one is somebody else's hold.
#[test]
fn a_foreign_holders_string_is_a_hold_to_the_simple_lock_and_foreign_to_the_reentrant() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server.url());
    let state = key("theirs");
    ask::<()>(&server, &["SET", &state, "theirs"]);
    let simple = client.simple_lock("theirs");
    assert!(simple.try_lock().unwrap().is_none());
    assert!(replied(|| on_time("try_lock_for", ms(200), || simple.try_lock_for(ms(200)))).is_none());
    assert_eq!(simple.holder().unwrap().unwrap().owner, "theirs");
    error_of(client.reentrant_lock("theirs").lock(), ErrorKind::WrongType, "theirs");
    assert_eq!(ask::<String>(&server, &["GET", &state]), "theirs");
    // Released as its owner would: by deleting it. Nobody tells the waiters, their timer does.
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| simple.lock().unwrap().unlock().unwrap());
        wait_for_queue(&server, "theirs");
        ask::<()>(&server, &["DEL", &state]);
        waiting.join().unwrap();
    });
    drop(simple);
    nothing_stays(&server, &[&client]);
}

/// A waiter learns it too when the key becomes something else under it.
#[test]
fn a_key_that_turns_foreign_while_somebody_waits_is_told() {
    let server = RedisServer::start().unwrap();
    let mine = connect(&server.url());
    // A position that its waiter cannot give up stays for ten times this.
    let yours = connected(|| brisk(&server.url()).waiter_timeout(COMMAND));
    let (held, awaited) = (mine.reentrant_lock("turns"), yours.reentrant_lock("turns"));
    let guard = held.lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| awaited.lock().map(drop));
        wait_for_queue(&server, "turns");
        ask::<()>(&server, &["SET", &key("turns"), "theirs"]);
        error_of(waiting.join().unwrap(), ErrorKind::WrongType, "turns");
    });
    error_of(guard.unlock(), ErrorKind::LeaseLost, "turns");
    assert_eq!(ask::<String>(&server, &["GET", &key("turns")]), "theirs");
    drop((held, awaited));
    nothing_stays_but(&[&key("turns")], &server, &[&mine, &yours]);
}

// ---- settings ------------------------------------------------------------------------------

#[test]
fn a_setting_that_cannot_work_is_named() {
    // Nobody is asked: there is no server at this address.
    let with = |change: fn(ClientBuilder) -> ClientBuilder| {
        let start = Instant::now();
        let error = change(Client::builder().url("redis://127.0.0.1:1/")).connect().map(drop).unwrap_err();
        assert!(start.elapsed() < SURELY);
        error
    };
    type Change = fn(ClientBuilder) -> ClientBuilder;
    let bad: [(&str, Change); 23] = [
        ("lease", |it| it.lease(ms(99))),
        ("lease", |it| it.lease(Duration::ZERO)),
        ("lease", |it| it.lease(Duration::MAX)),
        ("renew_every must be between 1ms and 500ms, got 501ms (half the lease of 1s", |it| {
            it.lease(ms(1000)).renew_every(ms(501))
        }),
        ("renew_every", |it| it.renew_every(Duration::MAX)),
        ("renew_every", |it| it.renew_every(Duration::ZERO)),
        ("renew_every", |it| it.renew_every(Duration::from_micros(999))),
        ("waiter_timeout", |it| it.waiter_timeout(ms(99))),
        ("waiter_timeout", |it| it.waiter_timeout(Duration::MAX)),
        // Both are named.
        ("waiter_timeout of 400ms", |it| it.waiter_timeout(ms(400)).command_timeout(ms(401))),
        ("command_timeout of 401ms", |it| it.command_timeout(ms(401)).waiter_timeout(ms(400))),
        ("namespace", |it| it.namespace("")),
        ("namespace", |it| it.namespace("a{b")),
        ("namespace", |it| it.namespace("a}b")),
        ("namespace", |it| it.namespace("{a}")),
        ("client_name", |it| it.client_name("two\nlines")),
        ("client_name", |it| it.client_name("nul\0")),
        ("max_connections must be between 1 and 65535, got 0", |it| it.max_connections(0)),
        ("max_connections must be between 1 and 65535, got 65536", |it| it.max_connections(65_536)),
        ("connect", |it| it.connect_timeout(Duration::ZERO)),
        ("command", |it| it.command_timeout(Duration::ZERO)),
        ("at least 1ms, got 1ns", |it| it.command_timeout(Duration::from_nanos(1))),
        ("at least 1ms, got 999µs", |it| it.connect_timeout(Duration::from_micros(999))),
    ];
    let mut wrong = Vec::new();
    for (n, (named, change)) in bad.into_iter().enumerate() {
        let error = with(change);
        if error.kind() != ErrorKind::InvalidInput || !error.to_string().contains(named) {
            wrong.push(format!("setting {n}, {named}: {error:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Limits of ages mean no limit; they must not overflow anything.
#[test]
fn enormous_limits_work() {
    let server = RedisServer::start().unwrap();
    let client = Client::builder()
        .url(&server.url())
        .connect_timeout(Duration::MAX)
        .command_timeout(Duration::MAX)
        .unreachable_timeout(Duration::MAX)
        .local_handoff(Duration::MAX)
        .connect()
        .unwrap();
    let lock = client.simple_lock("limits");
    let guard = lock.lock().unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| lock.lock().unwrap().unlock().unwrap());
        wait_until(SURELY, "a waiting thread", || lock.local_queue_length() == 1);
        guard.unlock().unwrap();
        waiting.join().unwrap();
    });
    drop(lock);
    nothing_stays(&server, &[&client]);
}
