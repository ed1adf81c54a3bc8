//! What a majority can answer.

use std::thread;

use redis_concurrent::ErrorKind;

use crate::red_lock::stage::{LEASE, NAME, Stage};

#[test]
fn it_is_locked_while_a_majority_has_a_holder() {
    let mut stage = Stage::five();
    let (mine, yours) = (stage.red().lock(NAME), stage.red().lock(NAME));
    assert!(!mine.is_locked().unwrap() && !mine.is_held_by_current_thread());
    let guard = mine.lock().unwrap();
    assert!(mine.is_locked().unwrap() && yours.is_locked().unwrap());
    assert_eq!((mine.hold_count(), yours.hold_count()), (1, 0));
    thread::scope(|scope| {
        let other = scope.spawn(|| (mine.hold_count(), guard.is_lost()));
        assert_eq!(
            other.join().unwrap(),
            (0, false),
            "it is this thread's, and another one may look at the guard"
        );
    });
    stage.await_held_on(5);
    // A minority is down: four of five say what they said before, and so do three.
    for left in [4, 3] {
        drop(stage.servers.pop());
        assert!(yours.is_locked().unwrap(), "with {left} servers");
    }
    drop(stage.servers.pop());
    let error = yours.is_locked().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Unavailable, NAME), "{error}");
}

#[test]
fn a_minority_that_is_held_is_not_a_lock() {
    let stage = Stage::five();
    let lock = stage.red().lock(NAME);
    let clients = stage.clients(|b| b);
    let simple: Vec<_> = clients.iter().map(|client| client.simple_lock(NAME)).collect();
    let guards: Vec<_> = simple.iter().take(2).map(|lock| lock.lock().unwrap()).collect();
    assert!(!lock.is_locked().unwrap());
    let third = simple[4].lock().unwrap();
    assert!(lock.is_locked().unwrap());
    third.unlock().unwrap();
    drop(guards);
    let guard = lock.lock_owned().unwrap();
    assert_eq!(lock.hold_count(), 0, "it is the guard's");
    guard.unlock().unwrap();
    let fixed = lock.with_lease(LEASE);
    let guard = fixed.lock().unwrap();
    guard.renew_for(LEASE * 3).unwrap();
    assert!(guard.remaining() > LEASE * 2, "{:?}", guard.remaining());
    guard.renew().unwrap();
    assert!(guard.remaining() <= LEASE, "{:?}", guard.remaining());
}
