//! Many threads and clients: nobody is inside with another, and nobody is forgotten.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::thread;
use std::time::Duration;

use redis_concurrent::{Guard, RedisLock};
use redis_concurrent_testkit::{Barrier, wait_until};

use crate::conformance::fixture::{Fixture, Tried};
use crate::conformance::rows::rows;
use crate::support::{LONG, ms};

rows! { every_lock:
    threads_of_one_client_count_to_15
    clients_that_come_back_count_to_1600
    clients_that_come_once_count_to_100
    clients_that_take_turns_count_to_30
    threads_that_only_try_count_to_1600
    threads_share_a_handle
    threads_on_two_names_share_a_channel
    many_names_are_tried_and_used
}

/// What is done under the lock: an increment in two steps, which is lost if two are inside.
#[derive(Default)]
struct Work {
    inside: AtomicBool,
    count: AtomicU64,
    token: AtomicU64,
}

impl Work {
    fn run<K: Tried>(&self, guard: &Guard<K>, during: Duration) {
        assert!(!self.inside.swap(true, SeqCst), "two are inside");
        let (seen, token) = (self.count.load(SeqCst), guard.token());
        let last = self.token.swap(token, SeqCst);
        assert!(last < token, "{token} after {last}");
        if during.is_zero() {
            thread::yield_now();
        } else {
            thread::sleep(during);
        }
        self.count.store(seen + 1, SeqCst);
        assert!(self.inside.swap(false, SeqCst), "two were inside");
    }
}

/// A thread for each lock, all at once, each working so often; how much was done then.
fn work<K: Tried>(locks: &[RedisLock<K>], rounds: usize, during: Duration) -> u64 {
    let (work, start) = (Work::default(), Barrier::new(locks.len()));
    thread::scope(|scope| {
        for lock in locks {
            scope.spawn(|| {
                start.wait();
                for _ in 0..rounds {
                    let guard = lock.lock().unwrap();
                    work.run(&guard, during);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    work.count.into_inner()
}

/// Redisson RedissonLockTest.testConcurrency_SingleInstance.
fn threads_of_one_client_count_to_15<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.patient();
    let locks: Vec<_> = (0..15).map(|_| fixture.lock_of(&client)).collect();
    assert_eq!(work(&locks, 1, ms(1)), 15);
}

/// Redisson RedissonLockTest.testConcurrencyLoop_MultiInstance and the same of
/// RedissonFairLockTest (held for 10 ms there).
fn clients_that_come_back_count_to_1600<K: Tried>(fixture: &Fixture<K>) {
    let locks: Vec<_> = (0..16).map(|_| fixture.lock_of(&fixture.patient())).collect();
    assert_eq!(work(&locks, 100, ms(1)), 1600);
}

/// Redisson RedissonLockTest.testConcurrency_MultiInstance and the same of RedissonFairLockTest.
fn clients_that_come_once_count_to_100<K: Tried>(fixture: &Fixture<K>) {
    let _turn = fixture.one_after_the_other();
    let locks: Vec<_> = (0..100).map(|_| fixture.lock_of(&fixture.patient())).collect();
    assert_eq!(work(&locks, 1, Duration::ZERO), 100);
}

/// Spring RedisLockRegistryTests.multiRedisLockRegistryTest.
fn clients_that_take_turns_count_to_30<K: Tried>(fixture: &Fixture<K>) {
    let locks: Vec<_> = (0..10).map(|_| fixture.lock_of(&fixture.patient())).collect();
    assert_eq!(work(&locks, 3, Duration::ZERO), 30);
}

/// Redisson RedissonSpinLockTest.testConcurrencyLoop_MultiInstance: a caller that only tries subscribes to
/// nothing here either.
fn threads_that_only_try_count_to_1600<K: Tried>(fixture: &Fixture<K>) {
    let locks: Vec<_> = (0..16).map(|_| fixture.lock_of(&fixture.deaf())).collect();
    let (work, start) = (Work::default(), Barrier::new(locks.len()));
    thread::scope(|scope| {
        for (i, lock) in locks.iter().enumerate() {
            let (work, start) = (&work, &start);
            scope.spawn(move || {
                start.wait();
                for round in 0..100 {
                    let mut pause = Duration::from_micros(500);
                    let guard = loop {
                        if let Some(guard) = lock.try_lock().unwrap() {
                            break guard;
                        }
                        // Each at a pace of its own.
                        thread::sleep(pause + Duration::from_micros((i * 7 + round * 13) as u64 % 500));
                        pause = (pause * 2).min(ms(16));
                    };
                    work.run(&guard, Duration::ZERO);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(work.count.into_inner(), 1600);
    assert_eq!(fixture.channels(), [""; 0]);
}

/// Curator TestInterProcessMutexBase.testReentrantSingleLock and testContainerCleanup.
fn threads_share_a_handle<K: Tried>(fixture: &Fixture<K>) {
    let lock = fixture.lock();
    let (work, start) = (Work::default(), Barrier::new(10));
    thread::scope(|scope| {
        for _ in 0..10 {
            scope.spawn(|| {
                start.wait();
                for _ in 0..10 {
                    let guard = lock.lock().unwrap();
                    let inner = fixture.reentrant().then(|| lock.lock().unwrap());
                    work.run(&guard, Duration::ZERO);
                    drop(inner);
                    guard.unlock().unwrap();
                }
            });
        }
    });
    assert_eq!(work.count.into_inner(), 100);
}

/// Redisson RedissonLockTest.testSinglePubSub.
fn threads_on_two_names_share_a_channel<K: Tried>(fixture: &Fixture<K>) {
    let (holder, client) = (fixture.deaf(), fixture.client());
    let names = ["one", "two"];
    let held: Vec<_> = names.map(|name| fixture.named(&holder, name).lock_owned().unwrap()).into();
    let locks = names.map(|name| fixture.named(&client, name));
    thread::scope(|scope| {
        let waiters: Vec<_> = (0..4)
            .map(|i| {
                scope.spawn({
                    let lock = &locks[i % 2];
                    move || lock.try_lock_for(LONG).unwrap().map(drop)
                })
            })
            .collect();
        wait_until(LONG, "all wait", || locks.iter().all(|lock| lock.local_queue_length() == 2));
        wait_until(LONG, "in Redis too", || {
            locks.iter().all(|lock| lock.queue_length().unwrap() == 2) && fixture.channels().len() == 1
        });
        for guard in held {
            guard.unlock().unwrap();
        }
        for waiter in waiters {
            assert_eq!(waiter.join().unwrap(), Some(()));
        }
    });
    assert_eq!(fixture.channels().len(), 1);
}

/// Redisson RedissonLockHeavyTest.tryLockUnlockRLock (without its semaphore): a fifth of the smallest of its
/// sizes, and with `HEAVY=large` in the environment the largest.
fn many_names_are_tried_and_used<K: Tried>(fixture: &Fixture<K>) {
    let large = std::env::var("HEAVY").is_ok_and(|it| it == "large");
    let (threads, names) = if large { (20, 50_000) } else { (2, 1_000) };
    let client = fixture.patient();
    let values: Vec<Work> = (0..names).map(|_| Work::default()).collect();
    let (start, taken, unanswered) = (Barrier::new(threads), AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        for t in 0..threads {
            let (client, values, start) = (&client, &values, &start);
            let (taken, unanswered) = (&taken, &unanswered);
            scope.spawn(move || {
                start.wait();
                for (i, value) in values.iter().enumerate() {
                    let lock = fixture.named(client, &i.to_string());
                    match lock.try_lock_for(ms((i + t) as u64 % 10)) {
                        Ok(Some(guard)) => {
                            value.run(&guard, Duration::ZERO);
                            guard.unlock().unwrap();
                            taken.fetch_add(1, SeqCst);
                        }
                        Ok(None) => {}
                        // On a busy machine a server, or we, may stand still for longer than such a try bears.
                        Err(e) => {
                            assert!(e.is_unavailable(), "{e}");
                            unanswered.fetch_add(1, SeqCst);
                        }
                    }
                }
            });
        }
    });
    let done: u64 = values.iter().map(|value| value.count.load(SeqCst)).sum();
    assert_eq!(done, taken.into_inner());
    let each = done + unanswered.into_inner();
    assert!(each >= names as u64 && done > 0, "{done} of {names}: somebody gets each of them");
}
