//! *unknown-is-settled*: a request without an answer is asked again under the same id, or
//! released; a late copy of it changes nothing.

use std::thread;
use std::time::Duration;

use redis_concurrent::{ErrorKind, ReentrantLock};
use redis_concurrent_testkit::*;

use crate::support::*;

struct Fixture {
    server: RedisServer,
    proxy: Proxy,
    /// Through the proxy, with a lease of a minute; no heartbeat of it comes in between.
    lock: ReentrantLock,
    /// Somebody else's, straight to the server.
    other: ReentrantLock,
}

/// How long a request may take that is not answered: on a busy machine others are.
const UNANSWERED: Duration = ms(1000);

fn fixture(command_timeout: Duration) -> Fixture {
    let server = RedisServer::start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    let set = || builder(&proxy.url()).command_timeout(command_timeout).waiter_timeout(LONG).lease(3 * LONG);
    let client = connected(set);
    let lock = client.reentrant_lock("x");
    let other = connect(&server).reentrant_lock("x");
    // Scripts are known, connections are there.
    drop(lock.lock().unwrap());
    // The listener's channel has another name: its answers are spared.
    proxy.only_matching(b"rc:{x}");
    Fixture { server, proxy, lock, other }
}

#[test]
fn unknown_is_settled_when_the_answer_to_an_ask_is_lost_with_its_connection() {
    let Fixture { server, proxy, lock, other } = fixture(SOON);
    proxy.swallow_next_reply_and_reset();
    let guard = lock.lock().unwrap();
    assert!(proxy.struck() >= 1);
    assert_eq!(lock.hold_count(), 1);
    assert!(other.try_lock().unwrap().is_none());
    guard.unlock().unwrap();
    assert!(!exists(&server, "rc:{x}"));
    free_at_once(&other);
}

#[test]
fn unknown_is_settled_when_an_ask_is_never_answered() {
    let Fixture { server, proxy, lock, other } = fixture(UNANSWERED);
    // One for the ask; the tries to settle it are answered.
    proxy.swallow_replies(1);
    let error = lock.try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    wait_until(SOON, "its answer is lost", || proxy.struck() == 1);
    free_at_once(&other);
    nothing_left(&server);
}

#[test]
fn unknown_is_settled_when_a_lock_call_goes_on() {
    let Fixture { server, proxy, lock, other } = fixture(UNANSWERED / 2);
    proxy.swallow_replies(3);
    let guard = lock.lock().unwrap();
    assert_eq!(proxy.struck(), 3);
    assert!(!guard.is_lost());
    assert!(other.try_lock().unwrap().is_none());
    // On a busy machine its answer may be late: then it is released in the background.
    released_all(&guard.unlock());
    free_at_once(&other);
    nothing_left(&server);
}

#[test]
fn unknown_is_settled_against_a_late_copy_of_an_ask() {
    let Fixture { server, proxy, lock, other } = fixture(UNANSWERED);
    proxy.hold_next_requests(1);
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(proxy.held(), 1);
    wait_until(SOON, "its owner has a tombstone", || exists(&server, "rc:{x}:tombstones"));
    proxy.release_held();
    wait_until(SOON, "the late copy was sent", || proxy.held() == 0);
    // Redis has run it when it has answered something that came later.
    free_at_once(&other);
    assert!(!exists(&server, "rc:{x}"));
}

#[test]
fn unknown_is_settled_for_an_unlock_whose_answer_is_lost_with_its_connection() {
    let Fixture { server: _server, proxy, lock, other } = fixture(SOON);
    let guard = lock.lock().unwrap();
    proxy.swallow_next_reply_and_reset();
    guard.unlock().unwrap();
    assert!(proxy.struck() >= 1);
    free_at_once(&other);
}

#[test]
fn unknown_is_settled_for_an_unlock_without_an_answer() {
    let Fixture { server, proxy, lock, other } = fixture(UNANSWERED);
    let guard = lock.lock().unwrap();
    proxy.hold_next_requests(1);
    let error = guard.unlock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
    // Redis never saw it: the renewal thread releases.
    let theirs = other.try_lock_for(SOON).unwrap().expect("released in the background");
    proxy.release_held();
    wait_until(SOON, "the late copy was sent", || proxy.held() == 0);
    // A busy machine may have no answer in that time.
    let got = eventually(LONG, || match lock.try_lock() {
        Err(error) if error.is_unavailable() => None,
        got => Some(got.unwrap().is_some()),
    });
    assert!(!got, "a late release hit the next holder");
    theirs.unlock().unwrap();
    drop(lock.try_lock_for(SOON).unwrap().expect("the lock is free"));
    nothing_left(&server);
}

#[test]
fn unknown_is_settled_for_a_waiter_behind_an_unlock_without_an_answer() {
    let Fixture { server, proxy, lock, .. } = fixture(UNANSWERED);
    let fair = lock.fair();
    let guard = fair.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| fair.lock().and_then(|g| g.unlock()));
        queued(&lock, 1);
        proxy.swallow_replies(1);
        let error = guard.unlock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{error}");
        wait_until(SOON, "the local waiter gets in", || waits.is_finished());
        released_all(&waits.join().unwrap());
    });
    nothing_left(&server);
}
