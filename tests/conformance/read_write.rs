//! The read/write lock: which callers are admitted together, and what it answers about itself.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::kinds::{Kind, Read, Write};
use redis_concurrent::{
    CancellationToken, Client, ErrorKind, Guard, LockGuard, OwnedGuard, ReadWriteLock, RedisLock, Wait,
};
use redis_concurrent_testkit::wait_until;

use crate::conformance::fixture::{Fixture, LATE, NAME};
use crate::conformance::rows::rows;
use crate::support::{LONG, queued, replied};

rows! { read_write_lock:
    a_new_one_is_free_and_tells_its_order
    either_half_is_taken_and_given_back_in_every_form
    holds_of_either_half_are_counted
    three_hundred_reads_are_counted
    a_writer_may_write_again_and_keeps_others_out
    readers_read_beside_readers
    a_writer_waits_for_the_last_reader
    readers_wait_for_the_writer_and_come_in_together
    a_writer_may_read_as_well
    a_writer_that_reads_may_stop_writing
    a_writer_becomes_a_reader_with_nobody_in_between
    a_reader_that_would_write_is_refused
    a_guard_of_its_own_is_not_its_threads
    each_half_tells_whether_it_is_locked
}

impl Fixture<Write> {
    /// The whole lock under test, for another client.
    pub fn read_write(&self) -> ReadWriteLock {
        self.read_write_of(&self.client())
    }

    /// The whole lock under test, for this client.
    pub fn read_write_of(&self, client: &Client) -> ReadWriteLock {
        self.in_its_order(client.read_write_lock(NAME))
    }

    pub fn in_its_order(&self, lock: ReadWriteLock) -> ReadWriteLock {
        if self.fair { lock.arrival_order() } else { lock }
    }
}

/// On another thread.
pub fn elsewhere<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(work).join().unwrap())
}

/// Whether another thread could read, and whether it could write.
#[track_caller]
fn open(lock: &ReadWriteLock) -> (bool, bool) {
    elsewhere(|| {
        let reads = lock.read_lock().try_lock().unwrap().is_some();
        (reads, lock.write_lock().try_lock().unwrap().is_some())
    })
}

/// JSR-166 ReentrantReadWriteLockTest.testConstructor: the order is told by the text of the read half.
fn a_new_one_is_free_and_tells_its_order(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    let text = format!("{:?}", lock.read_lock());
    assert_eq!(text.contains("read-in-order"), fixture.fair, "{text}");
    assert!(!lock.write_lock().is_locked().unwrap());
    assert_eq!((lock.read_count().unwrap(), lock.read_lock().queue_length().unwrap()), (0, 0));
    assert_eq!((lock.read_lock().hold_count(), lock.write_lock().hold_count()), (0, 0));
}

/// Takes and gives back in every form, by `unlock` and by the end of the guard's scope.
fn in_every_form<K: Kind>(lock: &RedisLock<K>, inside: impl Fn(&dyn LockGuard)) {
    let never = CancellationToken::new();
    let soon = || Instant::now() + LONG;
    let both = |take: &dyn Fn() -> Guard<K>| {
        for scope in [false, true] {
            let guard = take();
            inside(&guard);
            if !scope {
                guard.unlock().unwrap();
            }
        }
    };
    both(&|| lock.lock().unwrap());
    both(&|| lock.try_lock().unwrap().unwrap());
    both(&|| lock.try_lock_for(LONG).unwrap().unwrap());
    both(&|| lock.lock_with(soon()).unwrap().unwrap());
    both(&|| lock.lock_interruptibly(&never).unwrap());
    both(&|| lock.lock_with(Wait::timeout(LONG).cancelled_by(&never)).unwrap().unwrap());
    let both = |take: &dyn Fn() -> OwnedGuard<K>| {
        for scope in [false, true] {
            let guard = take();
            inside(&guard);
            if !scope {
                guard.unlock().unwrap();
            }
        }
    };
    both(&|| lock.lock_owned().unwrap());
    both(&|| lock.try_lock_owned().unwrap().unwrap());
    both(&|| lock.lock_owned_with(LONG).unwrap().unwrap());
    both(&|| lock.lock_owned_with(soon()).unwrap().unwrap());
    both(&|| lock.lock_owned_with(&never).unwrap().unwrap());
    both(&|| lock.lock_owned_with(Wait::timeout(LONG).cancelled_by(&never)).unwrap().unwrap());
}

/// JSR-166 ReentrantReadWriteLockTest.testLock; StampedLockTest.testWriteLock_lockUnlock, testValidate
/// and testValidate2.
fn either_half_is_taken_and_given_back_in_every_form(fixture: &Fixture<Write>) {
    let (lock, other) = (fixture.read_write(), fixture.read_write());
    in_every_form(lock.write_lock(), |hold| {
        assert!(!hold.is_lost() && other.write_lock().is_locked().unwrap());
        assert_eq!(other.read_count().unwrap(), 0);
        // A caller that fails has nothing that could be taken for a hold.
        assert!(other.write_lock().try_lock().unwrap().is_none());
        assert!(other.read_lock().try_lock_owned().unwrap().is_none());
        assert!(!hold.is_lost());
    });
    assert!(!other.write_lock().is_locked().unwrap());
    in_every_form(lock.read_lock(), |hold| {
        assert!(!hold.is_lost() && !other.write_lock().is_locked().unwrap());
        assert_eq!(other.read_count().unwrap(), 1);
    });
    assert_eq!(other.read_count().unwrap(), 0);
}

/// JSR-166 ReentrantReadWriteLockTest.testGetWriteHoldCount, testGetReadHoldCount and
/// testReadLockToString; Redisson RedissonReadWriteLockTest.testHoldCount.
fn holds_of_either_half_are_counted(fixture: &Fixture<Write>) {
    fn up_and_down<K: Kind>(lock: &ReadWriteLock, half: &RedisLock<K>, called: &str) {
        let mut guards = Vec::new();
        for n in 1..=20 {
            guards.push(half.lock().unwrap());
            assert_eq!(half.hold_count(), n);
            assert!(format!("{lock:?}").contains(&format!("{called}: {n}")), "{lock:?}");
            assert_eq!(elsewhere(|| half.hold_count()), 0);
        }
        while let Some(guard) = guards.pop() {
            guard.unlock().unwrap();
            assert_eq!(half.hold_count(), guards.len());
        }
        assert!(format!("{lock:?}").contains(&format!("{called}: 0")), "{lock:?}");
    }
    let lock = fixture.read_write();
    up_and_down(&lock, lock.read_lock(), "read_holds");
    up_and_down(&lock, lock.write_lock(), "write_holds");
    // One half within the other.
    let write = lock.write_lock().lock().unwrap();
    up_and_down(&lock, lock.read_lock(), "read_holds");
    assert_eq!(lock.write_lock().hold_count(), 1);
    write.unlock().unwrap();
}

/// JSR-166 StampedLockTest.testReadLock_lockUnlock and testDeeplyNestedReadLocks.
fn three_hundred_reads_are_counted(fixture: &Fixture<Write>) {
    let (lock, never) = (fixture.read_write(), CancellationToken::new());
    let read = lock.read_lock();
    let mut guards = Vec::new();
    for n in 0..300 {
        assert_eq!(lock.read_count().unwrap(), n);
        guards.push(match n % 4 {
            0 => read.lock_owned().unwrap(),
            1 => read.try_lock_owned().unwrap().unwrap(),
            2 => read.lock_owned_with(LONG).unwrap().unwrap(),
            _ => read.lock_owned_with(&never).unwrap().unwrap(),
        });
    }
    while let Some(guard) = guards.pop() {
        guard.unlock().unwrap();
        assert_eq!(lock.read_count().unwrap(), guards.len());
    }
    // And by one thread, nested.
    let mut guards: Vec<Guard<Read>> = Vec::new();
    for n in 1..=300 {
        guards.push(match n % 3 {
            0 => read.lock().unwrap(),
            1 => read.try_lock().unwrap().unwrap(),
            _ => read.try_lock_for(LONG).unwrap().unwrap(),
        });
        assert_eq!(read.hold_count(), n);
    }
    assert_eq!(lock.read_count().unwrap(), 1, "one thread");
    while let Some(guard) = guards.pop() {
        guard.unlock().unwrap();
        assert_eq!(read.hold_count(), guards.len());
    }
}

/// JSR-166 ReentrantReadWriteLockTest.testWriteTryLock, testWriteTryLockWhenLocked and
/// testReadTryLockWhenLocked; Redisson RedissonReadWriteLockTest.testWriteLock.
fn a_writer_may_write_again_and_keeps_others_out(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    let others = [lock.clone(), fixture.read_write()];
    let all = |open_to_all: (bool, bool)| {
        for other in &others {
            assert_eq!(open(other), open_to_all);
        }
    };
    let outer = lock.write_lock().try_lock().unwrap().unwrap();
    let inner = lock.write_lock().try_lock().unwrap().unwrap();
    all((false, false));
    // In any order.
    outer.unlock().unwrap();
    all((false, false));
    assert!(!inner.is_lost());
    inner.unlock().unwrap();
    all((true, true));
}

/// JSR-166 ReentrantReadWriteLockTest.testMultipleReadLocks, testTryLockWhenReadLocked and
/// testWriteTryLockWhenReadLocked.
fn readers_read_beside_readers(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    let others = [lock.clone(), fixture.read_write()];
    let guard = lock.read_lock().lock().unwrap();
    for other in &others {
        elsewhere(|| {
            other.read_lock().try_lock().unwrap().expect("beside the other").unlock().unwrap();
            other.read_lock().try_lock_for(LONG).unwrap().expect("beside the other").unlock().unwrap();
            other.read_lock().lock().unwrap().unlock().unwrap();
            assert!(other.write_lock().try_lock().unwrap().is_none());
        });
    }
    guard.unlock().unwrap();
}

/// JSR-166 ReentrantReadWriteLockTest.testWriteAfterReadLock.
fn a_writer_waits_for_the_last_reader(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    for other in [lock.clone(), fixture.read_write()] {
        let released = AtomicBool::new(false);
        let guard = lock.read_lock().lock().unwrap();
        thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let guard = other.write_lock().lock().unwrap();
                assert!(released.load(SeqCst), "a reader is inside");
                assert_eq!(other.read_count().unwrap(), 0);
                guard.unlock().unwrap();
            });
            queued(lock.write_lock(), 1);
            assert_eq!(lock.read_count().unwrap(), 1);
            released.store(true, SeqCst);
            guard.unlock().unwrap();
            writer.join().unwrap();
        });
    }
}

/// JSR-166 ReentrantReadWriteLockTest.testReadAfterWriteLock.
fn readers_wait_for_the_writer_and_come_in_together(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    for others in [[lock.clone(), lock.clone()], [lock.clone(), fixture.read_write()]] {
        let (released, inside) = (AtomicBool::new(false), AtomicUsize::new(0));
        let guard = lock.write_lock().lock().unwrap();
        thread::scope(|scope| {
            for other in &others {
                scope.spawn(|| {
                    let guard = other.read_lock().lock().unwrap();
                    assert!(released.load(SeqCst), "a writer is inside");
                    inside.fetch_add(1, SeqCst);
                    wait_until(LONG, "both read", || inside.load(SeqCst) == 2);
                    guard.unlock().unwrap();
                });
            }
            queued(lock.read_lock(), 2);
            released.store(true, SeqCst);
            guard.unlock().unwrap();
        });
    }
}

/// JSR-166 ReentrantReadWriteLockTest.testReadHoldingWriteLock and testReadHoldingWriteLock2; Redisson
/// RedissonReadWriteLockTest.testWR.
fn a_writer_may_read_as_well(fixture: &Fixture<Write>) {
    let (lock, other) = (fixture.read_write(), fixture.read_write());
    let write = lock.write_lock().lock().unwrap();
    lock.read_lock().try_lock().unwrap().expect("it writes").unlock().unwrap();
    assert!(lock.write_lock().is_held_by_current_thread() && other.write_lock().is_locked().unwrap());
    thread::scope(|scope| {
        for other in [&lock, &other] {
            scope.spawn(|| other.read_lock().lock().unwrap().unlock().unwrap());
        }
        queued(lock.read_lock(), 2);
        for _ in 0..3 {
            lock.read_lock().lock().unwrap().unlock().unwrap();
            let again = lock.write_lock().lock().unwrap();
            lock.read_lock().try_lock_for(LONG).unwrap().expect("it writes").unlock().unwrap();
            again.unlock().unwrap();
        }
        assert_eq!(lock.read_lock().queue_length().unwrap(), 2, "and they wait yet");
        write.unlock().unwrap();
    });
    assert!(!other.write_lock().is_locked().unwrap());
}

/// Curator TestInterProcessReadWriteLock.testDowngrading: read, then write no more, then read no more.
fn a_writer_that_reads_may_stop_writing(fixture: &Fixture<Write>) {
    let (lock, other) = (fixture.read_write(), fixture.read_write());
    let write = lock.write_lock().lock().unwrap();
    let read = lock.read_lock().lock().unwrap();
    assert_eq!(open(&other), (false, false));
    write.unlock().unwrap();
    assert_eq!(open(&other), (true, false));
    assert_eq!((lock.read_lock().hold_count(), lock.write_lock().hold_count()), (1, 0));
    read.unlock().unwrap();
    assert_eq!(open(&other), (true, true));
}

/// JSR-166 StampedLockTest.testTryConvertToReadLock: the guard that was exchanged is no more, which
/// the compiler sees to.
fn a_writer_becomes_a_reader_with_nobody_in_between(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    for other in [lock.clone(), fixture.read_write()] {
        let write = lock.write_lock().lock().unwrap();
        let token = write.token();
        thread::scope(|scope| {
            let next = scope.spawn(|| {
                let guard = other.write_lock().lock().unwrap();
                let token = guard.token();
                guard.unlock().unwrap();
                token
            });
            queued(lock.write_lock(), 1);
            let read = lock.downgrade(write).unwrap();
            assert_eq!(read.value(), token >> 12, "nobody wrote in between");
            assert_eq!((lock.read_count().unwrap(), lock.write_lock().is_locked().unwrap()), (1, false));
            assert_eq!(lock.write_lock().hold_count(), 0);
            assert_eq!(lock.read_lock().queue_length().unwrap(), 1);
            read.unlock().unwrap();
            assert!(next.join().unwrap() > token);
        });
    }
}

/// Curator TestInterProcessReadWriteLock.testThatUpgradingIsDisallowed (5 s there): here it is told so.
fn a_reader_that_would_write_is_refused(fixture: &Fixture<Write>) {
    let (lock, other) = (fixture.read_write(), fixture.read_write());
    let read = lock.read_lock().lock().unwrap();
    let began = Instant::now();
    for refused in [
        lock.write_lock().try_lock_for(LONG).map(drop),
        lock.write_lock().lock().map(drop),
        lock.write_lock().lock_interruptibly(&CancellationToken::new()).map(drop),
    ] {
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::WouldDeadlock);
    }
    assert!(lock.write_lock().try_lock().unwrap().is_none());
    assert!(began.elapsed() < LATE, "{:?}", began.elapsed());
    assert_eq!(other.read_lock().queue_length().unwrap(), 0);
    assert!(!read.is_lost());
    read.unlock().unwrap();
    lock.write_lock().try_lock().unwrap().expect("it reads no more").unlock().unwrap();
}

/// JSR-166 StampedLockTest.testNonReentrant: what is not reentrant here is a guard of its own.
fn a_guard_of_its_own_is_not_its_threads(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    let write = lock.write_lock().lock_owned().unwrap();
    assert!(replied(|| lock.write_lock().try_lock_for(Duration::ZERO)).is_none());
    assert!(replied(|| lock.read_lock().try_lock_for(Duration::ZERO)).is_none());
    assert!(!write.is_lost());
    write.unlock().unwrap();
    let read = lock.read_lock().lock_owned().unwrap();
    assert!(replied(|| lock.write_lock().try_lock_for(Duration::ZERO)).is_none());
    assert!(!read.is_lost());
    read.unlock().unwrap();
}

/// Redisson RedissonReadWriteLockTest.testReadLockIsLocked.
fn each_half_tells_whether_it_is_locked(fixture: &Fixture<Write>) {
    let (lock, other) = (fixture.read_write(), fixture.read_write());
    let check = |half: (bool, bool)| {
        for lock in [&lock, &other] {
            let (reads, writes) = (lock.read_lock(), lock.write_lock());
            assert_eq!((reads.is_locked().unwrap(), writes.is_locked().unwrap()), half);
        }
    };
    check((false, false));
    let write = lock.write_lock().lock().unwrap();
    check((false, true));
    let read = lock.read_lock().lock().unwrap();
    check((true, true));
    write.unlock().unwrap();
    check((true, false));
    read.unlock().unwrap();
    check((false, false));
}
