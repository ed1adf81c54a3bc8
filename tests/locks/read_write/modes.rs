//! The two halves of a lock and one thread: beside which holders it comes in, what it may have at once.

use std::thread;
use std::time::Instant;

use redis_concurrent::ErrorKind;
use redis_concurrent_testkit::wait_until;

use crate::read_write::Fixture;
use crate::support::{LONG, SOON, in_brief, ms, nothing_left};

#[test]
fn readers_read_together_and_a_writer_is_alone() {
    let fixture = Fixture::new();
    let (a, b, c) = (fixture.lock(), fixture.lock(), fixture.lock());
    let first = a.read_lock().lock().unwrap();
    let second = b.read_lock().try_lock().unwrap().expect("beside another reader");
    assert!(c.write_lock().try_lock().unwrap().is_none());
    assert_eq!(c.read_count().unwrap(), 2);
    assert!(!c.write_lock().is_locked().unwrap());
    drop((first, second));
    let writer = c.write_lock().try_lock().unwrap().expect("alone");
    assert!(a.write_lock().is_locked().unwrap());
    assert!(a.read_lock().try_lock().unwrap().is_none());
    assert!(in_brief(b.write_lock().try_lock_for(ms(50))).is_none());
    assert_eq!(a.read_count().unwrap(), 0);
    drop(writer);
    nothing_left(&fixture.server);
}

#[test]
fn threads_of_a_process_read_together() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let mine = lock.read_lock().lock().unwrap();
    thread::scope(|scope| {
        scope.spawn(|| {
            let guard = lock.read_lock().lock().unwrap();
            assert_eq!(lock.read_count().unwrap(), 2);
            assert_eq!(lock.read_lock().hold_count(), 1);
            drop(guard);
        });
    });
    drop(mine);
    nothing_left(&fixture.server);
}

#[test]
fn a_reader_cannot_wait_for_itself() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let read = lock.read_lock().lock().unwrap();
    for outcome in [lock.write_lock().lock().map(drop), lock.write_lock().try_lock_for(SOON).map(drop)] {
        let error = outcome.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WouldDeadlock);
        assert_eq!(error.name(), "it");
    }
    assert!(lock.write_lock().try_lock().unwrap().is_none());
    assert_eq!(fixture.queued(), 0);
    // Its own reading is not hurt by it.
    assert_eq!(lock.read_lock().hold_count(), 1);
    drop(read);
    // Nor can it come back from a condition, if it writes as well.
    let mut write = lock.write_lock().lock().unwrap();
    let read = lock.read_lock().lock().unwrap();
    let condition = lock.write_lock().condition("never");
    assert_eq!(condition.wait_with(&mut write, ms(300)).unwrap_err().kind(), ErrorKind::WouldDeadlock);
    assert!(!write.is_lost() && condition.signal(&write).is_ok());
    drop((read, write));
    drop(lock.write_lock().lock().unwrap());
    nothing_left(&fixture.server);
}

#[test]
fn a_writer_may_read_and_goes_on_reading() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let write = lock.write_lock().lock().unwrap();
    let read = lock.read_lock().lock().unwrap();
    assert!(other.read_lock().try_lock().unwrap().is_none());
    write.unlock().unwrap();
    assert!(other.read_lock().try_lock().unwrap().is_some());
    assert!(other.write_lock().try_lock().unwrap().is_none());
    read.unlock().unwrap();
    assert!(other.write_lock().try_lock().unwrap().is_some());
    nothing_left(&fixture.server);
}

#[test]
fn a_writer_reads_past_threads_of_its_own_that_wait_for_it() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let write = lock.write_lock().lock().unwrap();
    thread::scope(|scope| {
        let waiting = scope.spawn(|| drop(lock.read_lock().lock().unwrap()));
        let writing = scope.spawn(|| drop(lock.write_lock().lock().unwrap()));
        fixture.await_queued(1);
        let read = lock.read_lock().try_lock_for(SOON).unwrap().expect("it writes");
        assert!(!waiting.is_finished());
        // Not handed on within the process, as this thread goes on reading.
        write.unlock().unwrap();
        assert!(!writing.is_finished());
        assert!(!lock.write_lock().is_locked().unwrap());
        read.unlock().unwrap();
        writing.join().unwrap();
        waiting.join().unwrap();
    });
    nothing_left(&fixture.server);
}

#[test]
fn a_downgrade_is_one_request_and_lets_waiting_readers_in() {
    let fixture = Fixture::new();
    let (mine, theirs) = (fixture.client(), fixture.client());
    let (lock, other) = (mine.read_write_lock("it"), theirs.read_write_lock("it"));
    let write = lock.write_lock().lock().unwrap();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let guard = other.read_lock().lock().unwrap();
            assert!(!other.write_lock().is_locked().unwrap());
            drop(guard);
        });
        fixture.await_queued(1);
        let before = mine.request_count();
        let read = lock.downgrade(write).unwrap();
        assert_eq!(mine.request_count() - before, 1);
        assert_eq!((lock.read_lock().hold_count(), lock.write_lock().hold_count()), (1, 0));
        reader.join().unwrap();
        assert!(other.write_lock().try_lock().unwrap().is_none());
        read.unlock().unwrap();
    });
    nothing_left(&fixture.server);
}

#[test]
fn a_downgrade_of_an_inner_hold_goes_on_writing() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    let outer = lock.write_lock().lock().unwrap();
    let inner = lock.write_lock().lock().unwrap();
    let read = lock.downgrade(inner).unwrap();
    assert_eq!((lock.read_lock().hold_count(), lock.write_lock().hold_count()), (1, 1));
    assert!(other.read_lock().try_lock().unwrap().is_none());
    outer.unlock().unwrap();
    assert!(other.read_lock().try_lock().unwrap().is_some());
    read.unlock().unwrap();
    nothing_left(&fixture.server);
}

#[test]
fn a_write_lock_that_was_lost_is_not_downgraded_also_beside_another_writer() {
    let fixture = Fixture::new();
    let (lock, other) = (fixture.lock(), fixture.lock());
    for known in [false, true] {
        let brief = lock.write_lock().with_lease(ms(200));
        let write = if known { brief.lock().unwrap() } else { lock.write_lock().lock().unwrap() };
        if known {
            wait_until(LONG, "its lease is over", || write.is_lost());
        } else {
            // It has not heard of it.
            let mut redis = fixture.server.connection().unwrap();
            let () = redis::cmd("DEL").arg("rc:{it}").query(&mut redis).unwrap();
        }
        let theirs = other.write_lock().try_lock_for(LONG).unwrap().unwrap();
        let began = Instant::now();
        assert_eq!(lock.downgrade(write).unwrap_err().kind(), ErrorKind::LeaseLost, "known: {known}");
        assert!(began.elapsed() < SOON, "it does not wait for the other: {:?}", began.elapsed());
        assert!(!theirs.is_lost());
        theirs.unlock().unwrap();
        assert_eq!((lock.read_lock().hold_count(), lock.write_lock().hold_count()), (0, 0));
    }
    // Nor when nobody else is there by then.
    let write = lock.write_lock().lock().unwrap();
    assert!(other.write_lock().force_unlock().unwrap().holders > 0);
    drop(other.write_lock().try_lock().unwrap().expect("it is free"));
    assert_eq!(lock.downgrade(write).unwrap_err().kind(), ErrorKind::LeaseLost);
    nothing_left(&fixture.server);
}

#[test]
fn only_its_own_guard_is_downgraded() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let (lock, strange) = (client.read_write_lock("it"), client.read_write_lock("other"));
    let write = strange.write_lock().lock().unwrap();
    assert_eq!(lock.downgrade(write).unwrap_err().kind(), ErrorKind::NotOwner);
    assert!(!strange.write_lock().is_locked().unwrap(), "the guard has ended");
    nothing_left(&fixture.server);
}

#[test]
fn readers_know_the_number_of_the_last_write() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.lock(), fixture.lock());
    let version = |lock: &redis_concurrent::ReadWriteLock| lock.read_lock().lock().unwrap().value();
    assert_eq!(version(&a), 0, "never written");
    let token = {
        let write = a.write_lock().lock().unwrap();
        assert!(write.token() > 0);
        write.token()
    };
    let seen = version(&a);
    assert_eq!(seen, token >> 12);
    assert_eq!(version(&b), seen, "reading changes nothing");
    assert_eq!(version(&a), seen);
    let write = b.write_lock().lock().unwrap();
    assert!(write.token() > token);
    let read = b.downgrade(write).unwrap();
    assert!(read.value() > seen);
    drop(read);
    nothing_left(&fixture.server);
}

#[test]
fn each_half_tells_of_its_own_holders() {
    let fixture = Fixture::new();
    let (a, b) = (fixture.lock(), fixture.lock());
    let read = a.read_lock().lock().unwrap();
    assert!(b.read_lock().is_locked().unwrap() && !b.write_lock().is_locked().unwrap());
    let holder = b.read_lock().holder().unwrap().expect("a reader");
    assert_eq!(holder.process.unwrap().pid, std::process::id());
    assert!(b.write_lock().holder().unwrap().is_none());
    assert!(b.write_lock().force_unlock().unwrap().holders == 0, "nobody writes");
    assert!(!read.is_lost());
    assert!(b.read_lock().force_unlock().unwrap().holders > 0);
    assert_eq!(read.unlock().unwrap_err().kind(), ErrorKind::LeaseLost);
    drop(b.write_lock().try_lock().unwrap().expect("free"));
    nothing_left(&fixture.server);
}

#[test]
fn a_name_in_use_by_another_kind_is_refused_both_ways() {
    let fixture = Fixture::new();
    let client = fixture.client();
    let taken = client.reentrant_lock("it");
    let guard = taken.lock().unwrap();
    let lock = client.read_write_lock("it");
    assert_eq!(lock.read_lock().lock().unwrap_err().kind(), ErrorKind::WrongType);
    assert_eq!(lock.write_lock().try_lock().unwrap_err().kind(), ErrorKind::WrongType);
    assert!(!guard.is_lost());
    drop(guard);
    let read = lock.read_lock().lock().unwrap();
    assert_eq!(client.reentrant_lock("it").lock().unwrap_err().kind(), ErrorKind::WrongType);
    drop(read);
    nothing_left(&fixture.server);
}

#[test]
fn debug_tells_the_holds() {
    let fixture = Fixture::new();
    let lock = fixture.lock();
    let guards = (lock.read_lock().lock().unwrap(), lock.read_lock().lock().unwrap());
    assert!(format!("{lock:?}").contains("read_holds: 2"));
    drop(guards);
    let guard = lock.write_lock().lock().unwrap();
    assert!(format!("{lock:?}").contains("write_holds: 1"));
    drop(guard);
    nothing_left(&fixture.server);
}
