//! Among its own, a lock at a key is a simple lock like any other; to foreign holders it looks like theirs.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::internals::lock_count;
use redis_concurrent::kinds::{Reentrant, Simple};
use redis_concurrent::{ErrorKind, Receipt};
use redis_concurrent_testkit::wait_until;

use crate::foreign::fixture::{Fixture, KEY, LEASE};
use crate::support::{LONG, builder, connected, in_brief, ms};

#[test]
fn what_we_hold_looks_as_set_nx_px_leaves_it() {
    let fixture = Fixture::new();
    let (lock, mut foreign) = (fixture.lock(), fixture.foreign_holder("theirs"));
    let guard = lock.with_lease(LEASE).lock_owned().unwrap();
    assert_eq!(fixture.ask::<String>(&["TYPE", KEY]), "string");
    assert_eq!(fixture.ask::<String>(&["GET", KEY]), lock.holder().unwrap().unwrap().owner);
    let left = Duration::from_millis(fixture.ask(&["PTTL", KEY]));
    assert!(left <= LEASE && left > LEASE / 2, "{left:?}");
    assert!(!foreign.takes(LEASE) && !foreign.frees());
    guard.unlock().unwrap();
    assert_eq!(fixture.ask::<u8>(&["EXISTS", KEY]), 0);
    assert!(foreign.takes(LEASE) && foreign.frees());
}

#[test]
fn a_hold_is_renewed_and_keeps_foreign_holders_out_beyond_its_lease() {
    let fixture = Fixture::new();
    // Renewed so often that a machine that stands still for a while does not end it.
    let lease = ms(4000);
    let client = connected(|| builder(&fixture.server.url()).lease(lease).renew_every(ms(300)));
    let lock = client.simple_lock_at(KEY);
    let mut foreign = fixture.foreign_holder("theirs");
    let guard = lock.lock().unwrap();
    let began = Instant::now();
    while began.elapsed() < lease + ms(500) {
        assert!(!foreign.takes(LEASE), "by {:?}", lock.holder());
        thread::sleep(ms(50));
    }
    guard.unlock().unwrap();
}

#[test]
fn its_name_is_the_key_and_its_tokens_grow_past_those_of_foreign_holders() {
    let fixture = Fixture::new();
    let (lock, other, mut foreign) = (fixture.lock(), fixture.lock(), fixture.foreign_holder("theirs"));
    assert_eq!(lock.name(), KEY);
    let mut last = 0;
    for lock in [&lock, &other, &lock] {
        let guard = lock.lock().unwrap();
        assert!(guard.token() > last);
        last = guard.token();
        assert_eq!(lock.lock().unwrap_err().kind(), ErrorKind::WouldDeadlock);
        assert_eq!(lock.lock().unwrap_err().name(), KEY);
        assert!(lock.try_lock().unwrap().is_none());
        guard.unlock().unwrap();
        assert!(foreign.takes(LEASE) && foreign.frees());
    }
}

#[test]
fn it_has_conditions() {
    let fixture = Fixture::new();
    fixture.a_condition_lets_others_in(|| {
        let mut foreign = fixture.foreign_holder("theirs");
        assert!(foreign.takes(LEASE) && foreign.frees());
    });
}

#[test]
fn a_receipt_leads_back_to_the_key() {
    let fixture = Fixture::new();
    let (here, there) = (fixture.client(), fixture.client());
    let guard = here.simple_lock_at(KEY).lock_owned().unwrap();
    let token = guard.token();
    let text = guard.into_receipt().unwrap().to_string();
    let receipt: Receipt = text.parse().unwrap();
    assert_eq!((receipt.name(), receipt.to_string()), (KEY, text));
    assert!(!fixture.foreign_holder("theirs").takes(LEASE));
    assert_eq!(there.adopt::<Reentrant>(&receipt).unwrap_err().kind(), ErrorKind::WrongType);
    let guard = there.adopt::<Simple>(&receipt).unwrap();
    assert_eq!((guard.token(), guard.name()), (token, KEY));
    assert_eq!(there.adopt::<Simple>(&receipt).unwrap_err().kind(), ErrorKind::NotOwner);
    guard.unlock().unwrap();
    assert!(fixture.foreign_holder("theirs").takes(LEASE));
}

#[test]
fn nothing_stays_but_what_ends_by_itself() {
    let fixture = Fixture::new();
    let client = fixture.client();
    {
        let (lock, mut foreign) = (client.simple_lock_at(KEY), fixture.foreign_holder("theirs"));
        assert!(foreign.takes(LEASE));
        assert!(in_brief(lock.try_lock_for(ms(50))).is_none());
        assert!(foreign.frees());
        lock.fair().lock().unwrap().unlock().unwrap();
    }
    wait_until(LONG, "no lock is in use", || lock_count(&client) == 0);
    client.close().unwrap();
    for key in fixture.ask::<Vec<String>>(&["KEYS", "*"]) {
        assert!(key.ends_with(":fence") || key.ends_with(":tombstones"), "{key}");
        assert!(fixture.ask::<i64>(&["PTTL", &key]) > 0, "{key} has no end");
    }
}
