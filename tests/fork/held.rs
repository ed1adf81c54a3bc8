//! What the child asks for is what its parent holds, or waits for: no answer that the copy of the parent's lock states
//! would give is the child's.

use redis_concurrent::MultiLock;
use redis_concurrent_testkit::*;

use crate::child::in_child;
use crate::forked;
use crate::support::*;

/// A lock of each kind that is held by the thread that forks.
#[test]
fn what_the_parent_holds_is_forked_in_every_form() {
    alone("held::what_the_parent_holds_is_forked_in_every_form", || {
        let server = RedisServer::start().unwrap();
        let client = connect(&server);
        let (reentrant, simple) = (client.reentrant_lock("reentrant"), client.simple_lock("simple"));
        let (read, written) = (client.read_write_lock("read"), client.read_write_lock("written"));
        let guards = (reentrant.lock().unwrap(), simple.lock().unwrap());
        let halves = (read.read_lock().lock().unwrap(), written.write_lock().lock().unwrap());
        let several = MultiLock::new(&[&reentrant, &simple]);
        in_child(|| {
            let requests = client.request_count();
            forked(reentrant.lock());
            forked(reentrant.try_lock());
            forked(reentrant.try_lock_for(ms(20)));
            forked(reentrant.lock_owned());
            forked(reentrant.try_lock_owned());
            forked(simple.lock());
            forked(simple.try_lock());
            forked(simple.lock_owned_with(ms(20)));
            forked(read.read_lock().try_lock());
            forked(read.write_lock().lock());
            forked(read.write_lock().try_lock());
            forked(written.write_lock().try_lock());
            forked(written.read_lock().try_lock());
            forked(several.lock());
            forked(several.try_lock());
            assert!(
                !reentrant.is_held_by_current_thread() && !written.write_lock().is_held_by_current_thread()
            );
            assert_eq!(client.request_count(), requests, "the child sent something");
        });
        assert!(reentrant.is_held_by_current_thread());
        drop((guards, halves));
        nothing_left(&server);
    });
}

/// One thread of the parent holds, and another one waits.
#[test]
fn what_a_thread_of_the_parent_waits_for_is_forked_too() {
    alone("held::what_a_thread_of_the_parent_waits_for_is_forked_too", || {
        let server = RedisServer::start().unwrap();
        let (client, other) = (connect(&server), connect(&server));
        let (lock, theirs) = (client.reentrant_lock("it"), other.reentrant_lock("it"));
        let held = theirs.lock().unwrap();
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| lock.lock().and_then(|guard| guard.unlock()));
            queued(&lock, 1);
            in_child(|| {
                forked(lock.try_lock());
                forked(lock.try_lock_owned());
            });
            held.unlock().unwrap();
            waits.join().unwrap().unwrap();
        });
        nothing_left(&server);
    });
}

/// What the parent keeps while no thread there holds it is not the child's either.
#[test]
fn what_the_parent_keeps_is_forked() {
    alone("held::what_the_parent_keeps_is_forked", || {
        let server = RedisServer::start().unwrap();
        let client = connect(&server);
        let lock = client.reentrant_lock("it").linger(2 * LONG);
        wait_until(LONG, "the lock is kept", || {
            lock.lock().unwrap().unlock().unwrap();
            lock.is_locked().unwrap()
        });
        let requests = client.request_count();
        in_child(|| {
            forked(lock.lock());
            forked(lock.try_lock());
            forked(lock.lock_owned());
            assert_eq!(client.request_count(), requests, "the child sent something");
        });
        lock.lock().unwrap().unlock().unwrap();
        assert_eq!(client.request_count(), requests, "its parent has it still");
        client.close().unwrap();
        nothing_left(&server);
    });
}
