//! How many permits there are, and where they are.

use std::time::Instant;

use redis_concurrent::kinds::Permits;
use redis_concurrent::{Client, ErrorKind, Semaphore};
use redis_concurrent_testkit::{Proxy, RedisServer, wait_until};

use crate::support::{
    LONG, SOON, builder, connect, connected, exists, ms, nothing_left, pttl, renewed_again, unhurried,
};

/// A semaphore of `n` permits, for a client of its own.
fn semaphore(server: &RedisServer, n: u32) -> (Client, Semaphore) {
    let client = connect(server);
    let semaphore = client.semaphore("it");
    semaphore.set_permits(n).unwrap();
    (client, semaphore)
}

/// How many there are, and how many are available.
fn counts(semaphore: &Semaphore) -> (Option<u32>, i64) {
    (semaphore.permits().unwrap(), semaphore.available().unwrap())
}

#[test]
fn what_is_taken_is_not_available_until_it_is_back() {
    let server = RedisServer::start().unwrap();
    let (_client, semaphore) = semaphore(&server, 5);
    let two = semaphore.acquire(2).unwrap();
    let three = semaphore.acquire_with(3, SOON).unwrap().unwrap();
    assert_eq!((two.permits(), three.permits()), (2, 3));
    assert_eq!(counts(&semaphore), (Some(5), 0));
    assert!(semaphore.try_acquire(1).unwrap().is_none());
    // On whichever thread it ends.
    std::thread::spawn(move || two.release()).join().unwrap().unwrap();
    assert_eq!(counts(&semaphore), (Some(5), 2));
    drop(three);
    assert_eq!(counts(&semaphore), (Some(5), 5));
}

/// More than one script removes. Nobody but the caller asks, and the processes that had them cannot.
#[test]
fn the_counts_are_right_when_many_leases_have_just_expired() {
    const HOLDS: u32 = 150;
    let server = RedisServer::start().unwrap();
    let (_client, semaphore) = semaphore(&server, HOLDS);
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()));
    let brief = client.semaphore("it").with_lease(ms(2000));
    for _ in 0..HOLDS {
        std::mem::forget(brief.try_acquire(1).unwrap());
    }
    proxy.black_hole(true);
    std::thread::sleep(ms(2200));
    assert_eq!(counts(&semaphore), (Some(HOLDS), i64::from(HOLDS)));
    proxy.black_hole(false);
}

#[test]
fn a_permit_is_given_back_in_part() {
    let server = RedisServer::start().unwrap();
    let (client, semaphore) = semaphore(&server, 5);
    let mut permit = semaphore.acquire(5).unwrap();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire(2).map(|two| two.permits()));
        wait_until(LONG, "one waits", || {
            client.lock_with_kind(semaphore.name(), Permits::default()).local_queue_length() == 1
        });
        permit.release_some(2).unwrap();
        assert_eq!(waiter.join().unwrap().unwrap(), 2, "what came back goes to the waiter");
    });
    assert_eq!(permit.permits(), 3);
    assert_eq!(counts(&semaphore), (Some(5), 2));
    let holders = semaphore.holders().unwrap();
    assert_eq!(holders.iter().map(|holder| holder.permits).collect::<Vec<_>>(), [Some(3)]);
    for n in [0, 3, 4] {
        let error = permit.release_some(n).unwrap_err();
        assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "it"), "{error}");
    }
    let requests = client.request_count();
    permit.release_some(2).unwrap();
    assert_eq!(client.request_count() - requests, 1);
    // It goes on as one of the others.
    permit.renew_for(LONG).unwrap();
    assert_eq!((permit.permits(), counts(&semaphore)), (1, (Some(5), 4)));
    permit.release().unwrap();
    assert_eq!(counts(&semaphore), (Some(5), 5));
    let mut permit = semaphore.acquire(4).unwrap();
    assert!(semaphore.delete().unwrap());
    assert!(permit.release_some(1).unwrap_err().is_lease_lost());
    assert!(permit.is_lost());
    assert!(permit.release().unwrap_err().is_lease_lost());
    drop(semaphore);
    nothing_left(&server);
}

#[test]
fn only_what_its_users_set_stays_and_without_an_end() {
    let server = RedisServer::start().unwrap();
    let (_client, semaphore) = semaphore(&server, 2);
    let permit = semaphore.acquire(2).unwrap();
    assert_eq!(pttl(&server, "rc:{it}"), -1);
    permit.release().unwrap();
    let mut fields: Vec<String> =
        redis::cmd("HKEYS").arg("rc:{it}").query(&mut server.connection().unwrap()).unwrap();
    fields.sort();
    assert_eq!(fields, ["kind", "permits", "used"]);
    assert_eq!(pttl(&server, "rc:{it}"), -1);
    assert!(semaphore.delete().unwrap());
    nothing_left(&server);
    assert!(!semaphore.delete().unwrap());
    assert_eq!(counts(&semaphore), (None, 0));
}

#[test]
fn permits_are_set_added_and_reduced() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let semaphore = client.semaphore("it");
    assert_eq!(counts(&semaphore), (None, 0));
    assert!(semaphore.try_set_permits(4).unwrap());
    assert!(!semaphore.try_set_permits(9).unwrap());
    assert_eq!(counts(&semaphore), (Some(4), 4));
    let three = semaphore.acquire(3).unwrap();
    semaphore.add_permits(10).unwrap();
    assert_eq!(counts(&semaphore), (Some(14), 11));
    // Below what is out: nothing is taken from anybody.
    semaphore.add_permits(-13).unwrap();
    assert_eq!(counts(&semaphore), (Some(1), -2));
    assert!(!three.is_lost());
    three.release().unwrap();
    assert_eq!(counts(&semaphore), (Some(1), 1));
    semaphore.add_permits(-3).unwrap();
    assert_eq!(counts(&semaphore), (Some(0), -2));
    semaphore.set_permits(0).unwrap();
    assert_eq!(counts(&semaphore), (Some(0), 0));
    assert!(!semaphore.try_set_permits(7).unwrap(), "none is a number that was set");
    // The first ones.
    let other = client.semaphore("other");
    other.add_permits(2).unwrap();
    assert_eq!(counts(&other), (Some(2), 2));
}

#[test]
fn draining_takes_all_that_are_there() {
    let server = RedisServer::start().unwrap();
    let (client, semaphore) = semaphore(&server, 10);
    let three = semaphore.acquire(3).unwrap();
    let requests = client.request_count();
    let rest = semaphore.drain().unwrap().unwrap();
    assert_eq!((rest.permits(), client.request_count() - requests), (7, 1));
    assert_eq!(semaphore.available().unwrap(), 0);
    assert!(semaphore.drain().unwrap().is_none());
    drop(three);
    assert_eq!(semaphore.drain().unwrap().map(|permit| permit.permits()), Some(3));
    drop(rest);
    assert_eq!(semaphore.available().unwrap(), 10);
    assert!(client.semaphore("never set").drain().unwrap().is_none());
}

#[test]
fn how_many_each_holder_has_is_told() {
    let server = RedisServer::start().unwrap();
    let (_one, mine) = semaphore(&server, 10);
    let other = connected(|| builder(&server.url()).client_name("other"));
    let theirs = other.semaphore("it");
    let (_two, _five) = (mine.acquire(2).unwrap(), theirs.acquire(5).unwrap());
    let mut holders = mine.holders().unwrap();
    holders.sort_by_key(|holder| holder.permits);
    let permits: Vec<_> = holders.iter().map(|holder| holder.permits).collect();
    assert_eq!(permits, [Some(2), Some(5)]);
    let labels: Vec<_> = holders.iter().map(|h| h.process.as_ref().unwrap().client_name.as_str()).collect();
    assert_eq!(labels, ["", "other"]);
    assert!(holders.iter().all(|h| h.since.is_some() && h.remaining > Some(ms(20_000))));
    assert!(holders[0].since < holders[1].since);
}

#[test]
fn a_fixed_lease_brings_them_back_and_a_renewed_one_keeps_them() {
    let server = RedisServer::start().unwrap();
    let brief = ms(150);
    let client = connected(|| unhurried(&server.url()).lease(LONG).renew_every(ms(200)));
    let semaphore = client.semaphore("it");
    semaphore.set_permits(5).unwrap();
    let kept = semaphore.acquire(2).unwrap();
    let called = Instant::now();
    let lapses = semaphore.with_lease(brief).acquire(3).unwrap();
    let available = semaphore.available().unwrap();
    // On a busy machine it may be over by now.
    assert!(available == 0 || called.elapsed() >= brief, "{available} after {:?}", called.elapsed());
    wait_until(LONG, "they are back", || semaphore.available().unwrap() == 3);
    assert!(lapses.is_lost());
    assert!(lapses.release().unwrap_err().is_lease_lost());
    renewed_again(|| kept.remaining());
    assert_eq!(semaphore.available().unwrap(), 3);
    kept.release().unwrap();
    assert_eq!(semaphore.available().unwrap(), 5);
}

#[test]
fn an_end_that_was_set_ends_it_with_its_permits() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).lease(ms(600)));
    let semaphore = client.semaphore("it");
    assert!(!semaphore.expire_after(ms(200)).unwrap(), "there is none");
    semaphore.set_permits(3).unwrap();
    assert!(semaphore.expire_after(ms(60_000)).unwrap());
    let permit = semaphore.acquire(1).unwrap();
    assert!(pttl(&server, "rc:{it}") > 50_000, "taking some does not change it");
    assert!(semaphore.expire_after(ms(200)).unwrap());
    wait_until(LONG, "it has ended", || !exists(&server, "rc:{it}"));
    assert!(permit.lost().wait_timeout(LONG), "the next renewal finds out");
    assert_eq!(counts(&semaphore), (None, 0));
}

#[test]
fn a_change_without_an_answer_is_made_once_or_unknown() {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let client = connected(|| builder(&proxy.url()).command_timeout(ms(2000)));
    let semaphore = client.semaphore("it");
    semaphore.set_permits(2).unwrap();
    proxy.only_matching(b"rc:{it}");
    // Lost with its connection, it is sent again at once.
    proxy.swallow_next_reply_and_reset();
    semaphore.add_permits(3).unwrap();
    assert!(proxy.struck() >= 1);
    assert_eq!(counts(&semaphore), (Some(5), 5));
    assert!(semaphore.delete().unwrap());
    proxy.swallow_next_reply_and_reset();
    assert!(semaphore.try_set_permits(4).unwrap(), "it was this call that set them");
    // Never answered.
    proxy.swallow_replies(1);
    let error = semaphore.add_permits(-1).unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::OutcomeUnknown, "it"), "{error}");
    assert_eq!(counts(&semaphore), (Some(3), 3));
}
