//! One of them counts only once replicas have it.

use std::time::Duration;

use redis_concurrent::{Client, ErrorKind, MultiLock};

use crate::flock::Flock;
use crate::multi_lock::fixture::Fixture;
use crate::support::{LONG, connect, ms};

fn with_replicas(client: &Client, limit: Duration) -> MultiLock {
    let b = client.reentrant_lock("b").with_replicas(1, limit);
    MultiLock::new(&[&client.reentrant_lock("a"), &b, &client.simple_lock("c")])
}

#[test]
fn replicas_have_it_when_all_are_held() {
    let flock = Flock::start(1);
    flock.link.delay(ms(20));
    let client = connect(&flock.primary);
    let it = with_replicas(&client, LONG / 2);
    for _ in 0..5 {
        let guard = it.lock().unwrap();
        assert!(flock.is_everywhere("rc:{b}"));
        guard.unlock().unwrap();
    }
    let error = it.with_lease(ms(500)).lock().unwrap_err();
    assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, "b"), "{error}");
}

#[test]
fn too_few_of_them_is_told_of_that_one_and_all_are_given_back() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let it = with_replicas(&client, ms(50));
    for error in [it.lock().unwrap_err(), it.try_lock().unwrap_err(), it.try_lock_for(LONG).unwrap_err()] {
        assert_eq!((error.kind(), error.name()), (ErrorKind::NotReplicated, "b"), "{error}");
        for name in ["a", "b"] {
            assert!(!client.reentrant_lock(name).is_locked().unwrap());
        }
    }
    drop(it);
    fixture.end(&[&client]);
}
