//! What a majority can answer.

use std::thread;

use redis_concurrent::ErrorKind;

use crate::red_lock::fixture::{Fixture, LEASE, NAME};

#[test]
fn it_is_locked_while_a_majority_has_a_holder() {
    let mut fixture = Fixture::five();
    let (mine, yours) = (fixture.red().lock(NAME), fixture.red().lock(NAME));
    assert!(!mine.is_locked().unwrap());
    let guard = mine.lock().unwrap();
    assert!(mine.is_locked().unwrap() && yours.is_locked().unwrap());
    thread::scope(|scope| {
        let other = scope.spawn(|| guard.is_lost());
        assert!(!other.join().unwrap(), "another thread may look at the guard");
    });
    fixture.await_held_on(5);
    // A minority is down: four of five say what they said before, and so do three.
    for left in [4, 3] {
        drop(fixture.servers.pop());
        assert!(yours.is_locked().unwrap(), "with {left} servers");
    }
    drop(fixture.servers.pop());
    let error = yours.is_locked().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, NAME), "{error}");
}

#[test]
fn a_minority_that_is_held_is_not_a_lock() {
    let fixture = Fixture::five();
    let lock = fixture.red().lock(NAME);
    let clients = fixture.clients(|b| b);
    let simple: Vec<_> = clients.iter().map(|client| client.simple_lock(NAME)).collect();
    let guards: Vec<_> = simple.iter().take(2).map(|lock| lock.lock().unwrap()).collect();
    assert!(!lock.is_locked().unwrap());
    let third = simple[4].lock().unwrap();
    assert!(lock.is_locked().unwrap());
    third.unlock().unwrap();
    drop(guards);
    lock.lock_owned().unwrap().unlock().unwrap();
    let fixed = lock.with_lease(LEASE);
    let guard = fixed.lock().unwrap();
    guard.renew_for(LEASE / 2).unwrap();
    assert!(guard.remaining() <= LEASE / 2, "{:?}", guard.remaining());
    guard.renew().unwrap();
    assert!(guard.remaining() > LEASE / 2 && guard.remaining() <= LEASE, "{:?}", guard.remaining());
}

#[test]
fn the_error_of_a_red_lock_says_what_each_server_says() {
    let mut fixture = Fixture::of(3);
    let (mine, yours) = (fixture.red().lock(NAME), fixture.red().lock(NAME));
    assert_eq!(mine.busy_error().to_string(), "\"it\": timed out: it was held, but is free now");
    let guard = yours.lock().unwrap();
    fixture.await_held_on(3);
    let error = mine.busy_error();
    let text = error.to_string();
    assert!(error.kind() == ErrorKind::Timeout && text.contains("timed out: on 3 of 3 servers, "), "{text}");
    for (server, owner) in fixture.servers.iter().zip(fixture.owners()) {
        let by = format!("127.0.0.1:{}: held by {} for ", server.port(), owner.unwrap());
        assert!(text.contains(&by), "{by}: {text}");
    }
    // A minority is down.
    drop(fixture.servers.pop());
    let error = mine.busy_error();
    assert!(error.to_string().contains("on 2 of 3 servers, "), "{error}");
    let source =
        std::error::Error::source(&error).and_then(|it| it.downcast_ref::<redis_concurrent::Error>());
    assert_eq!(source.map(redis_concurrent::Error::kind), Some(ErrorKind::Unavailable));
    drop(guard);
}
