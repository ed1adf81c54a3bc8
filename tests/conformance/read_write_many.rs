//! The read/write lock, with many: readers are inside together, a writer is alone.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::thread;

use redis_concurrent::ReadWriteLock;
use redis_concurrent::kinds::Write;
use redis_concurrent_testkit::{Barrier, wait_until};

use crate::conformance::fixture::Fixture;
use crate::conformance::rows::rows;
use crate::support::{LONG, Random, ms, queued};

rows! { read_write_lock:
    a_name_may_look_like_a_hash_tag
    twenty_readers_come_in_together
    threads_that_read_or_write_count_to_15
    clients_that_read_or_write_count_to_100
    eight_clients_read_more_than_they_write
    readers_and_waiters_are_told
}

/// What is done under the lock: writes in two steps, of which a reader sees no half.
#[derive(Default)]
struct Work {
    writing: AtomicBool,
    reading: AtomicUsize,
    /// How many read together at most.
    most: AtomicUsize,
    written: AtomicU64,
    done: AtomicUsize,
}

impl Work {
    fn write(&self, lock: &ReadWriteLock) {
        let guard = lock.write_lock().lock().unwrap();
        assert!(!self.writing.swap(true, SeqCst), "two write");
        assert_eq!(self.reading.load(SeqCst), 0, "somebody reads");
        let seen = self.written.load(SeqCst);
        thread::yield_now();
        self.written.store(seen + 1, SeqCst);
        assert_eq!(self.reading.load(SeqCst), 0, "somebody reads");
        assert!(self.writing.swap(false, SeqCst), "two wrote");
        self.done.fetch_add(1, SeqCst);
        guard.unlock().unwrap();
    }

    fn read(&self, lock: &ReadWriteLock) {
        let guard = lock.read_lock().lock().unwrap();
        self.most.fetch_max(self.reading.fetch_add(1, SeqCst) + 1, SeqCst);
        let seen = self.written.load(SeqCst);
        thread::sleep(ms(1));
        assert!(!self.writing.load(SeqCst), "somebody writes");
        assert_eq!(self.written.load(SeqCst), seen, "somebody wrote");
        self.reading.fetch_sub(1, SeqCst);
        self.done.fetch_add(1, SeqCst);
        guard.unlock().unwrap();
    }
}

/// A thread for each lock, all at once, each working so often; of a hundred turns so many write.
fn work(locks: &[ReadWriteLock], rounds: usize, writes: u64, random: &mut Random) -> Work {
    let (work, start) = (Work::default(), Barrier::new(locks.len()));
    thread::scope(|scope| {
        for lock in locks {
            let (work, start, mut random) = (&work, &start, random.fork());
            scope.spawn(move || {
                start.wait();
                for _ in 0..rounds {
                    if random.below(100) < writes { work.write(lock) } else { work.read(lock) }
                }
            });
        }
    });
    work
}

/// Redisson RedissonReadWriteLockTest.testName.
fn a_name_may_look_like_a_hash_tag(fixture: &Fixture<Write>) {
    let client = fixture.client();
    let lock = fixture.in_its_order(client.read_write_lock("{tag}:name"));
    let start = Barrier::new(10);
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..10 {
                    lock.read_lock().lock().unwrap().unlock().unwrap();
                }
            });
        }
    });
    assert_eq!((lock.name(), lock.read_count().unwrap()), ("{tag}:name", 0));
}

/// Redisson RedissonReadWriteLockTest.testWriteRead.
fn twenty_readers_come_in_together(fixture: &Fixture<Write>) {
    let (lock, other) = (fixture.read_write(), fixture.read_write());
    let inside = AtomicUsize::new(0);
    let write = lock.write_lock().lock().unwrap();
    thread::scope(|scope| {
        for i in 0..20 {
            let (inside, lock) = (&inside, if i % 2 == 0 { &lock } else { &other });
            scope.spawn(move || {
                let guard = lock.read_lock().lock().unwrap();
                inside.fetch_add(1, SeqCst);
                // They cannot all be here unless they are so together.
                wait_until(LONG, "all read", || inside.load(SeqCst) == 20);
                guard.unlock().unwrap();
            });
        }
        wait_until(LONG, "all wait", || {
            lock.read_lock().local_queue_length() + other.read_lock().local_queue_length() == 20
        });
        assert_eq!(inside.load(SeqCst), 0);
        write.unlock().unwrap();
    });
}

/// Redisson RedissonReadWriteLockTest.testConcurrency_SingleInstance.
fn threads_that_read_or_write_count_to_15(fixture: &Fixture<Write>) {
    let client = fixture.client();
    let locks: Vec<_> = (0..15).map(|_| fixture.read_write_of(&client)).collect();
    let done = work(&locks, 1, 50, &mut Random::new("threads_that_read_or_write_count_to_15"));
    assert_eq!(done.done.into_inner(), 15);
}

/// Redisson RedissonReadWriteLockTest.testConcurrency_MultiInstance.
fn clients_that_read_or_write_count_to_100(fixture: &Fixture<Write>) {
    let _turn = fixture.one_after_the_other();
    let locks: Vec<_> = (0..100).map(|_| fixture.read_write()).collect();
    let done = work(&locks, 1, 50, &mut Random::new("clients_that_read_or_write_count_to_100"));
    assert_eq!(done.done.into_inner(), 100);
}

/// Curator TestInterProcessReadWriteLock.testBasic.
fn eight_clients_read_more_than_they_write(fixture: &Fixture<Write>) {
    let locks: Vec<_> = (0..8).map(|_| fixture.read_write()).collect();
    let done = work(&locks, 100, 10, &mut Random::new("eight_clients_read_more_than_they_write"));
    assert_eq!(done.done.into_inner(), 800);
    assert!(done.most.into_inner() > 1, "never two readers together");
}

/// Curator TestInterProcessReadWriteLock.testGetParticipantNodes: each reader a process, then all of
/// them threads of one.
fn readers_and_waiters_are_told(fixture: &Fixture<Write>) {
    let _turn = fixture.one_after_the_other();
    let check = |readers: &[ReadWriteLock], writers: &[ReadWriteLock], locks: &[&ReadWriteLock]| {
        let (inside, done) = (Barrier::new(readers.len() + 1), Barrier::new(readers.len() + 1));
        thread::scope(|scope| {
            for lock in readers {
                scope.spawn(|| {
                    let guard = lock.read_lock().lock().unwrap();
                    inside.wait();
                    done.wait();
                    guard.unlock().unwrap();
                });
            }
            inside.wait();
            for lock in writers {
                scope.spawn(|| lock.write_lock().lock().unwrap().unlock().unwrap());
            }
            for lock in locks {
                queued(lock.write_lock(), writers.len());
                assert_eq!(lock.read_count().unwrap(), readers.len());
                assert!(!lock.write_lock().is_locked().unwrap());
            }
            done.wait();
        });
        for lock in locks {
            assert_eq!((lock.read_count().unwrap(), lock.read_lock().queue_length().unwrap()), (0, 0));
        }
    };
    let many = |n: usize| -> Vec<_> { (0..n).map(|_| fixture.read_write()).collect() };
    let (readers, writers, third) = (many(20), many(8), fixture.read_write());
    check(&readers, &writers, &[&third, &readers[0], &writers[0]]);
    let one = fixture.read_write();
    check(&vec![one.clone(); 20], &vec![one.clone(); 8], &[&one]);
}
