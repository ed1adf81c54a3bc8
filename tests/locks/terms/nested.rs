//! Whose terms a hold is on where a thread comes in again, or goes from one mode to the other.

use redis_concurrent::kinds::Kind;
use redis_concurrent::{Client, ErrorKind, MultiLock, RedisLock};
use redis_concurrent_testkit::{RedisServer, eventually, wait_until};

use crate::support::{LONG, SOON, builder, connect, ms, nothing_left, quiet};

/// A re-entry by a handle of other terms is the hold that it was, and asks nothing. The client is this lock's alone: what a
/// lease leaves that ended is released in the background, and that is a request.
fn a_re_entry_keeps_the_terms_of_its_hold<K: Kind>(
    client: &Client,
    lock: &RedisLock<K>,
    several: &MultiLock,
) {
    let (short, shorter) = (ms(1000), ms(300));
    let (limited, several) = (lock.with_lease(shorter), several.with_lease(shorter));
    let kept = lock.min_hold(LONG);
    // Renewed stays renewed, and as long as it was.
    let outer = lock.lock().unwrap();
    let before = client.request_count();
    let (inner, both) = (limited.lock().unwrap(), several.lock().unwrap());
    let at_least = kept.try_lock().unwrap().unwrap();
    assert!(inner.remaining() > shorter && outer.remaining() > shorter && both.remaining() > shorter);
    drop((inner, both, at_least));
    assert_eq!(client.request_count(), before);
    outer.unlock().unwrap();
    assert!(!lock.is_locked().unwrap(), "it was not to be kept");
    // What is fixed stays so, also under work that would have it renewed.
    let limited = lock.with_lease(short);
    // (Again where it was over before the thread came in again.)
    let (inner, outer) = eventually(LONG, || {
        let outer = limited.lock().unwrap();
        lock.lock().ok().map(|inner| (inner, outer))
    });
    assert!(inner.remaining() <= short && outer.remaining() <= short);
    wait_until(LONG, "its lease ends", || inner.is_lost() && outer.is_lost());
    drop(inner);
    assert_eq!(outer.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
}

#[test]
fn a_re_entry_is_on_the_terms_of_the_hold() {
    let server = RedisServer::start().unwrap();
    let connect = || quiet(builder(&server.url())).connect().unwrap();
    let (client, readers, writers) = (connect(), connect(), connect());
    let lock = client.reentrant_lock("it");
    a_re_entry_keeps_the_terms_of_its_hold(&client, &lock, &MultiLock::new(&[&lock]));
    let (reads, writes) = (readers.read_write_lock("read"), writers.read_write_lock("written"));
    let (read, write) = (reads.read_lock(), writes.write_lock());
    a_re_entry_keeps_the_terms_of_its_hold(&readers, read, &MultiLock::new(&[read]));
    a_re_entry_keeps_the_terms_of_its_hold(&writers, write, &MultiLock::new(&[write]));
    nothing_left(&server);
}

#[test]
fn a_downgraded_hold_is_on_the_terms_of_the_write_lock() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let (lock, theirs) = (client.read_write_lock("it"), other.read_write_lock("it"));
    let (short, limited) = (ms(1000), lock.write_lock().with_lease(ms(1000)));
    for nested in [false, true] {
        // (Again where its lease was over before.)
        let (read, outer) = eventually(LONG, || {
            let write = limited.lock().unwrap();
            let outer = if nested { Some(lock.write_lock().lock().ok()?) } else { None };
            lock.downgrade(write).ok().map(|read| (read, outer))
        });
        assert!(read.remaining() <= short, "{:?}", read.remaining());
        wait_until(LONG, "its lease ends", || read.is_lost());
        assert_eq!(read.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
        drop(outer);
    }
    // And what is to be kept for a while is kept as a read lock.
    let stays = |at_least| {
        let read = lock.downgrade(lock.write_lock().min_hold(at_least).lock().unwrap()).unwrap();
        read.unlock().unwrap();
        let stayed = theirs.write_lock().try_lock().unwrap().is_none();
        assert!(theirs.read_lock().try_lock().unwrap().is_some());
        assert!(theirs.write_lock().try_lock_for(LONG).unwrap().is_some());
        stayed
    };
    // (The second where a busy machine took longer than the first to ask for it.)
    assert!([ms(500), SOON].into_iter().any(stays), "it stays for the rest");
    nothing_left(&server);
}

/// A thread that writes, reads beside, and then exchanges its write lock.
#[test]
fn a_downgrade_beside_a_read_ends_the_write_lock() {
    let server = RedisServer::start().unwrap();
    let (client, other) = (connect(&server), connect(&server));
    let (lock, theirs) = (client.read_write_lock("it"), other.read_write_lock("it"));
    let write = lock.write_lock().lock().unwrap();
    let concurrent = lock.read_lock().lock().unwrap();
    let read = lock.downgrade(write).unwrap();
    assert_eq!((lock.read_lock().hold_count(), lock.write_lock().hold_count()), (2, 0));
    assert!(!theirs.write_lock().is_locked().unwrap());
    assert!(theirs.read_lock().try_lock_for(SOON).unwrap().is_some(), "nobody writes");
    drop((concurrent, read));
    assert!(theirs.write_lock().try_lock().unwrap().is_some());
    nothing_left(&server);
}
