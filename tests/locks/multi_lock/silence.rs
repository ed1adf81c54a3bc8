//! Redis is silent, of all of them or of one: nothing is held that the caller does not know of.

use std::thread;
use std::time::Duration;

use redis_concurrent::{Client, ErrorKind, MultiLock};
use redis_concurrent_testkit::{Proxy, RedisServer, released_all, wait_until};

use crate::multi_lock::fixture::{Fixture, multi};
use crate::support::{LONG, SOON, builder, connected, exists, ms, nothing_left};

const NAMES: [&str; 3] = ["a", "b", "c"];
/// How long a request may take that is not answered.
const COMMAND: Duration = ms(800);

/// A client behind a proxy. So long a request of its may take.
fn behind(proxy: &Proxy, command_timeout: Duration) -> Client {
    connected(|| builder(&proxy.url()).command_timeout(command_timeout))
}

/// They can be locked, and unlocked. Again where a busy machine is late with its answer: then they are unlocked in
/// the background.
#[track_caller]
fn comes_and_goes(it: &MultiLock) {
    wait_until(LONG, "it comes and goes", || released_all(&it.lock().unwrap().unlock()));
}

fn held(server: &RedisServer) -> [bool; 3] {
    NAMES.map(|name| exists(server, &format!("rc:{{{name}}}")))
}

#[test]
fn an_answer_lost_with_its_connection_is_asked_for_again() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = behind(&proxy, SOON);
    let it = multi(&client, &NAMES);
    it.lock().unwrap().unlock().unwrap();
    proxy.swallow_next_reply_and_reset();
    let guard = it.try_lock().unwrap().expect("it finds itself inside");
    assert!(proxy.struck() == 1 && held(&fixture.server) == [true; 3]);
    proxy.swallow_next_reply_and_reset();
    guard.unlock().unwrap();
    assert!(proxy.struck() == 2 && held(&fixture.server) == [false; 3]);
    drop(it);
    fixture.end(&[&client]);
}

#[test]
fn an_ask_without_an_answer_takes_nothing_even_if_it_comes_late() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = behind(&proxy, COMMAND);
    let it = multi(&client, &NAMES);
    comes_and_goes(&it);
    proxy.hold_next_requests(1);
    let error = it.try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(NAMES.contains(&error.name()), "{error}");
    // Its owners have tombstones by now, or will be before it runs.
    let all_have = || NAMES.iter().all(|name| exists(&fixture.server, &format!("rc:{{{name}}}:tombstones")));
    wait_until(SOON, "all of them have tombstones", all_have);
    proxy.release_held();
    wait_until(SOON, "the late copy was sent", || proxy.held() == 0);
    comes_and_goes(&it);
    nothing_left(&fixture.server);
    drop(it);
    client.close().unwrap();
}

#[test]
fn an_unlock_without_an_answer_goes_on_in_the_background() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let client = behind(&proxy, COMMAND);
    let it = multi(&client, &NAMES);
    let guard = it.lock().unwrap();
    proxy.hold_next_requests(1);
    let error = guard.unlock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::OutcomeUnknown, "a"), "{error}");
    wait_until(SOON, "all are released", || held(&fixture.server) == [false; 3]);
    proxy.release_held();
    drop(it);
    nothing_left(&fixture.server);
    client.close().unwrap();
}

#[test]
fn one_that_cannot_be_reached_is_named_and_the_others_are_given_back() {
    let (near, far) = (Fixture::new(), Fixture::new());
    let proxy = Proxy::start(far.server.port()).unwrap();
    let (here, there) = (near.client(), behind(&proxy, COMMAND));
    let (a, b) = (here.reentrant_lock("a"), there.reentrant_lock("b"));
    let it = MultiLock::new(&[&a, &b]);
    proxy.black_hole(true);
    for error in [it.try_lock().unwrap_err(), it.try_lock_for(COMMAND + COMMAND / 4).unwrap_err()] {
        assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, "b"), "{error}");
        assert!(!a.is_locked().unwrap());
    }
    thread::scope(|scope| {
        let waiter = scope.spawn(|| it.try_lock_for(LONG).unwrap().expect("when it is back").unlock());
        let waits = || !a.is_locked().unwrap() && b.local_queue_length() == 1;
        wait_until(SOON, "it waits for that one, and holds none", waits);
        proxy.black_hole(false);
        // Its answer may be late.
        released_all(&waiter.join().unwrap());
    });
    drop((a, b, it));
    nothing_left(&near.server);
    nothing_left(&far.server);
}

#[test]
fn a_late_copy_of_an_ask_that_was_sent_twice_takes_nothing() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let (client, other) = (behind(&proxy, SOON), fixture.client());
    let it = multi(&client, &NAMES);
    it.lock().unwrap().unlock().unwrap();
    // The first copy came through, and took all; by the second one of them is somebody else's.
    let c = other.reentrant_lock("c");
    proxy.hold_next_requests(1);
    thread::scope(|scope| {
        let asks = scope.spawn(|| it.try_lock_owned());
        wait_until(SOON, "its ask is held", || proxy.held() == 1);
        let theirs = c.lock().unwrap();
        // Cut where it waits, it is sent again.
        proxy.cut_all();
        assert!(asks.join().unwrap().unwrap().is_none());
        theirs.unlock().unwrap();
        proxy.release_held();
    });
    wait_until(SOON, "the late copy was sent", || proxy.held() == 0);
    nothing_left(&fixture.server);
    it.lock().unwrap().unlock().unwrap();
    drop((it, c));
    fixture.end(&[&client, &other]);
}

/// After a lock was given back, the next waiting thread of the process asks under the same owner.
#[test]
fn a_late_copy_takes_nothing_from_a_later_holder() {
    let fixture = Fixture::new();
    let proxy = Proxy::start(fixture.server.port()).unwrap();
    let (client, other) = (connected(|| builder(&proxy.url()).command_timeout(LONG)), fixture.client());
    let it = multi(&client, &["a", "b"]);
    it.lock().unwrap().unlock().unwrap();
    let (a, theirs) = (client.reentrant_lock("a"), other.reentrant_lock("b").lock_owned().unwrap());
    proxy.hold_next_requests(1);
    let guard = thread::scope(|scope| {
        let asks = scope.spawn(|| it.try_lock_owned().map(|guard| guard.is_some()));
        wait_until(SOON, "its ask is held", || proxy.held() == 1);
        let heir = scope.spawn(|| a.lock_owned());
        wait_until(SOON, "another thread waits behind it", || a.local_queue_length() == 2);
        // Cut where it waits, it is sent again: the second lock is busy, and the first is given back.
        proxy.cut_all();
        assert!(!asks.join().unwrap().unwrap());
        heir.join().unwrap().unwrap()
    });
    let scripts = || fixture.server.command_calls().unwrap()["evalsha"];
    let before = scripts();
    proxy.release_held();
    wait_until(SOON, "the late copy has run", || scripts() > before);
    assert!(!guard.is_lost() && exists(&fixture.server, "rc:{a}"), "it was taken away from its holder");
    guard.unlock().unwrap();
    theirs.unlock().unwrap();
    drop((it, a));
    fixture.end(&[&client, &other]);
}
