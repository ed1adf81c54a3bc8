//! The child of a process that holds several locks as one.

use redis_concurrent::MultiLock;
use redis_concurrent_testkit::*;

use crate::child::in_child;
use crate::forked;
use crate::support::*;

#[test]
fn a_child_holds_and_releases_none_of_its_parents_locks() {
    alone("multi_lock::a_child_holds_and_releases_none_of_its_parents_locks", || {
        let server = RedisServer::start().unwrap();
        let recorder = Recorder::default();
        let client = connected(|| builder(&server.url()).observer(recorder.clone()));
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| client.reentrant_lock(name));
        let (held, other) = (MultiLock::new(&[&a, &b]), MultiLock::new(&[&c, &d]));
        let free = MultiLock::new(&[&client.reentrant_lock("e"), &client.simple_lock("f")]);
        let mut guard = Some(held.lock().unwrap());
        let mut owned = Some(other.lock_owned().unwrap());
        let failures = recorder.failures();
        in_child(|| {
            forked(free.lock());
            forked(free.try_lock());
            forked(free.lock_owned_with(SOON));
            forked(guard.take().unwrap().unlock());
            drop(owned.take());
            assert_eq!(recorder.failures(), failures, "a child's copies end in silence");
        });
        let guard = guard.unwrap();
        assert!(!guard.is_lost() && !owned.as_ref().unwrap().is_lost());
        for lock in [&a, &b, &c, &d] {
            assert!(lock.is_locked().unwrap());
        }
        guard.unlock().unwrap();
        owned.take().unwrap().unlock().unwrap();
        nothing_left(&server);
    });
}
