//! The error of a caller that gave up: who holds what it wanted.

use redis_concurrent::{ErrorKind, MultiLock};
use redis_concurrent_testkit::RedisServer;

use crate::support::{builder, connect, connected};

#[test]
fn the_error_of_a_caller_that_gave_up_says_who_holds_the_lock() {
    let server = RedisServer::start().unwrap();
    let (billing, client) = (connected(|| builder(&server.url()).client_name("billing")), connect(&server));
    let lock = client.reentrant_lock("it");
    let held = billing.reentrant_lock("it").lock_owned().unwrap();
    // The first of each sends its script.
    assert!(lock.try_lock().unwrap().is_none() && lock.busy_error().kind() == ErrorKind::Timeout);
    let before = client.request_count();
    assert!(lock.try_lock().unwrap().is_none());
    assert_eq!(client.request_count(), before + 1, "an attempt asks for nothing more");
    let error = lock.busy_error();
    assert_eq!(client.request_count(), before + 2);
    let text = error.to_string();
    let by = format!("\"it\": timed out: held by billing {}@", std::process::id());
    assert!(error.kind() == ErrorKind::Timeout && text.starts_with(&by) && text.ends_with(" s"), "{text}");
    held.unlock().unwrap();
    assert_eq!(lock.busy_error().to_string(), "\"it\": timed out: it was held, but is free now");

    // Of many holders three are named.
    let readers = client.read_write_lock("shared");
    let clients: Vec<_> = (0..5).map(|_| connect(&server)).collect();
    let held: Vec<_> =
        clients.iter().map(|it| it.read_write_lock("shared").read_lock().lock_owned().unwrap()).collect();
    let text = readers.write_lock().busy_error().to_string();
    assert!(text.ends_with("; and 2 more"), "{text}");
    drop(held);
    let writer = clients[0].read_write_lock("shared").write_lock().lock_owned().unwrap();
    let text = readers.read_lock().busy_error().to_string();
    assert!(text.contains("held by ") && text.ends_with(" s"), "{text}");
    drop(writer);

    // Another kind of lock there, and a closed client: a reason of its own.
    let _other = clients[0].reentrant_lock("other").lock_owned().unwrap();
    let wrong = client.simple_lock("other").busy_error();
    client.close().unwrap();
    let closed = lock.busy_error();
    for (error, kind) in [(wrong, ErrorKind::WrongType), (closed, ErrorKind::Closed)] {
        let source =
            std::error::Error::source(&error).and_then(|it| it.downcast_ref::<redis_concurrent::Error>());
        assert!(
            error.kind() == ErrorKind::Timeout && source.is_some_and(|it| it.kind() == kind),
            "{error:?}"
        );
    }
}

/// The kind of what this error was caused by.
fn cause(error: &redis_concurrent::Error) -> Option<ErrorKind> {
    let source = std::error::Error::source(error)?;
    source.downcast_ref::<redis_concurrent::Error>().map(redis_concurrent::Error::kind)
}

#[test]
fn the_error_of_a_semaphore_says_who_has_how_many_permits() {
    let server = RedisServer::start().unwrap();
    let (billing, client) = (connected(|| builder(&server.url()).client_name("billing")), connect(&server));
    let semaphore = client.semaphore("it");
    let text = semaphore.busy_error().to_string();
    assert_eq!(text, "\"it\": timed out: it was held, but is free now; 0 of 0 permits are available");
    semaphore.set_permits(4).unwrap();
    let two = billing.semaphore("it").acquire(2).unwrap();
    let one = billing.semaphore("it").acquire(1).unwrap();
    let error = semaphore.try_acquire(2).unwrap().ok_or_else(|| semaphore.busy_error()).unwrap_err();
    let text = error.to_string();
    let by = format!("held by billing {}@", std::process::id());
    assert!(
        error.kind() == ErrorKind::Timeout && text.matches("billing ").count() == 2 && text.contains(&by),
        "{text}"
    );
    for part in [" (2 permits) for ", " (1 permit) for ", " s; 1 of 4 permits is available"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    drop((two, one));
    let text = semaphore.busy_error().to_string();
    assert!(text.ends_with("is free now; 4 of 4 permits are available"), "{text}");
    client.close().unwrap();
    assert_eq!(cause(&semaphore.busy_error()), Some(ErrorKind::Closed));
}

#[test]
fn the_error_of_a_multi_lock_says_which_of_its_locks_are_held_and_by_whom() {
    let server = RedisServer::start().unwrap();
    let billing = connected(|| builder(&server.url()).client_name("billing"));
    let (client, other) = (connect(&server), connect(&server));
    let (a, b, c) = (client.reentrant_lock("a"), client.simple_lock("b"), other.read_write_lock("c"));
    let all = MultiLock::new(&[&a, &b, c.read_lock()]);
    assert_eq!(all.busy_error().to_string(), "\"a + b + c\": timed out: one was held, but all are free now");
    let held = billing.reentrant_lock("a").lock_owned().unwrap();
    let writer = billing.read_write_lock("c").write_lock().lock_owned().unwrap();
    assert!(all.try_lock().unwrap().is_none());
    let error = all.busy_error();
    let text = error.to_string();
    let is_held = |name: &str| format!("\"{name}\" is held by billing {}@", std::process::id());
    assert!(
        error.kind() == ErrorKind::Timeout && text.contains(&is_held("a")) && text.contains(&is_held("c")),
        "{text}"
    );
    assert!(!text.contains("\"b\"") && cause(&error).is_none(), "{text}");
    // One that cannot say it: the others are told, and why it is not known.
    other.close().unwrap();
    let error = all.with_lease(std::time::Duration::from_secs(9)).busy_error();
    let text = error.to_string();
    assert!(
        text.contains(&is_held("a")) && text.ends_with("; the holders of the others are not known"),
        "{text}"
    );
    assert_eq!(cause(&error), Some(ErrorKind::Closed));
    held.unlock().unwrap();
    let error = all.busy_error();
    assert!(error.to_string().ends_with("timed out: the holder could not be determined"), "{error}");
    drop(writer);
}
