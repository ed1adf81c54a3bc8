//! What is in Redis while one side or the other holds the lock.

use std::collections::BTreeMap;
use std::thread;
use std::time::Instant;

use redis_concurrent::ErrorKind;
use redis_concurrent::internals::lock_count;
use redis_concurrent::interop::{Redisson, RedissonFenced};
use redis_concurrent::kinds::Reentrant;
use redis_concurrent_testkit::wait_until;

use crate::redisson::fixture::{Fixture, KEY, LEASE};
use crate::support::{LONG, builder, connected, in_brief, ms};

#[test]
fn a_hold_of_ours_looks_to_redisson_like_one_of_its_own() {
    let fixture = Fixture::new();
    let (lock, mut java) = (fixture.lock(), fixture.java(1));
    let guard = lock.with_lease(LEASE).lock_owned().unwrap();
    let state: BTreeMap<String, String> = fixture.ask(&["HGETALL", KEY]);
    let owner = lock.holder().unwrap().unwrap().owner;
    assert_eq!(state.keys().collect::<Vec<_>>().len(), 2, "{state:?}");
    assert_eq!((state.get(&owner).map(String::as_str), state.contains_key("rc")), (Some("1"), true));
    let left = java.takes(LEASE).unwrap_err();
    assert!(left > 50_000 && left <= 60_000, "{left}");
    assert_eq!(java.frees(), None, "it is not the owner");
    guard.unlock().unwrap();
    assert_eq!(fixture.ask::<u8>(&["EXISTS", KEY]), 0);
    // Once more, by the thread that has it: Redis does not count that.
    let guard = lock.lock().unwrap();
    let again = lock.lock().unwrap();
    assert_eq!(fixture.ask::<String>(&["HGET", KEY, &lock.holder().unwrap().unwrap().owner]), "1");
    again.unlock().unwrap();
    assert!(java.takes(LEASE).is_err());
    guard.unlock().unwrap();
    assert_eq!((java.takes(LEASE), java.frees()), (Ok(()), Some(true)));
}

#[test]
fn a_hold_of_redissons_keeps_us_out_and_is_shown_as_the_holder() {
    let fixture = Fixture::new();
    let (lock, mut java) = (fixture.lock(), fixture.java(7));
    lock.lock().unwrap().unlock().unwrap(); // A number from which a time could be told.
    assert_eq!((java.takes(LEASE), java.takes(LEASE)), (Ok(()), Ok(())));
    assert!(lock.try_lock().unwrap().is_none() && in_brief(lock.try_lock_for(ms(100))).is_none());
    let holder = lock.holder().unwrap().unwrap();
    assert_eq!((holder.owner, holder.since, holder.process), (java.owner.clone(), None, None));
    assert!(holder.remaining.is_some_and(|left| left <= LEASE && left > LEASE / 2), "{:?}", holder.remaining);
    assert_eq!(java.frees(), Some(false));
    assert!(lock.try_lock().unwrap().is_none(), "it has it once more");
    assert_eq!(java.frees(), Some(true));
    assert!(lock.try_lock().unwrap().is_some());
}

#[test]
fn a_hold_is_renewed_and_keeps_redisson_out_beyond_its_lease() {
    let fixture = Fixture::new();
    // Renewed so often that a machine that stands still for a while does not end it.
    let lease = ms(4_000);
    let client = connected(|| builder(&fixture.server.url()).lease(lease).renew_every(ms(300)));
    let lock = client.redisson_lock(KEY);
    let guard = lock.lock().unwrap();
    let began = Instant::now();
    while began.elapsed() < lease + ms(500) {
        assert!(fixture.java(1).takes(LEASE).is_err(), "by {:?}", lock.holder());
        thread::sleep(ms(50));
    }
    guard.unlock().unwrap();
}

#[test]
fn tokens_grow_past_redissons_holds() {
    let fixture = Fixture::new();
    let (lock, other, mut java) = (fixture.lock(), fixture.lock(), fixture.java(1));
    assert_eq!(lock.name(), KEY);
    let mut last = 0;
    for lock in [&lock, &other, &lock] {
        let guard = lock.lock().unwrap();
        assert!(guard.token() > last);
        last = guard.token();
        guard.unlock().unwrap();
        assert_eq!((java.takes(LEASE), java.frees()), (Ok(()), Some(true)));
    }
}

/// A map, an RReadWriteLock, a string: what is no lock of this form stays as it is.
#[test]
fn a_key_that_is_no_such_lock_is_refused_and_left_alone() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let many: Vec<String> = (0..20_000).map(|i| format!("field{i}")).collect();
    let many: Vec<&str> = many.iter().flat_map(|field| [field, "1"]).collect();
    let states: [&[&str]; 5] = [
        &["HSET", KEY, "a", "1"],
        &["HSET", KEY, "mode", "read", "67e55044-10b1-426f-9247-bb680e5fe0c8:1", "1"],
        &["HSET", KEY, "rc", "1 - record"],
        &["SET", KEY, "text"],
        &[&["HSET", KEY], &*many].concat(),
    ];
    for state in states {
        let () = fixture.ask(&["DEL", KEY]);
        let _: redis::Value = fixture.ask(state);
        let before = state_of(&fixture);
        for error in
            [lock.lock().unwrap_err(), lock.is_locked().unwrap_err(), lock.force_unlock().unwrap_err()]
        {
            assert_eq!(error.kind(), ErrorKind::WrongType, "{error}");
        }
        assert_eq!(state_of(&fixture), before);
    }
}

/// The fields of a hash, or a string's text.
fn state_of(fixture: &Fixture) -> BTreeMap<String, String> {
    match &*fixture.ask::<String>(&["TYPE", KEY]) {
        "hash" => fixture.ask(&["HGETALL", KEY]),
        _ => [(String::new(), fixture.ask(&["GET", KEY]))].into(),
    }
}

#[test]
fn it_has_conditions() {
    let fixture = Fixture::new();
    fixture.a_condition_lets_others_in(|| {
        let mut java = fixture.java(1);
        assert_eq!((java.takes(LEASE), java.frees()), (Ok(()), Some(true)));
    });
}

#[test]
fn a_receipt_leads_back_to_the_lock() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let guard = here.redisson_lock(KEY).lock_owned().unwrap();
    let token = guard.token();
    let receipt = guard.into_receipt().unwrap();
    assert!(fixture.java(1).takes(LEASE).is_err());
    assert_eq!(there.adopt::<Reentrant>(&receipt).unwrap_err().kind(), ErrorKind::WrongType);
    let guard = there.adopt::<Redisson>(&receipt).unwrap();
    assert_eq!((guard.token(), guard.name()), (token, KEY));
    assert_eq!(fixture.ask::<u8>(&["HLEN", KEY]), 2);
    guard.unlock().unwrap();
    assert_eq!(fixture.java(1).takes(LEASE), Ok(()));
}

/// By Redisson's counter: each hold of either side increments it, so no hold is handed on within a process.
#[test]
fn fenced_holds_have_their_tokens_from_redissons_counter() {
    const COUNTER: &str = "redisson_lock_token:{stock:42}";
    let fixture = Fixture::new();
    let lock = fixture.client().redisson_fenced_lock(KEY);
    fixture.lock().lock().unwrap().unlock().unwrap();
    assert_eq!(fixture.ask::<u8>(&["EXISTS", COUNTER]), 0, "a plain hold has no such token");
    let tokens = parking_lot::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..5 {
                    let guard = lock.lock().unwrap();
                    assert_eq!(lock.lock().unwrap().token(), guard.token(), "a re-entry is the same hold");
                    tokens.lock().push(guard.token());
                    guard.unlock().unwrap();
                }
            });
        }
    });
    let tokens = tokens.into_inner();
    assert!(tokens.is_sorted_by(|a, b| a < b), "{tokens:?}");
    let last: u64 = fixture.ask(&["GET", COUNTER]);
    assert_eq!(tokens.last(), Some(&last));
    let _: u64 = fixture.ask(&["INCRBY", COUNTER, "9000000000000000"]);
    let guard = lock.lock_owned().unwrap();
    let token = last + 9_000_000_000_000_001;
    assert_eq!(guard.token(), token);
    let receipt = guard.into_receipt().unwrap();
    let guard = fixture.client().adopt::<RedissonFenced>(&receipt).unwrap();
    assert_eq!(guard.token(), token);
    guard.unlock().unwrap();
}

#[test]
fn nothing_stays_but_what_ends_by_itself() {
    let fixture = Fixture::new();
    let client = fixture.client();
    {
        let (lock, mut java) = (client.redisson_lock(KEY), fixture.java(1));
        assert_eq!(java.takes(LEASE), Ok(()));
        assert!(in_brief(lock.try_lock_for(ms(50))).is_none());
        assert_eq!(java.frees(), Some(true));
        lock.fair().lock().unwrap().unlock().unwrap();
    }
    wait_until(LONG, "no lock is in use", || lock_count(&client) == 0);
    client.close().unwrap();
    for key in fixture.ask::<Vec<String>>(&["KEYS", "*"]) {
        assert!(key.ends_with(":fence") || key.ends_with(":tombstones"), "{key}");
        // It may have ended meanwhile, which -2 says: Redisson's turn, of 25 ms, begins also where this
        // client was found with only the first of its two subscriptions.
        let ends: i64 = fixture.ask(&["PTTL", &key]);
        assert!(ends != -1 && ends <= (7_200 + 60) * 1_000, "{key}: {ends} ms");
    }
}
