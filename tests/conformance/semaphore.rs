//! What other suites check of a semaphore, one caller or two at a time.

use std::ops::Deref;
use std::thread;
use std::time::Instant;

use redis_concurrent::{CancellationToken, ErrorKind, Permit, Semaphore, Wait};
use redis_concurrent_testkit::wait_until;

use crate::conformance::fixture::{Fixture, LATE, NAME, Tried, in_vain};
use crate::conformance::rows::rows;
use crate::support::{LONG, ms};

rows! { one_lock:
    it_has_the_permits_it_was_given
    tries_take_until_none_is_left
    a_timed_try_for_none_is_in_time_and_not_early
    every_form_can_be_cancelled_before_and_while_it_waits
    the_queue_is_as_long_as_there_are_waiters
    draining_takes_what_there_is
    a_number_that_cannot_be_is_refused
    a_try_for_more_than_there_are_takes_nothing
    added_permits_can_be_taken_in_every_form
    its_numbers_are_told_and_its_text_costs_no_request
    a_waiter_for_two_passes_when_there_are_two
    permits_added_to_a_fresh_name_can_be_taken
    permits_are_added_while_all_are_out
    an_acquire_blocks_until_the_release
    a_timed_try_passes_when_enough_are_back
    what_is_taken_and_given_back_is_counted
    permits_of_a_deleted_semaphore_create_nothing
}

/// The semaphore under test. Its permits are deleted with it, so that nothing is left.
pub struct It(Semaphore);

impl It {
    /// One that was never set.
    pub fn fresh<K: Tried>(fixture: &Fixture<K>) -> It {
        It(fixture.client().semaphore(NAME))
    }

    pub fn of<K: Tried>(fixture: &Fixture<K>, permits: u32) -> It {
        let it = It::fresh(fixture);
        it.set_permits(permits).unwrap();
        it
    }
}

impl Deref for It {
    type Target = Semaphore;

    fn deref(&self) -> &Semaphore {
        &self.0
    }
}

impl Drop for It {
    fn drop(&mut self) {
        let deleted = self.0.delete();
        assert!(thread::panicking() || deleted.is_ok(), "{deleted:?}");
    }
}

type Outcome = Result<Option<Permit>, redis_concurrent::Error>;
type Form = fn(&Semaphore, u32, &CancellationToken) -> Outcome;

const CANCELLABLE: [Form; 2] = [
    |it, n, cancel| it.acquire_with(n, cancel),
    |it, n, cancel| it.acquire_with(n, Wait::timeout(LONG).cancelled_by(cancel)),
];

const OTHERS: [Form; 4] = [
    |it, n, _| it.acquire(n).map(Some),
    |it, n, _| it.try_acquire(n),
    |it, n, _| it.acquire_with(n, LONG),
    |it, n, _| it.acquire_with(n, Instant::now() + LONG),
];

#[track_caller]
pub fn queued(semaphore: &Semaphore, n: usize) {
    wait_until(LONG, "so many wait", || semaphore.queue_length().unwrap() == n);
}

/// JSR-166 SemaphoreTest.testConstructor.
fn it_has_the_permits_it_was_given<K: Tried>(fixture: &Fixture<K>) {
    for n in [0, 1, 42] {
        let it = It::of(fixture, n);
        assert_eq!((it.permits().unwrap(), it.available().unwrap()), (Some(n), i64::from(n)));
    }
    let it = It::of(fixture, 1);
    it.add_permits(-43).unwrap();
    assert_eq!(it.available().unwrap(), -42);
}

/// JSR-166 SemaphoreTest.testTryAcquireInSameThread.
fn tries_take_until_none_is_left<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 2);
    let tries: Vec<_> = (0..4).map(|_| it.try_acquire(1).unwrap()).collect();
    assert_eq!(tries.iter().map(Option::is_some).collect::<Vec<_>>(), [true, true, false, false]);
    assert_eq!(it.available().unwrap(), 0);
}

/// JSR-166 SemaphoreTest.testTryAcquire_timeout.
fn a_timed_try_for_none_is_in_time_and_not_early<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 1);
    let _permit = it.acquire(1).unwrap();
    in_vain(ms(300), |limit| it.acquire_with(1, limit));
}

/// JSR-166 SemaphoreTest.testInterruptible_acquire and its fellows.
fn every_form_can_be_cancelled_before_and_while_it_waits<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 2);
    let _one = it.acquire(1).unwrap();
    for form in CANCELLABLE {
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        for n in [1, 2] {
            assert!(form(&it, n, &cancelled).unwrap_err().is_cancelled());
        }
        let cancel = CancellationToken::new();
        thread::scope(|scope| {
            let waits = scope.spawn(|| form(&it, 2, &cancel).map(drop));
            queued(&it, 1);
            cancel.cancel();
            assert!(waits.join().unwrap().unwrap_err().is_cancelled());
        });
        queued(&it, 0);
        assert_eq!(it.available().unwrap(), 1);
    }
}

/// JSR-166 SemaphoreTest.testHasQueuedThreads and testGetQueueLength.
fn the_queue_is_as_long_as_there_are_waiters<K: Tried>(fixture: &Fixture<K>) {
    let (it, other) = (It::of(fixture, 1), fixture.client().semaphore(NAME));
    // Both of one client, and of two.
    for second in [&*it, &other] {
        let permit = it.acquire(1).unwrap();
        assert_eq!(it.queue_length().unwrap(), 0);
        let cancel = CancellationToken::new();
        thread::scope(|scope| {
            let first = scope.spawn(|| it.acquire_with(1, &cancel).map(drop));
            queued(&it, 1);
            let second = scope.spawn(|| second.acquire(1).map(drop));
            queued(&it, 2);
            cancel.cancel();
            assert!(first.join().unwrap().unwrap_err().is_cancelled());
            queued(&it, 1);
            permit.release().unwrap();
            second.join().unwrap().unwrap();
        });
        assert_eq!(it.queue_length().unwrap(), 0);
    }
}

/// JSR-166 SemaphoreTest.testDrainPermits; Redisson RedissonSemaphoreTest.testDrainPermits.
fn draining_takes_what_there_is<K: Tried>(fixture: &Fixture<K>) {
    let it = It::fresh(fixture);
    let drained = || it.drain().unwrap().map(|permit| (permit.permits(), it.available().unwrap()));
    assert_eq!(drained(), None);
    it.set_permits(10).unwrap();
    assert_eq!(drained(), Some((10, 0)));
    let _three = it.acquire(3).unwrap();
    let _seven = it.drain().unwrap().unwrap();
    assert_eq!(_seven.permits(), 7);
    assert_eq!(drained(), None);
}

/// JSR-166 SemaphoreTest.testReleaseIAE and testReducePermitsIAE; Redisson
/// RedissonSemaphoreTest.testZero.
fn a_number_that_cannot_be_is_refused<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 3);
    for n in [0, 1 << 31] {
        for error in [
            it.acquire(n).map(drop).unwrap_err(),
            it.try_acquire(n).map(drop).unwrap_err(),
            it.add_permits(n.into()).unwrap_err(),
            it.add_permits(-i64::from(n)).unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.name()), (ErrorKind::InvalidInput, NAME), "{error}");
        }
    }
    assert_eq!(it.available().unwrap(), 3);
}

/// JSR-166 SemaphoreTest.testTryAcquireNInSameThread.
fn a_try_for_more_than_there_are_takes_nothing<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 2);
    assert_eq!(it.try_acquire(3).map(drop).unwrap_err().kind(), ErrorKind::Refused);
    assert_eq!(it.available().unwrap(), 2);
    let _two = it.try_acquire(2).unwrap().unwrap();
    assert!(it.try_acquire(1).unwrap().is_none());
    assert_eq!(it.available().unwrap(), 0);
}

/// JSR-166 SemaphoreTest.testReleaseAcquireSameThread.
fn added_permits_can_be_taken_in_every_form<K: Tried>(fixture: &Fixture<K>) {
    let (it, never) = (It::of(fixture, 1), CancellationToken::new());
    for form in CANCELLABLE.into_iter().chain(OTHERS) {
        for n in 1..=5 {
            it.add_permits(n.into()).unwrap();
            assert_eq!(it.available().unwrap(), i64::from(n) + 1);
            let permit = form(&it, n, &never).unwrap().unwrap();
            assert_eq!(it.available().unwrap(), 1);
            it.add_permits(-i64::from(n)).unwrap();
            drop(permit);
            assert_eq!(it.available().unwrap(), 1);
        }
    }
}

/// JSR-166 SemaphoreTest.testToString.
fn its_numbers_are_told_and_its_text_costs_no_request<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let it = client.semaphore(NAME);
    for n in [0, 1, 3] {
        it.set_permits(n).unwrap();
        assert_eq!(it.available().unwrap(), i64::from(n));
    }
    it.add_permits(-5).unwrap();
    assert_eq!(it.available().unwrap(), -2);
    let before = client.request_count();
    assert!(format!("{it:?}").contains(NAME), "{it:?}");
    assert_eq!(client.request_count(), before);
    assert!(it.delete().unwrap());
}

/// Redisson RedissonSemaphoreTest.testAcquireAfterAddPermits.
fn a_waiter_for_two_passes_when_there_are_two<K: Tried>(fixture: &Fixture<K>) {
    let (it, other) = (It::of(fixture, 2), fixture.client().semaphore(NAME));
    let _all = it.drain().unwrap().unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| it.acquire(2).map(|permit| permit.permits()));
        // As another process sees it: it has its queue position in Redis.
        queued(&other, 1);
        it.add_permits(1).unwrap();
        assert!(other.try_acquire(1).unwrap().is_none(), "a waiter is not passed");
        assert_eq!((it.available().unwrap(), it.queue_length().unwrap()), (1, 1));
        it.add_permits(1).unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), 2);
    });
}

/// Redisson RedissonSemaphoreTest.testAcquireWithoutSetPermits.
fn permits_added_to_a_fresh_name_can_be_taken<K: Tried>(fixture: &Fixture<K>) {
    let it = It::fresh(fixture);
    it.add_permits(1).unwrap();
    it.add_permits(1).unwrap();
    assert_eq!(it.acquire(2).unwrap().permits(), 2);
}

/// Redisson RedissonSemaphoreTest.testAddPermits.
fn permits_are_added_while_all_are_out<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 10);
    let ten = it.acquire(10).unwrap();
    assert_eq!(it.available().unwrap(), 0);
    it.add_permits(4).unwrap();
    assert_eq!(it.available().unwrap(), 4);
    ten.release().unwrap();
    assert_eq!(it.available().unwrap(), 14);
    let _five = it.acquire(5).unwrap();
    assert_eq!(it.available().unwrap(), 9);
}

/// Redisson RedissonSemaphoreTest.testBlockingAcquire.
fn an_acquire_blocks_until_the_release<K: Tried>(fixture: &Fixture<K>) {
    let (it, other) = (It::of(fixture, 1), fixture.client().semaphore(NAME));
    let permit = it.acquire(1).unwrap();
    thread::scope(|scope| {
        let waits = scope.spawn(|| (other.acquire(1).unwrap(), Instant::now()));
        queued(&it, 1);
        thread::sleep(ms(300));
        let released = Instant::now();
        permit.release().unwrap();
        let (_permit, at) = waits.join().unwrap();
        assert!(at >= released && at < released + LATE);
        assert_eq!(it.available().unwrap(), 0);
    });
}

/// Redisson RedissonSemaphoreTest.testTryNAcquire; RedissonPermitExpirableSemaphoreTest.testTryAcquire.
fn a_timed_try_passes_when_enough_are_back<K: Tried>(fixture: &Fixture<K>) {
    let (it, other) = (It::of(fixture, 4), fixture.client().semaphore(NAME));
    let permits: Vec<_> = (0..2).map(|_| it.acquire(1).unwrap()).collect();
    thread::scope(|scope| {
        let waits = scope.spawn(|| (other.acquire_with(4, LONG).unwrap().unwrap(), Instant::now()));
        queued(&it, 1);
        let mut released = Instant::now();
        for permit in permits {
            thread::sleep(ms(150));
            released = Instant::now();
            permit.release().unwrap();
        }
        let (permit, at) = waits.join().unwrap();
        assert!(at >= released && at < released + LATE);
        assert_eq!((permit.permits(), it.available().unwrap()), (4, 0));
    });
}

/// Redisson RedissonSemaphoreTest.testReleaseAcquire.
fn what_is_taken_and_given_back_is_counted<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 10);
    for n in [1, 5] {
        let permit = it.acquire(n).unwrap();
        assert_eq!(it.available().unwrap(), 10 - i64::from(n));
        permit.release().unwrap();
        assert_eq!(it.available().unwrap(), 10);
    }
}

/// Redisson RedissonSemaphoreTest.testReleaseIfExists.
fn permits_of_a_deleted_semaphore_create_nothing<K: Tried>(fixture: &Fixture<K>) {
    let it = It::of(fixture, 1);
    assert!(it.acquire(1).unwrap().release().is_ok());
    let permit = it.acquire(1).unwrap();
    assert!(it.delete().unwrap());
    assert!(permit.release().unwrap_err().is_lease_lost());
    assert_eq!(it.permits().unwrap(), None);
    assert!(!it.delete().unwrap());
}
