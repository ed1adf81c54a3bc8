//! A kept lock beside what else a lock is part of: conditions, several locks, the other mode, receipts.

use std::thread;

use redis_concurrent::MultiLock;
use redis_concurrent::kinds::Reentrant;
use redis_concurrent_testkit::{RedisServer, wait_until};

use super::{LINGER, is_given_back, is_kept};
use crate::support::{LONG, builder, connect, ms, nothing_left, queued, quiet};

#[test]
fn a_keeper_signals_and_waits() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let (lock, others) = (a.reentrant_lock("it").linger(LINGER), b.reentrant_lock("it").linger(LINGER));
    let (here, there) = (lock.condition("go"), others.condition("go"));
    is_kept(&a, &lock);
    thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let mut guard = others.lock().unwrap();
            there.wait(&mut guard).unwrap();
            guard.unlock().unwrap();
        });
        let waiters = || {
            let guard = lock.lock().unwrap();
            let n = here.wait_queue_length(&guard).unwrap();
            guard.unlock().unwrap();
            n
        };
        wait_until(LONG, "the other process waits for a signal", || waiters() == 1);
        let guard = lock.lock().unwrap();
        here.signal(&guard).unwrap();
        guard.unlock().unwrap();
        waits.join().unwrap();
    });
    is_kept(&a, &lock);
}

#[test]
fn several_locks_keep_their_members() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (quiet(builder(&server.url())).connect().unwrap(), connect(&server));
    let (one, two) = (a.reentrant_lock("one").linger(LINGER), a.reentrant_lock("two").linger(LINGER));
    let both = MultiLock::new(&[&one, &two]);
    is_kept(&a, &one);
    is_kept(&a, &two);
    let before = a.request_count();
    both.lock().unwrap().unlock().unwrap();
    assert_eq!(a.request_count(), before);

    // One is busy: the other one, which is here, is given back before it is waited for.
    let other = b.reentrant_lock("two");
    let theirs = other.lock().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| both.lock().unwrap().unlock().unwrap());
        queued(&two, 1);
        is_given_back(&one);
        theirs.unlock().unwrap();
        waits.join().unwrap();
    });
}

#[test]
fn readers_of_its_process_need_not_wait_for_it() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let lock = a.read_write_lock("it");
    let write = lock.write_lock().linger(LINGER);
    for _ in 0..5 {
        is_kept(&a, &write);
        lock.read_lock().try_lock().unwrap().expect("it makes way before this one asks").unlock().unwrap();
        is_kept(&a, &write);
        b.read_write_lock("it").read_lock().lock().unwrap().unlock().unwrap();
    }
    // Its own thread may read beside its hold, and goes from one mode to the other.
    is_kept(&a, &write);
    let writes = write.lock().unwrap();
    lock.read_lock().lock().unwrap().unlock().unwrap();
    let reads = lock.downgrade(writes).unwrap();
    drop(b.read_write_lock("it").read_lock().try_lock().unwrap().expect("they read together"));
    reads.unlock().unwrap();
}

#[test]
fn a_receipt_takes_it_along() {
    let server = RedisServer::start().unwrap();
    let (a, b) = (connect(&server), connect(&server));
    let (lock, others) = (a.reentrant_lock("it").linger(ms(5)), b.reentrant_lock("it"));
    let receipt = lock.lock_owned().unwrap().into_receipt().unwrap();
    let left = others.holder().unwrap().and_then(|it| it.remaining).expect("it is held by nobody yet");
    assert!(left > ms(6_000), "for the client's lease, not the short one: {left:?}");
    b.adopt::<Reentrant>(&receipt).unwrap().unlock().unwrap();
    is_given_back(&others);
    is_kept(&a, &a.reentrant_lock("it").linger(LINGER));
    a.close().unwrap();
    nothing_left(&server);
}
