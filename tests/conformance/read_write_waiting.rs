//! Waiters of the read/write lock: timeouts, cancellation, and how they are counted.

use std::thread;
use std::time::{Duration, Instant};

use redis_concurrent::kinds::Write;
use redis_concurrent::{CancellationToken, Error, ReadWriteLock, Wait};

use crate::conformance::fixture::{Fixture, in_vain};
use crate::conformance::read_write::elsewhere;
use crate::conformance::rows::rows;
use crate::support::{LONG, in_brief, ms, queued};

rows! { read_write_lock:
    a_timed_try_of_either_half_is_none_in_time_and_not_early
    a_waiter_for_either_half_can_be_cancelled
    a_token_that_was_not_given_cancels_nothing
    a_waiter_for_either_half_is_counted
}

/// JSR-166 ReentrantReadWriteLockTest.testWriteTryLock_Timeout and testReadTryLock_Timeout;
/// StampedLockTest.testTimedLock_Timeout.
fn a_timed_try_of_either_half_is_none_in_time_and_not_early(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    let past = Instant::now().checked_sub(ms(1000)).unwrap_or_else(Instant::now);
    for other in [lock.clone(), fixture.read_write()] {
        let write = lock.write_lock().lock().unwrap();
        elsewhere(|| {
            for limit in [Duration::ZERO, ms(300)] {
                in_vain(limit, |limit| other.write_lock().try_lock_for(limit));
                in_vain(limit, |limit| other.read_lock().try_lock_for(limit));
            }
            // What ends before it begins is one attempt.
            assert!(in_brief(other.write_lock().lock_with(past)).is_none());
            assert!(in_brief(other.read_lock().lock_with(past)).is_none());
        });
        assert!(lock.write_lock().is_held_by_current_thread() && !write.is_lost());
        write.unlock().unwrap();
        let read = lock.read_lock().lock().unwrap();
        elsewhere(|| {
            for limit in [Duration::ZERO, ms(300)] {
                in_vain(limit, |limit| other.write_lock().try_lock_for(limit));
            }
            assert!(in_brief(other.write_lock().lock_with(past)).is_none());
        });
        read.unlock().unwrap();
    }
}

/// JSR-166 ReentrantReadWriteLockTest.testWriteLockInterruptibly_Interruptible,
/// testReadLockInterruptibly_Interruptible, testReadTryLock_Interruptible and testWriteLockInterruptibly.
fn a_waiter_for_either_half_can_be_cancelled(fixture: &Fixture<Write>) {
    type Form = fn(&ReadWriteLock, &CancellationToken) -> Result<(), Error>;
    let forms: [Form; 4] = [
        |lock, cancel| lock.write_lock().lock_interruptibly(cancel).map(drop),
        |lock, cancel| lock.write_lock().lock_with(Wait::timeout(LONG).cancelled_by(cancel)).map(drop),
        |lock, cancel| lock.read_lock().lock_interruptibly(cancel).map(drop),
        |lock, cancel| lock.read_lock().lock_with(Wait::timeout(LONG).cancelled_by(cancel)).map(drop),
    ];
    let lock = fixture.read_write();
    for other in [lock.clone(), fixture.read_write()] {
        // Free: they are let in.
        for form in forms {
            form(&other, &CancellationToken::new()).unwrap();
        }
        let guard = lock.write_lock().lock().unwrap();
        for form in forms {
            let cancel = CancellationToken::new();
            thread::scope(|scope| {
                let waits = scope.spawn(|| form(&other, &cancel));
                queued(lock.write_lock(), 1);
                cancel.cancel();
                assert!(waits.join().unwrap().unwrap_err().is_cancelled());
            });
            queued(lock.write_lock(), 0);
            assert!(lock.write_lock().is_held_by_current_thread() && !guard.is_lost());
        }
        guard.unlock().unwrap();
    }
}

/// JSR-166 StampedLockTest.testNonInterruptibleOperationsIgnoreInterrupts.
fn a_token_that_was_not_given_cancels_nothing(fixture: &Fixture<Write>) {
    let lock = fixture.read_write();
    let cancelled = CancellationToken::new();
    cancelled.cancel();
    lock.write_lock().lock().unwrap().unlock().unwrap();
    lock.write_lock().try_lock_for(LONG).unwrap().unwrap().unlock().unwrap();
    lock.read_lock().lock().unwrap().unlock().unwrap();
    lock.read_lock().try_lock_for(LONG).unwrap().unwrap().unlock().unwrap();
    // Not even on a free lock, where it is given.
    assert!(lock.write_lock().lock_interruptibly(&cancelled).unwrap_err().is_cancelled());
    assert!(lock.read_lock().lock_interruptibly(&cancelled).unwrap_err().is_cancelled());
    assert!(cancelled.is_cancelled());
}

/// JSR-166 ReentrantReadWriteLockTest.testHasQueuedThreads and testGetQueueLength, with waiters for one
/// half and for both, in one process and in two.
fn a_waiter_for_either_half_is_counted(fixture: &Fixture<Write>) {
    type Form = fn(&ReadWriteLock, &CancellationToken) -> Result<(), Error>;
    let write: Form = |lock, cancel| lock.write_lock().lock_interruptibly(cancel).map(drop);
    let read: Form = |lock, cancel| lock.read_lock().lock_interruptibly(cancel).map(drop);
    let (lock, a, b) = (fixture.read_write(), fixture.read_write(), fixture.read_write());
    for (first, second) in [(&a, &a), (&a, &b)] {
        for (one, two) in [(write, write), (read, write), (write, read)] {
            let (cancelled, never) = (CancellationToken::new(), CancellationToken::new());
            let guard = lock.write_lock().lock().unwrap();
            assert_eq!(lock.read_lock().queue_length().unwrap(), 0);
            thread::scope(|scope| {
                let one = scope.spawn(|| one(first, &cancelled));
                queued(lock.write_lock(), 1);
                let two = scope.spawn(|| two(second, &never));
                queued(lock.read_lock(), 2);
                cancelled.cancel();
                assert!(one.join().unwrap().unwrap_err().is_cancelled());
                queued(lock.write_lock(), 1);
                guard.unlock().unwrap();
                two.join().unwrap().unwrap();
                queued(lock.write_lock(), 0);
            });
        }
    }
}
