//! Latches: threads that wait for a count.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

use redis_concurrent::{CancellationToken, Client, CountDownLatch, ErrorKind, Wait};
use redis_concurrent_testkit::{RedisServer, eventually, wait_until};

use crate::conformance::fixture::{Fixture, LATE, NAME, Tried, in_vain};
use crate::conformance::rows::rows;
use crate::server_days::connected;
use crate::support::{LONG, ms};

rows! { one_lock:
    a_count_of_nothing_is_refused
    it_counts_down_to_nothing_and_no_further
    a_waiter_goes_on_with_the_last_count_down
    a_timed_wait_is_true_when_it_was_counted_down_in_time
    a_timed_wait_is_false_in_time_and_not_early
    a_wait_can_be_cancelled
    its_text_costs_no_request
    it_is_set_once
    it_is_deleted_once
    a_wait_ends_when_the_server_dies
    all_clients_go_on_when_another_one_opens_it
}

fn latch<K: Tried>(fixture: &Fixture<K>, count: u64) -> CountDownLatch {
    let latch = fixture.client().count_down_latch(NAME);
    latch.try_set_count(count).unwrap();
    latch
}

/// Ends a row: nothing stays.
fn delete(latch: &CountDownLatch) {
    assert!(latch.delete().unwrap());
}

/// JSR-166 CountDownLatchTest.testConstructor: a count is no negative number here, and not 0.
fn a_count_of_nothing_is_refused<K: Tried>(fixture: &Fixture<K>) {
    let latch = fixture.client().count_down_latch(NAME);
    assert_eq!(latch.try_set_count(0).unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(latch.count().unwrap(), None);
}

/// JSR-166 CountDownLatchTest.testGetCount and testCountDown.
fn it_counts_down_to_nothing_and_no_further<K: Tried>(fixture: &Fixture<K>) {
    let latch = latch(fixture, 2);
    latch.count_down().unwrap();
    assert_eq!(latch.count().unwrap(), Some(1));
    for _ in 0..2 {
        assert_eq!(latch.count_down().unwrap(), 0);
        assert_eq!(latch.count().unwrap(), Some(0));
    }
    delete(&latch);
}

/// JSR-166 CountDownLatchTest.testAwait and testTimedAwait.
fn a_waiter_goes_on_with_the_last_count_down<K: Tried>(fixture: &Fixture<K>) {
    for timed in [false, true] {
        let latch = latch(fixture, 2);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                if timed {
                    assert!(latch.wait_with(LONG).unwrap());
                } else {
                    latch.wait().unwrap();
                }
                assert_eq!(latch.count().unwrap(), Some(0));
            });
            fixture.await_positions(1);
            latch.count_down().unwrap();
            assert_eq!((latch.count().unwrap(), waiter.is_finished()), (Some(1), false));
            latch.count_down().unwrap();
            waiter.join().unwrap();
        });
        delete(&latch);
    }
}

/// Redisson RedissonCountDownLatchTest.testAwaitTimeout (0.5 s and 0.55 s there).
fn a_timed_wait_is_true_when_it_was_counted_down_in_time<K: Tried>(fixture: &Fixture<K>) {
    let (latch, other) = (latch(fixture, 1), fixture.client().count_down_latch(NAME));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| other.wait_with(ms(500) + LATE));
        fixture.await_positions(1);
        thread::sleep(ms(500));
        latch.count_down().unwrap();
        assert!(waiter.join().unwrap().unwrap());
    });
    delete(&latch);
}

/// Redisson RedissonCountDownLatchTest.testAwaitTimeoutFail.
fn a_timed_wait_is_false_in_time_and_not_early<K: Tried>(fixture: &Fixture<K>) {
    let latch = latch(fixture, 1);
    in_vain(ms(500), |limit| latch.wait_with(limit).map(|opened| opened.then_some(())));
    latch.count_down().unwrap();
    delete(&latch);
}

/// JSR-166 CountDownLatchTest.testAwait_Interruptible.
fn a_wait_can_be_cancelled<K: Tried>(fixture: &Fixture<K>) {
    let latch = latch(fixture, 1);
    let cancel = CancellationToken::new();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| latch.wait_with(&cancel));
        fixture.await_positions(1);
        cancel.cancel();
        assert!(waiter.join().unwrap().unwrap_err().is_cancelled());
    });
    fixture.await_positions(0);
    assert!(latch.wait_with(Wait::timeout(LONG).cancelled_by(&cancel)).unwrap_err().is_cancelled());
    assert_eq!(latch.count().unwrap(), Some(1));
    delete(&latch);
}

/// JSR-166 CountDownLatchTest.testToString: the count is told by `count`.
fn its_text_costs_no_request<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let latch = client.count_down_latch(NAME);
    latch.try_set_count(2).unwrap();
    let before = client.request_count();
    for left in (0..2).rev() {
        let text = format!("{latch:?}");
        assert!(text.contains(NAME), "{text}");
        assert_eq!(latch.count_down().unwrap(), left);
    }
    assert_eq!(client.request_count() - before, 2);
    delete(&latch);
}

/// Redisson RedissonCountDownLatchTest.testTrySetCount.
fn it_is_set_once<K: Tried>(fixture: &Fixture<K>) {
    let latch = fixture.client().count_down_latch(NAME);
    assert!(latch.try_set_count(1).unwrap());
    assert!(!latch.try_set_count(2).unwrap());
    assert_eq!(latch.count().unwrap(), Some(1));
    delete(&latch);
}

/// Redisson RedissonCountDownLatchTest.testDelete.
fn it_is_deleted_once<K: Tried>(fixture: &Fixture<K>) {
    let client = fixture.client();
    let latch = latch(fixture, 1);
    assert!(latch.delete().unwrap());
    assert!(!latch.delete().unwrap());
    assert!(!client.count_down_latch("missing").delete().unwrap());
}

/// Curator TestDistributedBarrier.testServerCrash.
fn a_wait_ends_when_the_server_dies<K: Tried>(_: &Fixture<K>) {
    // Once more where one of them heard nothing for its whole time before that, as the machine stood still.
    eventually(2 * LONG, || {
        let server = RedisServer::start().unwrap();
        let limit = ms(1000);
        let builder = || Client::builder().url(&server.url()).waiter_timeout(ms(1200));
        let client = connected(|| builder().command_timeout(limit).unreachable_timeout(limit));
        let (latch, barrier) = (client.count_down_latch(NAME), client.cyclic_barrier("other", 2));
        connected(|| Client::builder().url(&server.url())).count_down_latch(NAME).try_set_count(1).unwrap();
        let both_waited = thread::scope(|scope| {
            let waiters = [scope.spawn(|| latch.wait()), scope.spawn(|| barrier.wait().map(drop))];
            let mut both_wait = false;
            wait_until(LONG, "both wait", || {
                let keys = server.keys().unwrap();
                both_wait = keys.iter().filter(|key| key.ends_with(":queue")).count() == 2;
                both_wait || waiters.iter().any(|waiter| waiter.is_finished())
            });
            server.kill().unwrap();
            let began = Instant::now();
            for waiter in waiters {
                let error = waiter.join().unwrap().unwrap_err();
                assert!(error.is_unavailable(), "{error}");
            }
            // A heartbeat and two requests that go unanswered, at most.
            assert!(began.elapsed() < 4 * limit + LATE, "{:?}", began.elapsed());
            both_wait
        });
        // What it could not take out ends by itself.
        let _ = client.close();
        both_waited.then_some(())
    });
}

/// Curator TestDistributedBarrier.testMultiClient.
fn all_clients_go_on_when_another_one_opens_it<K: Tried>(fixture: &Fixture<K>) {
    let latch = latch(fixture, 1);
    let others = [fixture.client(), fixture.client()];
    let passed = AtomicUsize::new(0);
    thread::scope(|scope| {
        for client in &others {
            scope.spawn(|| {
                client.count_down_latch(NAME).wait().unwrap();
                passed.fetch_add(1, Ordering::SeqCst);
            });
        }
        fixture.await_positions(2);
        assert_eq!(passed.load(Ordering::SeqCst), 0);
        latch.count_down().unwrap();
        wait_until(LONG, "both passed", || passed.load(Ordering::SeqCst) == 2);
    });
    delete(&latch);
}
