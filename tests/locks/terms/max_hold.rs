//! A guard that is forgotten is renewed for so long, and no longer.

use std::time::{Duration, Instant};

use redis_concurrent::observe::LossReason;
use redis_concurrent::{Client, ErrorKind};
use redis_concurrent_testkit::{RedisServer, wait_until};

use crate::support::{Event, LONG, Recorder, builder, connect, connected, ms};

#[test]
fn a_forgotten_guard_loses_its_hold() {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let client =
        connected(|| builder(&server.url()).lease(ms(1500)).max_hold(ms(1000)).observer(recorder.clone()));
    let lock = client.reentrant_lock("job");
    let guard = lock.lock().unwrap();
    let lost = guard.lost();
    let others = connect(&server).reentrant_lock("job");
    let next = others.try_lock_for(LONG).unwrap().expect("it comes free");
    wait_until(LONG, "the guard is told", || lost.is_cancelled());
    assert!(guard.is_lost() && next.token() > guard.token());
    assert_eq!(guard.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    wait_until(LONG, "so is the observer", || recorder.count(Event::Lost(LossReason::Expired)) == 1);
}

#[test]
fn a_younger_one_is_renewed() {
    let server = RedisServer::start().unwrap();
    let recorder = Recorder::default();
    let hour = Duration::from_secs(3600);
    let client = builder(&server.url()).renew_every(ms(50)).max_hold(hour).observer(recorder.clone());
    let client = client.connect().unwrap();
    let guard = client.simple_lock("job").lock_owned().unwrap();
    wait_until(LONG, "it is renewed", || recorder.count(Event::Renewed) >= 3);
    guard.unlock().unwrap();
}

#[test]
fn readers_that_come_later_do_not_share_what_ends() {
    let server = RedisServer::start().unwrap();
    let client = connected(|| builder(&server.url()).renew_every(ms(50)).max_hold(ms(200)));
    let lock = client.read_write_lock("job").read_lock().clone();
    let forgotten = lock.lock_owned().unwrap();
    let renewed = forgotten.remaining();
    wait_until(LONG, "it is renewed no more", || forgotten.remaining() + ms(1000) < renewed);
    let before = client.request_count();
    let guard = lock.lock_owned().unwrap();
    assert!(client.request_count() > before, "it asks for itself");
    assert!(guard.remaining() > forgotten.remaining());
}

/// What a thread shares with an older one is renewed for as long as if it were alone.
#[test]
fn a_reader_that_joined_an_old_one_does_not_pay_for_it() {
    let server = RedisServer::start().unwrap();
    let hold = ms(6000);
    let builder = builder(&server.url()).lease(ms(4000)).renew_every(ms(300));
    let client = builder.max_hold(hold).local_handoff(LONG).connect().unwrap();
    let lock = client.read_write_lock("job").read_lock().clone();
    let old = lock.lock_owned().unwrap();
    std::thread::sleep(hold * 3 / 4);
    let young = lock.lock_owned().unwrap();
    let began = Instant::now();
    wait_until(LONG, "the old one is too old", || began.elapsed() > hold / 2);
    drop(old);
    // More than the rest of a lease, less than its own time.
    while began.elapsed() < hold {
        assert!(!young.is_lost(), "{:?}", began.elapsed());
        std::thread::sleep(ms(10));
    }
    wait_until(LONG, "its own time comes", || young.is_lost());
}

#[test]
fn no_time_at_all_is_refused() {
    let error = Client::builder().url("redis://127.0.0.1:1/").max_hold(ms(0)).connect().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("max_hold"), "{error}");
}
