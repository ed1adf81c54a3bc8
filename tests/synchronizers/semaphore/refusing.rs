//! What a semaphore cannot do, it says at once; and its waiters get an error.

use std::thread;
use std::time::Instant;

use redis_concurrent::kinds::Permits;
use redis_concurrent::{CancellationToken, Error, ErrorKind, Semaphore, Wait};
use redis_concurrent_testkit::RedisServer;

use crate::support::{LONG, SOON, connect, ms};

/// One after the other, what each form says to a request for `n`.
fn every_form(semaphore: &Semaphore, n: u32) -> Vec<Error> {
    let never = CancellationToken::new();
    vec![
        semaphore.acquire(n).map(drop).unwrap_err(),
        semaphore.try_acquire(n).map(drop).unwrap_err(),
        semaphore.acquire_with(n, LONG).map(drop).unwrap_err(),
        semaphore.acquire_with(n, Instant::now() + LONG).map(drop).unwrap_err(),
        semaphore.acquire_with(n, &never).map(drop).unwrap_err(),
        semaphore.acquire_with(n, Wait::timeout(LONG).cancelled_by(&never)).map(drop).unwrap_err(),
    ]
}

#[test]
fn a_number_that_cannot_be_is_refused_and_nothing_is_sent() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let semaphore = client.semaphore("it");
    for n in [0, 1 << 31, u32::MAX] {
        let mut errors = every_form(&semaphore, n);
        errors.push(semaphore.add_permits(n.into()).unwrap_err());
        errors.push(semaphore.add_permits(-i64::from(n)).unwrap_err());
        if n > 0 {
            errors.push(semaphore.set_permits(n).unwrap_err());
            errors.push(semaphore.try_set_permits(n).unwrap_err());
        }
        for error in errors {
            assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "it"), "{error}");
            assert!(error.to_string().contains(&n.to_string()), "{error}");
        }
        assert_eq!(Permits::of(n).unwrap_err().kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(semaphore.expire_after(ms(1)).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(client.request_count(), 0);
    assert!(server.keys().unwrap().is_empty());
    // The most there can be, though, can.
    semaphore.set_permits(i32::MAX as u32).unwrap();
    let all = semaphore.acquire(i32::MAX as u32).unwrap();
    assert_eq!(all.permits(), i32::MAX as u32);
    assert_eq!(semaphore.available().unwrap(), 0);
    let error = semaphore.add_permits(1).unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::Refused, "it"), "{error}");
    assert_eq!(semaphore.permits().unwrap(), Some(i32::MAX as u32));
}

#[test]
fn a_bad_name_or_lease_is_told_by_every_call() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    for semaphore in [client.semaphore(""), client.semaphore("it").with_lease(ms(99))] {
        let mut errors = every_form(&semaphore, 1);
        errors.push(semaphore.drain().unwrap_err());
        errors.push(semaphore.set_permits(1).unwrap_err());
        errors.push(semaphore.delete().unwrap_err());
        errors.push(semaphore.expire_after(LONG).unwrap_err());
        errors.push(semaphore.available().unwrap_err());
        errors.push(semaphore.holders().unwrap_err());
        for error in errors {
            assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
        }
    }
    assert_eq!(client.request_count(), 0);
}

#[test]
fn more_than_there_are_is_refused_at_once_and_changes_nothing() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let semaphore = client.semaphore("it");
    for error in every_form(&semaphore, 1) {
        assert_eq!((error.kind(), error.name()), (ErrorKind::Refused, "it"), "{error}");
    }
    assert!(server.keys().unwrap().is_empty(), "{:?}", server.keys());
    semaphore.set_permits(3).unwrap();
    for out in [0, 1, 3] {
        let permit = (out > 0).then(|| semaphore.acquire(out).unwrap());
        for error in every_form(&semaphore, 4) {
            assert_eq!((error.kind(), error.name()), (ErrorKind::Refused, "it"), "{error}");
            assert!(error.to_string().contains("3 permits"), "{error}");
        }
        assert_eq!(semaphore.available().unwrap(), 3 - i64::from(out));
        assert_eq!(semaphore.queue_length().unwrap(), 0);
        drop(permit);
    }
}

#[test]
fn a_try_for_too_many_is_refused_while_others_wait() {
    let server = RedisServer::start().unwrap();
    let (holder, waits, tries) = (connect(&server), connect(&server), connect(&server));
    let [holder, waits, tries] = [&holder, &waits, &tries].map(|client| client.semaphore("it"));
    holder.set_permits(2).unwrap();
    let one = holder.acquire(1).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waits.acquire(2).map(|permit| permit.permits()));
        crate::semaphore::waiting::queued(&holder, 1);
        assert_eq!(tries.try_acquire(3).unwrap_err().kind(), ErrorKind::Refused);
        assert!(tries.try_acquire(1).unwrap().is_none(), "nobody is passed");
        drop(one);
        assert_eq!(waiter.join().unwrap().unwrap(), 2);
    });
}

#[test]
fn a_waiter_in_vain_is_told() {
    let server = RedisServer::start().unwrap();
    let (here, there) = (connect(&server), connect(&server));
    let (here, there) = (here.semaphore("it"), there.semaphore("it"));
    type Change = fn(&Semaphore);
    let changes: [(&str, Change); 3] = [
        ("reduce", |semaphore| semaphore.add_permits(-1).unwrap()),
        ("set", |semaphore| semaphore.set_permits(1).unwrap()),
        ("delete", |semaphore| assert!(semaphore.delete().unwrap())),
    ];
    for (what, change) in changes {
        for out in [1, 2] {
            here.set_permits(2).unwrap();
            let permit = here.acquire(out).unwrap();
            thread::scope(|scope| {
                let waiter = scope.spawn(|| there.acquire(2).map(drop));
                crate::semaphore::waiting::queued(&here, 1);
                let began = Instant::now();
                change(&here);
                let error = waiter.join().unwrap().unwrap_err();
                assert_eq!((error.kind(), error.name()), (ErrorKind::Refused, "it"), "{what}: {error}");
                assert!(began.elapsed() < SOON, "{what}: after {:?}", began.elapsed());
            });
            assert_eq!(here.queue_length().unwrap(), 0, "{what}");
            assert_eq!(permit.release().is_ok(), what != "delete", "{what}");
        }
    }
}

#[test]
fn a_key_of_another_kind_is_refused_and_kept() {
    let server = RedisServer::start().unwrap();
    let client = connect(&server);
    let lock = client.reentrant_lock("it");
    let guard = lock.lock_owned().unwrap();
    let semaphore = client.semaphore("it");
    let mut errors = every_form(&semaphore, 1);
    errors.push(semaphore.drain().unwrap_err());
    errors.push(semaphore.set_permits(1).unwrap_err());
    errors.push(semaphore.try_set_permits(1).unwrap_err());
    errors.push(semaphore.add_permits(1).unwrap_err());
    errors.push(semaphore.add_permits(-1).unwrap_err());
    errors.push(semaphore.expire_after(LONG).unwrap_err());
    errors.push(semaphore.delete().unwrap_err());
    errors.push(semaphore.available().unwrap_err());
    for error in errors {
        assert_eq!((error.kind(), error.name()), (ErrorKind::WrongType, "it"), "{error}");
    }
    guard.unlock().unwrap();
    semaphore.set_permits(1).unwrap();
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(semaphore.available().unwrap(), 1);
}
